/* What the files of the driver-conformance program share: the driver under test, a device with what most questions
 * need, and how a question is answered. */
#ifndef DRIVER_CONFORMANCE_H
#define DRIVER_CONFORMANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPIN_NS UINT64_C(300000000)
#define MIB ((size_t)1 << 20)

/* The entry points, whichever driver it is. */
struct conformance_driver {
    bool cuda;
    const char *library;
    char *image; /* PTX text or a code object */
    int (*init)(unsigned);
    int (*device_count)(int *);
    int (*device_get)(int *, int);
    int (*attribute)(int *, int, int);
    int (*mem_info)(size_t *, size_t *);
    int (*mem_alloc)(void **, size_t);
    int (*mem_free)(void *);
    int (*host_alloc)(void **, size_t, unsigned);
    int (*host_free)(void *);
    int (*to_device)(void *, const void *, size_t, void *);
    int (*from_device)(void *, void *, size_t, void *);
    int (*on_device)(void *, void *, size_t, void *);
    int (*fill)(void *, unsigned char, size_t, void *);
    int (*priorities)(int *, int *);
    int (*stream_create)(void **, unsigned, int);
    int (*stream_destroy)(void *);
    int (*stream_wait)(void *, void *, unsigned);
    int (*stream_query)(void *);
    int (*event_create)(void **, unsigned);
    int (*event_destroy)(void *);
    int (*event_record)(void *, void *);
    int (*event_query)(void *);
    int (*event_elapsed)(float *, void *, void *);
    int (*module_load)(void **, const void *);
    int (*module_unload)(void *);
    int (*function)(void **, void *, const char *);
    int (*function_attribute)(int *, int, void *);
    int (*function_set_attribute)(void *, int, int);
    int (*capture_begin)(void *, int);
    int (*capture_end)(void *, void **);
    int (*is_capturing)(void *, int *);
    int (*graph_instantiate)(void **, void *, unsigned long long);
    int (*graph_launch)(void *, void *);
    int (*graph_exec_destroy)(void *);
    int (*graph_destroy)(void *);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                  void **);
    /* one of the two pairs */
    int (*set_device)(int);
    int (*get_device)(int *);
    int (*context_retain)(void **, int);
    int (*context_set)(void *);
    int (*context_get)(void **);
    void *context;
};
extern struct conformance_driver driver;

struct conformance_device {
    void *module, *spin, *write, *increment, *illegal;
    void *busy, *other; /* streams, neither blocks the default one */
    void *spin_done;    /* event */
    void *memory;       /* 1 MiB of device memory */
    uint32_t *pinned;   /* 1 MiB */
};
extern struct conformance_device on;

void answer(const char *question, const char *format, ...) __attribute__((format(printf, 2, 3)));
void answer_yes(const char *question, bool yes);
void answer_code(const char *question, int code);
/* Ends the group where a call fails that no question is about. */
void must(int code, const char *what);
#define MUST(call) must(call, #call)

int make_current(void);
void set_up(void);
int launch_write(void *memory, uint32_t value, uint32_t count, void *stream);
int launch_increment(void *memory, uint32_t count, void *stream);
/* Keeps the stream 'busy' busy; spin_done tells how long. */
void begin_spin(void);
bool spin_runs(void);
/* Waits for a stream by asking; the code that ended it. */
int finish(void *stream);
void end_spin(void);

/* "yes": the call did not return while the spin ran. */
#define BLOCKS(question, call)                                                                                       \
    do {                                                                                                             \
        begin_spin();                                                                                                \
        int code_ = (call);                                                                                          \
        bool blocked_ = !spin_runs();                                                                                \
        end_spin();                                                                                                  \
        if (code_)                                                                                                   \
            answer_code(question, code_);                                                                            \
        else                                                                                                         \
            answer_yes(question, blocked_);                                                                          \
    } while (0)

/* Groups of questions in files of their own. */
void ask_capture(void);
void ask_graphs(void);

#endif
