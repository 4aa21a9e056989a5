/* Loops of batching and augmentation over all nodes and edges; `graphcl/graphs/native.py` describes each.
 *
 * Arrays come as addresses of sizes that the Python side has checked: 64-bit integers, masks of bytes, travel times of
 * doubles. Indices into other arrays, and boundaries, are checked here. Nothing is drawn here: random numbers are arguments. The
 * interpreter lock is released during the loops.
 */
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t i64;
typedef unsigned char byte;

/* -- batches ------------------------------------------------------------------------------------------------------- */

/* Check that each of `graphs` is below n and that its rows start[g] .. start[g + 1] - 1 exist, `total` in all. */
static int valid_parts(const i64 *start, i64 n, i64 rows, const i64 *graphs, i64 count, i64 total) {
    for (i64 i = 0; i < count; i++) {
        if (graphs[i] < 0 || graphs[i] >= n) return 0;
        i64 from = start[graphs[i]], to = start[graphs[i] + 1];
        if (from < 0 || to < from || rows < to) return 0;
        total -= to - from;
    }
    return total == 0;
}

/* Concatenate those rows of `values`, each `width` bytes. */
static void cut_rows(const char *values, i64 width, const i64 *start, const i64 *graphs, i64 count, char *out) {
    for (i64 i = 0; i < count; i++) {
        i64 from = start[graphs[i]], bytes = (start[graphs[i] + 1] - from) * width;
        memcpy(out, values + from * width, (size_t)bytes);
        out += bytes;
    }
}

/* Concatenate node indices, adding shift[i] to those of the i-th graph. */
static void cut_shifted(const i64 *values, const i64 *start, const i64 *graphs, i64 count, const i64 *shift, i64 *out) {
    for (i64 i = 0; i < count; i++) {
        const i64 *from = values + start[graphs[i]];
        i64 size = start[graphs[i] + 1] - start[graphs[i]], more = shift[i];
        for (i64 j = 0; j < size; j++) out[j] = from[j] + more;
        out += size;
    }
}

/* -- grouping ------------------------------------------------------------------------------------------------------ */

/* Counting sort: values (NULL: positions) ordered by id, and the boundaries ptr [groups + 1].
 * Returns 0 if an id is out of range. */
static int group(const i64 *ids, const i64 *values, i64 size, i64 groups, i64 *ptr, i64 *out) {
    memset(ptr, 0, (size_t)(groups + 1) * sizeof(i64));
    for (i64 i = 0; i < size; i++) {
        if (ids[i] < 0 || ids[i] >= groups) return 0;
        ptr[ids[i] + 1]++;
    }
    for (i64 g = 0; g < groups; g++) ptr[g + 1] += ptr[g];
    for (i64 i = 0; i < size; i++) out[ptr[ids[i]]++] = values ? values[i] : i;
    for (i64 g = groups; g > 0; g--) ptr[g] = ptr[g - 1];
    ptr[0] = 0;
    return 1;
}

/* The boundaries ptr [groups + 1] if the ids ascend; else returns 0, or -1 if an id is out of range. */
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

/* Check that the edges from .. to - 1 of a graph connect its own nodes, first .. last - 1. */
static int inside(const i64 *source, const i64 *target, i64 from, i64 to, i64 first, i64 last) {
    int sound = 1;
    for (i64 e = from; e < to; e++)
        sound &= (source[e] >= first) & (source[e] < last) & (target[e] >= first) & (target[e] < last);
    return sound;
}

/* -- sampling ------------------------------------------------------------------------------------------------------ */

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

/* -- connected pairs ----------------------------------------------------------------------------------------------- */

/* Sort the edges among[0] .. among[size - 1] (NULL: all) except self-loops by their lower, then by their higher node.
 * Write the sorted edges, and of each pair its first edge among them and its two nodes; `work` has 3 * size + nodes + 1
 * entries. Set *kept to the number of edges and return that of pairs, or -1 if an index is out of range. */
