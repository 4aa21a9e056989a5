/* Types, grouping and checks shared by the loops of `_native.c` and `_draws.c`. */
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t i64;
typedef unsigned char byte;
typedef unsigned long long number;
#define ADDRESS(type, number) ((type *)(uintptr_t)(number))

extern PyMethodDef draw_methods[];

static const char *const LEAVES = "an edge leaves its graph";
static const char *const DESCENDS = "boundaries must ascend from 0 to the number of elements";

static inline PyObject *refused(const char *what) {
    PyErr_SetString(PyExc_IndexError, what);
    return NULL;
}

static inline int ascending(const i64 *ptr, i64 parts, i64 end) {
    if (parts < 0) return 0;
    int sound = ptr[0] == 0 && ptr[parts] == end;
    for (i64 g = 0; g < parts; g++) sound &= ptr[g] <= ptr[g + 1];
    return sound;
}

/* Check that the edges from .. to - 1 of a graph connect its own nodes, first .. last - 1. */
static inline int inside(const i64 *source, const i64 *target, i64 from, i64 to, i64 first, i64 last) {
    int sound = 1;
    for (i64 e = from; e < to; e++)
        sound &= (source[e] >= first) & (source[e] < last) & (target[e] >= first) & (target[e] < last);
    return sound;
}

/* Counting sort: values (NULL: positions) ordered by id, and the boundaries ptr [groups + 1].
 * Returns 0 if an id is out of range. */
static inline int group(const i64 *ids, const i64 *values, i64 size, i64 groups, i64 *ptr, i64 *out) {
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
