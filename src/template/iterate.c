/* Going through values one item after the other. */
#include "template/template_impl.h"

bool rf_tpl_has_length(const struct rf_tpl_value *value) {
    switch (value->kind) {
    case RF_TPL_UNDEFINED:
    case RF_TPL_TEXT:
    case RF_TPL_LIST:
    case RF_TPL_TUPLE:
    case RF_TPL_DICT:
    case RF_TPL_VIEW:
    case RF_TPL_RANGE:
    case RF_TPL_LOOP: return true;
    default: return false;
    }
}

rf_status rf_tpl_length(struct rf_run *run, const struct rf_tpl_value *value, int64_t *length) {
    struct rf_tpl_value counted;
    bool found;
    switch (value->kind) {
    case RF_TPL_UNDEFINED: *length = 0; return RF_OK;
    case RF_TPL_TEXT:
        *length = (int64_t)rf_tpl_text_chars(value->text);
        return rf_run_steps(run, value->text->length / 64);
    case RF_TPL_LIST:
    case RF_TPL_TUPLE: *length = (int64_t)value->list->count; return RF_OK;
    case RF_TPL_DICT: *length = (int64_t)value->dict->count; return RF_OK;
    case RF_TPL_VIEW: *length = (int64_t)value->view->dict->count; return RF_OK;
    case RF_TPL_RANGE: *length = value->range->count; return RF_OK;
    case RF_TPL_LOOP:
        RF_TRY(rf_loop_attribute(run, value->loop, &(struct rf_tpl_text){.bytes = "length", .length = 6}, &found,
                                 &counted));
        *length = counted.integer;
        return RF_OK;
    default: return rf_run_fail(run, "object of type '%s' has no len()", rf_tpl_type_name(value));
    }
}

bool rf_tpl_is_iterable(const struct rf_tpl_value *value) {
    return (rf_tpl_has_length(value) || value->kind == RF_TPL_ITERATOR || value->kind == RF_TPL_LOOP);
}

rf_status rf_tpl_iter_begin(struct rf_run *run, const struct rf_tpl_value *of, struct rf_tpl_iter *iter) {
    if (!rf_tpl_is_iterable(of)) return rf_run_fail(run, "'%s' object is not iterable", rf_tpl_type_name(of));
    *iter = (struct rf_tpl_iter){.of = *of};
    return RF_OK;
}

static rf_status entry_of(struct rf_run *run, const struct rf_tpl_view *view, size_t at, struct rf_tpl_value *out) {
    const struct rf_tpl_entry *entry = &view->dict->entries[at];
    if (view->of != RF_TPL_ITEMS) {
        *out = view->of == RF_TPL_KEYS ? entry->key : entry->value;
        return RF_OK;
    }
    struct rf_tpl_list *pair = rf_tpl_list_new(run, 2);
    if (!pair) return RF_E_NO_MEMORY;
    pair->items[0] = entry->key;
    pair->items[1] = entry->value;
    pair->count = 2;
    *out = rf_tpl_of_list(pair, true);
    return RF_OK;
}

rf_status rf_tpl_iter_next(struct rf_run *run, struct rf_tpl_iter *iter, struct rf_tpl_value *out, bool *found) {
    const struct rf_tpl_value *of = &iter->of;
    RF_TRY(rf_run_steps(run, 1));
    *found = true;
    switch (of->kind) {
    case RF_TPL_TEXT:
        if (iter->at < of->text->length) {
            size_t bytes = rf_text_char_bytes((unsigned char)of->text->bytes[iter->at]);
            struct rf_tpl_text *text = rf_tpl_text_part(run, of->text, iter->at, bytes);
            if (!text) return RF_E_NO_MEMORY;
            text->safe = false;
            *out = rf_tpl_of_text(text);
            iter->at += bytes;
            return RF_OK;
        }
        break;
    case RF_TPL_LIST:
    case RF_TPL_TUPLE:
        if (iter->at < of->list->count) {
            *out = of->list->items[iter->at++];
            return RF_OK;
        }
        break;
    case RF_TPL_DICT:
        if (iter->at < of->dict->count) {
            *out = of->dict->entries[iter->at++].key;
            return RF_OK;
        }
        break;
    case RF_TPL_VIEW:
        if (iter->at < of->view->dict->count) return entry_of(run, of->view, iter->at++, out);
        break;
    case RF_TPL_RANGE:
        if ((int64_t)iter->at < of->range->count) {
            *out = rf_tpl_int(of->range->start + (int64_t)iter->at++ * of->range->step);
            return RF_OK;
        }
        break;
    case RF_TPL_ITERATOR:
        if (of->iterator->at < of->iterator->count) {
            *out = of->iterator->items[of->iterator->at++];
            return RF_OK;
        }
        if (of->iterator->failure) {
            rf_status failure = of->iterator->failure;
            of->iterator->failure = RF_OK;
            return rf_fail(failure, "%s", of->iterator->failure_text);
        }
        break;
    case RF_TPL_LOOP: { /* pairs of the item and the loop */
        RF_TRY(rf_loop_next(run, of->loop, found));
        if (!*found) return RF_OK;
        struct rf_tpl_list *pair = rf_tpl_list_new(run, 2);
        if (!pair) return RF_E_NO_MEMORY;
        pair->items[0] = of->loop->current;
        pair->items[1] = *of;
        pair->count = 2;
        *out = rf_tpl_of_list(pair, true);
        return RF_OK;
    }
    default: break;
    }
    *found = false;
    return RF_OK;
}

