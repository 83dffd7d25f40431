/* Placement: which place each node goes to.
 *
 * Nodes are moved in clusters: the nodes of one group, and all nodes that use a tensor which some node updates. Every
 * cluster begins on the first place that runs it. While a place is over its limit, one of its clusters moves on to
 * the next place that runs it, the CPU being the last: the cluster with the least added time per byte saved. Time is
 * an estimate from traffic bytes, operations and copies. It only decides between clusters: whatever fits on a device
 * stays there.
 *
 * Invariant: a move only goes forward in the list of places, so the search ends. */
#include "graph/plan.h"

#include <math.h>
#include <stdlib.h>

static const char WHY_BEST[] = "the first place that runs it";
static const char WHY_UNSUPPORTED[] = "no device runs it";
static const char WHY_SPILLED[] = "did not fit: least time lost per byte saved";
static const char WHY_NEIGHBOURS[] = "all it works with is on the CPU";
static const char WHY_ASKED[] = "placed by the caller";

struct cluster {
    uint32_t first, count; /* its members are nodes[first] and those after it */
    uint32_t allowed;      /* a bit for each place that runs all its nodes */
    int place;
    const char *why;
    bool dirty;     /* the score is not up to date with the placement */
    double score;   /* added time per byte saved */
    uint64_t kept;  /* bytes of kept tensors that no other cluster on the place uses */
    uint64_t saved; /* kept, plus the bytes of the tensors it makes */
    int64_t added_ns;
};

struct search {
    struct rf_plan *plan;
    struct cluster *clusters;
    size_t cluster_count;
    uint32_t *cluster_of; /* [node] */
    uint32_t *nodes;      /* the nodes, sorted by cluster */
    uint32_t *allowed;    /* [node] */
    uint32_t *stamps;     /* [tensor] the stamp of the last visit */
    uint32_t stamp;
};

static rf_status find_supported(struct search *search, const struct rf_plan_params *params);
static rf_status make_clusters(struct search *search);
static rf_status choose(struct search *search, const struct rf_plan_params *params);
static rf_status fit(struct search *search, bool may_move);
static void estimate(struct rf_plan *plan);

rf_status rf_plan_place_nodes(struct rf_plan *plan, const struct rf_plan_params *params) {
    size_t nodes = plan->graph->node_count, tensors = plan->graph->tensor_count;
    struct search search = {
        .plan = plan,
        .clusters = calloc(nodes + 1, sizeof *search.clusters),
        .cluster_of = calloc(nodes + 1, sizeof *search.cluster_of),
        .nodes = calloc(nodes + 1, sizeof *search.nodes),
        .allowed = calloc(nodes + 1, sizeof *search.allowed),
        .stamps = calloc(tensors + 1, sizeof *search.stamps),
    };
    rf_status status = RF_OK;
    if (!search.clusters || !search.cluster_of || !search.nodes || !search.allowed || !search.stamps)
        status = rf_fail(RF_E_NO_MEMORY, "graph '%s': no host memory for a plan", plan->graph->name);
    if (!status) status = find_supported(&search, params);
    if (!status) status = make_clusters(&search);
    if (!status) status = choose(&search, params);
    if (!status) status = fit(&search, !params->place && !params->place_group);
    if (!status) {
        for (uint32_t s = 0; s < nodes; s++) {
            const struct cluster *cluster = &search.clusters[search.cluster_of[s]];
            plan->node_why[s] = cluster->why;
            plan->degraded |= cluster->why == WHY_SPILLED || cluster->why == WHY_NEIGHBOURS;
        }
        estimate(plan);
    }
    free(search.clusters);
    free(search.cluster_of);
    free(search.nodes);
    free(search.allowed);
    free(search.stamps);
    return status;
}

/* ---- which places a node may go to ---- */

