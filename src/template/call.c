/* Calls: of macros, of methods, and of the functions that every template has. */
#include "template/template_impl.h"

/* ---- arguments ---- */

static rf_status spread(struct rf_run *run, const struct rf_tpl_args *args, struct rf_tpl_call *call) {
    struct rf_tpl_value value;
    struct rf_tpl_list *list = NULL;
    if (args->star) {
        RF_TRY(rf_tpl_evaluate(run, args->star, &value));
        RF_TRY(rf_tpl_to_list(run, &value, &list));
        struct rf_tpl_value *all = rf_arena_take(&run->arena, (call->count + list->count + 1) * sizeof *all);
        if (!all) return RF_E_NO_MEMORY;
        if (call->count) memcpy(all, call->args, call->count * sizeof *all);
        if (list->count) memcpy(all + call->count, list->items, list->count * sizeof *all);
        call->args = all;
        call->count += list->count;
    }
    if (args->star_star) {
        RF_TRY(rf_tpl_evaluate(run, args->star_star, &value));
        if (value.kind != RF_TPL_DICT)
            return rf_run_fail(run, "argument after ** must be a mapping, not '%s'", rf_tpl_type_name(&value));
        size_t count = call->named_count + value.dict->count;
        const struct rf_tpl_text **names = rf_arena_take(&run->arena, (count + 1) * sizeof *names);
        struct rf_tpl_value *named = names ? rf_arena_take(&run->arena, (count + 1) * sizeof *named) : NULL;
        if (!named) return RF_E_NO_MEMORY;
        for (size_t i = 0; i < call->named_count; i++) {
            names[i] = call->names[i];
            named[i] = call->named[i];
        }
        for (size_t i = 0; i < value.dict->count; i++) {
            const struct rf_tpl_entry *entry = &value.dict->entries[i];
            if (entry->key.kind != RF_TPL_TEXT) return rf_run_fail(run, "keywords must be strings");
            for (size_t j = 0; j < call->named_count; j++)
                if (rf_tpl_text_equal(names[j], entry->key.text))
                    return rf_run_fail(run, "an argument is given twice by name");
            names[call->named_count + i] = entry->key.text;
            named[call->named_count + i] = entry->value;
        }
        call->names = names;
        call->named = named;
        call->named_count = count;
    }
    return RF_OK;
}

rf_status rf_tpl_call_args(struct rf_run *run, const struct rf_tpl_args *args, struct rf_tpl_call *call) {
    *call = (struct rf_tpl_call){0};
    if (!args) return RF_OK;
    size_t count = args->positional.count, named = args->named.count;
    if (count + named) {
        struct rf_tpl_value *values = rf_arena_take_raw(&run->arena, (count + named) * sizeof *values);
        if (!values) return RF_E_NO_MEMORY;
        for (size_t i = 0; i < count; i++) RF_TRY(rf_tpl_evaluate(run, args->positional.items[i], &values[i]));
        for (size_t i = 0; i < named; i++) RF_TRY(rf_tpl_evaluate(run, args->named.items[i], &values[count + i]));
        *call = (struct rf_tpl_call){values, count, (const struct rf_tpl_text **)args->names, values + count, named};
    }
    return args->star || args->star_star ? spread(run, args, call) : RF_OK;
}

/* The index of a word in a list of words that blanks separate; -1: not there. */
static int word_index(const char *words, const struct rf_tpl_text *word) {
    int index = 0;
    for (const char *at = words; *at; index++) {
        size_t length = strcspn(at, " ");
        if (length == word->length && memcmp(at, word->bytes, length) == 0) return index;
        at += length;
        at += *at == ' ';
    }
    return -1;
}

static size_t word_count(const char *words) {
    size_t count = *words != 0;
    for (; *words; words++) count += *words == ' ';
    return count;
}

rf_status rf_tpl_call_builtin(struct rf_run *run, const struct rf_tpl_builtin *builtin,
                              const struct rf_tpl_value *self, const struct rf_tpl_call *call,
                              struct rf_tpl_value *out) {
    struct rf_tpl_value args[RF_TPL_PARAMS_MAX] = {{0}};
    const char *params = builtin->params;
    if (!builtin->run) return rf_run_fail(run, "%s() is not supported", builtin->name);
    if (!params) return builtin->run(run, self, NULL, call, out);
    bool by_name = *params != '!';
    params += !by_name;
    if (call->count > word_count(params))
        return rf_run_fail(run, "%s() was given %zu arguments and takes at most %zu", builtin->name, call->count,
                           word_count(params));
    for (size_t i = 0; i < call->count; i++) args[i] = call->args[i];
    for (size_t i = 0; i < call->named_count; i++) {
        int index = by_name ? word_index(params, call->names[i]) : -1;
        if (index < 0)
            return rf_run_fail(run, "%s() takes no argument named '%.*s'", builtin->name,
                               (int)RF_MIN(call->names[i]->length, (size_t)64), call->names[i]->bytes);
        if (args[index].kind != RF_TPL_MISSING)
            return rf_run_fail(run, "%s() was given an argument twice", builtin->name);
        args[index] = call->named[i];
    }
    for (int i = 0; i < builtin->required; i++)
        if (args[i].kind == RF_TPL_MISSING) return rf_run_fail(run, "%s() lacks an argument", builtin->name);
    return builtin->run(run, self, args, call, out);
}

