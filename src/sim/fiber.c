/* Fibers: the threads of a block take turns on one operating system thread.
 *
 * A switch saves the registers that a callee must preserve by the calling convention, and nothing else: about ten
 * instructions. Address sanitizer is told of every switch. Thread sanitizer is not: it sees each stream, with all its
 * lanes, as one thread. */
#include "sim/sim.h"

#include <pthread.h>
#include <string.h>

extern void __sanitizer_start_switch_fiber(void **fake_stack, const void *bottom, size_t bytes) __attribute__((weak));
extern void __sanitizer_finish_switch_fiber(void *fake_stack, const void **bottom, size_t *bytes)
    __attribute__((weak));

#if !SIM_FIBERS_BY_UCONTEXT

void rfsim_switch(void **save, void *load) __attribute__((visibility("hidden")));
void rfsim_start(void) __attribute__((visibility("hidden")));

#if defined(__x86_64__)
__asm__(".text\n"
        ".hidden rfsim_switch\n"
        ".globl rfsim_switch\n"
        ".type rfsim_switch, @function\n"
        "rfsim_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size rfsim_switch, .-rfsim_switch\n"
        /* A fresh fiber: r12 is the function, r13 its argument. The stack is aligned as before a call. */
        ".hidden rfsim_start\n"
        ".globl rfsim_start\n"
        ".type rfsim_start, @function\n"
        "rfsim_start:\n"
        "    movq %r13, %rdi\n"
        "    xorl %ebp, %ebp\n"
        "    callq *%r12\n"
        "    ud2\n"
        ".size rfsim_start, .-rfsim_start\n");

static void *prepare(char *top, void (*entry)(void *), void *user) {
    void **stack = (void **)((uintptr_t)top & ~(uintptr_t)15);
    *--stack = NULL;
    *--stack = NULL;                /* keeps the alignment: rsp is a multiple of 16 when rfsim_start begins */
    *--stack = (void *)rfsim_start; /* popped by ret */
    *--stack = NULL;                /* rbp */
    *--stack = NULL;                /* rbx */
    *--stack = (void *)entry;       /* r12 */
    *--stack = user;                /* r13 */
    *--stack = NULL;                /* r14 */
    *--stack = NULL;                /* r15 */
    return stack;
}
#else
__asm__(".text\n"
        ".hidden rfsim_switch\n"
        ".globl rfsim_switch\n"
        ".type rfsim_switch, %function\n"
        "rfsim_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size rfsim_switch, .-rfsim_switch\n"
        /* A fresh fiber: x19 is the function, x20 its argument. */
        ".hidden rfsim_start\n"
        ".globl rfsim_start\n"
        ".type rfsim_start, %function\n"
        "rfsim_start:\n"
        "    mov x0, x20\n"
        "    blr x19\n"
        "    brk #1\n"
        ".size rfsim_start, .-rfsim_start\n");

static void *prepare(char *top, void (*entry)(void *), void *user) {
    void **stack = (void **)(((uintptr_t)top & ~(uintptr_t)15) - 160);
    memset(stack, 0, 160);
    stack[0] = (void *)entry;
    stack[1] = user;
    stack[11] = (void *)rfsim_start; /* x30 */
    return stack;
}
#endif

bool sim_fiber_init(struct sim_fiber *fiber, char *stack, size_t bytes, void (*entry)(void *user), void *user) {
    fiber->stack = stack;
    fiber->stack_bytes = bytes;
    fiber->fake_stack = NULL;
    fiber->context = prepare(stack + bytes, entry, user);
    return true;
}

static void swap(struct sim_fiber *from, struct sim_fiber *to) {
    rfsim_switch(&from->context, to->context);
}

#else
#include <stdlib.h>
#include <ucontext.h>

static void start(unsigned entry_low, unsigned entry_high, unsigned user_low, unsigned user_high) {
    void (*entry)(void *) = (void (*)(void *))(((uintptr_t)entry_high << 16 << 16) | entry_low);
    entry((void *)(((uintptr_t)user_high << 16 << 16) | user_low));
}

bool sim_fiber_init(struct sim_fiber *fiber, char *stack, size_t bytes, void (*entry)(void *user), void *user) {
    ucontext_t *context = fiber->context ? fiber->context : malloc(sizeof *context);
    if (!context) return false;
    fiber->stack = stack;
    fiber->stack_bytes = bytes;
    fiber->fake_stack = NULL;
    fiber->context = context;
    getcontext(context);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = bytes;
    context->uc_link = NULL;
    makecontext(context, (void (*)(void))start, 4, (unsigned)(uintptr_t)entry,
                (unsigned)((uintptr_t)entry >> 16 >> 16), (unsigned)(uintptr_t)user,
                (unsigned)((uintptr_t)user >> 16 >> 16));
    return true;
}

static void swap(struct sim_fiber *from, struct sim_fiber *to) {
    if (!from->context) from->context = malloc(sizeof(ucontext_t));
    if (!from->context || swapcontext(from->context, to->context) != 0) abort();
}
#endif

void sim_fiber_switch(struct sim_fiber *from, struct sim_fiber *to) {
    if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_bytes);
    swap(from, to);
    sim_fiber_arrived(from);
}

void sim_fiber_arrived(struct sim_fiber *fiber) {
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(fiber->fake_stack, NULL, NULL);
}

void sim_fiber_adopt_thread(struct sim_fiber *fiber) {
    pthread_attr_t attributes;
    void *stack = NULL;
    size_t bytes = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getstack(&attributes, &stack, &bytes);
        pthread_attr_destroy(&attributes);
    }
    fiber->stack = stack;
    fiber->stack_bytes = bytes;
}
