/* SPDX-License-Identifier: Apache-2.0 */
/* How this library makes a call and explains its failure; not for its users. */
#ifndef LIBVRNIC_CALL_H
#define LIBVRNIC_CALL_H

#include "libvrnic.h"

/* Keep one sentence in @nic and return @ret. */
__attribute__((format(printf, 3, 4))) int vrnic_fail(struct vrnic *nic, int ret, const char *format, ...);

/* ioctl() @request, named @what in the sentence. @verdict is in @argument, or NULL. */
int vrnic_call(struct vrnic *nic, unsigned long request, void *argument,
	       const struct vrnic_verdict *verdict, const char *what);

#endif /* LIBVRNIC_CALL_H */
