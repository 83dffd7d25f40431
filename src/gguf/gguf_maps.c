/* The list of mapped model files, which a handler of SIGBUS searches with rf_gguf_mapped().
 *
 * A signal concerns the whole process, and the code it interrupts may hold any lock. So there is one list for the
 * process, and reading it takes no lock: entries are complete before they are added, are never freed, and an entry
 * that is not in use has 0 as its end. Threads that change the list exclude each other. */
#include "gguf/gguf_impl.h"

#include <stdlib.h>

struct map {
    struct map *next;
    _Atomic uintptr_t first, end;
};
static _Atomic(struct map *) maps;
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;

bool rf_gguf_mapped(const void *address) {
    uintptr_t at = (uintptr_t)address;
    for (struct map *map = atomic_load(&maps); map; map = map->next) {
        uintptr_t end = atomic_load(&map->end), first = atomic_load(&map->first);
        /* If another file has taken the entry meanwhile, it was not the caller's: the caller's file is still open. */
        if (at >= first && at < end && atomic_load(&map->end) == end) return true;
    }
    return false;
}

bool gguf_map_add(const void *address, uint64_t bytes) {
    pthread_mutex_lock(&changing);
    struct map *head = atomic_load(&maps), *map = head;
    while (map && atomic_load(&map->end)) map = map->next;
    bool fresh = !map;
    if (fresh) map = calloc(1, sizeof *map);
    if (map) {
        atomic_store(&map->first, (uintptr_t)address);
        atomic_store(&map->end, (uintptr_t)address + (uintptr_t)bytes);
    }
    if (map && fresh) {
        map->next = head;
        atomic_store(&maps, map);
    }
    pthread_mutex_unlock(&changing);
    return map != NULL;
}

void gguf_map_remove(const void *address) {
    /* No lock: the file is still mapped, so no other entry has its address, and only its owner ends it. */
    for (struct map *map = atomic_load(&maps); map; map = map->next)
        if (atomic_load(&map->end) && atomic_load(&map->first) == (uintptr_t)address) atomic_store(&map->end, 0);
}
