/* What the simulated driver's own tests share: a configuration, a module, child processes.
 *
 * The driver reads RFSIM once per process and is never closed, so each test is a process of its own (as the harness
 * runs them), and whatever must die does so in a child forked before the first driver call. */
#ifndef RF_TESTS_SIM_TESTING_H
#define RF_TESTS_SIM_TESTING_H

#include <rocmforge/test.h>

#include "sim/hip_abi.h"
#include "sim/rfsim.h"

#define MIB ((size_t)1 << 20)

/* Sets RFSIM to the settings, with the tests' kernel library added, and initialises the driver. */
void sim_begin(const char *settings);
/* The same without hipInit. */
void sim_configure(const char *settings);

/* The tests' code object for an architecture ("gfx1100", "gfx942"); owned by the process. */
const void *sim_image(const char *arch);
/* A function of that code object on the current device, loaded on first use. */
hipFunction_t sim_function(const char *arch, const char *name);
/* One-dimensional. */
hipError_t sim_launch(hipFunction_t function, unsigned blocks, unsigned threads, hipStream_t stream, void **args);
hipStream_t sim_stream(void);
/* Polls until the stream is idle; the code that ended it. */
int sim_finish(hipStream_t stream);
size_t sim_free_bytes(void);

/* Runs body in a forked child with those settings; gives its wait status. A child that has not ended after 30 s is
 * killed by SIGALRM. In the child a failed SIM_NEED ends it with status 101. */
int sim_child(const char *settings, void (*body)(void));
/* Fails the test unless the child exited with the status, or died of the signal. */
void sim_expect_exit(int wait_status, int status);
void sim_expect_signal(int wait_status, int signal_number);

#define SIM_NEED(condition) ((condition) ? (void)0 : sim_child_fail(__FILE__, __LINE__, #condition))
void sim_child_fail(const char *file, int line, const char *what) __attribute__((noreturn));

#endif
