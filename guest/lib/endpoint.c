// SPDX-License-Identifier: Apache-2.0
/*
 * An endpoint as one line:
 *
 *   vrnic1 qpn=0x12 psn=0x3456 gid=<32 hex digits> mac=<12 hex digits> rkey=0x1 addr=0x7f00 len=0x1000
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libvrnic.h"

#define PREFIX "vrnic1"

static void format_bytes(const uint8_t *bytes, size_t size, char *text)
{
	for (size_t i = 0; i < size; i++)
		sprintf(text + 2 * i, "%02x", bytes[i]);
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

static bool parse_bytes(const char *text, uint8_t *bytes, size_t size)
{
	if (strlen(text) != 2 * size)
		return false;
	for (size_t i = 0; i < size; i++) {
		int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		bytes[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

static bool parse_number(const char *text, uint64_t limit, uint64_t *value)
{
	char *end;

	if (strncmp(text, "0x", 2) || digit(text[2]) < 0)
		return false;
	errno = 0;
	*value = strtoull(text, &end, 16);
	return !errno && !*end && *value <= limit;
}

void vrnic_endpoint_format(const struct vrnic_endpoint *endpoint, char text[VRNIC_ENDPOINT_TEXT])
{
	char gid[33], mac[13];

	format_bytes(endpoint->gid, sizeof(endpoint->gid), gid);
	format_bytes(endpoint->mac, sizeof(endpoint->mac), mac);
	snprintf(text, VRNIC_ENDPOINT_TEXT,
		 PREFIX " qpn=0x%" PRIx32 " psn=0x%" PRIx32 " gid=%s mac=%s rkey=0x%" PRIx32
		 " addr=0x%" PRIx64 " len=0x%" PRIx64,
		 endpoint->qpn, endpoint->psn, gid, mac, endpoint->rkey, endpoint->address,
		 endpoint->length);
}

enum field { QPN, PSN, GID, MAC, RKEY, ADDR, LEN, FIELDS };

static const char *const names[FIELDS] = { "qpn", "psn", "gid", "mac", "rkey", "addr", "len" };

static bool parse_field(enum field field, const char *text, struct vrnic_endpoint *endpoint)
{
	static const uint64_t limits[FIELDS] = {
		[QPN] = 0xffffff, [PSN] = 0xffffff, [RKEY] = UINT32_MAX, [ADDR] = UINT64_MAX, [LEN] = UINT64_MAX,
	};
	uint64_t value;

	if (field == GID)
		return parse_bytes(text, endpoint->gid, sizeof(endpoint->gid));
	if (field == MAC)
		return parse_bytes(text, endpoint->mac, sizeof(endpoint->mac));
	if (!parse_number(text, limits[field], &value))
		return false;
	switch (field) {
	case QPN:
		endpoint->qpn = (uint32_t)value;
		return true;
	case PSN:
		endpoint->psn = (uint32_t)value;
		return true;
	case RKEY:
		endpoint->rkey = (uint32_t)value;
		return true;
	case ADDR:
		endpoint->address = value;
		return true;
	default:
		endpoint->length = value;
		return true;
	}
}

int vrnic_endpoint_parse(const char *text, struct vrnic_endpoint *endpoint)
{
	char copy[VRNIC_ENDPOINT_TEXT], *state, *word;
	unsigned int seen = 0;

	if (strlen(text) >= sizeof(copy))
		return -EINVAL;
	strcpy(copy, text);
	memset(endpoint, 0, sizeof(*endpoint));
	word = strtok_r(copy, " ", &state);
	if (!word || strcmp(word, PREFIX))
		return -EINVAL;
	while ((word = strtok_r(NULL, " ", &state))) {
		char *value = strchr(word, '=');
		int field;

		if (!value)
			return -EINVAL;
		*value++ = '\0';
		for (field = 0; field < FIELDS && strcmp(word, names[field]); field++)
			;
		if (field == FIELDS || seen & 1u << field || !parse_field(field, value, endpoint))
			return -EINVAL;
		seen |= 1u << field;
	}
	return seen == (1u << FIELDS) - 1 ? 0 : -EINVAL;
}
