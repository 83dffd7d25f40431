/* What happens to a process whose model file shrinks or fails while it is mapped. */
#ifndef RF_CLI_LOST_MODEL_FILE_H
#define RF_CLI_LOST_MODEL_FILE_H

/* From now on such a process prints this line (copied) on standard error and exits with this status. Any other SIGBUS
 * still goes to the handler that was installed when this was first called. Threads: one at a time. */
void catch_lost_model_file(const char *line, int exit_code);

#endif
