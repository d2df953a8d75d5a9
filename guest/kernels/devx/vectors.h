/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVX_VECTORS_H
#define DEVX_VECTORS_H

/* One JSON line of hexadecimal strings. */
void print_vectors(void);

#endif /* DEVX_VECTORS_H */
