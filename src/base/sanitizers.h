/* Whether this file is compiled for a sanitizer: GCC and clang say it in different ways. */
#ifndef RF_BASE_SANITIZERS_H
#define RF_BASE_SANITIZERS_H

#if defined(__SANITIZE_ADDRESS__)
#define RF_UNDER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RF_UNDER_ASAN 1
#endif
#endif
#ifndef RF_UNDER_ASAN
#define RF_UNDER_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__)
#define RF_UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RF_UNDER_TSAN 1
#endif
#endif
#ifndef RF_UNDER_TSAN
#define RF_UNDER_TSAN 0
#endif

#endif