static i64 pairs(const i64 *source, const i64 *target, i64 edges, const i64 *among, i64 size, i64 nodes, i64 *work,
                 i64 *entry, i64 *first, i64 *low, i64 *high, i64 *kept) {
    i64 *edge = work, *order = edge + size, *id = order + size, *ptr = id + size, count = 0, found = 0;
    for (i64 i = 0; i < size; i++) {
        i64 e = among ? among[i] : i;
        if (e < 0 || e >= edges) return -1;
        if (source[e] == target[e]) continue;
        edge[count] = e;
        id[count++] = source[e] > target[e] ? source[e] : target[e];
    }
    if (!group(id, edge, count, nodes, ptr, order)) return -1;
    for (i64 i = 0; i < count; i++) id[i] = source[order[i]] < target[order[i]] ? source[order[i]] : target[order[i]];
    if (!group(id, order, count, nodes, ptr, entry)) return -1;
    for (i64 i = 0; i < count; i++) {
        i64 u = source[entry[i]], v = target[entry[i]], least = u < v ? u : v, most = u < v ? v : u;
        if (found && low[found - 1] == least && high[found - 1] == most) continue;
        first[found] = i, low[found] = least, high[found++] = most;
    }
    first[found] = *kept = count;
    return found;
}

/* -- restricting a batch ------------------------------------------------------------------------------------------- */

/* name [nodes]: new index of each kept node; kept, batch: old index and graph of each kept node; ptr: boundaries. */
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

/* Write the kept edges with renamed ends: sources to out, targets right behind them. Returns their number, or -1 if an
 * edge leaves its graph. All of `keep_node` (with `name`), `keep_edge` and `kept` may be NULL; `out` has room for all edges. */
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

/* -- growth ------------------------------------------------------------------------------------------------------- */

typedef struct { double time; i64 node; } arrival;

/* Binary heap, earliest arrival on top; equal times in the order of the nodes, as a stable sort leaves them. */
static int before(arrival a, arrival b) { return a.time < b.time || (a.time == b.time && a.node < b.node); }

