/* The language against jinja2, by compare.py: templates of our own, random ones, and the real models' templates with
 * their known renderings where RF_TEST_DATA, or ../shared/data beside the checkout, has them. */
#include <rocmforge/test.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs compare.py; 77 is a skip, and anything but 0 fails with what it printed. */
static void compare(const char *arguments) {
    char command[2048], output[8192];
    if (access("/usr/bin/python3", X_OK) != 0) RF_SKIP("there is no /usr/bin/python3");
    snprintf(command, sizeof command, "/usr/bin/python3 -W ignore '%s/compare.py' '%s' %s 2>&1", FOLDER, RENDERER,
             arguments);
    FILE *pipe = popen(command, "r");
    RF_ASSERT(pipe != NULL);
    size_t bytes = fread(output, 1, sizeof output - 1, pipe);
    output[bytes] = 0;
    while (fgetc(pipe) != EOF) {
    }
    int status = pclose(pipe);
    RF_ASSERT(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) RF_SKIP("%s", output);
    if (WEXITSTATUS(status)) RF_FAIL("%s: %s", arguments, output);
    RF_NOTE("%s", output);
}

RF_TEST(template_compare, our_own_templates) {
    compare("'" FOLDER "/templates'");
}

RF_TEST(template_compare, random_templates, .timeout_ms = 120000) {
    compare("--random 300 1");
}

RF_TEST(template_compare, many_random_templates, .tags = "slow", .timeout_ms = 3600000) {
    compare("--random 20000 1000");
}

RF_TEST(template_compare, templates_of_real_models, .timeout_ms = 120000) {
    const char *folders[] = {getenv("RF_TEST_DATA"), SHARED_DATA};
    char path[1024];
    for (size_t i = 0; i < 2; i++) {
        if (!folders[i] || !folders[i][0]) continue;
        snprintf(path, sizeof path, "%s/templates/expected.json", folders[i]);
        if (access(path, R_OK) != 0) continue;
        snprintf(path, sizeof path, "--expected '%s/templates'", folders[i]);
        compare(path);
        return;
    }
    RF_SKIP("neither RF_TEST_DATA nor ../shared/data has templates/expected.json");
}