static rf_status find_supported(struct search *search, const struct rf_plan_params *params) {
    const struct rf_plan *plan = search->plan;
    for (uint32_t s = 0; s < plan->graph->node_count; s++) {
        struct rf_op_call call;
        rf_graph_call(plan->graph, &plan->graph->nodes[s], &call);
        for (int p = 0; p < plan->place_count; p++) {
            struct rf_backend *backend = plan->places[p].backend;
            if (params->refused && params->refused[(size_t)s * (size_t)plan->place_count + (size_t)p]) continue;
            rf_status status = backend->table->supports(backend, &call);
            if (!status) search->allowed[s] |= 1u << p;
            if (status && status != RF_E_UNSUPPORTED) return status;
        }
        if (!search->allowed[s])
            return rf_fail(RF_E_UNSUPPORTED, "node '%s': %s runs on none of the places given; let the CPU be one",
                           plan->graph->nodes[s].name, call.op->name);
    }
    return RF_OK;
}

static uint32_t find_set(uint32_t *parents, uint32_t node) {
    while (parents[node] != node) node = parents[node] = parents[parents[node]];
    return node;
}
static void join(uint32_t *parents, uint32_t a, uint32_t b) {
    a = find_set(parents, a);
    b = find_set(parents, b);
    if (a < b)
        parents[b] = a;
    else
        parents[a] = b;
}

struct member {
    int group;
    uint32_t allowed, node;
};
static int compare_members(const void *left, const void *right) {
    const struct member *a = left, *b = right;
    if (a->group != b->group) return a->group < b->group ? -1 : 1;
    if (a->allowed != b->allowed) return a->allowed < b->allowed ? -1 : 1;
    return a->node < b->node ? -1 : a->node > b->node;
}

static rf_status make_clusters(struct search *search) {
    const struct rf_plan *plan = search->plan;
    const struct rf_graph *graph = plan->graph;
    size_t nodes = graph->node_count;
    uint32_t *parents = calloc(nodes + 1, sizeof *parents);
    struct member *members = calloc(nodes + 1, sizeof *members);
    if (!parents || !members) {
        free(parents);
        free(members);
        return rf_fail(RF_E_NO_MEMORY, "graph '%s': no host memory for a plan", graph->name);
    }
    for (uint32_t s = 0; s < nodes; s++) {
        parents[s] = s;
        members[s] = (struct member){graph->nodes[s].group, search->allowed[s], s};
    }
    /* A group's nodes stay together, except those that fewer places run: the rest must not move because of them. */
    qsort(members, nodes, sizeof *members, compare_members);
    for (size_t i = 1; i < nodes; i++)
        if (members[i].group && members[i].group == members[i - 1].group &&
            members[i].allowed == members[i - 1].allowed)
            join(parents, members[i].node, members[i - 1].node);
    for (size_t v = 0; v < graph->tensor_count; v++)
        for (size_t u = plan->use_start[v] + 1; u < plan->use_start[v + 1] && plan->updated[v]; u++)
            join(parents, plan->uses[u].node, plan->uses[u - 1].node);
    for (uint32_t s = 0; s < nodes; s++) {
        uint32_t set = find_set(parents, s); /* the smallest node of its set */
        if (set == s)
            search->clusters[search->cluster_count] = (struct cluster){.allowed = UINT32_MAX, .dirty = true};
        uint32_t index = set == s ? (uint32_t)search->cluster_count++ : search->cluster_of[set];
        search->cluster_of[s] = index;
        search->clusters[index].count++;
        search->clusters[index].allowed &= search->allowed[s];
    }
    uint32_t at = 0;
    for (size_t c = 0; c < search->cluster_count; c++) {
        search->clusters[c].first = at;
        at += search->clusters[c].count;
        search->clusters[c].count = 0;
    }
    for (uint32_t s = 0; s < nodes; s++) {
        struct cluster *cluster = &search->clusters[search->cluster_of[s]];
        search->nodes[cluster->first + cluster->count++] = s;
    }
    free(parents);
    free(members);
    return RF_OK;
}

