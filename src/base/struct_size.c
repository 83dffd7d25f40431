/* Parameter and result structs of programs that were built for another version of this library. The public base.h
 * states the rule; struct_size.h has the functions that apply it. */
#include "base/base.h"
#include "base/struct_size.h"

rf_status rf_params_read(void *own, size_t known_bytes, size_t least_bytes, const void *given, const char *type,
                         const char *function) {
    if (!given) return rf_fail(RF_E_INVALID, "%s: %s is NULL", function, type);
    rf_status status = rf_element_read(own, known_bytes, least_bytes, given, *(const size_t *)given, type, function);
    if (!status) *(size_t *)own = known_bytes;
    return status;
}

rf_status rf_element_read(void *own, size_t known_bytes, size_t least_bytes, const void *given, size_t given_bytes,
                          const char *type, const char *function) {
    char why[512];
    if (rf_struct_read(own, known_bytes, least_bytes, given, given_bytes, type, why, sizeof why)) return RF_OK;
    return rf_fail(RF_E_INVALID, "%s: %s", function, why);
}

rf_status rf_result_check(const void *given, size_t known_bytes, size_t least_bytes, const char *type,
                          const char *function) {
    char why[512];
    if (!given) return rf_fail(RF_E_INVALID, "%s: %s is NULL", function, type);
    if (rf_struct_has_size(*(const size_t *)given, known_bytes, least_bytes, type, why, sizeof why)) return RF_OK;
    return rf_fail(RF_E_INVALID, "%s: %s", function, why);
}

void rf_result_write(void *given, const void *filled, size_t known_bytes) {
    size_t given_bytes = *(size_t *)given, common = RF_MIN(given_bytes, known_bytes);
    memcpy((char *)given + sizeof given_bytes, (const char *)filled + sizeof given_bytes,
           common - sizeof given_bytes);
    memset((char *)given + common, 0, given_bytes - common);
}
