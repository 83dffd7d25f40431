/* What the commands do not survive yet. It is meant to be empty: when it is, this file can go. */
#ifndef KNOWN_DEFECTS_H
#define KNOWN_DEFECTS_H

#include "hostile_command.h"

#include <stdio.h>
#include <string.h>

/* Attacks that the commands do not survive yet, with the defect that is to blame. An attack in this list is not run.
 * A defect that is mended leaves the list. commands: labels with a space after each; "" means all.
 * what may end with a star. */
static const struct known_defect {
    const char *where, *what, *commands, *defect;
} known_defects[] = {
#define STATUS_DEFECT "what a worker's exit status is becomes the command's, whoever ended the worker"
    {"worker", "exit/0", "bench check logits demo ", STATUS_DEFECT},
    {"worker", "quick-exit/0", "bench check logits demo ", STATUS_DEFECT},
    {"worker", "exit/3", "bench check logits demo ", STATUS_DEFECT},
    {"worker", "quick-exit/77", "bench check logits demo ", STATUS_DEFECT},
    {"worker", "close", "bench check logits demo ", STATUS_DEFECT ", and the worker's own line is lost"},
#define DEADLINE_DEFECT "there is no deadline, or one of an hour, for a worker that no longer does anything"
    {"worker", "hang", "bench check logits demo info ", DEADLINE_DEFECT},
    {"worker", "stop", "bench check logits demo info ", DEADLINE_DEFECT},
    {"worker", "exit-handler", "bench check logits demo info ", DEADLINE_DEFECT},
    {"worker", "print", "bench check doctor info ", "what a driver prints comes into the command's JSON"},
    {"worker", "daemon", "", "a process that a driver leaves behind outlives the command"},
    {"worker", "signal/parent/TERM", "", "a driver can end its worker's parent, the command"},
    {"worker", "signal/parent/KILL", "", "a driver can end its worker's parent, the command"},
    {"worker", "signal-hang/command/*", "check ", "the worker of check goes on when its command is dead"},
    {"probe", "daemon", "", "a process that a driver leaves behind outlives the command"},
    {"probe", "signal/parent/TERM", "doctor info selftest ", "a driver can end the probe's parent, the command"},
    {"worker", "round", "logits ", "a rounding mode that a driver sets stays, and changes the results"},
};

static bool is_known(const struct hostile_command *command, const char *where, const char *what) {
    char word[32];
    snprintf(word, sizeof word, "%s ", command->label);
    for (size_t i = 0; i < RF_COUNT(known_defects); i++) {
        const struct known_defect *known = &known_defects[i];
        size_t length = strcspn(known->what, "*");
        if (strcmp(known->where, where) || strncmp(known->what, what, length)) continue;
        if (!known->what[length] && what[length]) continue;
        if (!known->commands[0] || strstr(known->commands, word)) return true;
    }
    return false;
}

#endif
