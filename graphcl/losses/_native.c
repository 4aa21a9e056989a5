/* Unit rows and sums over tiles of similarities, in float32; `graphcl/losses/native.py` describes each loop.
 *
 * Arrays come as addresses of sizes that the Python side has checked. Loops over a row are vectorised by the compiler,
 * for the processor's vectors (`target_clones`). Nothing depends on the number of threads, nor on where arrays are:
 * without `omp simd`, the compiler would add a scalar loop for arrays that lie close together, which rounds differently.
 */
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__x86_64__) || !defined(__linux__) || !defined(__GNUC__) || defined(__clang__)
#error "measured with GCC on x86-64 Linux; elsewhere torch's operations may be as quick, and are used"
#endif

typedef int64_t i64;
#define EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define INLINE static inline __attribute__((always_inline))
#define SIMD(...) _Pragma(#__VA_ARGS__)
#define ADDRESS(type, number) ((type *)(uintptr_t)(number))

/* -- unit rows ----------------------------------------------------------------------------------------------------- */

/* Scale n rows to norm 1, except those without an entry above 1e-12; return whether all entries are finite. Squares in
 * double neither overflow nor underflow. */
EACH_PROCESSOR static int scale(const float *z, i64 n, i64 d, float *unit, float *norm) {
    int finite = 1;
    for (i64 i = 0; i < n; i++, z += d, unit += d) {
        double squares = 0;
        float largest = 0;
        SIMD(omp simd reduction(+ : squares) reduction(max : largest))
        for (i64 j = 0; j < d; j++) {
            float size = z[j] < 0 ? -z[j] : z[j];
            squares += (double)z[j] * z[j];
            largest = size > largest ? size : largest;
        }
        double length = largest <= 1e-12f ? 1 : sqrt(squares), factor = 1 / length;
        finite &= isfinite(squares) != 0;
        norm[i] = (float)length;
        SIMD(omp simd)
        for (i64 j = 0; j < d; j++) unit[j] = (float)(z[j] * factor);
    }
    return finite;
}

INLINE float dot(const float *a, const float *b, i64 d) {
    float sum = 0;
    SIMD(omp simd reduction(+ : sum))
    for (i64 j = 0; j < d; j++) sum += a[j] * b[j];
    return sum;
}

EACH_PROCESSOR static void dots(const float *a, const float *b, i64 n, i64 d, float *out) {
    for (i64 i = 0; i < n; i++) out[i] = dot(a + i * d, b + i * d, d);
}

/* The gradient (g - (g . u) u) / norm of the rows before scaling, with g = grad + positive * partner; null: zeros. */
EACH_PROCESSOR static void unscale(const float *unit, const float *norm, const float *partner, const float *grad,
                                   const float *positive, i64 copies, i64 n, i64 d, float *out) {
    for (i64 i = 0; i < n; i++, unit += d, partner += d, out += d) {
        float slope = 0;
        for (i64 copy = 0; positive && copy < copies; copy++) slope += positive[copy * n + i];
        SIMD(omp simd)
        for (i64 j = 0; j < d; j++) out[j] = slope * partner[j] + (grad ? grad[i * d + j] : 0);
        float along = dot(out, unit, d), factor = 1 / norm[i];
        SIMD(omp simd)
        for (i64 j = 0; j < d; j++) out[j] = (out[j] - along * unit[j]) * factor;
    }
}

/* -- tiles --------------------------------------------------------------------------------------------------------- */

typedef struct {
    const float *c; /* similarities [rows, columns] */
    long long rows, columns;
    const i64 *row_ids, *column_ids; /* pairs of equal id are no negatives; or null */
    int diagonal, small, both;       /* whether to leave out the diagonal; |P| < 60; columns are anchors too */
    float center, p[5];              /* the exponent P */
} Tile;

/* e^x for x <= 88, and 0 below -87.7: 2^n e^r with |r| <= ln 2 / 2, and the Taylor polynomial of e^r, exact to 5e-9. */
INLINE float power(float x) {
    x = x < -88 ? -88 : x > 88 ? 88 : x;
    float n = __builtin_rintf(x * 1.44269504f), r = x - n * 0.693359375f + n * 2.12194440e-4f, scale;
    int32_t bits = ((int32_t)n + 127) << 23;
    memcpy(&scale, &bits, sizeof(scale));
    float e = 1.0f / 5040;
    e = e * r + 1.0f / 720, e = e * r + 1.0f / 120, e = e * r + 1.0f / 24, e = e * r + 1.0f / 6, e = e * r + 0.5f;
    return ((e * r + 1) * r + 1) * scale;
}

