/* Formats of strings that can be kept exactly, as regular expressions (RFC 3339, 4122, 2673, 6901). Leap seconds are
 * not among the times: whether one is right depends on the offset and the day. */
#include "grammar/schema_impl.h"

#define YEAR_29 "([0-9][0-9](0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)" /* leap years */
#define DATE                                                                                                         \
    "([0-9]{4}-(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|[0-9]{4}-(0[469]|11)-(0[1-9]|[12][0-9]|30)|"                \
    "[0-9]{4}-02-(0[1-9]|1[0-9]|2[0-8])|" YEAR_29 "-02-29)"
#define TIME "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]+)?([Zz]|[-+]([01][0-9]|2[0-3]):[0-5][0-9])"
#define BYTE "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define DURATION_TIME "(T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S))"
#define DURATION_DATE "([0-9]+D|[0-9]+M([0-9]+D)?|[0-9]+Y([0-9]+M([0-9]+D)?)?)"

const char *rf_format_regex(const char *format) {
    static const struct {
        const char *name, *regex;
    } formats[] = {
        {"date", "^" DATE "$"},
        {"time", "^" TIME "$"},
        {"date-time", "^" DATE "[Tt]" TIME "$"},
        {"duration", "^P(" DURATION_DATE DURATION_TIME "?|" DURATION_TIME "|[0-9]+W)$"},
        {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
        {"ipv4", "^" BYTE "\\." BYTE "\\." BYTE "\\." BYTE "$"},
        {"json-pointer", "^(/([^~/]|~[01])*)*$"},
        {"relative-json-pointer", "^(0|[1-9][0-9]*)(#|(/([^~/]|~[01])*)*)$"},
    };
    for (size_t i = 0; i < RF_COUNT(formats); i++)
        if (!strcmp(format, formats[i].name)) return formats[i].regex;
    return NULL;
}