static void push(arrival *heap, i64 *count, arrival new) {
    i64 i = (*count)++;
    for (; i > 0 && before(new, heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = new;
}

static arrival pop(arrival *heap, i64 *count) {
    arrival top = heap[0], last = heap[--*count];
    i64 i = 0;
    for (i64 child = 1; child < *count; child = 2 * i + 1) {
        if (child + 1 < *count && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], last)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

/* Reach `size` nodes of the graph first .. first + nodes - 1 by Dijkstra. Node v's neighbours are other[row[v]] ..
 * other[row[v + 1] - 1]. Whenever a component is exhausted, the next node of `order` starts, its position there times
 * `gap` later. */
static int grow(i64 first, i64 nodes, i64 size, const i64 *row, const i64 *other, const double *travel, const i64 *order,
                double gap, double *best, arrival *heap, byte *keep) {
    i64 waiting = 0;
    for (i64 next = 0; size > 0;) {
        if (waiting == 0) {
            for (; next < nodes; next++) {
                if (order[next] < first || order[next] >= first + nodes) return -3;
                if (!keep[order[next]]) break;
            }
            if (next == nodes) return -3;
            push(heap, &waiting, (arrival){(double)next * gap, order[next]});
        }
        arrival now = pop(heap, &waiting);
        if (keep[now.node]) continue;
        keep[now.node] = 1;
        size--;
        for (i64 i = row[now.node]; i < row[now.node + 1]; i++) {
            if (other[i] < first || other[i] >= first + nodes) return -3;
            double time = now.time + travel[i];
            if (time < best[other[i]]) {
                best[other[i]] = time;
                push(heap, &waiting, (arrival){time, other[i]});
            }
        }
    }
    return 0;
}

static int grow_all(const i64 *ptr, const i64 *size, i64 graphs, const i64 *row, const i64 *other,
                    const double *travel, const i64 *order, double gap, byte *keep) {
    i64 nodes = ptr[graphs];
    double *best = malloc((size_t)(nodes + 1) * sizeof(double));
    arrival *heap = malloc((size_t)(row[nodes] + 1) * sizeof(arrival)); /* an edge is pushed at most once */
    int error = best && heap ? 0 : -1;
    for (i64 v = 0; !error && v < nodes; v++) best[v] = Py_HUGE_VAL;
    for (i64 g = 0; !error && g < graphs; g++)
        error = grow(ptr[g], ptr[g + 1] - ptr[g], size[g], row, other, travel, order + ptr[g], gap, best, heap, keep);
    free(best), free(heap);
    return error;
}

/* -- the module ---------------------------------------------------------------------------------------------------- */

#define ADDRESS(type, number) ((type *)(uintptr_t)(number))
typedef unsigned long long number;

static PyObject *refused(const char *what) {
    PyErr_SetString(PyExc_IndexError, what);
    return NULL;
}

static const char *const LEAVES = "an edge leaves its graph";
static const char *const DESCENDS = "boundaries must ascend from 0 to the number of elements";

static int ascending(const i64 *ptr, i64 parts, i64 end) {
    if (parts < 0) return 0;
    int sound = ptr[0] == 0 && ptr[parts] == end;
    for (i64 g = 0; g < parts; g++) sound &= ptr[g] <= ptr[g + 1];
    return sound;
}

static PyObject *py_cut(PyObject *self, PyObject *args) {
    number values, start, graphs, shift, out;
    long long width, n, rows, count, total;
    int valid;
    if (!PyArg_ParseTuple(args, "KLKLLKLLKK", &values, &width, &start, &n, &rows, &graphs, &count, &total, &shift,
                          &out))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    valid = valid_parts(ADDRESS(i64, start), n, rows, ADDRESS(i64, graphs), count, total);
    if (valid && shift)
        cut_shifted(ADDRESS(i64, values), ADDRESS(i64, start), ADDRESS(i64, graphs), count, ADDRESS(i64, shift),
                    ADDRESS(i64, out));
    else if (valid)
        cut_rows(ADDRESS(char, values), width, ADDRESS(i64, start), ADDRESS(i64, graphs), count, ADDRESS(char, out));
    Py_END_ALLOW_THREADS
    if (!valid) return refused("a graph index is out of range");
    Py_RETURN_NONE;
}

static PyObject *py_group(PyObject *self, PyObject *args) {
    number ids, values, ptr, out;
    long long size, groups;
    int valid;
    if (!PyArg_ParseTuple(args, "KKLLKK", &ids, &values, &size, &groups, &ptr, &out)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    valid = groups >= 0 && group(ADDRESS(i64, ids), ADDRESS(i64, values), size, groups, ADDRESS(i64, ptr), ADDRESS(i64, out));
    Py_END_ALLOW_THREADS
    if (!valid) return refused("a segment index is out of range");
    Py_RETURN_NONE;
}

static PyObject *py_starts(PyObject *self, PyObject *args) {
    number ids, ptr;
    long long size, groups;
    int sorted;
    if (!PyArg_ParseTuple(args, "KLLK", &ids, &size, &groups, &ptr)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    sorted = groups < 0 ? -1 : starts(ADDRESS(i64, ids), size, groups, ADDRESS(i64, ptr));
    Py_END_ALLOW_THREADS
    return sorted < 0 ? refused("a segment index is out of range") : PyBool_FromLong(sorted);
}

static PyObject *py_keep_nodes(PyObject *self, PyObject *args) {
    number keep, old_ptr, name, kept, batch, ptr;
    long long graphs, nodes;
    if (!PyArg_ParseTuple(args, "KLKLKKKK", &keep, &nodes, &old_ptr, &graphs, &name, &kept, &batch, &ptr)) return NULL;
    if (!ascending(ADDRESS(i64, old_ptr), graphs, nodes)) return refused(DESCENDS);
    Py_BEGIN_ALLOW_THREADS
    keep_nodes(ADDRESS(byte, keep), ADDRESS(i64, old_ptr), graphs, ADDRESS(i64, name), ADDRESS(i64, kept),
               ADDRESS(i64, batch), ADDRESS(i64, ptr));
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_keep_edges(PyObject *self, PyObject *args) {
    number keep_node, keep_edge, source, target, node_ptr, old_ptr, name, kept, out, ptr;
    long long graphs, nodes, edges;
    i64 count;
    if (!PyArg_ParseTuple(args, "KKLKKLKKLKKKK", &keep_node, &name, &nodes, &keep_edge, &source, &edges, &target,
                          &node_ptr, &graphs, &old_ptr, &kept, &out, &ptr))
        return NULL;
    if (!ascending(ADDRESS(i64, node_ptr), graphs, nodes) || !ascending(ADDRESS(i64, old_ptr), graphs, edges))
        return refused(DESCENDS);
    Py_BEGIN_ALLOW_THREADS
    count = keep_edges(ADDRESS(byte, keep_node), ADDRESS(byte, keep_edge), ADDRESS(i64, source), ADDRESS(i64, target),
                       ADDRESS(i64, node_ptr), ADDRESS(i64, old_ptr), graphs, ADDRESS(i64, name), ADDRESS(i64, kept),
                       ADDRESS(i64, out), ADDRESS(i64, ptr));
    Py_END_ALLOW_THREADS
    return count < 0 ? refused(LEAVES) : PyLong_FromLongLong(count);
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
    if (!valid) return refused("a sample is larger than its segment");
    Py_RETURN_NONE;
}

static PyObject *py_pairs(PyObject *self, PyObject *args) {
    number source, target, among, work, entry, first, low, high;
    long long edges, size, nodes;
    i64 found, kept = 0;
    if (!PyArg_ParseTuple(args, "KKLKLLKKKKK", &source, &target, &edges, &among, &size, &nodes, &work, &entry, &first,
                          &low, &high))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    found = pairs(ADDRESS(i64, source), ADDRESS(i64, target), edges, ADDRESS(i64, among), size, nodes,
                  ADDRESS(i64, work), ADDRESS(i64, entry), ADDRESS(i64, first), ADDRESS(i64, low), ADDRESS(i64, high),
                  &kept);
    Py_END_ALLOW_THREADS
    return found < 0 ? refused("a node or edge index is out of range") : Py_BuildValue("LL", found, kept);
}

static PyObject *py_grow(PyObject *self, PyObject *args) {
    number ptr, size, row, target, travel, order, keep;
    long long graphs, nodes, edges;
    double gap;
    int error;
    if (!PyArg_ParseTuple(args, "KKLKLKKLKdK", &ptr, &size, &graphs, &row, &nodes, &target, &travel, &edges, &order,
                          &gap, &keep))
        return NULL;
    if (!ascending(ADDRESS(i64, ptr), graphs, nodes) || !ascending(ADDRESS(i64, row), nodes, edges))
        return refused(DESCENDS);
    Py_BEGIN_ALLOW_THREADS
    error = grow_all(ADDRESS(i64, ptr), ADDRESS(i64, size), graphs, ADDRESS(i64, row), ADDRESS(i64, target),
                     ADDRESS(double, travel), ADDRESS(i64, order), gap, ADDRESS(byte, keep));
    Py_END_ALLOW_THREADS
    if (error == -1) return PyErr_NoMemory();
    if (error == -3) return refused(LEAVES);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"cut", py_cut, METH_VARARGS, NULL},
    {"group", py_group, METH_VARARGS, NULL},
    {"starts", py_starts, METH_VARARGS, NULL},
    {"keep_nodes", py_keep_nodes, METH_VARARGS, NULL},
    {"keep_edges", py_keep_edges, METH_VARARGS, NULL},
    {"sample", py_sample, METH_VARARGS, NULL},
    {"pairs", py_pairs, METH_VARARGS, NULL},
    {"grow", py_grow, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&module); }