const struct rf_tpl_builtin *rf_tpl_find_builtin(const struct rf_tpl_builtin *table, size_t count, const char *name,
                                                 size_t bytes) {
    for (size_t i = 0; i < count; i++)
        if (strlen(table[i].name) == bytes && memcmp(table[i].name, name, bytes) == 0) return &table[i];
    return NULL;
}

rf_status rf_tpl_arg_int(struct rf_run *run, const struct rf_tpl_value *arg, int64_t otherwise, int64_t *out) {
    if (arg->kind == RF_TPL_MISSING)
        *out = otherwise;
    else if (rf_tpl_is_integer(arg))
        *out = rf_tpl_integer(arg);
    else
        return rf_run_fail(run, "'%s' object cannot be interpreted as an integer", rf_tpl_type_name(arg));
    return RF_OK;
}

rf_status rf_tpl_arg_text(struct rf_run *run, const struct rf_tpl_value *arg, struct rf_tpl_text **out) {
    if (arg->kind != RF_TPL_TEXT) return rf_run_fail(run, "a str is needed, not '%s'", rf_tpl_type_name(arg));
    *out = arg->text;
    return RF_OK;
}

/* ---- macros ---- */

static const struct rf_tpl_value *named_arg(const struct rf_tpl_call *call, const struct rf_tpl_text *name) {
    for (size_t i = 0; i < call->named_count; i++)
        if (rf_tpl_text_equal(call->names[i], name)) return &call->named[i];
    return NULL;
}

static rf_status set_rest(struct rf_run *run, const struct rf_tpl_node *node, const struct rf_tpl_call *call,
                          struct rf_scope *scope) {
    static const struct rf_tpl_text varargs = {.bytes = "varargs", .length = 7};
    static const struct rf_tpl_text kwargs = {.bytes = "kwargs", .length = 6};
    size_t count = node->args->positional.count;
    struct rf_tpl_dict *dict = rf_tpl_dict_new(run);
    if (!dict) return RF_E_NO_MEMORY;
    for (size_t i = 0; i < call->named_count; i++) {
        bool taken = false;
        for (size_t j = call->count; j < count; j++)
            taken |= rf_tpl_text_equal(node->args->positional.items[j]->name, call->names[i]);
        if (taken) continue;
        if (!node->takes_kwargs)
            return rf_run_fail(run, "macro '%.*s' takes no keyword argument '%.*s'",
                               (int)RF_MIN(node->name->length, (size_t)64), node->name->bytes,
                               (int)RF_MIN(call->names[i]->length, (size_t)64), call->names[i]->bytes);
        struct rf_tpl_value key = rf_tpl_of_text(rf_tpl_text_part(run, call->names[i], 0, call->names[i]->length));
        if (!key.text) return RF_E_NO_MEMORY;
        RF_TRY(rf_tpl_dict_set(run, dict, &key, &call->named[i]));
    }
    if (node->takes_kwargs) {
        struct rf_tpl_value value = rf_tpl_of_dict(dict);
        RF_TRY(rf_scope_set(run, scope, &kwargs, &value));
    }
    if (!node->takes_varargs && call->count > count)
        return rf_run_fail(run, "macro '%.*s' takes not more than %zu arguments",
                           (int)RF_MIN(node->name->length, (size_t)64), node->name->bytes, count);
    if (node->takes_varargs) {
        struct rf_tpl_list *list = rf_tpl_list_new(run, 0);
        if (!list) return RF_E_NO_MEMORY;
        for (size_t i = count; i < call->count; i++) RF_TRY(rf_tpl_list_add(run, list, &call->args[i]));
        struct rf_tpl_value value = rf_tpl_of_list(list, true);
        RF_TRY(rf_scope_set(run, scope, &varargs, &value));
    }
    return RF_OK;
}

