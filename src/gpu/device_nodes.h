/* The kernel's device nodes of AMD GPUs: whether this user may open them. */
#ifndef RF_GPU_DEVICE_NODES_H
#define RF_GPU_DEVICE_NODES_H

#include "base/base.h"

/* dev: "/dev", or a folder made for a test. Where kfd or every dri/renderD* is missing or may not be opened, it
 * returns false and gives one line: which node, which group owns it, and what to do. */
bool rf_device_nodes_usable(const char *dev, char *why, size_t size);

#endif
