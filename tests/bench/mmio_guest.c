// SPDX-License-Identifier: Apache-2.0
/*
 * What a doorbell costs in the guest. Runs as root in the guest, without a driver: it maps BAR2 of each device
 * through sysfs and takes turns between them, so that both see the same state of the machine.
 *
 *   mmio_guest STORES READS ROUNDS DEVICE...        DEVICE is a PCI device id in hexadecimal
 *
 * For each round and device one line: device, then nanoseconds per operation
 *
 *   posted     8-byte stores as they return
 *   sustained  the same stores up to the answer to a read behind them, so until the server has taken all
 *   read       8-byte reads one after the other
 *
 * and last how many stores the device counted. Ends with status 1 when a store got lost.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SYSFS "/sys/bus/pci/devices"
#define BAR_SIZE 65536
#define DEVICES_MAX 8
#define VENDOR_ID 0x7672

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

static unsigned long read_id(const char *slot, const char *name)
{
	char path[512];
	unsigned long id = 0;
	FILE *file;

	snprintf(path, sizeof(path), SYSFS "/%s/%s", slot, name);
	file = fopen(path, "r");
	if (file) {
		if (fscanf(file, "%lx", &id) != 1)
			id = 0;
		fclose(file);
	}
	return id;
}

static volatile uint64_t *map_slot(const char *slot)
{
	char path[512];
	void *bar;
	int fd;

	snprintf(path, sizeof(path), SYSFS "/%s/enable", slot);
	fd = open(path, O_WRONLY);
	if (fd < 0 || write(fd, "1", 1) != 1) {
		perror(path);
		return NULL;
	}
	close(fd);
	snprintf(path, sizeof(path), SYSFS "/%s/resource2", slot);
	fd = open(path, O_RDWR | O_SYNC);
	if (fd < 0) {
		perror(path);
		return NULL;
	}
	bar = mmap(NULL, BAR_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (bar == MAP_FAILED) {
		perror(path);
		return NULL;
	}
	return bar;
}

static volatile uint64_t *map_device(unsigned long device)
{
	volatile uint64_t *bar = NULL;
	struct dirent *entry;
	DIR *folder = opendir(SYSFS);

	if (!folder) {
		perror(SYSFS);
		return NULL;
	}
	while (!bar && (entry = readdir(folder)))
		if (entry->d_name[0] != '.' && read_id(entry->d_name, "vendor") == VENDOR_ID &&
		    read_id(entry->d_name, "device") == device)
			bar = map_slot(entry->d_name);
	closedir(folder);
	if (!bar)
		fprintf(stderr, "mmio_guest: no device %04x:%04lx\n", VENDOR_ID, device);
	return bar;
}

static int measure(unsigned long device, volatile uint64_t *bar, long stores, long reads)
{
	uint64_t before = bar[0];
	double start, returned, taken, done;
	uint64_t counted;

	start = now_ns();
	for (long i = 0; i < stores; i++)
		bar[1 + i % 8] = (uint64_t)i;
	returned = now_ns();
	counted = bar[0] - before;
	taken = now_ns();
	for (long i = 0; i < reads; i++)
		(void)bar[0];
	done = now_ns();
	printf("%lx %.1f %.1f %.1f %" PRIu64 "\n", device, (returned - start) / (double)stores,
	       (taken - start) / (double)stores, (done - taken) / (double)reads, counted);
	return counted == (uint64_t)stores ? 0 : 1;
}

int main(int argc, char **argv)
{
	volatile uint64_t *bar[DEVICES_MAX];
	unsigned long device[DEVICES_MAX];
	long stores, reads, rounds;
	int count = argc - 4;
	int lost = 0;

	if (count < 1 || count > DEVICES_MAX) {
		fprintf(stderr, "usage: %s STORES READS ROUNDS DEVICE...\n", argv[0]);
		return 2;
	}
	stores = strtol(argv[1], NULL, 10);
	reads = strtol(argv[2], NULL, 10);
	rounds = strtol(argv[3], NULL, 10);
	if (stores < 1 || reads < 1 || rounds < 1) {
		fprintf(stderr, "%s: counts must be positive\n", argv[0]);
		return 2;
	}
	for (int i = 0; i < count; i++) {
		device[i] = strtoul(argv[4 + i], NULL, 16);
		bar[i] = map_device(device[i]);
		if (!bar[i])
			return 1;
	}
	for (long round = 0; round < rounds; round++)
		for (int i = 0; i < count; i++)
			lost |= measure(device[i], bar[i], stores, reads);
	if (lost)
		fprintf(stderr, "%s: a device did not count every store\n", argv[0]);
	return lost;
}
