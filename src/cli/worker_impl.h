/* What a command and its worker agree on; for the files that worker.h lists. */
#ifndef RF_CLI_WORKER_IMPL_H
#define RF_CLI_WORKER_IMPL_H

/* In the environment of a worker and of all that its driver starts: the process id of its command; 0: not known. */
#define WORKER_MARK "ROCMFORGE_WORKER"
/* The channel's descriptor when a worker starts. Low, because the limit on descriptors may be low. */
enum { WORKER_FD = 9 };

#endif