static void put(struct search *search, struct cluster *cluster, int place, const char *why) {
    cluster->place = place;
    cluster->why = why;
    for (uint32_t i = 0; i < cluster->count; i++) search->plan->node_place[search->nodes[cluster->first + i]] = place;
}

/* Chooses where each cluster begins. */
static rf_status choose(struct search *search, const struct rf_plan_params *params) {
    const struct rf_plan *plan = search->plan;
    int last = plan->place_count - 1, devices = plan->place_count - (plan->places[last].cpu ? 1 : 0);
    uint32_t device_bits = (1u << devices) - 1;
    for (size_t c = 0; c < search->cluster_count; c++) {
        struct cluster *cluster = &search->clusters[c];
        const char *name = plan->graph->nodes[search->nodes[cluster->first]].name;
        if (!cluster->allowed)
            return rf_fail(RF_E_UNSUPPORTED, "node '%s' and those it is placed with run on no place together", name);
        int place = __builtin_ctz(cluster->allowed);
        const char *why = devices && !(cluster->allowed & device_bits) ? WHY_UNSUPPORTED : WHY_BEST;
        int group = plan->graph->nodes[search->nodes[cluster->first]].group;
        if (params->place || (params->place_group && group)) {
            int asked = params->place ? params->place(params->user, name) : params->place_group(params->user, group);
            if (asked < -1 || asked >= RF_PLACES_MAX ||
                ((asked == -1 || asked >= devices) && !plan->places[last].cpu))
                return rf_fail(RF_E_INVALID, "node '%s' was placed on %d; there are %d devices%s", name, asked,
                               devices, plan->places[last].cpu ? ", and -1 for the CPU" : ", and no CPU");
            if (asked == -1 || asked >= devices) asked = last;
            if (cluster->allowed >> asked & 1) place = asked, why = WHY_ASKED;
        }
        put(search, cluster, place, why);
    }
    return RF_OK;
}

/* ---- estimated times ---- */

int64_t rf_plan_node_ns(const struct rf_plan *plan, uint32_t node, int place) {
    const struct rf_plan_place *at = &plan->places[place];
    double memory = (double)plan->node_bytes[node] / at->bytes_per_ns;
    double work = (double)plan->node_flops[node] / at->flops_per_ns;
    return at->launch_ns + (int64_t)RF_MAX(memory, work);
}

int64_t rf_plan_copy_ns(const struct rf_plan *plan, uint64_t bytes, int from, int to) {
    const struct rf_plan_place *a = &plan->places[from], *b = &plan->places[to];
    double ns = 0;
    if (from == to) return 0;
    if (!a->cpu) ns += (double)bytes / a->link_bytes_per_ns + (double)a->launch_ns;
    if (!b->cpu) ns += (double)bytes / b->link_bytes_per_ns + (double)b->launch_ns;
    return (int64_t)ns;
}

/* The time that copies of a tensor would take per run if cluster c were on 'place'. */
static int64_t copies_ns(const struct search *search, uint32_t root, size_t c, int place) {
    const struct rf_plan *plan = search->plan;
    uint32_t maker = plan->maker[root], needed = 0;
    int64_t ns = 0;
    if (maker == RF_NO_INDEX) return 0;
    int from = search->cluster_of[maker] == c ? place : plan->node_place[maker];
    for (size_t u = plan->use_start[root]; u < plan->use_start[root + 1]; u++) {
        uint32_t node = plan->uses[u].node;
        needed |= 1u << (search->cluster_of[node] == c ? place : plan->node_place[node]);
    }
    needed &= ~(1u << from);
    for (int p = 0; p < plan->place_count; p++)
        if (needed >> p & 1) ns += rf_plan_copy_ns(plan, plan->graph->tensors[root].bytes, from, p);
    return ns;
}

