/* Filters that make texts. */
#include "base/utf8.h"
#include "template/template_impl.h"

#define FILTER(name_)                                                                                                \
    static rf_status name_(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args,     \
                           const struct rf_tpl_call *call, struct rf_tpl_value *out)

/* As str() gives it, but a safe text stays safe. */
static rf_status soft_str(struct rf_run *run, const struct rf_tpl_value *self, struct rf_tpl_text **out) {
    return rf_tpl_str(run, self, out);
}

static rf_status give(struct rf_tpl_text *text, bool safe, struct rf_tpl_value *out) {
    text->safe = safe;
    *out = rf_tpl_of_text(text);
    return RF_OK;
}

FILTER(f_upper) {
    struct rf_tpl_text *text = NULL, *made = NULL;
    (void)args, (void)call;
    RF_TRY(soft_str(run, self, &text));
    RF_TRY(rf_tpl_text_upper(run, text, &made));
    return give(made, text->safe, out);
}

FILTER(f_lower) {
    struct rf_tpl_text *text = NULL, *made = NULL;
    (void)args, (void)call;
    RF_TRY(soft_str(run, self, &text));
    RF_TRY(rf_tpl_text_lower(run, text, &made));
    return give(made, text->safe, out);
}

FILTER(f_capitalize) {
    struct rf_tpl_text *text = NULL, *made = NULL;
    (void)args, (void)call;
    RF_TRY(soft_str(run, self, &text));
    RF_TRY(rf_tpl_text_capitalize(run, text, &made));
    return give(made, text->safe, out);
}

static bool separates_words(uint32_t code) {
    return code == '-' || code == '(' || code == '{' || code == '[' || code == '<' || rf_code_is_space(code);
}

FILTER(f_title) {
    struct rf_tpl_text *text = NULL;
    struct rf_tpl_builder to = {0};
    bool begins = true;
    (void)args, (void)call;
    RF_TRY(soft_str(run, self, &text));
    for (size_t at = 0, taken; at < text->length; at += taken) {
        uint32_t code = rf_utf8_decode(text->bytes + at, text->length - at, &taken), form[3];
        size_t count = begins ? rf_code_upper(code, form) : rf_code_lower(code, form);
        for (size_t i = 0; i < count; i++) RF_TRY(rf_tpl_build_code(run, &to, form[i], rf_tpl_own(text, at)));
        begins = separates_words(code);
    }
    struct rf_tpl_text *made = rf_tpl_built(run, &to);
    return made ? give(made, false, out) : RF_E_NO_MEMORY;
}

FILTER(f_trim) {
    struct rf_tpl_text *text = NULL, *chars = NULL, *made = NULL;
    (void)call;
    RF_TRY(soft_str(run, self, &text));
    if (args[0].kind != RF_TPL_MISSING && args[0].kind != RF_TPL_NONE) RF_TRY(rf_tpl_arg_text(run, &args[0], &chars));
    RF_TRY(rf_tpl_text_strip(run, text, chars, 3, &made));
    return give(made, text->safe, out);
}

FILTER(f_replace) {
    struct rf_tpl_text *text = NULL, *old = NULL, *with = NULL, *made = NULL;
    int64_t count = -1;
    (void)call;
    RF_TRY(rf_tpl_str(run, self, &text));
    RF_TRY(rf_tpl_str(run, &args[0], &old));
    RF_TRY(rf_tpl_str(run, &args[1], &with));
    if (args[2].kind != RF_TPL_NONE) RF_TRY(rf_tpl_arg_int(run, &args[2], -1, &count));
    RF_TRY(rf_tpl_text_replace(run, text, old, with, count, &made));
    return give(made, false, out);
}

FILTER(f_string) {
    struct rf_tpl_text *text = NULL;
    (void)args, (void)call;
    RF_TRY(soft_str(run, self, &text));
    *out = rf_tpl_of_text(text);
    return RF_OK;
}

FILTER(f_safe) {
    struct rf_tpl_text *text = NULL;
    (void)args, (void)call;
    RF_TRY(rf_tpl_str(run, self, &text));
    text = rf_tpl_text_part(run, text, 0, text->length);
    return text ? give(text, true, out) : RF_E_NO_MEMORY;
}

FILTER(f_escape) {
    struct rf_tpl_text *text = NULL;
    (void)args, (void)call;
    RF_TRY(rf_tpl_str(run, self, &text));
    RF_TRY(rf_tpl_escape(run, text, &text));
    *out = rf_tpl_of_text(text);
    return RF_OK;
}

FILTER(f_forceescape) {
    struct rf_tpl_text *text = NULL;
    (void)args, (void)call;
    RF_TRY(rf_tpl_str(run, self, &text));
    text = rf_tpl_text_part(run, text, 0, text->length);
    if (!text) return RF_E_NO_MEMORY;
    text->safe = false;
    RF_TRY(rf_tpl_escape(run, text, &text));
    *out = rf_tpl_of_text(text);
    return RF_OK;
}

