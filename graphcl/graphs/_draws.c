/* Loops that turn random numbers into samples, regions and perturbed edges; `graphcl/graphs/native.py` describes each.
 *
 * Conventions are those of `_native.c`. Besides, loops over graphs return -1 if there is no memory, -2 if the random
 * numbers are not those of the counts, -3 if an edge leaves its graph.
 */
#include "_native.h"

/* -- sampling ------------------------------------------------------------------------------------------------------ */

/* floor(ratio n), at most n - 1; the tiny offset is that of `ratio_count` in `graphcl/graphs/segment.py`. */
static i64 ratio_count(double ratio, i64 n) {
    i64 count = (i64)((double)n * ratio + 1e-9), most = n > 0 ? n - 1 : 0;
    return count < most ? count : most;
}

/* Write the first k[g] elements of each segment in the order of `order`, a permutation of the positions of all elements
 * of the segments with k[g] > 0. `work` has size + 3 * segments entries. Returns 0 if a number is out of range. */
static int sample(const i64 *ptr, const i64 *k, i64 segments, const i64 *order, i64 size, i64 *work, i64 *out) {
    i64 *segment = work, *shift = segment + size, *next = shift + segments, *end = next + segments, base = 0, found = 0;
    for (i64 g = 0; g < segments; g++) {
        i64 n = ptr[g + 1] - ptr[g];
        if (k[g] < 0 || (k[g] > 0 && (k[g] > n || n > size - base))) return 0;
        shift[g] = ptr[g] - base, next[g] = found, end[g] = found += k[g];
        for (i64 i = 0; k[g] > 0 && i < n; i++) segment[base++] = g;
    }
    for (i64 i = 0; i < size; i++) {
        if (order[i] < 0 || order[i] >= base) return 0;
        i64 g = segment[order[i]];
        if (next[g] < end[g]) out[next[g]++] = order[i] + shift[g];
    }
    return base == size;
}

/* -- perturbing edges ---------------------------------------------------------------------------------------------- */

/* The arrays of the loops below. By graph: the number of its connected pairs, k of them to remove, moves of these to
 * move, place of these with new ends so far. Sorted pairs: `entry` lists the edges of pair p from first[p] on, low and
 * high are its nodes. `to` holds the lower, then the higher new ends, after those of the graphs before. */
typedef struct {
    const i64 *source, *target, *ptr, *edge_ptr;
    i64 edges, graphs, *pairs, *k, *moves, *place, *entry, *first, *low, *high, *to;
} edge_pairs;

/* All but the graphs lies in `table`, of 4 * graphs + 7 * edges + nodes + 2 entries. */
static edge_pairs unpack(number ptr, number edge_ptr, number ends, i64 edges, i64 graphs, number table) {
    i64 *t = ADDRESS(i64, table), *entry = t + 4 * graphs, *first = entry + edges, *low = first + edges + 1;
    const i64 *source = ADDRESS(i64, ends);
    return (edge_pairs){source, source + edges, ADDRESS(i64, ptr), ADDRESS(i64, edge_ptr), edges, graphs, t, t + graphs,
                        t + 2 * graphs, t + 3 * graphs, entry, first, low, low + edges, low + 2 * edges};
}

/* Find the connected pairs of the graphs in the mask `chosen` (NULL: all), sorted by their lower, then by their higher
 * node. Return their number. `to` is not used yet, and lends 3 * edges + nodes + 1 entries. */