rf_status rf_tpl_to_list(struct rf_run *run, const struct rf_tpl_value *from, struct rf_tpl_list **out) {
    struct rf_tpl_iter iter;
    RF_TRY(rf_tpl_iter_begin(run, from, &iter));
    struct rf_tpl_list *list = rf_tpl_list_new(run, 0);
    if (!list) return RF_E_NO_MEMORY;
    for (;;) {
        struct rf_tpl_value item;
        bool found;
        RF_TRY(rf_tpl_iter_next(run, &iter, &item, &found));
        if (!found) break;
        RF_TRY(rf_tpl_list_add(run, list, &item));
    }
    *out = list;
    return RF_OK;
}

rf_status rf_tpl_iterator_of(struct rf_run *run, struct rf_tpl_list *items, rf_status failure,
                             struct rf_tpl_value *out) {
    if (rf_run_is_final(failure)) return failure;
    struct rf_tpl_iterator *iterator = RF_ARENA_NEW(&run->arena, struct rf_tpl_iterator);
    if (!iterator) return RF_E_NO_MEMORY;
    iterator->items = items->items;
    iterator->count = items->count;
    if (failure) {
        size_t bytes = strlen(rf_error_text()) + 1;
        char *text = rf_arena_take_raw(&run->arena, bytes);
        if (!text) return RF_E_NO_MEMORY;
        memcpy(text, rf_error_text(), bytes);
        iterator->failure = failure;
        iterator->failure_text = text;
    }
    *out = (struct rf_tpl_value){.kind = RF_TPL_ITERATOR, .iterator = iterator};
    return RF_OK;
}

rf_status rf_tpl_contains(struct rf_run *run, const struct rf_tpl_value *container, const struct rf_tpl_value *item,
                          bool *inside) {
    *inside = false;
    if (container->kind == RF_TPL_TEXT) {
        if (item->kind != RF_TPL_TEXT)
            return rf_run_fail(run, "'in <string>' requires a string on its left side, not '%s'",
                               rf_tpl_type_name(item));
        *inside = rf_tpl_text_find(container->text, 0, item->text) != SIZE_MAX;
        return rf_run_steps(run, container->text->length / 64);
    }
    struct rf_tpl_value *found = NULL;
    if (container->kind == RF_TPL_DICT || (container->kind == RF_TPL_VIEW && container->view->of == RF_TPL_KEYS)) {
        RF_TRY(rf_tpl_dict_find(run, container->kind == RF_TPL_DICT ? container->dict : container->view->dict, item,
                                &found));
        *inside = found != NULL;
        return RF_OK;
    }
    if (!rf_tpl_is_iterable(container))
        return rf_run_fail(run, "argument of type '%s' is not iterable", rf_tpl_type_name(container));
    struct rf_tpl_iter iter;
    RF_TRY(rf_tpl_iter_begin(run, container, &iter));
    for (bool more = true; !*inside;) {
        struct rf_tpl_value each;
        RF_TRY(rf_tpl_iter_next(run, &iter, &each, &more));
        if (!more) break;
        RF_TRY(rf_tpl_equal(run, &each, item, inside));
    }
    return RF_OK;
}
