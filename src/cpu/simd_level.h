/* The table of a level, with all functions that the bodies define. A level's file includes this last. */
#ifndef RF_CPU_SIMD_LEVEL_H
#define RF_CPU_SIMD_LEVEL_H

#define SIMD_TABLE(level_, name_, split_, pairs_, pack_)                                                             \
    {                                                                                                                \
        .level = level_, .name = name_, .width = VEC_WIDTH, .add = {add_f32, add_f16, add_bf16},                     \
        .multiply = {multiply_f32, multiply_f16, multiply_bf16}, .scale = {scale_f32, scale_f16, scale_bf16},        \
        .activate = {activate_f32, activate_f16, activate_bf16},                                                     \
        .cast = {{cast_32, cast_f32_f16, cast_f32_bf16},                                                             \
                 {cast_f16_f32, cast_16, cast_f16_bf16},                                                             \
                 {cast_bf16_f32, cast_bf16_f16, cast_16}},                                                           \
        .rms_norm = {rms_norm_f32, rms_norm_f16, rms_norm_bf16},                                                     \
        .layer_norm = {layer_norm_f32, layer_norm_f16, layer_norm_bf16}, .softmax = softmax_row,                     \
        .rotate = rotate_row, .matvec = {matvec_f32, matvec_f16, matvec_bf16}, .quantize = quantize_column,          \
        .widen = widen_blocks, .matvec_q8_0 = matvec_q8_0, .matvec_q4_0 = matvec_q4_0, .matvec_q4_k = matvec_q4_k,   \
        .matvec_q6_k = matvec_q6_k, .pack = pack_, .panel_dot = panel_dot, .pack_float = pack_float,                 \
        .order_q4_0 = split_, .order_q4_k = pairs_, .panel_float = panel_float, .attend = {                          \
            attend_f32,                                                                                              \
            attend_f16,                                                                                              \
            attend_bf16                                                                                              \
        }                                                                                                            \
    }

#endif
