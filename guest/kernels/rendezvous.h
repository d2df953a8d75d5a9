/* SPDX-License-Identifier: Apache-2.0 */
/* Lines to and from the peer, carried by whoever started both programs. */
#ifndef KERNELS_RENDEZVOUS_H
#define KERNELS_RENDEZVOUS_H

#include "libvrnic.h"

/* Print ENDPOINT, read PEER. 0, or -1 with a sentence in rendezvous_error. */
int rendezvous_meet(const struct vrnic_endpoint *self, struct vrnic_endpoint *peer, double timeout);

/* Print SYNC @number, read the peer's. */
int rendezvous_sync(unsigned int number, double timeout);

extern char rendezvous_error[512];

#endif /* KERNELS_RENDEZVOUS_H */
