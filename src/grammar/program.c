/* Building programs (see program.h). */
#include "grammar/program.h"

#include <stdlib.h>

void rf_program_init(struct rf_program *program, const struct rf_account *account) {
    *program = (struct rf_program){.account = rf_account_open(account)};
}

void rf_program_destroy(struct rf_program *program) {
    struct rf_list *lists[] = {&program->nodes,   &program->links,   &program->rules,
                               &program->classes, &program->bytes,   &program->states,
                               &program->edges,   &program->objects, &program->bits};
    for (size_t i = 0; i < RF_COUNT(lists); i++) free(lists[i]->data);
    rf_account_close(&program->account);
    *program = (struct rf_program){.root = 0};
}

rf_status rf_list_add(struct rf_program *program, struct rf_list *list, const void *data, uint32_t count,
                      size_t element_bytes, uint32_t *out) {
    uint64_t wanted = (uint64_t)list->count + count;
    if (wanted > list->capacity) {
        uint64_t capacity = RF_MAX(wanted, 2 * (uint64_t)list->capacity + 16);
        if (wanted * element_bytes > UINT32_MAX || wanted > UINT32_MAX / 2)
            return rf_fail(RF_E_NO_MEMORY, "the grammar is too large; make it smaller");
        RF_TRY(rf_account_resize(&program->account, &list->data, list->capacity * element_bytes,
                                 capacity * element_bytes, "a grammar"));
        list->capacity = (uint32_t)capacity;
    }
    char *at = (char *)list->data + list->count * element_bytes;
    if (count && data) memcpy(at, data, count * element_bytes);
    if (count && !data) memset(at, 0, count * element_bytes);
    if (out) *out = list->count;
    list->count += count;
    return RF_OK;
}

rf_status rf_add_node(struct rf_program *program, struct rf_node node, uint32_t *out) {
    if (program->nodes.count >= RF_NODES_MAX)
        return rf_fail(RF_E_NO_MEMORY, "the grammar has more than %d parts; make it smaller", RF_NODES_MAX);
    rf_node_look(program, &node, &node.nullable, &node.productive); /* what depends on a rule is found out later */
    return rf_list_add(program, &program->nodes, &node, 1, sizeof node, out);
}

rf_status rf_add_empty(struct rf_program *program, uint32_t *out) {
    return rf_add_node(program, (struct rf_node){.kind = RF_NODE_EMPTY}, out);
}

rf_status rf_add_never(struct rf_program *program, uint32_t *out) {
    return rf_add_node(program, (struct rf_node){.kind = RF_NODE_NEVER}, out);
}

rf_status rf_add_class(struct rf_program *program, const struct rf_byte_class *bytes, uint32_t *out) {
    struct rf_node node = {.kind = RF_NODE_CLASS};
    const struct rf_byte_class *known = program->classes.data;
    uint32_t recent = program->classes.count > 64 ? program->classes.count - 64 : 0; /* the same ones come often */
    for (node.a = recent; node.a < program->classes.count; node.a++)
        if (!memcmp(&known[node.a], bytes, sizeof *bytes)) return rf_add_node(program, node, out);
    RF_TRY(rf_list_add(program, &program->classes, bytes, 1, sizeof *bytes, &node.a));
    return rf_add_node(program, node, out);
}

rf_status rf_add_range(struct rf_program *program, uint8_t low, uint8_t high, uint32_t *out) {
    struct rf_byte_class bytes = {{0}};
    for (unsigned byte = low; byte <= high; byte++) bytes.bits[byte / 32] |= 1u << byte % 32;
    return rf_add_class(program, &bytes, out);
}

rf_status rf_add_literal(struct rf_program *program, const char *text, size_t bytes, uint32_t *out) {
    if (!bytes) return rf_add_empty(program, out);
    if (bytes > RF_NODES_MAX) return rf_fail(RF_E_NO_MEMORY, "a text of %zu bytes in a grammar is too long", bytes);
    struct rf_node node = {.kind = RF_NODE_LITERAL, .b = (uint32_t)bytes};
    RF_TRY(rf_list_add(program, &program->bytes, text, node.b, 1, &node.a));
    return rf_add_node(program, node, out);
}

rf_status rf_add_text(struct rf_program *program, const char *text, uint32_t *out) {
    return rf_add_literal(program, text, strlen(text), out);
}

static rf_status add_children(struct rf_program *program, enum rf_node_kind kind, const uint32_t *children,
                              size_t count, uint32_t *out) {
    if (count == 1) {
        *out = children[0];
        return RF_OK;
    }
    if (count > RF_NODES_MAX) return rf_fail(RF_E_NO_MEMORY, "the grammar has too many parts; make it smaller");
    struct rf_node node = {.kind = (uint8_t)kind, .b = (uint32_t)count};
    RF_TRY(rf_list_add(program, &program->links, children, node.b, sizeof *children, &node.a));
    return rf_add_node(program, node, out);
}

rf_status rf_add_sequence(struct rf_program *program, const uint32_t *children, size_t count, uint32_t *out) {
    return count ? add_children(program, RF_NODE_SEQUENCE, children, count, out) : rf_add_empty(program, out);
}

rf_status rf_add_choice(struct rf_program *program, const uint32_t *children, size_t count, uint32_t *out) {
    return count ? add_children(program, RF_NODE_CHOICE, children, count, out) : rf_add_never(program, out);
}

rf_status rf_add_repeat(struct rf_program *program, uint32_t child, uint32_t least, uint32_t most, uint32_t *out) {
    if (least > most) return rf_add_never(program, out);
    if (!most) return rf_add_empty(program, out);
    const struct rf_node *inner = rf_node(program, child);
    if (least == 1 && most == 1) {
        *out = child;
        return RF_OK;
    }
    /* (x*)* is x*, and so on: without this a run of nested ones would be entered in many ways. */
    if (inner->kind == RF_NODE_REPEAT && !inner->b && inner->c == RF_NO_LIMIT) {
        *out = child;
        return RF_OK;
    }
    if (inner->kind == RF_NODE_REPEAT && inner->b <= 1 && (inner->c == RF_NO_LIMIT || inner->c == 1) && least <= 1 &&
        (most == RF_NO_LIMIT || most == 1)) {
        least = RF_MIN(least, inner->b);
        most = RF_MAX(most, inner->c);
        child = inner->a;
    }
    return rf_add_node(program, (struct rf_node){.kind = RF_NODE_REPEAT, .a = child, .b = least, .c = most}, out);
}

rf_status rf_add_optional(struct rf_program *program, uint32_t child, uint32_t *out) {
    return rf_add_repeat(program, child, 0, 1, out);
}

rf_status rf_add_rule(struct rf_program *program, const char *name, size_t bytes, uint32_t line, uint32_t *rule,
                      uint32_t *out) {
    struct rf_rule made = {.line = line};
    struct rf_node node = {.kind = RF_NODE_RULE};
    RF_TRY(rf_add_never(program, &made.body));
    RF_TRY(rf_list_add(program, &program->bytes, name, (uint32_t)RF_MIN(bytes, (size_t)200), 1, &made.name));
    RF_TRY(rf_list_add(program, &program->bytes, NULL, 1, 1, NULL));
    RF_TRY(rf_list_add(program, &program->rules, &made, 1, sizeof made, &node.a));
    *rule = node.a;
    return rf_add_node(program, node, out);
}
