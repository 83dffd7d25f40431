/* What the tests of the commands that run a model share: the command as a user starts it, in a folder of its own. */
#ifndef RUN_TESTING_H
#define RUN_TESTING_H

#include <rocmforge/test.h>

#include "../infer/infer_testing.h"

#define ANSWER "Grün 🌍!"
/* This process's folder. It has models: model.gguf goes on after "?" with ANSWER and ends; chat.gguf has ChatML's
 * tokens and answers "yes"; endless.gguf says "dededede…" after "?", and in a chat too; none.gguf has no vocabulary;
 * text.gguf is no model, cut.gguf a part of one. */
const char *command_folder(void);

/* Of the last one that ended. */
extern char command_output[1 << 20], command_errors[1 << 20];
extern size_t command_output_bytes;

/* In the folder, with settings such as "RF_DRIVER=sim" and none of the tests' own; arguments are for a shell and may
 * redirect. Standard error is kept too, unless they send it elsewhere. The exit status. */
int command_run(const char *environment, const char *arguments);
void command_expect(const char *environment, const char *arguments, const char *text);
/* Nothing but one line on standard error. */
void command_expect_one_line(const char *environment, const char *arguments, int code, const char *part);

/* Nothing that was started in the folder runs any more; waits a little for what is about to end. */
void command_expect_nothing_left(void);

/* One that is spoken to: in a process group of its own, as a shell would. */
struct process {
    pid_t pid;
    int in, out;
    bool line_ended; /* the last byte that was read */
};
struct process process_start(const char *const *arguments);
/* Reads until 'count' bytes came, or a line's end where count is 0; so many. */
size_t process_hear(struct process *process, size_t count);
/* Reads a byte; false: none came in that time. */
bool process_hear_some(struct process *process, int timeout_ms);
/* The command's worker, behind its keeper. Skips the test where the kernel does not tell. */
pid_t process_worker(const struct process *process);
/* Closes both ends and waits; as waitpid has it. */
int process_end(struct process *process);

#endif
