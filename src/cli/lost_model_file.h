/* What becomes of a process whose model file was cut while it is in use. */
#ifndef RF_CLI_LOST_MODEL_FILE_H
#define RF_CLI_LOST_MODEL_FILE_H

/* From now on: this line (copied) on standard error, and this exit status. Any other SIGBUS stays whose it was when
 * this was first called. Threads: one at a time. */
void catch_lost_model_file(const char *line, int exit_code);

#endif