static i64 pairs(const edge_pairs *p, const byte *chosen) {
    i64 kept = 0, found = 0;
    for (i64 g = 0; g < p->graphs; g++) {
        i64 begin = p->ptr[g], nodes = p->ptr[g + 1] - begin, from = p->edge_ptr[g], to = p->edge_ptr[g + 1];
        i64 *edge = p->to, *order = edge + to - from, *id = order + to - from, *bounds = id + to - from, size = 0;
        i64 before = found;
        p->pairs[g] = 0;
        if (chosen && !chosen[g]) continue;
        if (!inside(p->source, p->target, from, to, begin, begin + nodes)) return -3;
        for (i64 e = from; e < to; e++) {
            i64 u = p->source[e], v = p->target[e];
            if (u == v) continue;
            edge[size] = e;
            id[size++] = (u > v ? u : v) - begin;
        }
        group(id, edge, size, nodes, bounds, order);
        for (i64 i = 0; i < size; i++) {
            i64 u = p->source[order[i]], v = p->target[order[i]];
            id[i] = (u < v ? u : v) - begin;
        }
        group(id, order, size, nodes, bounds, p->entry + kept);
        for (i64 i = kept; i < kept + size; i++) {
            i64 u = p->source[p->entry[i]], v = p->target[p->entry[i]], low = u < v ? u : v, high = u < v ? v : u;
            if (found > before && p->low[found - 1] == low && p->high[found - 1] == high) continue;
            p->first[found] = i, p->low[found] = low, p->high[found++] = high;
        }
        kept += size;
        p->pairs[g] = found - before;
    }
    p->first[found] = kept;
    return found;
}

/* Whether graph g has so few unconnected pairs that they are listed; else pairs are tried, `tries` in a round. */
static int listed(const edge_pairs *p, i64 g) {
    i64 n = p->ptr[g + 1] - p->ptr[g];
    return 4 * (p->pairs[g] + p->moves[g]) >= n * (n - 1) / 2;
}

static i64 tries(const edge_pairs *p, i64 g) {
    i64 left = p->moves[g] - p->place[g];
    return left ? left + left / 2 + 8 : 0;
}

/* The tries of a round for all graphs whose pairs are not listed. */
static i64 all_tries(const edge_pairs *p) {
    i64 all = 0;
    for (i64 g = 0; g < p->graphs; g++) all += listed(p, g) ? 0 : tries(p, g);
    return all;
}

/* List the `size` unconnected pairs of the graphs that have few; draw new ends from them by the permutation `order`. */
static i64 draw_listed(const edge_pairs *p, const i64 *order, i64 size) {
    i64 *low = malloc((size_t)(4 * size + 5 * p->graphs + 1) * sizeof(i64)), found = 0, pair = 0, valid = 1;
    if (!low) return -1;
    i64 *high = low + size, *start = high + size, *wanted = start + p->graphs + 1, *drawn = wanted + p->graphs;
    start[0] = 0;
    for (i64 g = 0; valid && g < p->graphs; g++) {
        i64 end = pair + p->pairs[g];
        wanted[g] = listed(p, g) ? p->moves[g] : 0;
        for (i64 u = p->ptr[g]; wanted[g] && u < p->ptr[g + 1]; u++)
            for (i64 v = u + 1; valid && v < p->ptr[g + 1]; v++) {
                if (pair < end && p->low[pair] == u && p->high[pair] == v) pair++;
                else if ((valid = found < size)) low[found] = u, high[found++] = v;
            }
        pair = end;
        start[g + 1] = found;
    }
    valid = valid && found == size && sample(start, wanted, p->graphs, order, size, drawn + size, drawn);
    for (i64 g = 0, i = 0, slot = 0; valid && g < p->graphs; slot += p->moves[g++])
        for (; p->place[g] < wanted[g]; p->place[g]++, i++) {
            p->to[slot + p->place[g]] = low[drawn[i]];
            p->to[p->edges + slot + p->place[g]] = high[drawn[i]];
        }
    free(low);
    return valid ? 0 : -2;
}

/* Insert key into the hash table of `mask` + 1 entries, and return whether it is new. */
static int insert(i64 *table, i64 mask, i64 key) {
    i64 i = (i64)(((uint64_t)key * 0x9E3779B97F4A7C15u) >> 20) & mask;
    for (; table[i] >= 0; i = (i + 1) & mask)
        if (table[i] == key) return 0;
    table[i] = key;
    return 1;
}