/* Write P of a row, and -infinity for pairs that are no negatives. */
INLINE void exponents(const Tile *t, i64 i, float *out) {
    const float *c = t->c + i * t->columns, *p = t->p;
    float p0 = p[0], p1 = p[1], p2 = p[2], p3 = p[3], p4 = p[4], center = t->center;
    SIMD(omp simd)
    for (i64 j = 0; j < t->columns; j++) {
        float x = c[j] - center;
        out[j] = (((p4 * x + p3) * x + p2) * x + p1) * x + p0;
    }
    if (t->diagonal && i < t->columns) out[i] = -INFINITY;
    for (i64 j = 0; t->row_ids && j < t->columns; j++)
        if (t->row_ids[i] == t->column_ids[j]) out[j] = -INFINITY;
}

typedef struct {
    float *total, *highest, *moment; /* sums of e^(P - highest) and of similarities with these weights, by anchor */
} Side;

INLINE void add(const Tile *t, Side row, Side column, float *work, int small, int both) {
    i64 columns = t->columns;
    for (i64 i = 0; i < t->rows; i++) {
        const float *c = t->c + i * columns;
        float total = 0, moment = 0, highest = row.highest[i];
        exponents(t, i, work);
        SIMD(omp simd reduction(+ : total, moment))
        for (i64 j = 0; j < columns; j++) {
            float weight = power(small ? work[j] : work[j] - highest);
            total += weight, moment += weight * c[j];
            if (both) {
                if (!small) weight = power(work[j] - column.highest[j]);
                column.total[j] += weight, column.moment[j] += weight * c[j];
            }
        }
        row.total[i] += total, row.moment[i] += moment;
    }
}

/* Raise the running maximum of an anchor. */
INLINE void raise(Side side, i64 i, float highest) {
    float shrink = power(side.highest[i] - highest);
    side.total[i] *= shrink, side.moment[i] *= shrink, side.highest[i] = highest;
}

EACH_PROCESSOR static void sums(const Tile *t, Side row, Side column, float *work) {
    float *highest = work + t->columns;
    if (t->small) {
        if (t->both) add(t, row, column, work, 1, 1);
        else add(t, row, column, work, 1, 0);
        return;
    }
    if (t->both) memcpy(highest, column.highest, (size_t)t->columns * sizeof(float));
    for (i64 i = 0; i < t->rows; i++) {
        float top = row.highest[i];
        exponents(t, i, work);
        SIMD(omp simd reduction(max : top))
        for (i64 j = 0; j < t->columns; j++) top = work[j] > top ? work[j] : top;
        raise(row, i, top);
        for (i64 j = 0; t->both && j < t->columns; j++) highest[j] = work[j] > highest[j] ? work[j] : highest[j];
    }
    for (i64 j = 0; t->both && j < t->columns; j++) raise(column, j, highest[j]);
    if (t->both) add(t, row, column, work, 0, 1);
    else add(t, row, column, work, 0, 0);
}

/* Turn the state of all anchors into logsumexps and mean similarities. */
static void finish(Side anchors, i64 count) {
    for (i64 i = 0; i < count; i++) {
        float total = anchors.total[i];
        anchors.total[i] = logf(total) + anchors.highest[i];
        anchors.moment[i] = total > 0 ? anchors.moment[i] / total : 0;
    }
}

typedef struct {
    const float *total, *upstream; /* logsumexps and gradients by them, by anchor */
} Slope;

INLINE void differentiate(const Tile *t, Slope row, Slope column, const float *s, float *grad, int first, float *work,
                          int small, int both) {
    i64 columns = t->columns;
    float *factor = work + columns, s0 = s[0], s1 = s[1], s2 = s[2], s3 = s[3], center = t->center;
    SIMD(omp simd)
    for (i64 j = 0; j < columns; j++) factor[j] = both && small ? column.upstream[j] * power(-column.total[j]) : 0;
    for (i64 i = 0; i < t->rows; i++, grad += columns) {
        const float *c = t->c + i * columns;
        float up = row.upstream[i], total = isinf(row.total[i]) ? 0 : row.total[i];
        if (small) up *= power(-total);
        exponents(t, i, work);
        SIMD(omp simd)
        for (i64 j = 0; j < columns; j++) {
            float x = c[j] - center, slope = ((s3 * x + s2) * x + s1) * x + s0, weight;
            if (small) weight = power(work[j]) * (up + factor[j]);
            else weight = up * power(work[j] - total);
            if (both && !small) weight += column.upstream[j] * power(work[j] - column.total[j]);
            grad[j] = weight * slope + (first ? 0 : grad[j]);
        }
    }
}

/* Write, or unless `first` add, the gradient by the similarities of a tile; s are the coefficients of P'. */
EACH_PROCESSOR static void slopes(const Tile *t, Slope row, Slope column, const float *s, float *grad, int first,
                                  float *work) {
    if (t->small && t->both) differentiate(t, row, column, s, grad, first, work, 1, 1);
    else if (t->small) differentiate(t, row, column, s, grad, first, work, 1, 0);
    else if (t->both) differentiate(t, row, column, s, grad, first, work, 0, 1);
    else differentiate(t, row, column, s, grad, first, work, 0, 0);
}

