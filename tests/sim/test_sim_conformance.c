/* Runs driver_conformance on the simulated driver against a real driver's recorded answers. */
#include <rocmforge/test.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

RF_TEST(sim_conformance, answers_as_a_real_driver_does, .timeout_ms = 1200000) {
#ifdef SIM_TEST_SANITIZED
    RF_SKIP("one of the questions is what an illegal address does, and a sanitizer would end the program");
#endif
    setenv("RFSIM", "devices=2,kernels=" SIM_TEST_KERNELS, 1);
    pid_t child = fork();
    RF_ASSERT(child >= 0);
    if (child == 0) {
        execl(SIM_CONFORMANCE, SIM_CONFORMANCE, "--driver", "hip", "--library", SIM_DRIVER, "--image",
              SIM_TEST_IMAGES "/sim_kernels.gfx1100.hsaco", "--compare", SIM_CONFORMANCE_EXPECTED, (char *)NULL);
        _exit(126);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    RF_ASSERT(WIFEXITED(status));
    RF_ASSERT_INT(WEXITSTATUS(status), 0);
}
