/* The threads that CPU ops run on: every item once, by several callers in turn, more threads while it lives. */
#include "runtime/thread_pool.h"

#include <pthread.h>

#include <rocmforge/test.h>

#include "base/base.h"

static const unsigned thread_counts[] = {1, 2, 3, 5, 8};

struct visits {
    atomic_uint *items;
    size_t count, grain;
    unsigned threads;
    atomic_uint wrong;
};
static void visit(void *user, size_t begin, size_t end, unsigned thread) {
    struct visits *visits = user;
    if (begin >= end || end > visits->count || end - begin > visits->grain || begin % visits->grain ||
        thread >= visits->threads)
        atomic_fetch_add(&visits->wrong, 1);
    for (size_t i = begin; i < end; i++) atomic_fetch_add(&visits->items[i], 1);
}

RF_TEST(thread_pool, visits_each_item_once) {
    static atomic_uint items[5000];
    for (size_t t = 0; t < RF_COUNT(thread_counts); t++) {
        struct rf_thread_pool *pool = NULL;
        RF_ASSERT_OK(rf_thread_pool_create(thread_counts[t], &pool));
        RF_ASSERT_UINT(rf_thread_pool_threads(pool), thread_counts[t]);
        static const size_t counts[] = {0, 1, 2, 3, 7, 64, 1000, 4999}, grains[] = {1, 2, 3, 64, 6000};
        for (size_t round = 0; round < 20; round++)
            for (size_t c = 0; c < RF_COUNT(counts); c++)
                for (size_t g = 0; g < RF_COUNT(grains); g++) {
                    struct visits visits = {items, counts[c], grains[g], thread_counts[t], 0};
                    for (size_t i = 0; i < RF_COUNT(items); i++) atomic_store(&items[i], 0);
                    rf_thread_pool_run(pool, 0, counts[c], grains[g], visit, &visits);
                    RF_ASSERT_UINT(atomic_load(&visits.wrong), 0);
                    for (size_t i = 0; i < RF_COUNT(items); i++)
                        if (atomic_load(&items[i]) != (i < counts[c]))
                            RF_FAIL("item %zu of %zu visited %u times", i, counts[c], atomic_load(&items[i]));
                }
        rf_thread_pool_destroy(&pool);
        RF_ASSERT_NULL(pool);
    }
}

static void add_one(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    unsigned *values = user;
    for (size_t i = begin; i < end; i++) values[i]++;
}

/* Plain memory written by one run is read by the next and by the caller: what TSan looks at. */
RF_TEST(thread_pool, runs_in_succession_see_each_other) {
    struct rf_thread_pool *pool = NULL;
    RF_ASSERT_OK(rf_thread_pool_create(4, &pool));
    unsigned values[37] = {0};
    for (unsigned round = 1; round <= 2000; round++) {
        rf_thread_pool_run(pool, 0, RF_COUNT(values), 1, add_one, values);
        if (round % 500 == 0) rf_sleep_ns(2000000); /* long enough for the threads to sleep */
        for (size_t i = 0; i < RF_COUNT(values); i++) RF_ASSERT_UINT(values[i], round);
    }
    rf_thread_pool_destroy(&pool);
}

RF_TEST(thread_pool, refuses_and_accepts) {
    struct rf_thread_pool *pool = NULL;
    RF_ASSERT_STATUS(rf_thread_pool_create(RF_THREAD_POOL_MAX + 1, &pool), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_thread_pool_create(1, NULL), RF_E_INVALID);
    rf_thread_pool_destroy(&pool);
    rf_thread_pool_destroy(NULL);
    for (int i = 0; i < 50; i++) { /* shut down before the threads have come up */
        RF_ASSERT_OK(rf_thread_pool_create(5, &pool));
        rf_thread_pool_destroy(&pool);
    }
    RF_ASSERT_OK(rf_thread_pool_create(0, &pool));
    RF_ASSERT(rf_thread_pool_threads(pool) >= 1);
    rf_thread_pool_destroy(&pool);
}

/* A run uses no more threads than it was allowed; a pool that grew uses the new ones too. */
RF_TEST(thread_pool, limits_and_grows) {
    static atomic_uint items[999];
    struct rf_thread_pool *pool = NULL;
    RF_ASSERT_OK(rf_thread_pool_create(2, &pool));
    for (unsigned threads = 1; threads <= 9; threads++) {
        if (threads > 2) RF_ASSERT_OK(rf_thread_pool_grow(pool, threads));
        RF_ASSERT_UINT(rf_thread_pool_threads(pool), RF_MAX(threads, 2u));
        for (unsigned limit = 1; limit <= threads; limit++) {
            struct visits visits = {items, RF_COUNT(items), 3, limit, 0};
            for (size_t i = 0; i < RF_COUNT(items); i++) atomic_store(&items[i], 0);
            rf_thread_pool_run(pool, limit, RF_COUNT(items), 3, visit, &visits);
            RF_ASSERT_UINT(atomic_load(&visits.wrong), 0);
            for (size_t i = 0; i < RF_COUNT(items); i++) RF_ASSERT_UINT(atomic_load(&items[i]), 1);
        }
    }
    RF_ASSERT_OK(rf_thread_pool_grow(pool, 3)); /* it has more: nothing changes */
    RF_ASSERT_UINT(rf_thread_pool_threads(pool), 9);
    RF_ASSERT_STATUS(rf_thread_pool_grow(pool, RF_THREAD_POOL_MAX + 1), RF_E_INVALID);
    rf_thread_pool_destroy(&pool);
}

struct caller {
    pthread_t thread;
    struct rf_thread_pool *pool;
    unsigned limit, values[61];
};
enum { CALLER_ROUNDS = 500 };
static void *call(void *argument) {
    struct caller *caller = argument;
    for (unsigned round = 0; round < CALLER_ROUNDS; round++)
        rf_thread_pool_run(caller->pool, caller->limit, RF_COUNT(caller->values), 1, add_one, caller->values);
    return NULL;
}

/* Callers take turns: none disturbs another's items, none waits for ever. */
RF_TEST(thread_pool, several_callers) {
    struct caller callers[5] = {0};
    struct rf_thread_pool *pool = NULL;
    RF_ASSERT_OK(rf_thread_pool_create(3, &pool));
    for (size_t c = 0; c < RF_COUNT(callers); c++) {
        callers[c].pool = pool;
        callers[c].limit = (unsigned)c; /* 0: all */
        RF_ASSERT_INT(pthread_create(&callers[c].thread, NULL, call, &callers[c]), 0);
    }
    for (unsigned threads = 4; threads <= 6; threads++) RF_EXPECT_OK(rf_thread_pool_grow(pool, threads));
    for (size_t c = 0; c < RF_COUNT(callers); c++) {
        pthread_join(callers[c].thread, NULL);
        for (size_t i = 0; i < RF_COUNT(callers[c].values); i++) RF_EXPECT_UINT(callers[c].values[i], CALLER_ROUNDS);
    }
    rf_thread_pool_destroy(&pool);
}
