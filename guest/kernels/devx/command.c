// SPDX-License-Identifier: Apache-2.0
/* Device commands. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "command.h"

void devx_set(uint8_t *command, struct devx_field field, uint64_t value)
{
	for (unsigned int bit = 0; bit < field.width; bit++) {
		unsigned int place = field.offset + field.width - 1 - bit;
		uint8_t mask = (uint8_t)(0x80 >> place % 8);

		if (value >> bit & 1)
			command[place / 8] |= mask;
		else
			command[place / 8] &= (uint8_t)~mask;
	}
}

void devx_set_bytes(uint8_t *command, struct devx_field field, const uint8_t *bytes)
{
	memcpy(command + field.offset / 8, bytes, field.width / 8);
}

uint64_t devx_get(const uint8_t *reply, struct devx_field field)
{
	uint64_t value = 0;

	for (unsigned int place = field.offset; place < field.offset + field.width; place++)
		value = value << 1 | (reply[place / 8] >> (7 - place % 8) & 1);
	return value;
}

int devx_fail(struct devx *nic, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(nic->error, sizeof(nic->error), format, arguments);
	va_end(arguments);
	return -1;
}

int devx_refused(struct devx *nic, const char *what, const uint8_t *reply)
{
	uint32_t status = (uint32_t)devx_get(reply, DEVX_STATUS);

	if (!status)
		return devx_fail(nic, "%s: %s", what, strerror(errno));
	return devx_fail(nic, "%s: the device refused it with status %#x, syndrome %#x", what, status,
			 (uint32_t)devx_get(reply, DEVX_SYNDROME));
}
