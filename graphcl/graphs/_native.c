/* What batching and augmentation do to every node and edge, in one pass each; `graphcl/graphs/native.py` says what for.
 *
 * Arrays come as addresses, of sizes that the Python side has checked: 64-bit integers but for masks, which are bytes.
 * Numbers that index other arrays are checked here. Nothing allocates more than a few arrays of the size of its input,
 * and the interpreter is free meanwhile.
 */
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t i64;
typedef uint64_t u64;
typedef unsigned char byte;

/* -- randomness: splitmix64 (Steele, Lea, Flood 2014), numbers below a bound by multiplication (Lemire 2019) ------- */

static inline u64 next(u64 *state) {
    u64 z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Uniform in 0 .. bound - 1, 0 < bound < 2^32: the high half of a 32-bit draw times the bound, biased ones redrawn. */
static inline i64 below(u64 *state, i64 bound) {
    u64 product = (next(state) >> 32) * (u64)bound;
    if ((uint32_t)product < (u64)bound) {
        uint32_t least = (uint32_t)(-(uint32_t)bound) % (uint32_t)bound;
        while ((uint32_t)product < least) product = (next(state) >> 32) * (u64)bound;
    }
    return (i64)(product >> 32);
}

/* -- batches ------------------------------------------------------------------------------------------------------- */

/* Whether each of `graphs` is one of n, with its part start[g] .. start[g + 1] - 1 among `rows`, `total` in all. */
static int parts_are_there(const i64 *start, i64 n, i64 rows, const i64 *graphs, i64 count, i64 total) {
    for (i64 i = 0; i < count; i++) {
        if (graphs[i] < 0 || graphs[i] >= n) return 0;
        i64 from = start[graphs[i]], to = start[graphs[i] + 1];
        if (from < 0 || to < from || rows < to) return 0;
        total -= to - from;
    }
    return total == 0;
}

/* Those parts of `values`, one after the other, each row so many bytes. */
static void cut_rows(const char *values, i64 width, const i64 *start, const i64 *graphs, i64 count, char *out) {
    for (i64 i = 0; i < count; i++) {
        i64 from = start[graphs[i]], bytes = (start[graphs[i] + 1] - from) * width;
        memcpy(out, values + from * width, (size_t)bytes);
        out += bytes;
    }
}

/* The same for node numbers, each graph's raised by shift[i]. */
static void cut_shifted(const i64 *values, const i64 *start, const i64 *graphs, i64 count, const i64 *shift, i64 *out) {
    for (i64 i = 0; i < count; i++) {
        const i64 *from = values + start[graphs[i]];
        i64 size = start[graphs[i] + 1] - start[graphs[i]], more = shift[i];
        for (i64 j = 0; j < size; j++) out[j] = from[j] + more;
        out += size;
    }
}

/* -- grouping ------------------------------------------------------------------------------------------------------ */

/* Counting sort: ptr [groups + 1], and what stands beside the ids, group by group in the given order (NULL: positions).
 * 0 is returned if an id is none of the groups. */
static int group(const i64 *ids, const i64 *beside, i64 size, i64 groups, i64 *ptr, i64 *out) {
    memset(ptr, 0, (size_t)(groups + 1) * sizeof(i64));
    for (i64 i = 0; i < size; i++) {
        if (ids[i] < 0 || ids[i] >= groups) return 0;
        ptr[ids[i] + 1]++;
    }
    for (i64 g = 0; g < groups; g++) ptr[g + 1] += ptr[g];
    for (i64 i = 0; i < size; i++) out[ptr[ids[i]]++] = beside ? beside[i] : i;
    for (i64 g = groups; g > 0; g--) ptr[g] = ptr[g - 1];
    ptr[0] = 0;
    return 1;
}

/* Where each group starts, [groups + 1], if the ids ascend; else returns 0, or -1 if an id is none of the groups. */
static int starts(const i64 *ids, i64 size, i64 groups, i64 *ptr) {
    i64 g = 0;
    for (i64 i = 0; i < size; i++) {
        if (ids[i] < 0 || ids[i] >= groups) return -1;
        if (i && ids[i] < ids[i - 1]) return 0;
        while (g <= ids[i]) ptr[g++] = i;
    }
    while (g <= groups) ptr[g++] = size;
    return 1;
}

/* Whether a graph's edges, from .. to - 1, connect its own nodes, first .. last - 1. */
static int inside(const i64 *source, const i64 *target, i64 from, i64 to, i64 first, i64 last) {
    int sound = 1;
    for (i64 e = from; e < to; e++)
        sound &= (source[e] >= first) & (source[e] < last) & (target[e] >= first) & (target[e] < last);
    return sound;
}

/* Where the edges of each of a graph's nodes start, if they are sorted by source, then target; else 0 is returned.
 * The graph has the nodes first .. last - 1 and the edges from .. to - 1; writes row[first .. last]. */
static int rows_of(const i64 *source, const i64 *target, i64 from, i64 to, i64 first, i64 last, i64 *row) {
    i64 v = first;
    for (i64 e = from; e < to; e++) {
        i64 b = e - 1;
        if (e > from && (source[e] < source[b] || (source[e] == source[b] && target[e] <= target[b]))) return 0;
        while (v <= source[e]) row[v++] = e;
    }
    while (v <= last) row[v++] = to;
    return 1;
}

/* The reverse of each such edge; 0 is returned if one has none. Edges are met in ascending order of their sources, so
 * the reverses that lie in one row are met in ascending order too: each row has a cursor. */
static int reverses(const i64 *source, const i64 *target, i64 from, i64 to, i64 first, i64 last, const i64 *row,
                    i64 *cursor, i64 *out) {
    memcpy(cursor + first, row + first, (size_t)(last - first) * sizeof(i64));
    for (i64 e = from; e < to; e++) {
        i64 place = cursor[target[e]]++;
        if (place >= row[target[e] + 1] || target[place] != source[e]) return 0;
        out[e] = place;
    }
    return 1;
}

/* -- restricting a batch ------------------------------------------------------------------------------------------- */

/* name [nodes]: the new number of each node that stays; kept: which those are; ptr: new boundaries. */
static void keep_nodes(const byte *keep, const i64 *old_ptr, i64 graphs, i64 *name, i64 *kept, i64 *batch, i64 *ptr) {
    i64 found = 0;
    ptr[0] = 0;
    for (i64 g = 0; g < graphs; g++) {
        for (i64 v = old_ptr[g]; v < old_ptr[g + 1]; v++) {
            name[v] = found;
            kept[found] = v; /* overwritten unless v stays */
            batch[found] = g;
            found += keep[v] != 0;
        }
        ptr[g + 1] = found;
    }
}

/* Edges that stay, their ends renamed: sources to out, targets right behind them; returns how many, or -1 if one leaves
 * its graph. All of `keep_node` (with `name`), `keep_edge` and `kept` may be NULL; `out` has room for all edges. */
static i64 keep_edges(const byte *keep_node, const byte *keep_edge, const i64 *source, const i64 *target,
                      const i64 *node_ptr, const i64 *old_ptr, i64 graphs, const i64 *name, i64 *kept, i64 *out,
                      i64 *ptr) {
    i64 found = 0, *new_source = out, *new_target = out + old_ptr[graphs];
    ptr[0] = 0;
    for (i64 g = 0; g < graphs; g++) {
        if (!inside(source, target, old_ptr[g], old_ptr[g + 1], node_ptr[g], node_ptr[g + 1])) return -1;
        for (i64 e = old_ptr[g]; e < old_ptr[g + 1]; e++) {
            i64 u = source[e], v = target[e];
            int stays = keep_edge ? keep_edge[e] != 0 : 1;
            if (keep_node) stays &= (keep_node[u] != 0) & (keep_node[v] != 0);
            new_source[found] = name ? name[u] : u;
            new_target[found] = name ? name[v] : v;
            if (kept) kept[found] = e;
            found += stays;
        }
        ptr[g + 1] = found;
    }
    memmove(out + found, new_target, (size_t)found * sizeof(i64));
    return found;
}

/* -- drawing ------------------------------------------------------------------------------------------------------- */

/* k[g] elements of each segment, every set equally likely (selection sampling: Knuth, TAOCP 2, 3.4.2, algorithm S). */
static void subset(const i64 *ptr, const i64 *k, i64 segments, u64 seed, byte *chosen) {
    for (i64 g = 0; g < segments; g++) {
        i64 needed = k[g], left = ptr[g + 1] - ptr[g];
        byte *out = chosen + ptr[g];
        for (i64 i = 0; needed > 0 && left > 0; i++, left--) {
            byte taken = below(&seed, left) < needed;
            out[i] = taken;
            needed -= taken;
        }
    }
}

/* A region of size[g] nodes of each graph, grown along random boundary edges; a new random start where growth ends.
 *
 * All edges out of the region's nodes wait in a list. One is drawn and taken out; if it leads outside, its end joins.
 * So each edge of the boundary is as likely as any other. */
static void grow(i64 first, i64 nodes, i64 size, const i64 *row, const i64 *ends, u64 *seed, byte *keep, i64 *list) {
    i64 waiting = 0;
    while (size > 0) {
        i64 v;
        if (waiting == 0) {
            do v = first + below(seed, nodes);
            while (keep[v]);
        } else {
            i64 drawn = below(seed, waiting);
            v = list[drawn];
            list[drawn] = list[--waiting];
            if (keep[v]) continue;
        }
        keep[v] = 1;
        size--;
        for (i64 e = row[v]; e < row[v + 1]; e++)
            if (!keep[ends[e]]) list[waiting++] = ends[e];
    }
}

/* Both ends' edges of a graph that is not undirected, or not sorted: row[first .. last] and the 2 (to - from) ends. */
static void both_ways(const i64 *source, const i64 *target, i64 from, i64 to, i64 first, i64 last, i64 *row,
                      i64 *ends) {
    memset(row + first, 0, (size_t)(last - first + 1) * sizeof(i64));
    for (i64 e = from; e < to; e++) row[source[e] + 1]++, row[target[e] + 1]++;
    for (i64 v = first; v < last; v++) row[v + 1] += row[v];
    for (i64 e = from; e < to; e++) ends[row[source[e]]++] = target[e], ends[row[target[e]]++] = source[e];
    for (i64 v = last; v > first; v--) row[v] = row[v - 1];
    row[first] = 0;
}

/* `grow` for each graph, of size[g] nodes. In an undirected graph every edge lies in the row of either end already.
 * Returns 0, -1 out of memory, -3 if an edge leaves its graph. */
static i64 grow_all(const i64 *ptr, const i64 *edge_ptr, const i64 *size, i64 graphs, const i64 *source,
                    const i64 *target, u64 seed, byte *keep) {
    i64 nodes = ptr[graphs], largest = 0;
    for (i64 g = 0; g < graphs; g++)
        if (edge_ptr[g + 1] - edge_ptr[g] > largest) largest = edge_ptr[g + 1] - edge_ptr[g];
    i64 *row = malloc((size_t)(nodes + 2) * sizeof(i64)), *cursor = malloc((size_t)(nodes + 2) * sizeof(i64));
    i64 *list = malloc((size_t)(2 * largest + 1) * sizeof(i64));
    i64 *ends = malloc((size_t)(2 * largest + 1) * sizeof(i64));
    i64 done = row && cursor && list && ends ? 0 : -1;
    for (i64 g = 0; done == 0 && g < graphs; g++) {
        i64 first = ptr[g], last = ptr[g + 1], from = edge_ptr[g], to = edge_ptr[g + 1];
        if (!inside(source, target, from, to, first, last)) {
            done = -3;
            break;
        }
        memset(keep + first, size[g] >= last - first, (size_t)(last - first));
        if (size[g] >= last - first) continue;
        if (rows_of(source, target, from, to, first, last, row)
            && reverses(source, target, from, to, first, last, row, cursor, list - from))
            grow(first, last - first, size[g], row, target, &seed, keep, list);
        else {
            both_ways(source, target, from, to, first, last, row, ends);
            grow(first, last - first, size[g], row, ends, &seed, keep, list);
        }
    }
    free(row), free(cursor), free(list), free(ends);
    return done;
}

static int connected(const i64 *row, const i64 *target, i64 u, i64 v) {
    i64 low = row[u], high = row[u + 1];
    while (low < high) {
        i64 middle = (low + high) / 2;
        if (target[middle] < v) low = middle + 1;
        else high = middle;
    }
    return low < row[u + 1] && target[low] == v;
}

/* `wanted` different absent pairs of a graph's nodes, in random order; pair (u, v), u < v, as u * nodes + v. */
static void absent_pairs(const i64 *row, const i64 *target, i64 first, i64 nodes, i64 pairs, i64 wanted, u64 *seed,
                         i64 *found, i64 *scratch, i64 slots) {
    i64 all = nodes * (nodes - 1) / 2;
    if (2 * (pairs + wanted) > all) { /* few are absent: list them, and shuffle as far as needed */
        i64 count = 0;
        for (i64 u = 0; u < nodes; u++) {
            i64 e = row[first + u];
            for (i64 v = u + 1; v < nodes; v++) {
                while (e < row[first + u + 1] && target[e] < first + v) e++;
                if (e == row[first + u + 1] || target[e] != first + v) scratch[count++] = u * nodes + v;
            }
        }
        for (i64 i = 0; i < wanted; i++) {
            i64 j = i + below(seed, count - i);
            found[i] = scratch[j];
            scratch[j] = scratch[i];
        }
        return;
    }
    memset(scratch, 0xFF, (size_t)slots * sizeof(i64)); /* a hash table, for seeing that a pair is drawn again */
    for (i64 i = 0; i < wanted;) {
        i64 u = below(seed, nodes), v = below(seed, nodes);
        if (u == v) continue;
        if (u > v) { i64 w = u; u = v; v = w; }
        if (connected(row, target, first + u, first + v)) continue;
        i64 pair = u * nodes + v;
        i64 slot = (i64)(((u64)pair * 0x9E3779B97F4A7C15u) >> 32) & (slots - 1);
        while (scratch[slot] >= 0 && scratch[slot] != pair) slot = (slot + 1) & (slots - 1);
        if (scratch[slot] == pair) continue;
        found[i++] = scratch[slot] = pair;
    }
}

/* floor(ratio n), never all: `graphcl.graphs.segment.share`. */
static i64 share(double ratio, i64 n) {
    i64 part = (i64)((double)n * ratio + 1e-9);
    return part < n - 1 ? part : (n > 0 ? n - 1 : 0);
}

/* Edge perturbation of the graphs of `touched` (NULL: all). Writes keep [edges], moved and where to; returns how many
 * edges move, -1 out of memory, -2 if a graph is not undirected, sorted and without parallel edges, -3 if an edge
 * leaves its graph. Self-loops stay. */
static i64 perturb(const i64 *ptr, const i64 *edge_ptr, i64 graphs, const byte *touched, double ratio, int add,
                   const i64 *source, const i64 *target, u64 seed, byte *keep, i64 *moved, i64 *to_source,
                   i64 *to_target) {
    i64 count = 0, room = 0, nodes = ptr[graphs];
    i64 *row = malloc((size_t)(nodes + 2) * sizeof(i64)), *cursor = malloc((size_t)(nodes + 2) * sizeof(i64));
    i64 *removed = NULL, *found = NULL, *scratch = NULL, *reverse = NULL;
    if (!row || !cursor) count = -1;
    memset(keep, 1, (size_t)edge_ptr[graphs]);
    for (i64 g = 0; count >= 0 && g < graphs; g++) {
        if (touched && !touched[g]) continue;
        i64 first = ptr[g], size = ptr[g + 1] - first, from = edge_ptr[g], to = edge_ptr[g + 1], pairs = 0;
        if (!inside(source, target, from, to, first, first + size)) {
            count = -3;
            break;
        }
        for (i64 e = from; e < to; e++) pairs += source[e] < target[e];
        i64 k = share(ratio, pairs), all = size * (size - 1) / 2, slots = 16;
        i64 wanted = !add ? 0 : all - pairs < k ? all - pairs : k;
        while (slots < 2 * wanted) slots *= 2;
        i64 need = add && 2 * (pairs + wanted) > all ? all - pairs : slots;
        if (need < to - from) need = to - from;
        if (need > room) {
            room = need + need / 2;
            free(removed), free(found), free(scratch), free(reverse);
            removed = malloc((size_t)room * sizeof(i64)), found = malloc((size_t)room * sizeof(i64));
            scratch = malloc((size_t)room * sizeof(i64)), reverse = malloc((size_t)room * sizeof(i64));
            if (!removed || !found || !scratch || !reverse) {
                count = -1;
                break;
            }
        }
        if (!rows_of(source, target, from, to, first, first + size, row)
            || !reverses(source, target, from, to, first, first + size, row, cursor, reverse - from)) {
            count = -2;
            break;
        }
        i64 needed = k, left = pairs, got = 0;
        for (i64 e = from; needed > 0; e++) {
            if (source[e] >= target[e]) continue;
            if (below(&seed, left--) < needed) removed[got++] = e, needed--;
        }
        if (wanted > 0) absent_pairs(row, target, first, size, pairs, wanted, &seed, found, scratch, slots);
        for (i64 i = 0; i < k; i++) { /* which removed pair goes where, and which only goes, is drawn too */
            i64 j = i + below(&seed, k - i), e = removed[j], back = reverse[e - from];
            removed[j] = removed[i];
            if (i >= wanted) {
                keep[e] = keep[back] = 0;
                continue;
            }
            i64 u = first + found[i] / size, v = first + found[i] % size;
            moved[count] = e, to_source[count] = u, to_target[count++] = v;
            moved[count] = back, to_source[count] = v, to_target[count++] = u;
        }
    }
    free(row), free(cursor), free(removed), free(found), free(scratch), free(reverse);
    return count;
}

/* -- the module ---------------------------------------------------------------------------------------------------- */

#define ADDRESS(type, number) ((type *)(uintptr_t)(number))
typedef unsigned long long number;

static PyObject *refused(const char *what) {
    PyErr_SetString(PyExc_IndexError, what);
    return NULL;
}

static const char *const LEAVES = "an edge leaves its graph";
static const char *const DESCENDS = "boundaries of graphs must ascend from 0";

static int ascending(const i64 *ptr, i64 graphs) {
    int sound = ptr[0] == 0;
    for (i64 g = 0; g < graphs; g++) sound &= ptr[g] <= ptr[g + 1];
    return sound;
}

/* A count, or what a negative one stands for. */
static PyObject *counted(i64 count) {
    if (count == -1) return PyErr_NoMemory();
    if (count == -3) return refused(LEAVES);
    return PyLong_FromLongLong(count);
}

static PyObject *py_cut(PyObject *self, PyObject *args) {
    number values, start, graphs, shift, out;
    long long width, n, rows, count, total;
    int there;
    if (!PyArg_ParseTuple(args, "KLKLLKLLKK", &values, &width, &start, &n, &rows, &graphs, &count, &total, &shift,
                          &out))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    there = parts_are_there(ADDRESS(i64, start), n, rows, ADDRESS(i64, graphs), count, total);
    if (there && shift)
        cut_shifted(ADDRESS(i64, values), ADDRESS(i64, start), ADDRESS(i64, graphs), count, ADDRESS(i64, shift),
                    ADDRESS(i64, out));
    else if (there)
        cut_rows(ADDRESS(char, values), width, ADDRESS(i64, start), ADDRESS(i64, graphs), count, ADDRESS(char, out));
    Py_END_ALLOW_THREADS
    if (!there) return refused("there is no such graph");
    Py_RETURN_NONE;
}

static PyObject *py_group(PyObject *self, PyObject *args) {
    number ids, beside, ptr, out;
    long long size, groups;
    int there;
    if (!PyArg_ParseTuple(args, "KKLLKK", &ids, &beside, &size, &groups, &ptr, &out)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    there = group(ADDRESS(i64, ids), ADDRESS(i64, beside), size, groups, ADDRESS(i64, ptr), ADDRESS(i64, out));
    Py_END_ALLOW_THREADS
    if (!there) return refused("there is no such group");
    Py_RETURN_NONE;
}

static PyObject *py_starts(PyObject *self, PyObject *args) {
    number ids, ptr;
    long long size, groups;
    int sorted;
    if (!PyArg_ParseTuple(args, "KLLK", &ids, &size, &groups, &ptr)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    sorted = starts(ADDRESS(i64, ids), size, groups, ADDRESS(i64, ptr));
    Py_END_ALLOW_THREADS
    return sorted < 0 ? refused("there is no such group") : PyBool_FromLong(sorted);
}

static PyObject *py_keep_nodes(PyObject *self, PyObject *args) {
    number keep, old_ptr, name, kept, batch, ptr;
    long long graphs;
    if (!PyArg_ParseTuple(args, "KKLKKKK", &keep, &old_ptr, &graphs, &name, &kept, &batch, &ptr)) return NULL;
    if (!ascending(ADDRESS(i64, old_ptr), graphs)) return refused(DESCENDS);
    Py_BEGIN_ALLOW_THREADS
    keep_nodes(ADDRESS(byte, keep), ADDRESS(i64, old_ptr), graphs, ADDRESS(i64, name), ADDRESS(i64, kept),
               ADDRESS(i64, batch), ADDRESS(i64, ptr));
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_keep_edges(PyObject *self, PyObject *args) {
    number keep_node, keep_edge, source, target, node_ptr, old_ptr, name, kept, out, ptr;
    long long graphs;
    i64 count;
    if (!PyArg_ParseTuple(args, "KKKKKKLKKKK", &keep_node, &keep_edge, &source, &target, &node_ptr, &old_ptr, &graphs,
                          &name, &kept, &out, &ptr))
        return NULL;
    if (!ascending(ADDRESS(i64, node_ptr), graphs) || !ascending(ADDRESS(i64, old_ptr), graphs))
        return refused(DESCENDS);
    Py_BEGIN_ALLOW_THREADS
    count = keep_edges(ADDRESS(byte, keep_node), ADDRESS(byte, keep_edge), ADDRESS(i64, source), ADDRESS(i64, target),
                       ADDRESS(i64, node_ptr), ADDRESS(i64, old_ptr), graphs, ADDRESS(i64, name), ADDRESS(i64, kept),
                       ADDRESS(i64, out), ADDRESS(i64, ptr));
    Py_END_ALLOW_THREADS
    return count < 0 ? refused(LEAVES) : PyLong_FromLongLong(count);
}

static PyObject *py_subset(PyObject *self, PyObject *args) {
    number ptr, k, seed, chosen;
    long long segments;
    if (!PyArg_ParseTuple(args, "KKLKK", &ptr, &k, &segments, &seed, &chosen)) return NULL;
    if (!ascending(ADDRESS(i64, ptr), segments)) return refused(DESCENDS);
    Py_BEGIN_ALLOW_THREADS
    subset(ADDRESS(i64, ptr), ADDRESS(i64, k), segments, seed, ADDRESS(byte, chosen));
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_grow(PyObject *self, PyObject *args) {
    number ptr, edge_ptr, size, source, target, seed, keep;
    long long graphs;
    i64 done;
    if (!PyArg_ParseTuple(args, "KKKLKKKK", &ptr, &edge_ptr, &size, &graphs, &source, &target, &seed, &keep))
        return NULL;
    if (!ascending(ADDRESS(i64, ptr), graphs) || !ascending(ADDRESS(i64, edge_ptr), graphs)) return refused(DESCENDS);
    Py_BEGIN_ALLOW_THREADS
    done = grow_all(ADDRESS(i64, ptr), ADDRESS(i64, edge_ptr), ADDRESS(i64, size), graphs, ADDRESS(i64, source),
                    ADDRESS(i64, target), seed, ADDRESS(byte, keep));
    Py_END_ALLOW_THREADS
    return counted(done);
}

static PyObject *py_perturb(PyObject *self, PyObject *args) {
    number ptr, edge_ptr, touched, source, target, seed, keep, moved, to_source, to_target;
    long long graphs;
    double ratio;
    int add;
    i64 count;
    if (!PyArg_ParseTuple(args, "KKLKdpKKKKKKK", &ptr, &edge_ptr, &graphs, &touched, &ratio, &add, &source, &target,
                          &seed, &keep, &moved, &to_source, &to_target))
        return NULL;
    if (!ascending(ADDRESS(i64, ptr), graphs) || !ascending(ADDRESS(i64, edge_ptr), graphs)) return refused(DESCENDS);
    Py_BEGIN_ALLOW_THREADS
    count = perturb(ADDRESS(i64, ptr), ADDRESS(i64, edge_ptr), graphs, ADDRESS(byte, touched), ratio, add,
                    ADDRESS(i64, source), ADDRESS(i64, target), seed, ADDRESS(byte, keep), ADDRESS(i64, moved),
                    ADDRESS(i64, to_source), ADDRESS(i64, to_target));
    Py_END_ALLOW_THREADS
    return counted(count);
}

static PyMethodDef methods[] = {
    {"cut", py_cut, METH_VARARGS, NULL},
    {"group", py_group, METH_VARARGS, NULL},
    {"starts", py_starts, METH_VARARGS, NULL},
    {"keep_nodes", py_keep_nodes, METH_VARARGS, NULL},
    {"keep_edges", py_keep_edges, METH_VARARGS, NULL},
    {"subset", py_subset, METH_VARARGS, NULL},
    {"grow", py_grow, METH_VARARGS, NULL},
    {"perturb", py_perturb, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&module); }
