/* SPDX-License-Identifier: Apache-2.0 */
/* Device commands: fields in and out, errors as sentences. */
#ifndef DEVX_COMMAND_H
#define DEVX_COMMAND_H

#include "devx.h"
#include "fields.h"

#define DEVX_COMMAND_BYTES (0x880 / 8)

/* Up to 64 bits; bit 0 of the structure is the highest of its first byte. */
void devx_set(uint8_t *command, struct devx_field field, uint64_t value);
void devx_set_bytes(uint8_t *command, struct devx_field field, const uint8_t *bytes);
uint64_t devx_get(const uint8_t *reply, struct devx_field field);
__attribute__((format(printf, 2, 3))) int devx_fail(struct devx *nic, const char *format, ...);
/* After a command failed: what errno and @reply say of it. */
int devx_refused(struct devx *nic, const char *what, const uint8_t *reply);

#endif /* DEVX_COMMAND_H */
