/* Merges neighbours, the most urgent pair first, until no pair is left. Both families are built on this.
 *
 * It works on a chain of links and a heap of candidates. Each merge makes at most two new candidates and
 * removes one link, so there are at most three candidates per link, and the whole takes n log n steps.
 *
 * Invariants: a candidate names its left link in the low half of its order. It is outdated if the left
 * link is gone, or if left and right together are not as long as when it was made: links only grow, by
 * taking in what is to their right, so their length shows it. This is asserted at each
 * merge. Merging must not depend on what the text means. */
#include "tokenizer/tokenizer_impl.h"

static rf_status push(struct rf_encoding *encoding, struct rf_candidate candidate) {
    rf_status status = RF_GROW(&encoding->account, encoding->heap, encoding->heap_capacity, encoding->heap_count + 1);
    if (status) return status;
    struct rf_candidate *heap = encoding->heap;
    size_t at = encoding->heap_count++;
    for (; at > 0 && candidate.order < heap[(at - 1) / 2].order; at = (at - 1) / 2, encoding->steps++)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = candidate;
    encoding->steps++;
    return RF_OK;
}

static struct rf_candidate pop(struct rf_encoding *encoding) {
    struct rf_candidate *heap = encoding->heap, top = heap[0], moved = heap[--encoding->heap_count];
    size_t count = encoding->heap_count, at = 0;
    for (size_t child; (child = 2 * at + 1) < count; at = child, encoding->steps++) {
        if (child + 1 < count && heap[child + 1].order < heap[child].order) child++;
        if (moved.order <= heap[child].order) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
    encoding->steps++;
    return top;
}

static rf_status consider(struct rf_encoding *encoding, const char *text, uint32_t left, rf_merge_fn find) {
    const struct rf_link *links = encoding->links;
    if (left == RF_NO_LINK || links[left].next == RF_NO_LINK) return RF_OK;
    const struct rf_link *right = &links[links[left].next];
    uint32_t rank, merged;
    encoding->steps++;
    if (!find(encoding->tokenizer, text, &links[left], right, &rank, &merged)) return RF_OK;
    return push(encoding,
                (struct rf_candidate){(uint64_t)rank << 32 | left, merged, links[left].bytes + right->bytes});
}

rf_status rf_merge_links(struct rf_encoding *encoding, const char *text, size_t count, rf_merge_fn find) {
    struct rf_link *links = encoding->links;
    rf_status status = RF_OK;
    encoding->heap_count = 0;
    for (size_t i = 0; i < count && !status; i++) status = consider(encoding, text, (uint32_t)i, find);
    while (!status && encoding->heap_count) {
        struct rf_candidate candidate = pop(encoding);
        rf_assert((candidate.order & UINT32_MAX) < count);
        struct rf_link *left = &links[candidate.order & UINT32_MAX];
        if (!left->bytes || left->next == RF_NO_LINK) continue;
        struct rf_link *right = &links[left->next];
        rf_assert(right->bytes && right->start == left->start + left->bytes && &links[right->previous] == left);
        if (left->bytes + right->bytes != candidate.bytes) continue;
        left->bytes = candidate.bytes;
        left->symbol = candidate.merged;
        left->next = right->next;
        right->bytes = 0;
        if (left->next != RF_NO_LINK) links[left->next].previous = (uint32_t)(left - links);
        status = consider(encoding, text, left->previous, find);
        if (!status) status = consider(encoding, text, (uint32_t)(left - links), find);
    }
    return status;
}