static rf_status call_macro(struct rf_run *run, const struct rf_tpl_macro *macro, const struct rf_tpl_call *call,
                            struct rf_tpl_value *out) {
    const struct rf_tpl_node *node = macro->node;
    struct rf_scope *outer = run->scope, *scope = rf_scope_push(run, macro->scope, &node->unset);
    struct rf_tpl_builder *to = run->out, inner = {0};
    enum rf_flow flow = RF_FLOW_ON;
    if (!scope) return RF_E_NO_MEMORY;
    RF_TRY(set_rest(run, node, call, scope));
    run->scope = scope;
    for (size_t i = 0; i < node->args->positional.count; i++) {
        const struct rf_tpl_text *name = node->args->positional.items[i]->name;
        const struct rf_tpl_value *given = i < call->count ? &call->args[i] : named_arg(call, name);
        struct rf_tpl_value value = given ? *given : rf_tpl_undefined();
        if (!given && node->args->named.items[i]) RF_TRY(rf_tpl_evaluate(run, node->args->named.items[i], &value));
        RF_TRY(rf_scope_set(run, scope, name, &value));
    }
    run->out = &inner;
    RF_TRY(rf_tpl_execute(run, &node->list, &flow));
    run->scope = outer;
    run->out = to;
    struct rf_tpl_text *text = rf_tpl_built(run, &inner);
    if (!text) return RF_E_NO_MEMORY;
    *out = rf_tpl_of_text(text);
    return RF_OK;
}

rf_status rf_tpl_call_value(struct rf_run *run, const struct rf_tpl_value *callee, const struct rf_tpl_call *call,
                            struct rf_tpl_value *out) {
    struct rf_tpl_text *text;
    switch (callee->kind) {
    case RF_TPL_UNDEFINED: return rf_tpl_fail_undefined(run, callee);
    case RF_TPL_MACRO: return call_macro(run, callee->macro, call, out);
    case RF_TPL_FUNCTION: return rf_tpl_call_builtin(run, callee->function, NULL, call, out);
    case RF_TPL_METHOD: return rf_tpl_call_builtin(run, callee->method->builtin, &callee->method->self, call, out);
    case RF_TPL_JOINER:
        if (call->count || call->named_count) return rf_run_fail(run, "a joiner takes no arguments");
        text = rf_tpl_text_of(run, "", 0, 1);
        if (!text) return RF_E_NO_MEMORY;
        *out = callee->joiner->used ? callee->joiner->separator : rf_tpl_of_text(text);
        callee->joiner->used = true;
        return RF_OK;
    default: return rf_run_fail(run, "'%s' object is not callable", rf_tpl_type_name(callee));
    }
}

/* ---- functions ---- */

static rf_status fn_range(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args,
                          const struct rf_tpl_call *call, struct rf_tpl_value *out) {
    int64_t start = 0, stop = 0, step = 1;
    (void)self;
    if (call->count == 1) {
        RF_TRY(rf_tpl_arg_int(run, &args[0], 0, &stop));
    } else {
        RF_TRY(rf_tpl_arg_int(run, &args[0], 0, &start));
        RF_TRY(rf_tpl_arg_int(run, &args[1], 0, &stop));
        RF_TRY(rf_tpl_arg_int(run, &args[2], 1, &step));
    }
    if (!step) return rf_run_fail(run, "range() arg 3 must not be zero");
    __int128 distance = step > 0 ? (__int128)stop - start : (__int128)start - stop;
    __int128 size = step > 0 ? (__int128)step : -(__int128)step;
    __int128 count = distance > 0 ? (distance - 1) / size + 1 : 0;
    if (count > RF_TPL_RANGE_MAX)
        return rf_run_fail(run, "range() is too large: at most %d numbers", RF_TPL_RANGE_MAX);
    struct rf_tpl_range *range = RF_ARENA_NEW(&run->arena, struct rf_tpl_range);
    if (!range) return RF_E_NO_MEMORY;
    *range = (struct rf_tpl_range){start, stop, step, (int64_t)count};
    *out = (struct rf_tpl_value){.kind = RF_TPL_RANGE, .range = range};
    return RF_OK;
}

