/* Loops of batching and augmentation over all nodes and edges; `graphcl/graphs/native.py` describes each.
 *
 * Arrays come as addresses of sizes that the Python side has checked: 64-bit integers, masks of bytes, doubles. Indices
 * into other arrays, and boundaries, are checked here. Nothing is drawn here: random numbers are arguments. The
 * interpreter lock is released during the loops.
 */
#include "_native.h"

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

/* -- restricting a batch ------------------------------------------------------------------------------------------- */

/* name [nodes]: new index of each kept node; kept, batch: old index and graph of each kept node; ptr: boundaries. Return
 * the number of kept nodes. */
static i64 keep_nodes(const byte *keep, const i64 *old_ptr, i64 graphs, i64 *name, i64 *kept, i64 *batch, i64 *ptr) {
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
    return found;
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

/* -- the module ---------------------------------------------------------------------------------------------------- */

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

static PyObject *py_cut_bounds(PyObject *self, PyObject *args) {
    number start, graphs, ptr;
    long long n, count;
    if (!PyArg_ParseTuple(args, "KLKLK", &start, &n, &graphs, &count, &ptr)) return NULL;
    i64 total = 0;
    for (i64 i = 0; i < count; i++) {
        i64 g = ADDRESS(i64, graphs)[i];
        if (g < 0 || g >= n) return refused("a graph index is out of range");
        ADDRESS(i64, ptr)[i] = total;
        total += ADDRESS(i64, start)[g + 1] - ADDRESS(i64, start)[g];
    }
    ADDRESS(i64, ptr)[count] = total;
    return PyLong_FromLongLong(total);
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

static PyObject *py_ascends(PyObject *self, PyObject *args) {
    number ptr;
    long long parts, end;
    if (!PyArg_ParseTuple(args, "KLL", &ptr, &parts, &end)) return NULL;
    return PyBool_FromLong(ascending(ADDRESS(i64, ptr), parts, end));
}

static PyObject *py_rebase(PyObject *self, PyObject *args) {
    number ptr, bounds, out;
    long long segments, parts;
    if (!PyArg_ParseTuple(args, "KLKLK", &ptr, &segments, &bounds, &parts, &out)) return NULL;
    const i64 *from = ADDRESS(i64, ptr), *bound = ADDRESS(i64, bounds);
    if (!ascending(bound, parts, segments)) return refused(DESCENDS);
    for (i64 i = 0, *at = ADDRESS(i64, out); i < parts; i++)
        for (i64 g = bound[i]; g <= bound[i + 1]; g++) *at++ = from[g] - from[bound[i]];
    Py_RETURN_NONE;
}

static PyObject *py_keep_nodes(PyObject *self, PyObject *args) {
    number keep, old_ptr, name, kept, batch, ptr;
    long long graphs, nodes, left;
    if (!PyArg_ParseTuple(args, "KLKLKKKK", &keep, &nodes, &old_ptr, &graphs, &name, &kept, &batch, &ptr)) return NULL;
    if (!ascending(ADDRESS(i64, old_ptr), graphs, nodes)) return refused(DESCENDS);
    Py_BEGIN_ALLOW_THREADS
    left = keep_nodes(ADDRESS(byte, keep), ADDRESS(i64, old_ptr), graphs, ADDRESS(i64, name), ADDRESS(i64, kept),
                      ADDRESS(i64, batch), ADDRESS(i64, ptr));
    Py_END_ALLOW_THREADS
    return PyLong_FromLongLong(left);
}

static PyObject *py_keep_edges(PyObject *self, PyObject *args) {
    number keep_node, keep_edge, source, node_ptr, old_ptr, name, kept, out, ptr;
    long long graphs, nodes, edges;
    i64 count;
    if (!PyArg_ParseTuple(args, "KKLKKLKLKKKK", &keep_node, &name, &nodes, &keep_edge, &source, &edges, &node_ptr,
                          &graphs, &old_ptr, &kept, &out, &ptr))
        return NULL;
    if (!ascending(ADDRESS(i64, node_ptr), graphs, nodes) || !ascending(ADDRESS(i64, old_ptr), graphs, edges))
        return refused(DESCENDS);
    Py_BEGIN_ALLOW_THREADS
    count = keep_edges(ADDRESS(byte, keep_node), ADDRESS(byte, keep_edge), ADDRESS(i64, source),
                       ADDRESS(i64, source) + edges, ADDRESS(i64, node_ptr), ADDRESS(i64, old_ptr), graphs, ADDRESS(i64, name), ADDRESS(i64, kept),
                       ADDRESS(i64, out), ADDRESS(i64, ptr));
    Py_END_ALLOW_THREADS
    return count < 0 ? refused(LEAVES) : PyLong_FromLongLong(count);
}

static PyMethodDef methods[] = {
    {"cut", py_cut, METH_VARARGS, NULL},
    {"cut_bounds", py_cut_bounds, METH_VARARGS, NULL},
    {"group", py_group, METH_VARARGS, NULL},
    {"starts", py_starts, METH_VARARGS, NULL},
    {"ascends", py_ascends, METH_VARARGS, NULL},
    {"rebase", py_rebase, METH_VARARGS, NULL},
    {"keep_nodes", py_keep_nodes, METH_VARARGS, NULL},
    {"keep_edges", py_keep_edges, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *made = PyModule_Create(&module);
    if (made && PyModule_AddFunctions(made, draw_methods) < 0) Py_CLEAR(made);
    return made;
}