/* Returns the roots that a cluster uses, one per call and each once; RF_NO_INDEX at the end. */
struct cursor {
    uint32_t member;
    int tensor;
};
static uint32_t next_root(struct search *search, const struct cluster *cluster, struct cursor *at) {
    const struct rf_graph *graph = search->plan->graph;
    for (; at->member < cluster->count; at->member++, at->tensor = 0) {
        const struct rf_node_row *row = &graph->nodes[search->nodes[cluster->first + at->member]];
        while (at->tensor < row->op->inputs + row->op->outputs) {
            uint32_t tensor = row->tensors[at->tensor++];
            if (tensor == RF_NO_INDEX || search->stamps[graph->tensors[tensor].root] == search->stamp) continue;
            search->stamps[graph->tensors[tensor].root] = search->stamp;
            return graph->tensors[tensor].root;
        }
    }
    return RF_NO_INDEX;
}

static int next_place(const struct search *search, const struct cluster *cluster) {
    for (int p = cluster->place + 1; p < search->plan->place_count; p++)
        if (cluster->allowed >> p & 1) return p;
    return -1;
}

static void score(struct search *search, size_t c) {
    struct cluster *cluster = &search->clusters[c];
    const struct rf_plan *plan = search->plan;
    int to = next_place(search, cluster);
    struct cursor at = {0};
    cluster->dirty = false;
    cluster->kept = cluster->saved = 0;
    cluster->added_ns = 0;
    cluster->score = INFINITY;
    if (to < 0) return;
    for (uint32_t i = 0; i < cluster->count; i++) {
        uint32_t node = search->nodes[cluster->first + i];
        cluster->added_ns += rf_plan_node_ns(plan, node, to) - rf_plan_node_ns(plan, node, cluster->place);
    }
    search->stamp++;
    for (uint32_t root; (root = next_root(search, cluster, &at)) != RF_NO_INDEX;) {
        const struct rf_tensor_row *tensor = &plan->graph->tensors[root];
        if (tensor->role == RF_ROLE_RESULT) {
            cluster->added_ns += copies_ns(search, root, c, to) - copies_ns(search, root, c, cluster->place);
            if (plan->maker[root] != RF_NO_INDEX && search->cluster_of[plan->maker[root]] == c)
                cluster->saved += tensor->bytes;
            continue;
        }
        bool alone = true;
        for (size_t u = plan->use_start[root]; u < plan->use_start[root + 1] && alone; u++) {
            uint32_t node = plan->uses[u].node;
            alone = search->cluster_of[node] == c || plan->node_place[node] != cluster->place;
        }
        if (alone) cluster->kept += tensor->bytes;
    }
    cluster->saved += cluster->kept;
    /* A cluster that saves nothing goes last but can still move: it counts as a tenth of a byte. */
    cluster->score = (double)cluster->added_ns / (cluster->saved ? (double)cluster->saved : 0.1);
}

static void move(struct search *search, size_t c, int to, const char *why) {
    struct cluster *cluster = &search->clusters[c];
    struct cursor at = {0};
    put(search, cluster, to, why);
    cluster->dirty = true;
    search->stamp++;
    for (uint32_t root; (root = next_root(search, cluster, &at)) != RF_NO_INDEX;)
        for (size_t u = search->plan->use_start[root]; u < search->plan->use_start[root + 1]; u++)
            search->clusters[search->cluster_of[search->plan->uses[u].node]].dirty = true;
}

/* Moves clusters away from a place until their kept bytes make up for the excess. False: there is none to move. */
static bool spill(struct search *search, int place, uint64_t excess) {
    const struct rf_plan *plan = search->plan;
    uint64_t saved = 0;
    bool moved = false;
    while (saved < excess) {
        size_t best = search->cluster_count;
        for (size_t c = 0; c < search->cluster_count; c++) {
            struct cluster *cluster = &search->clusters[c];
            if (cluster->place != place) continue;
            if (cluster->dirty) score(search, c);
            if (next_place(search, cluster) < 0) continue;
            if (best == search->cluster_count || cluster->score < search->clusters[best].score) best = c;
        }
        if (best == search->cluster_count) break;
        struct cluster *cluster = &search->clusters[best];
        int to = next_place(search, cluster);
        rf_assert(to > cluster->place); /* so the search ends */
        /* The tensors it makes count only if it keeps nothing: how far they shorten the arena is known when the
         * arena is laid out. */
        saved += cluster->kept ? cluster->kept : cluster->saved ? cluster->saved : 1;
        move(search, best, to, plan->places[to].cpu ? WHY_SPILLED : cluster->why);
        moved = true;
    }
    return moved;
}