/* Try the pairs of nodes that the uniform numbers `ends [2, size]` stand for, and keep the first unconnected ones. */
static i64 draw_tried(const edge_pairs *p, const double *ends, i64 size) {
    i64 *table = NULL, *to = p->to, width = p->edges, room = 0, drawn = 0, error = 0;
    for (i64 g = 0, pair = 0, slot = 0; !error && g < p->graphs; pair += p->pairs[g], slot += p->moves[g++]) {
        i64 begin = p->ptr[g], n = p->ptr[g + 1] - begin, count = tries(p, g), entries = 16;
        if (!count) continue;
        if (count > size - drawn) error = -2;
        while (entries < 2 * (p->pairs[g] + p->moves[g])) entries *= 2;
        if (!error && entries > room) {
            free(table);
            table = malloc((size_t)(room = entries) * sizeof(i64));
            error = table ? 0 : -1;
        }
        if (error) break;
        memset(table, 0xff, (size_t)entries * sizeof(i64)); /* -1: empty */
        for (i64 i = pair; i < pair + p->pairs[g]; i++)
            insert(table, entries - 1, (p->low[i] - begin) * n + p->high[i] - begin);
        for (i64 i = slot; i < slot + p->place[g]; i++)
            insert(table, entries - 1, (to[i] - begin) * n + to[width + i] - begin);
        for (i64 i = drawn; i < drawn + count && p->place[g] < p->moves[g]; i++) {
            i64 u = (i64)(ends[i] * (double)n), v = (i64)(ends[size + i] * (double)n);
            i64 low = u < v ? u : v, high = u < v ? v : u;
            if (low < 0 || high >= n || low == high || !insert(table, entries - 1, low * n + high)) continue;
            to[slot + p->place[g]] = low + begin;
            to[width + slot + p->place[g]++] = high + begin;
        }
        drawn += count;
    }
    free(table);
    return error ? error : drawn == size ? 0 : -2;
}

/* Remove k pairs of each graph, drawn by the permutation `order`, and move the first of them to their new ends. Write 0
 * to `keep` for each removed edge, each moved edge to `moved`, and its ends to both rows of `moved_to`, of a column for
 * each edge. Return the number of moved edges. */
static i64 replace(const edge_pairs *p, const i64 *order, i64 size, byte *keep, i64 *moved, i64 *moved_to) {
    i64 *ptr = malloc((size_t)(2 * size + 4 * p->graphs + 1) * sizeof(i64)), count = 0, i = 0, slot = 0;
    if (!ptr) return -1;
    i64 *removed = ptr + p->graphs + 1, *work = removed + size;
    ptr[0] = 0;
    for (i64 g = 0; g < p->graphs; g++) ptr[g + 1] = ptr[g] + p->pairs[g];
    int valid = sample(ptr, p->k, p->graphs, order, size, work, removed);
    for (i64 g = 0; valid && g < p->graphs; slot += p->moves[g++])
        for (i64 j = 0; j < p->k[g]; j++, i++)
            for (i64 at = p->first[removed[i]]; at < p->first[removed[i] + 1]; at++) {
                i64 e = p->entry[at];
                if (j >= p->moves[g]) {
                    keep[e] = 0;
                    continue;
                }
                int rises = p->source[e] < p->target[e];
                moved[count] = e;
                moved_to[count] = p->to[slot + j + (rises ? 0 : p->edges)];
                moved_to[p->edges + count++] = p->to[slot + j + (rises ? p->edges : 0)];
            }
    free(ptr);
    return valid ? count : -2;
}

/* -- growth ------------------------------------------------------------------------------------------------------- */

typedef struct { double time; i64 node; } arrival;

/* Binary heap, earliest arrival on top; equal times in the order of the nodes, as a stable sort leaves them. */
static int before(arrival a, arrival b) { return (a.time < b.time) | ((a.time == b.time) & (a.node < b.node)); }

