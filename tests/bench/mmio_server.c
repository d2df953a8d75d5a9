// SPDX-License-Identifier: Apache-2.0
/*
 * The least a C server on libvfio-user has to do: BAR2 takes doorbells and counts them, a read gives the count.
 * The yardstick of `vrnic bench mmio`; emu/bench/mmio_server.py is the same device in Python.
 *
 *   mmio_server SOCKET      says "ready" on standard output, serves one client, ends with it
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <libvfio-user.h>

#define VENDOR_ID 0x7672
#define DEVICE_ID 0x6eb1
#define BAR_SIZE 65536

static uint64_t doorbells;

static ssize_t access_bar(vfu_ctx_t *ctx, char *buf, size_t count, loff_t offset, bool is_write)
{
	(void)ctx;
	(void)offset;
	if (is_write)
		doorbells++;
	else
		memcpy(buf, &doorbells, count < sizeof(doorbells) ? count : sizeof(doorbells));
	return (ssize_t)count;
}

static void dma_changed(vfu_ctx_t *ctx, vfu_dma_info_t *info)
{
	(void)ctx;
	(void)info;
}

static int setup_dma(vfu_ctx_t *ctx)
{
#if VRNIC_VFU_API >= 2
	return vfu_setup_device_dma(ctx, LIBVFIO_USER_MAX_DMA_REGIONS, dma_changed, dma_changed);
#else
	return vfu_setup_device_dma(ctx, dma_changed, dma_changed);
#endif
}

int main(int argc, char **argv)
{
	vfu_ctx_t *ctx;

	if (argc != 2) {
		fprintf(stderr, "usage: %s SOCKET\n", argv[0]);
		return 2;
	}
	ctx = vfu_create_ctx(VFU_TRANS_SOCK, argv[1], 0, NULL, VFU_DEV_TYPE_PCI);
	if (!ctx || vfu_pci_init(ctx, VFU_PCI_TYPE_EXPRESS, PCI_HEADER_TYPE_NORMAL, 0) < 0) {
		perror("mmio_server: create");
		return 1;
	}
	vfu_pci_set_id(ctx, VENDOR_ID, DEVICE_ID, VENDOR_ID, 1);
	vfu_pci_set_class(ctx, 0xff, 0, 0);
	if (vfu_setup_region(ctx, VFU_PCI_DEV_BAR2_REGION_IDX, BAR_SIZE, access_bar,
			     VFU_REGION_FLAG_RW | VFU_REGION_FLAG_MEM, NULL, 0, -1, 0) < 0 ||
	    setup_dma(ctx) < 0 || vfu_realize_ctx(ctx) < 0) {
		perror("mmio_server: setup");
		return 1;
	}
	puts("ready");
	fflush(stdout);
	if (vfu_attach_ctx(ctx) < 0) {
		perror("mmio_server: attach");
		return 1;
	}
	vfu_run_ctx(ctx);
	vfu_destroy_ctx(ctx);
	return 0;
}