FILTER(f_indent) {
    struct rf_tpl_text blank = {.bytes = " ", .length = 1, .mark = 1}, empty = {.bytes = "", .mark = 1};
    struct rf_tpl_text *indention = NULL, *with_end = NULL;
    struct rf_tpl_text newline = {.bytes = "\n", .length = 1, .mark = 1};
    struct rf_tpl_builder to = {0};
    struct rf_tpl_list *lines = NULL;
    int64_t width = 4;
    (void)call;
    if (self->kind == RF_TPL_UNDEFINED) return rf_tpl_fail_undefined(run, self);
    if (self->kind != RF_TPL_TEXT) return rf_run_fail(run, "indent: '%s' is not a str", rf_tpl_type_name(self));
    bool first = rf_tpl_truth(&args[1]), blanks = rf_tpl_truth(&args[2]), safe = self->text->safe;
    if (args[0].kind == RF_TPL_TEXT) {
        indention = args[0].text;
    } else {
        RF_TRY(rf_tpl_arg_int(run, &args[0], 4, &width));
        RF_TRY(rf_tpl_text_pad(run, &empty, width, &blank, '<', &indention));
    }
    RF_TRY(rf_tpl_text_join(run, self->text, &newline, &with_end));
    RF_TRY(rf_tpl_text_lines(run, with_end, false, &lines));
    for (size_t i = 0; i < lines->count; i++) {
        struct rf_tpl_text *line = lines->items[i].text;
        if (i) RF_TRY(rf_tpl_build_part(run, &to, &newline, 0, 1));
        if (i ? blanks || line->length : first) RF_TRY(rf_tpl_build_part(run, &to, indention, 0, indention->length));
        RF_TRY(rf_tpl_build_part(run, &to, line, 0, line->length));
    }
    struct rf_tpl_text *made = rf_tpl_built(run, &to);
    return made ? give(made, safe, out) : RF_E_NO_MEMORY;
}

FILTER(f_center) {
    struct rf_tpl_text blank = {.bytes = " ", .length = 1, .mark = 1}, *text = NULL, *made = NULL;
    int64_t width;
    (void)call;
    RF_TRY(soft_str(run, self, &text));
    RF_TRY(rf_tpl_arg_int(run, &args[0], 80, &width));
    RF_TRY(rf_tpl_text_pad(run, text, width, &blank, '^', &made));
    return give(made, text->safe, out);
}

FILTER(f_truncate) {
    struct rf_tpl_text dots = {.bytes = "...", .length = 3, .mark = 1}, *end = &dots;
    int64_t length, leeway = 5;
    (void)call;
    RF_TRY(rf_tpl_arg_int(run, &args[0], 255, &length));
    if (args[2].kind != RF_TPL_MISSING) RF_TRY(rf_tpl_arg_text(run, &args[2], &end));
    if (args[3].kind != RF_TPL_NONE) RF_TRY(rf_tpl_arg_int(run, &args[3], 5, &leeway));
    int64_t end_chars = (int64_t)rf_text_chars(end->bytes, end->length);
    if (length < end_chars || leeway < 0) return rf_run_fail(run, "truncate: the length or leeway is too small");
    int64_t chars, most;
    RF_TRY(rf_tpl_length(run, self, &chars));
    if (__builtin_add_overflow(length, leeway, &most) || chars <= most) {
        *out = *self;
        return RF_OK;
    }
    if (self->kind != RF_TPL_TEXT) return rf_run_fail(run, "truncate: '%s' is not a str", rf_tpl_type_name(self));
    const struct rf_tpl_text *text = self->text;
    size_t cut = rf_text_offset(text->bytes, text->length, (size_t)(length - end_chars));
    if (!rf_tpl_truth(&args[1])) { /* at the last blank */
        const char *blank = cut ? memrchr(text->bytes, ' ', cut) : NULL;
        if (blank) cut = (size_t)(blank - text->bytes);
    }
    struct rf_tpl_text *part = rf_tpl_text_part(run, text, 0, cut), *made = NULL;
    if (!part) return RF_E_NO_MEMORY;
    if (part->safe) RF_TRY(rf_tpl_escape(run, end, &end));
    RF_TRY(rf_tpl_text_join(run, part, end, &made));
    return give(made, part->safe, out);
}

FILTER(f_wordcount) {
    struct rf_tpl_text *text = NULL;
    int64_t count = 0;
    bool inside = false;
    (void)args, (void)call;
    RF_TRY(soft_str(run, self, &text));
    for (size_t at = 0, taken; at < text->length; at += taken) {
        bool word = rf_code_is_word(rf_utf8_decode(text->bytes + at, text->length - at, &taken));
        count += word && !inside;
        inside = word;
    }
    *out = rf_tpl_int(count);
    return rf_run_steps(run, text->length / 16);
}