static void rise(arrival *heap, i64 i, arrival new) {
    for (; i > 0 && before(new, heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = new;
}

/* Lift the earlier child at each level down to a leaf, from which the last entry rises: without branches to predict. */
static arrival pop(arrival *heap, i64 *count) {
    arrival top = heap[0], last = heap[--*count];
    i64 i = 0;
    for (i64 child = 1; child < *count; child = 2 * i + 1) {
        child += child + 1 < *count && before(heap[child + 1], heap[child]);
        heap[i] = heap[child];
        i = child;
    }
    rise(heap, i, last);
    return top;
}

/* A graph's adjacency: node v's neighbours are other[row[v]] .. other[row[v + 1] - 1], at the distances `times`. */
typedef struct { i64 *row, *other; double *times; } adjacency;

/* Group the ends of m edges of n nodes, which are numbered from `begin`, by source; with `both`, reversed edges too. */
static void join(const adjacency *a, const i64 *source, const i64 *target, const double *travel, i64 m, i64 begin,
                 i64 n, int both) {
    memset(a->row, 0, (size_t)(n + 2) * sizeof(i64));
    for (i64 e = 0; e < m; e++) {
        a->row[source[e] - begin + 2]++;
        if (both) a->row[target[e] - begin + 2]++;
    }
    for (i64 v = 2; v <= n; v++) a->row[v] += a->row[v - 1];
    for (i64 e = 0; e < m; e++)
        for (int reversed = 0; reversed <= both; reversed++) {
            i64 u = source[e] - begin, v = target[e] - begin, at = a->row[(reversed ? v : u) + 1]++;
            a->other[at] = reversed ? u : v;
            a->times[at] = travel[e];
        }
}

/* Whether each of the edges has its reverse, in the same order; `next` has n entries. */
static int symmetric(const adjacency *a, const i64 *source, const i64 *target, i64 m, i64 begin, i64 n, i64 *next) {
    memcpy(next, a->row, (size_t)n * sizeof(i64));
    for (i64 e = 0; e < m; e++) {
        i64 v = target[e] - begin, at = next[v]++;
        if (at == a->row[v + 1] || a->other[at] != source[e] - begin) return 0;
    }
    return 1;
}

/* Reach `size` nodes by Dijkstra. Whenever a component is exhausted, the next node of `order`, numbered from `begin`,
 * starts, its position there times `gap` later. */
static void grow(const adjacency *a, i64 size, const i64 *order, i64 begin, double gap, double *best, arrival *heap,
                 byte *keep) {
    i64 waiting = 0;
    for (i64 next = 0; size > 0;) {
        if (waiting == 0) {
            while (keep[order[next] - begin]) next++;
            rise(heap, waiting++, (arrival){(double)next * gap, order[next] - begin});
        }
        arrival now = pop(heap, &waiting);
        if (keep[now.node]) continue;
        keep[now.node] = 1;
        size--;
        for (i64 i = a->row[now.node]; i < a->row[now.node + 1]; i++) {
            double time = now.time + a->times[i];
            if (time < best[a->other[i]]) {
                best[a->other[i]] = time;
                rise(heap, waiting++, (arrival){time, a->other[i]});
            }
        }
    }
}

/* Grow the region of each graph with k[g] > 0, which leaves k[g] of its nodes; others stay whole. `width` targets follow
 * the sources. `order` is a permutation of the `size` nodes of these graphs, `travel` the times of their `edges` edges.
 * If an edge of any graph has no reverse, all are crossed in both directions, each in the same time. */
static i64 grow_all(const i64 *ptr, const i64 *k, const i64 *edge_ptr, i64 graphs, const i64 *source, i64 width,
                    const i64 *order, i64 size, const double *travel, i64 edges, byte *keep) {
    const i64 *target = source + width;
    i64 nodes = 0, most = 0, seen = 0, error = 0;
    double gap = 0;
    for (i64 g = 0; g < graphs; g++) {
        i64 n = ptr[g + 1] - ptr[g], m = edge_ptr[g + 1] - edge_ptr[g];
        if (k[g] > n) return -2;
        if (n > nodes) nodes = n;
        if (m > most) most = m;
        if (k[g] > 0) seen += m;
        if (k[g] > 0 && !inside(source, target, edge_ptr[g], edge_ptr[g + 1], ptr[g], ptr[g + 1])) return -3;
    }
    if (seen != edges) return -2;
    for (i64 e = 0; e < edges; e++) gap = travel[e] > gap ? travel[e] : gap;
    gap = gap * (double)size + 1;
    i64 *shuffled = malloc((size_t)(2 * size + 4 * graphs + 2 * nodes + 2 * most + 2) * sizeof(i64));
    double *best = malloc((size_t)(nodes + 2 * most + 1) * sizeof(double));
    arrival *heap = malloc((size_t)(2 * most + 1) * sizeof(arrival)); /* an edge is pushed at most once */
    if (shuffled && best && heap) {
        i64 *sizes = shuffled + size, *next = sizes + graphs + 3 * graphs + size;
        adjacency a = {next + nodes, next + 2 * nodes + 2, best + nodes};
        for (i64 g = 0; g < graphs; g++) sizes[g] = k[g] > 0 ? ptr[g + 1] - ptr[g] : 0;
        if (!sample(ptr, sizes, graphs, order, size, sizes + graphs, shuffled)) error = -2;
        for (int both = 0, again = 1; !error && again; both = 1) {
            i64 start = 0, edge = 0;
            again = 0;
            for (i64 g = 0; !again && g < graphs; g++) {
                i64 begin = ptr[g], n = ptr[g + 1] - begin, from = edge_ptr[g], m = edge_ptr[g + 1] - from;
                memset(keep + begin, k[g] <= 0, (size_t)n);
                if (k[g] <= 0) continue;
                join(&a, source + from, target + from, travel + edge, m, begin, n, both);
                again = !both && !symmetric(&a, source + from, target + from, m, begin, n, next);
                for (i64 v = 0; v < n; v++) best[v] = Py_HUGE_VAL;
                if (!again) grow(&a, n - k[g], shuffled + start, begin, gap, best, heap, keep + begin);
                start += n, edge += m;
            }
        }
    } else error = -1;
    free(shuffled), free(best), free(heap);
    return error;
}

/* -- the module ---------------------------------------------------------------------------------------------------- */

static PyObject *result(i64 value) {
    if (value == -1) return PyErr_NoMemory();
    if (value == -2) return refused("a sample is larger than its segment");
    return value < 0 ? refused(LEAVES) : PyLong_FromLongLong(value);
}

static PyObject *py_ratio_count(PyObject *self, PyObject *args) {
    double ratio;
    number counts, out;
    long long size;
    if (!PyArg_ParseTuple(args, "dKLK", &ratio, &counts, &size, &out)) return NULL;
    for (i64 i = 0; i < size; i++) ADDRESS(i64, out)[i] = ratio_count(ratio, ADDRESS(i64, counts)[i]);
    Py_RETURN_NONE;
}

/* The sum of k, and the sizes by each of two boundaries of the segments with k[g] > 0. */
static PyObject *py_sample_sizes(PyObject *self, PyObject *args) {
    number k, ptr, other;
    long long segments;
    i64 all = 0, size = 0, others = 0;
    if (!PyArg_ParseTuple(args, "KLKK", &k, &segments, &ptr, &other)) return NULL;
    for (i64 g = 0; g < segments; g++) {
        if (ADDRESS(i64, k)[g] <= 0) continue;
        all += ADDRESS(i64, k)[g];
        size += ADDRESS(i64, ptr)[g + 1] - ADDRESS(i64, ptr)[g];
        others += ADDRESS(i64, other)[g + 1] - ADDRESS(i64, other)[g];
    }
    return Py_BuildValue("LLL", all, size, others);
}

static PyObject *py_sample(PyObject *self, PyObject *args) {
    number ptr, k, order, work, out;
    long long segments, size;
    int valid;
    if (!PyArg_ParseTuple(args, "KKLKLKK", &ptr, &k, &segments, &order, &size, &work, &out)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    valid = sample(ADDRESS(i64, ptr), ADDRESS(i64, k), segments, ADDRESS(i64, order), size, ADDRESS(i64, work),
                   ADDRESS(i64, out));
    Py_END_ALLOW_THREADS
    return result(valid ? 0 : -2);
}

static PyObject *py_edge_pairs(PyObject *self, PyObject *args) {
    number ptr, edge_ptr, ends, table, chosen;
    long long nodes, edges, graphs;
    double ratio;
    int add;
    i64 found, removable = 0, absent = 0;
    if (!PyArg_ParseTuple(args, "KKKLLLKKdi", &ptr, &edge_ptr, &ends, &nodes, &edges, &graphs, &table, &chosen, &ratio,
                          &add))
        return NULL;
    if (!ascending(ADDRESS(i64, ptr), graphs, nodes) || !ascending(ADDRESS(i64, edge_ptr), graphs, edges))
        return refused(DESCENDS);
    edge_pairs p = unpack(ptr, edge_ptr, ends, edges, graphs, table);
    Py_BEGIN_ALLOW_THREADS
    found = pairs(&p, ADDRESS(byte, chosen));
    for (i64 g = 0; found >= 0 && g < graphs; g++) {
        i64 n = p.ptr[g + 1] - p.ptr[g], rest = n * (n - 1) / 2 - p.pairs[g];
        p.k[g] = ratio_count(ratio, p.pairs[g]);
        p.moves[g] = !add ? 0 : p.k[g] < rest ? p.k[g] : rest;
        p.place[g] = 0;
        if (p.k[g] > 0) removable += p.pairs[g];
        if (p.moves[g] > 0 && listed(&p, g)) absent += rest;
    }
    Py_END_ALLOW_THREADS
    return found < 0 ? result(found) : Py_BuildValue("LLL", removable, absent, all_tries(&p));
}

static PyObject *py_new_ends(PyObject *self, PyObject *args) {
    number ptr, edge_ptr, ends, table, order, draws;
    long long nodes, edges, graphs, size, count;
    i64 error = 0;
    if (!PyArg_ParseTuple(args, "KKKLLLKKLKL", &ptr, &edge_ptr, &ends, &nodes, &edges, &graphs, &table, &order, &size,
                          &draws, &count))
        return NULL;
    edge_pairs p = unpack(ptr, edge_ptr, ends, edges, graphs, table);
    Py_BEGIN_ALLOW_THREADS
    if (order) error = draw_listed(&p, ADDRESS(i64, order), size);
    if (!error && draws) error = draw_tried(&p, ADDRESS(double, draws), count);
    Py_END_ALLOW_THREADS
    return result(error ? error : all_tries(&p));
}

static PyObject *py_replace_pairs(PyObject *self, PyObject *args) {
    number ptr, edge_ptr, ends, table, order, keep, moved, moved_to;
    long long nodes, edges, graphs, size;
    i64 count;
    if (!PyArg_ParseTuple(args, "KKKLLLKKLKKK", &ptr, &edge_ptr, &ends, &nodes, &edges, &graphs, &table, &order, &size,
                          &keep, &moved, &moved_to))
        return NULL;
    edge_pairs p = unpack(ptr, edge_ptr, ends, edges, graphs, table);
    Py_BEGIN_ALLOW_THREADS
    count = replace(&p, ADDRESS(i64, order), size, ADDRESS(byte, keep), ADDRESS(i64, moved), ADDRESS(i64, moved_to));
    Py_END_ALLOW_THREADS
    return result(count);
}

static PyObject *py_grow(PyObject *self, PyObject *args) {
    number ptr, k, edge_ptr, ends, order, travel, keep;
    long long nodes, edges, graphs, size, times;
    i64 error;
    if (!PyArg_ParseTuple(args, "KKKKLLLKLKLK", &ptr, &k, &edge_ptr, &ends, &nodes, &edges, &graphs, &order, &size,
                          &travel, &times, &keep))
        return NULL;
    if (!ascending(ADDRESS(i64, ptr), graphs, nodes) || !ascending(ADDRESS(i64, edge_ptr), graphs, edges))
        return refused(DESCENDS);
    Py_BEGIN_ALLOW_THREADS
    error = grow_all(ADDRESS(i64, ptr), ADDRESS(i64, k), ADDRESS(i64, edge_ptr), graphs, ADDRESS(i64, ends), edges,
                     ADDRESS(i64, order), size, ADDRESS(double, travel), times, ADDRESS(byte, keep));
    Py_END_ALLOW_THREADS
    return result(error);
}

PyMethodDef draw_methods[] = {
    {"ratio_count", py_ratio_count, METH_VARARGS, NULL},
    {"sample_sizes", py_sample_sizes, METH_VARARGS, NULL},
    {"sample", py_sample, METH_VARARGS, NULL},
    {"edge_pairs", py_edge_pairs, METH_VARARGS, NULL},
    {"new_ends", py_new_ends, METH_VARARGS, NULL},
    {"replace_pairs", py_replace_pairs, METH_VARARGS, NULL},
    {"grow", py_grow, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