/* dict(): from a mapping or pairs, and names. */
static rf_status make_dict(struct rf_run *run, const struct rf_tpl_call *call, struct rf_tpl_dict **out) {
    struct rf_tpl_dict *dict = rf_tpl_dict_new(run);
    if (!dict) return RF_E_NO_MEMORY;
    if (call->count > 1) return rf_run_fail(run, "dict expected at most 1 argument, got %zu", call->count);
    if (call->count && call->args[0].kind == RF_TPL_DICT) {
        const struct rf_tpl_dict *from = call->args[0].dict;
        for (size_t i = 0; i < from->count; i++)
            RF_TRY(rf_tpl_dict_set(run, dict, &from->entries[i].key, &from->entries[i].value));
    } else if (call->count) {
        struct rf_tpl_list *pairs = NULL, *pair = NULL;
        RF_TRY(rf_tpl_to_list(run, &call->args[0], &pairs));
        for (size_t i = 0; i < pairs->count; i++) {
            RF_TRY(rf_tpl_to_list(run, &pairs->items[i], &pair));
            if (pair->count != 2) return rf_run_fail(run, "an element of dict()'s argument is no pair");
            RF_TRY(rf_tpl_dict_set(run, dict, &pair->items[0], &pair->items[1]));
        }
    }
    for (size_t i = 0; i < call->named_count; i++) {
        struct rf_tpl_text *name = rf_tpl_text_part(run, call->names[i], 0, call->names[i]->length);
        if (!name) return RF_E_NO_MEMORY;
        struct rf_tpl_value key = rf_tpl_of_text(name);
        RF_TRY(rf_tpl_dict_set(run, dict, &key, &call->named[i]));
    }
    *out = dict;
    return RF_OK;
}

static rf_status fn_dict(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args,
                         const struct rf_tpl_call *call, struct rf_tpl_value *out) {
    struct rf_tpl_dict *dict = NULL;
    (void)self, (void)args;
    RF_TRY(make_dict(run, call, &dict));
    *out = rf_tpl_of_dict(dict);
    return RF_OK;
}

static rf_status fn_namespace(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args,
                              const struct rf_tpl_call *call, struct rf_tpl_value *out) {
    struct rf_tpl_dict *dict = NULL;
    (void)self, (void)args;
    RF_TRY(make_dict(run, call, &dict));
    *out = (struct rf_tpl_value){.kind = RF_TPL_NAMESPACE, .dict = dict};
    return RF_OK;
}

static rf_status fn_raise(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args,
                          const struct rf_tpl_call *call, struct rf_tpl_value *out) {
    struct rf_tpl_text *text = NULL;
    (void)self, (void)call, (void)out;
    RF_TRY(rf_tpl_str(run, &args[0], &text));
    return rf_fail(RF_E_INVALID, "the template refuses: %.*s", (int)RF_MIN(text->length, (size_t)600), text->bytes);
}

static rf_status fn_strftime_now(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args,
                                 const struct rf_tpl_call *call, struct rf_tpl_value *out) {
    struct rf_tpl_text *format = NULL, *text = NULL;
    (void)self, (void)call;
    RF_TRY(rf_tpl_arg_text(run, &args[0], &format));
    RF_TRY(rf_tpl_strftime(run, format, &text));
    *out = rf_tpl_of_text(text);
    return RF_OK;
}

static rf_status fn_cycler(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args,
                           const struct rf_tpl_call *call, struct rf_tpl_value *out) {
    (void)self, (void)args;
    if (call->named_count || !call->count) return rf_run_fail(run, "cycler() needs items, without names");
    struct rf_tpl_cycler *cycler = RF_ARENA_NEW(&run->arena, struct rf_tpl_cycler);
    if (!cycler) return RF_E_NO_MEMORY;
    cycler->items = rf_tpl_list_new(run, call->count);
    if (!cycler->items) return RF_E_NO_MEMORY;
    memcpy(cycler->items->items, call->args, call->count * sizeof *call->args);
    cycler->items->count = call->count;
    *out = (struct rf_tpl_value){.kind = RF_TPL_CYCLER, .cycler = cycler};
    return RF_OK;
}

static rf_status fn_joiner(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args,
                           const struct rf_tpl_call *call, struct rf_tpl_value *out) {
    struct rf_tpl_joiner *joiner = RF_ARENA_NEW(&run->arena, struct rf_tpl_joiner);
    struct rf_tpl_text *comma = rf_tpl_text_of(run, ", ", 2, 1);
    (void)self, (void)call;
    if (!joiner || !comma) return RF_E_NO_MEMORY;
    joiner->separator = args[0].kind == RF_TPL_MISSING ? rf_tpl_of_text(comma) : args[0];
    *out = (struct rf_tpl_value){.kind = RF_TPL_JOINER, .joiner = joiner};
    return RF_OK;
}

const struct rf_tpl_builtin *rf_tpl_find_global(const char *name, size_t bytes) {
    static const struct rf_tpl_builtin functions[] = {
        {"range", "!start stop step", 1, fn_range},
        {"dict", NULL, 0, fn_dict},
        {"namespace", NULL, 0, fn_namespace},
        {"raise_exception", "message", 1, fn_raise},
        {"strftime_now", "f", 1, fn_strftime_now},
        {"cycler", NULL, 0, fn_cycler},
        {"joiner", "sep", 0, fn_joiner},
        {"lipsum", NULL, 0, NULL},
    };
    return rf_tpl_find_builtin(functions, RF_COUNT(functions), name, bytes);
}