FILTER(f_format) {
    struct rf_tpl_text *text = NULL;
    struct rf_tpl_value given;
    (void)args;
    if (call->count && call->named_count)
        return rf_run_fail(run, "format: positional and keyword arguments at the same time");
    RF_TRY(soft_str(run, self, &text));
    if (call->named_count) {
        struct rf_tpl_dict *dict = rf_tpl_dict_new(run);
        if (!dict) return RF_E_NO_MEMORY;
        for (size_t i = 0; i < call->named_count; i++) {
            struct rf_tpl_text *name = rf_tpl_text_part(run, call->names[i], 0, call->names[i]->length);
            if (!name) return RF_E_NO_MEMORY;
            struct rf_tpl_value key = rf_tpl_of_text(name);
            RF_TRY(rf_tpl_dict_set(run, dict, &key, &call->named[i]));
        }
        given = rf_tpl_of_dict(dict);
    } else {
        struct rf_tpl_list *list = rf_tpl_list_new(run, 0);
        if (!list) return RF_E_NO_MEMORY;
        for (size_t i = 0; i < call->count; i++) RF_TRY(rf_tpl_list_add(run, list, &call->args[i]));
        given = rf_tpl_of_list(list, true);
    }
    return rf_tpl_percent(run, text, &given, out);
}

/* ---- JSON ---- */

FILTER(f_tojson) {
    struct rf_tpl_text empty = {.bytes = "", .mark = 0}, blank = {.bytes = " ", .length = 1, .mark = 0};
    struct rf_tpl_text comma = {.bytes = ",", .length = 1}, comma_blank = {.bytes = ", ", .length = 2};
    struct rf_tpl_text colon_blank = {.bytes = ": ", .length = 2}, *indent = NULL;
    struct rf_tpl_json_style style = {.ensure_ascii = rf_tpl_truth(&args[0]), .sort_keys = rf_tpl_truth(&args[3])};
    struct rf_tpl_builder to = {0};
    (void)call;
    if (args[1].kind == RF_TPL_TEXT) {
        style.indented = true;
        indent = args[1].text;
    } else if (args[1].kind != RF_TPL_MISSING && args[1].kind != RF_TPL_NONE) {
        int64_t width;
        RF_TRY(rf_tpl_arg_int(run, &args[1], 0, &width));
        style.indented = true;
        RF_TRY(rf_tpl_text_pad(run, &empty, width, &blank, '<', &indent));
    }
    style.indent = indent;
    style.item_separator = style.indented ? &comma : &comma_blank;
    style.key_separator = &colon_blank;
    if (args[2].kind != RF_TPL_MISSING && args[2].kind != RF_TPL_NONE) {
        struct rf_tpl_list *pair = NULL;
        RF_TRY(rf_tpl_to_list(run, &args[2], &pair));
        if (pair->count != 2 || pair->items[0].kind != RF_TPL_TEXT || pair->items[1].kind != RF_TPL_TEXT)
            return rf_run_fail(run, "tojson: separators must be two texts");
        style.item_separator = pair->items[0].text;
        style.key_separator = pair->items[1].text;
    }
    RF_TRY(rf_tpl_build_json(run, &to, self, &style));
    struct rf_tpl_text *made = rf_tpl_built(run, &to);
    return made ? give(made, false, out) : RF_E_NO_MEMORY;
}

FILTER(f_from_json) {
    struct rf_tpl_text *text = NULL;
    (void)args, (void)call;
    RF_TRY(rf_tpl_arg_text(run, self, &text));
    RF_TRY(rf_run_steps(run, text->length / 4));
    struct rf_run_tree *tree = RF_ARENA_NEW(&run->arena, struct rf_run_tree);
    if (!tree) return RF_E_NO_MEMORY;
    rf_status status = rf_json_read(run->account, text->bytes, text->length, "from_json: its text", &tree->tree);
    if (status == RF_E_SYNTAX) return rf_fail(RF_E_UNSUPPORTED, "%s", rf_error_text());
    if (status) return status;
    tree->next = run->trees;
    run->trees = tree;
    return rf_tpl_from_json(run, tree->tree.root, out);
}

const struct rf_tpl_builtin *rf_tpl_find_text_filter(const char *name, size_t bytes) {
    static const struct rf_tpl_builtin filters[] = {
        {"capitalize", "", 0, f_capitalize},
        {"center", "width", 0, f_center},
        {"e", "", 0, f_escape},
        {"escape", "", 0, f_escape},
        {"forceescape", "", 0, f_forceescape},
        {"format", NULL, 0, f_format},
        {"from_json", "", 0, f_from_json},
        {"indent", "width first blank", 0, f_indent},
        {"lower", "", 0, f_lower},
        {"replace", "old new count", 2, f_replace},
        {"safe", "", 0, f_safe},
        {"string", "", 0, f_string},
        {"title", "", 0, f_title},
        {"tojson", "ensure_ascii indent separators sort_keys", 0, f_tojson},
        {"trim", "chars", 0, f_trim},
        {"truncate", "length killwords end leeway", 0, f_truncate},
        {"upper", "", 0, f_upper},
        {"wordcount", "", 0, f_wordcount},
    };
    return rf_tpl_find_builtin(filters, RF_COUNT(filters), name, bytes);
}
