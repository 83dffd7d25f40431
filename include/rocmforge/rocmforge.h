/* ROCmForge: everything public but the test harness (<rocmforge/test.h>). */
#ifndef ROCMFORGE_H
#define ROCMFORGE_H
#include <rocmforge/base.h>
#include <rocmforge/chat.h>
#include <rocmforge/gpu.h>
#include <rocmforge/grammar.h>
#include <rocmforge/graph.h>
#include <rocmforge/infer.h>
#include <rocmforge/model.h>
#include <rocmforge/tokenizer.h>
#endif