/* -- the module ---------------------------------------------------------------------------------------------------- */

typedef unsigned long long number;

static PyObject *py_unit(PyObject *self, PyObject *args) {
    number z1, z2, unit1, unit2, norm, positive;
    long long n, d, copies;
    int finite;
    if (!PyArg_ParseTuple(args, "KKLLLKKKK", &z1, &z2, &n, &d, &copies, &unit1, &unit2, &norm, &positive)) return NULL;
    float *u = ADDRESS(float, unit1), *v = ADDRESS(float, unit2), *dot = ADDRESS(float, positive);
    Py_BEGIN_ALLOW_THREADS
    finite = scale(ADDRESS(float, z1), n, d, u, ADDRESS(float, norm));
    finite += 2 * scale(ADDRESS(float, z2), n, d, v, ADDRESS(float, norm) + n);
    dots(u, v, n, d, dot);
    for (i64 copy = 1; copy < copies; copy++) memcpy(dot + copy * n, dot, (size_t)n * sizeof(float));
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(finite == 3);
}

static PyObject *py_unit_slopes(PyObject *self, PyObject *args) {
    number unit[2], norm, grad[2], positive, out[2];
    long long n, d, copies;
    if (!PyArg_ParseTuple(args, "KKKKKKLLLKK", unit, unit + 1, &norm, grad, grad + 1, &positive, &copies, &n, &d, out,
                          out + 1))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (int view = 0; view < 2; view++)
        if (out[view])
            unscale(ADDRESS(float, unit[view]), ADDRESS(float, norm) + view * n, ADDRESS(float, unit[1 - view]),
                    ADDRESS(float, grad[view]), ADDRESS(float, positive), copies, n, d, ADDRESS(float, out[view]));
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* The format of a tile: address, sizes, ids, three flags, center and coefficients. */
#define TILE "(KLLKKpppffffff)"
#define TILE_FIELDS(t) \
    &c, &t.rows, &t.columns, &row_ids, &column_ids, &t.diagonal, &t.small, &t.both, &t.center, t.p, t.p + 1, t.p + 2, \
        t.p + 3, t.p + 4

static float *open_tile(Tile *t, number c, number row_ids, number column_ids) {
    t->c = ADDRESS(float, c), t->row_ids = ADDRESS(i64, row_ids), t->column_ids = ADDRESS(i64, column_ids);
    float *work = malloc((size_t)(2 * t->columns) * sizeof(float));
    return work ? work : (float *)PyErr_NoMemory();
}

static Side side(number total, long long step) {
    float *first = ADDRESS(float, total);
    return (Side){first, first + step, first + 2 * step};
}

static PyObject *py_sums(PyObject *self, PyObject *args) {
    Tile t;
    number c, row_ids, column_ids, row, column;
    long long step;
    if (!PyArg_ParseTuple(args, TILE "KKL", TILE_FIELDS(t), &row, &column, &step)) return NULL;
    float *work = open_tile(&t, c, row_ids, column_ids);
    if (!work) return NULL;
    Py_BEGIN_ALLOW_THREADS
    sums(&t, side(row, step), side(column, step), work);
    free(work);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_finish(PyObject *self, PyObject *args) {
    number state;
    long long count;
    if (!PyArg_ParseTuple(args, "KL", &state, &count)) return NULL;
    finish(side(state, count), count);
    Py_RETURN_NONE;
}

static PyObject *py_slopes(PyObject *self, PyObject *args) {
    Tile t;
    number c, row_ids, column_ids, row[2], column[2], grad;
    float s[4];
    int first;
    if (!PyArg_ParseTuple(args, TILE "(ffff)KKKKKp", TILE_FIELDS(t), s, s + 1, s + 2, s + 3, row, row + 1, column,
                          column + 1, &grad, &first))
        return NULL;
    float *work = open_tile(&t, c, row_ids, column_ids);
    if (!work) return NULL;
    Slope of_row = {ADDRESS(float, row[0]), ADDRESS(float, row[1])};
    Slope of_column = {ADDRESS(float, column[0]), ADDRESS(float, column[1])};
    Py_BEGIN_ALLOW_THREADS
    slopes(&t, of_row, of_column, s, ADDRESS(float, grad), first, work);
    free(work);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"unit", py_unit, METH_VARARGS, NULL},
    {"unit_slopes", py_unit_slopes, METH_VARARGS, NULL},
    {"sums", py_sums, METH_VARARGS, NULL},
    {"finish", py_finish, METH_VARARGS, NULL},
    {"slopes", py_slopes, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&module); }