/* Moves clusters to the CPU that keep nothing and work only with tensors on the CPU: they gain nothing from a
 * device. */
static void follow(struct search *search) {
    const struct rf_plan *plan = search->plan;
    int cpu = plan->place_count - 1;
    bool again = plan->places[cpu].cpu;
    while (again) {
        again = false;
        for (size_t c = 0; c < search->cluster_count; c++) {
            struct cluster *cluster = &search->clusters[c];
            struct cursor at = {0};
            bool alone = cluster->place != cpu && (cluster->allowed >> cpu & 1), meets = false;
            search->stamp++;
            for (uint32_t root; alone && (root = next_root(search, cluster, &at)) != RF_NO_INDEX;) {
                if (plan->graph->tensors[root].role != RF_ROLE_RESULT) {
                    alone = false;
                    break;
                }
                for (size_t u = plan->use_start[root]; u < plan->use_start[root + 1] && alone; u++) {
                    uint32_t node = plan->uses[u].node;
                    if (search->cluster_of[node] == c) continue;
                    meets = true;
                    alone = plan->node_place[node] == cpu;
                }
            }
            if (!alone || !meets) continue;
            move(search, c, cpu, WHY_NEIGHBOURS);
            again = true;
        }
    }
}

static rf_status fit(struct search *search, bool may_move) {
    struct rf_plan *plan = search->plan;
    for (;;) {
        int over = -1;
        rf_status status = rf_plan_order(plan, true);
        if (!status) status = rf_plan_memory(plan, &over);
        if (status == RF_E_BUDGET && over >= 0) {
            /* The eager order may need more memory: without it the graph may fit. */
            status = rf_plan_order(plan, false);
            if (!status) status = rf_plan_memory(plan, &over);
        }
        if (status != RF_E_BUDGET || over < 0 || !may_move) return status;
        const struct rf_plan_place *place = &plan->places[over];
        if (!spill(search, over, rf_plan_arena_bytes(place) - place->limit)) return status;
        follow(search);
    }
}

/* ---- estimated time of a run ---- */

/* Follows the order with a clock for each place; the CPU's clock is the host's. */
static void estimate(struct rf_plan *plan) {
    int64_t clocks[RF_PLACES_MAX] = {0}, host = 0, end = 0;
    size_t next_copy = 0;
    int64_t *done = calloc(plan->graph->node_count + 1, sizeof *done);
    plan->expected_ns = 0;
    if (!done) return; /* a missing estimate is no reason to fail */
    for (uint32_t at = 0; at < plan->graph->node_count; at++) {
        uint32_t node = plan->order[at];
        int place = plan->node_place[node];
        bool cpu = plan->places[place].cpu;
        int64_t ready = 0;
        for (; next_copy < plan->copy_count && plan->copies[next_copy].before == at; next_copy++) {
            const struct rf_plan_copy *copy = &plan->copies[next_copy];
            int64_t there = done[plan->maker[copy->tensor]] +
                            rf_plan_copy_ns(plan, plan->graph->tensors[copy->tensor].bytes, copy->from, copy->to);
            ready = RF_MAX(ready, there);
            if (!plan->places[copy->from].cpu) host = RF_MAX(host, there); /* the host waits for it */
        }
        int64_t start = RF_MAX(ready, cpu ? host : RF_MAX(host, clocks[place]));
        done[node] = start + rf_plan_node_ns(plan, node, place);
        if (cpu)
            host = done[node];
        else
            clocks[place] = done[node];
        end = RF_MAX(end, done[node]);
    }
    free(done);
    plan->expected_ns = end;
}
