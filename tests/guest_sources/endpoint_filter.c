// SPDX-License-Identifier: Apache-2.0
/* Reads endpoints, one a line; prints each as libvrnic writes it, or "invalid". */
#include <stdio.h>
#include <string.h>

#include "libvrnic.h"

int main(void)
{
	struct vrnic_endpoint endpoint;
	char line[1024], text[VRNIC_ENDPOINT_TEXT];

	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		if (vrnic_endpoint_parse(line, &endpoint)) {
			puts("invalid");
			continue;
		}
		vrnic_endpoint_format(&endpoint, text);
		puts(text);
	}
	return 0;
}
