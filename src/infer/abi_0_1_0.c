/* The functions that programs built for 0.1.0 call, with structs that had no size yet. Today's header maps the
 * same names to other functions (see rf_session_generate and rf_chat_encode in infer.h); these keep the old names
 * and the old layouts. tests/abi runs programs that were built for 0.1.0. */
#include "infer/engine_impl.h"

#undef rf_session_generate
#undef rf_chat_encode

struct generate_result_0_1_0 {
    enum rf_end end;
    uint32_t tokens;
    int64_t first_ns, rest_ns;
};
struct chat_message_0_1_0 {
    enum rf_chat_role role;
    const char *text;
};
RF_API rf_status rf_session_generate(struct rf_session *session, const struct rf_generate_params *params,
                                     struct generate_result_0_1_0 *result);
RF_API rf_status rf_chat_encode(const struct rf_engine *engine, enum rf_chat_format format,
                                const struct chat_message_0_1_0 *messages, size_t count, int32_t **ids,
                                size_t *id_count);

rf_status rf_session_generate(struct rf_session *session, const struct rf_generate_params *params,
                              struct generate_result_0_1_0 *result) {
    if (!result) return rf_fail(RF_E_INVALID, "rf_session_generate: result is NULL");
    /* If the arguments are wrong, the result stays as it was. */
    struct rf_generate_result sized = {.struct_size = sizeof sized,
                                       .end = result->end,
                                       .tokens = result->tokens,
                                       .first_ns = result->first_ns,
                                       .rest_ns = result->rest_ns};
    rf_status status = rf_session_generate_sized(session, params, &sized);
    *result = (struct generate_result_0_1_0){
        .end = sized.end, .tokens = sized.tokens, .first_ns = sized.first_ns, .rest_ns = sized.rest_ns};
    return status;
}

rf_status rf_chat_encode(const struct rf_engine *engine, enum rf_chat_format format,
                         const struct chat_message_0_1_0 *messages, size_t count, int32_t **ids, size_t *id_count) {
    return rf_chat_encode_sized(sizeof *messages, engine, format,
                                (const struct rf_chat_message *)(const void *)messages, count, ids, id_count);
}
