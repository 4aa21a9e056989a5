/* The RBF kernel, and the two-class support vector machine on a kernel by the steps of LIBSVM; called by
 * `graphcl/evaluate/graphs/svm.py`.
 *
 *     min 1/2 a'Qa - sum a,  0 <= a <= C,  y'a = 0,  Q_st = y_s y_t K_st,  K_tt = 1
 *
 * - Working set: second-order selection, algorithm 2 of Fan, Chen and Lin (JMLR 2005).
 * - Shrinking and reconstruction of the gradient: section 5.1 of Chang and Lin (LIBSVM, ACM TIST 2011).
 *
 * The solution at LIBSVM's tolerance depends on the path to it. So the kernel is rounded to float, each sum has the
 * order of additions of LIBSVM, the last of equals is selected, and shrinking permutes the rows in the same way: the
 * multipliers are LIBSVM's bit for bit. Compile with -ffp-contract=off. What is faster is the loops, in AVX2, and that
 * only the few gains are divided that come near the largest one in a float approximation.
 *
 * No value of the kernel leads to an index out of range, because the caller may change it meanwhile: a position is used
 * only if its f is finite (`update`) or its gain positive (`partner`), which the padding and shrunk rows never have.
 */
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t i64;
enum { LANES = 4, WIDTH = 8, BLOCK = 16, PERIOD = 1000, MANY = 100 };
typedef enum { SOLVED, UNFINISHED, NOT_FINITE, NO_MEMORY } Outcome;
typedef double Reals __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
typedef i64 Integers __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
typedef float Floats __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef float Singles __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
#define AT(p, k) (*(Reals *)((p) + (k)))
#define SINGLES_AT(p, k) (*(Singles *)((p) + (k)))
#ifdef __x86_64__
#define VECTORS __attribute__((target("arch=x86-64-v3")))
/* GCC 12 compiles __builtin_convertvector and comparisons to several instructions. MIN and MAX of NaN and b give b. */
#include <immintrin.h>
#define WIDE(p, k) ((Reals)_mm256_cvtps_pd(_mm_loadu_ps((p) + (k))))
#define NARROW(a, b) ((Singles)_mm256_set_m128(_mm256_cvtpd_ps((__m256d)(b)), _mm256_cvtpd_ps((__m256d)(a))))
#define MIN(a, b) ((Reals)_mm256_min_pd((__m256d)(a), (__m256d)(b)))
#define MAX(a, b) ((Reals)_mm256_max_pd((__m256d)(a), (__m256d)(b)))
#define MAX_SINGLES(a, b) ((Singles)_mm256_max_ps((__m256)(a), (__m256)(b)))
#define RECIPROCALS(a) ((Singles)_mm256_rcp_ps((__m256)(a))) /* within 1.5 / 2^12 */
#define FMA(a, b, c) ((Reals)_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#define BITS(mask) _mm256_movemask_ps((__m256)(mask))
#else
#define VECTORS
#define WIDE(p, k) __builtin_convertvector(*(const Floats *)((p) + (k)), Reals)
#define NARROW(a, b) ((Singles){a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]})
#define MIN(a, b) PICK((a) < (b), a, b)
#define MAX(a, b) PICK((a) > (b), a, b)
#define MAX_SINGLES(a, b) ((Singles)((((a) > (b)) & (Masks)(a)) | (~((a) > (b)) & (Masks)(b))))
#define RECIPROCALS(a) (1 / (a))
#define FMA(a, b, c) ((a) * (b) + (c))
typedef int32_t Masks __attribute__((vector_size(4 * WIDTH)));
static int BITS(Masks mask) {
    int bits = 0;
    for (int l = 0; l < WIDTH; l++) bits |= (mask[l] & 1) << l;
    return bits;
}
#endif
#define PICK(mask, a, b) ((Reals)(((mask) & (Integers)(a)) | (~(mask) & (Integers)(b))))
#define PICK_AT(mask, a, b) (((mask) & (a)) | (~(mask) & (b)))

/* Arrays ending in [n] are by row, in the caller's order; those ending in [k] by position, the m active ones first.
 * f = y times the gradient. up and low are 0 where y a may grow or fall, else infinite. */
typedef struct {
    i64 n, positive, stride, m; /* rows, those of class +1, which come first, floats from row to row, active rows */
    i64 steps;                  /* largest number of steps */
    double c, tolerance;
    const float *kernel;              /* [n, stride] */
    double *alpha, *bounded;          /* [n]; `bounded`: the part of f that rows at C make */
    float *cache;                     /* [n, stride]: rows of the kernel with columns by position */
    unsigned char *cached;            /* [n] */
    i64 *order;                       /* [k]: the row */
    double *f;                        /* [k] */
    double *up;                       /* [k] */
    float *low, *gains;               /* [k] */
    int permuted, unshrunk;
} Machine;

static double sign(const Machine *s, i64 row) { return row < s->positive ? 1 : -1; }

static void set_bounds(Machine *s, i64 k) {
    double a = s->alpha[s->order[k]];
    int plus = s->order[k] < s->positive;
    s->up[k] = (plus ? a < s->c : a > 0) ? 0 : INFINITY;
    s->low[k] = (plus ? a > 0 : a < s->c) ? 0 : INFINITY;
}

/* f += a K_i + b K_j. Return the last position of the smallest f + up, or -1 if none is finite. */
VECTORS static i64 update(i64 m, double *f, const float *ki, const float *kj, double a, double b, const double *up) {
    Integers block = {0}, where = {0};
    Reals best;
    for (int l = 0; l < LANES; l++) best[l] = INFINITY;
    for (i64 start = 0; start < m; start += BLOCK, block += BLOCK) {
        Reals x[BLOCK / LANES];
        for (int c = 0; c < BLOCK / LANES; c++) {
            i64 k = start + c * LANES;
            x[c] = AT(f, k) + (WIDE(ki, k) * a + WIDE(kj, k) * b);
            AT(f, k) = x[c];
            x[c] += AT(up, k);
        }
        x[0] = MIN(MIN(x[0], x[1]), MIN(x[2], x[3]));
        Integers taken = x[0] <= best;
        best = MIN(x[0], best);
        where = PICK_AT(taken, block, where);
    }
    double least = INFINITY;
    i64 start = 0;
    for (int l = 0; l < LANES; l++)
        if (best[l] < least || (best[l] == least && where[l] > start)) least = best[l], start = where[l];
    if (!(fabs(least) <= DBL_MAX)) return -1;
    i64 k = start + BLOCK - 1;
    while (k > start && f[k] + up[k] != least) k--;
    return k;
}

/* Return the last position of the largest gain beside i, (f - f_i)^2 / (2 - 2 K_i), or -1. `gains`: room for all.
 * Divisions take longer than all the rest, so the first loop approximates within a factor of 1.0004. */
VECTORS static i64 partner(i64 m, const double *f, const float *ki, double least, const float *low, float *gains) {
    Singles top = {0}, zero = {0}, one, tiny;
    for (int l = 0; l < WIDTH; l++) one[l] = 1, tiny[l] = 5e-13f;
    for (i64 k = 0; k < m; k += WIDTH) {
        Reals a = AT(f, k) - least, b = AT(f, k + LANES) - least;
        Singles gap = MAX_SINGLES(NARROW(a, b) - SINGLES_AT(low, k), zero);
        Singles gain = gap * gap * RECIPROCALS(MAX_SINGLES(one - SINGLES_AT(ki, k), tiny));
        SINGLES_AT(gains, k) = gain;
        top = MAX_SINGLES(gain, top);
    }
    float most = 0;
    for (int l = 0; l < WIDTH; l++) most = top[l] > most ? top[l] : most;
    Singles enough = one * (most > 1e-30f ? 0.999f * most : 0); /* smaller numbers are less exact */
    double best = 0;
    i64 where = -1;
    for (i64 k = 0; k < m; k += WIDTH)
        for (unsigned near = (unsigned)BITS(SINGLES_AT(gains, k) >= enough); near; near &= near - 1) {
            i64 t = k + __builtin_ctz(near);
            double gap = f[t] - low[t] - least, curvature = 2 - 2 * (double)ki[t];
            double gain = gap * gap / (curvature > 0 ? curvature : 1e-12);
            if (gap > 0 && gain >= best) best = gain, where = t;
        }
    return where;
}

/* Return the largest f - low. */
VECTORS static double highest(const Machine *s) {
    Reals top;
    for (int l = 0; l < LANES; l++) top[l] = -INFINITY;
    for (i64 k = 0; k < s->m; k += LANES) top = MAX(AT(s->f, k) - WIDE(s->low, k), top);
    double most = top[0];
    for (int l = 1; l < LANES; l++) most = top[l] > most ? top[l] : most;
    return most;
}

/* sum += a row, then sum += b other. */
VECTORS static void add(i64 n, double *sum, double a, const float *row, double b, const float *other) {
    for (i64 t = 0; t < n; t += LANES) AT(sum, t) = AT(sum, t) + WIDE(row, t) * a + WIDE(other, t) * b;
}

/* The kernel of position k with every active one. */
VECTORS static const float *row(Machine *s, i64 k) {
    const float *from = s->kernel + s->order[k] * s->stride;
    if (!s->permuted) return from;
    float *to = s->cache + s->order[k] * s->stride;
    if (!s->cached[s->order[k]]) {
        for (i64 j = 0; j < s->m; j++) to[j] = from[s->order[j]];
        for (i64 j = s->m; j % BLOCK; j++) to[j] = 0;
    }
    s->cached[s->order[k]] = 1;
    return to;
}

/* Make all rows active again, with the gradient of those that were not. */
static int activate(Machine *s) {
    if (s->m == s->n) return 1;
    double *f = malloc((size_t)s->stride * sizeof(double));
    if (!f) return 0;
    for (i64 t = 0; t < s->stride; t++) f[t] = s->bounded[t] - sign(s, t);
    for (i64 k = 0; k < s->m; k++)
        if (s->up[k] == 0 && s->low[k] == 0) {
            i64 t = s->order[k];
            add(s->n, f, sign(s, t) * s->alpha[t], s->kernel + t * s->stride, 0, s->kernel);
        }
    for (; s->m < s->n; s->m++) s->f[s->m] = f[s->order[s->m]], set_bounds(s, s->m);
    memset(s->cached, 0, (size_t)s->n);
    free(f);
    return 1;
}

static void swap(Machine *s, i64 j, i64 k) {
    i64 row = s->order[j];
    double f = s->f[j];
    s->order[j] = s->order[k], s->order[k] = row;
    s->f[j] = s->f[k], s->f[k] = f;
    set_bounds(s, j), set_bounds(s, k);
}

/* Whether a row at a bound is to stay there: every pair that would move it is in order. */
static int settled(const Machine *s, i64 k, double least, double most) {
    return (s->low[k] != 0 && s->f[k] > most) || (s->up[k] != 0 && s->f[k] < least);
}

static int shrink(Machine *s) {
    double least = INFINITY, most = -INFINITY;
    for (i64 k = 0; k < s->m; k++) {
        if (s->up[k] == 0 && s->f[k] < least) least = s->f[k];
        if (s->low[k] == 0 && s->f[k] > most) most = s->f[k];
    }
    if (!s->unshrunk && most - least <= 10 * s->tolerance) {
        s->unshrunk = 1;
        if (!activate(s)) return 0;
    }
    i64 before = s->m, swaps = 0, pairs[2 * MANY];
    for (i64 k = 0; k < s->m; k++) {
        if (!settled(s, k, least, most)) continue;
        for (s->m--; s->m > k && settled(s, s->m, least, most); s->m--) {}
        if (s->m == k) break;
        swap(s, k, s->m);
        if (swaps < MANY) pairs[2 * swaps] = k, pairs[2 * swaps + 1] = s->m;
        swaps++;
    }
    for (i64 k = s->m; k < before; k++) s->up[k] = s->low[k] = INFINITY;
    if (swaps > MANY || !s->permuted) memset(s->cached, 0, (size_t)s->n);
    else
        for (i64 t = 0; t < s->n; t++)
            for (i64 p = 0; s->cached[t] && p < swaps; p++) {
                float *row = s->cache + t * s->stride, *a = row + pairs[2 * p], *b = row + pairs[2 * p + 1], value = *a;
                *a = *b, *b = value;
            }
    s->permuted |= swaps > 0;
    return 1;
}

/* Move alpha of positions i and j as far as the objective falls and the box allows; write the changes of y alpha. */
static void move(Machine *s, i64 i, i64 j, double near, double *by_i, double *by_j) {
    i64 r = s->order[i], t = s->order[j];
    double yi = sign(s, r), yj = sign(s, t), c = s->c, curvature = 2 - 2 * near;
    double step = (s->f[j] - s->f[i]) / (curvature > 0 ? curvature : 1e-12);
    double old_i = s->alpha[r], old_j = s->alpha[t], a, b;
    double room_i = yi > 0 ? c - old_i : old_i, room_j = yj > 0 ? old_j : c - old_j;
    if (step < room_i && step < room_j) a = old_i + yi * step, b = old_j - yj * step;
    else if (room_i < room_j) a = yi > 0 ? c : 0, b = yi == yj ? old_i + old_j - a : a - (old_i - old_j);
    else b = yj > 0 ? 0 : c, a = yi == yj ? old_i + old_j - b : b + (old_i - old_j);
    s->alpha[r] = a, s->alpha[t] = b;
    *by_i = yi * (a - old_i), *by_j = yj * (b - old_j);
    double of_i = ((a >= c) - (old_i >= c)) * yi * c, of_j = ((b >= c) - (old_j >= c)) * yj * c;
    if (of_i != 0 || of_j != 0) add(s->n, s->bounded, of_i, s->kernel + r * s->stride, of_j, s->kernel + t * s->stride);
    set_bounds(s, i), set_bounds(s, j);
}

static double threshold(const Machine *s) {
    double sum = 0, least = INFINITY, most = -INFINITY;
    i64 inside = 0;
    for (i64 k = 0; k < s->n; k++) {
        if (s->up[k] == 0 && s->low[k] == 0) sum += s->f[k], inside++;
        else if (s->up[k] == 0) least = fmin(least, s->f[k]);
        else most = fmax(most, s->f[k]);
    }
    return inside ? sum / (double)inside : (least + most) / 2;
}

static Outcome solve(Machine *s) {
    i64 period = s->n < PERIOD ? s->n : PERIOD, counter = period + 1, i = 0, j = 0, step = 0;
    double a = 0, b = 0;
    for (i64 k = 0; k < s->n; k++) s->order[k] = k, s->f[k] = -sign(s, k), set_bounds(s, k);
    for (i64 k = s->n; k < s->stride; k++) s->f[k] = 0, s->up[k] = s->low[k] = INFINITY;
    for (s->m = s->n;; step++) {
        i = update(s->m, s->f, row(s, i), row(s, j), a, b, s->up);
        if (step == s->steps) return activate(s) ? UNFINISHED : NO_MEMORY;
        if (--counter == 0) {
            counter = period;
            if (!shrink(s)) return NO_MEMORY;
            i = update(s->m, s->f, row(s, 0), row(s, 0), 0, 0, s->up);
        }
        for (int again = 0;; again = 1) {
            if (i >= 0) { /* shrinking may leave no row that may grow, or none at all */
                j = partner(s->m, s->f, row(s, i), s->f[i], s->low, s->gains);
                if (j >= 0 && s->f[j] - s->f[i] >= s->tolerance) break;
                if (j >= 0 && highest(s) - s->f[i] >= s->tolerance) break;
            }
            if (again) return SOLVED;
            if (!activate(s)) return NO_MEMORY;
            i = update(s->m, s->f, row(s, 0), row(s, 0), 0, 0, s->up);
            counter = 1;
        }
        move(s, i, j, row(s, i)[j], &a, &b);
    }
}

/* Write the multipliers to s->alpha, which holds zeros, and the threshold to *found. */
static Outcome fit(Machine *s, double *found) {
    size_t n = (size_t)s->n, stride = (size_t)s->stride;
    s->cache = malloc(n * stride * sizeof(float)), s->cached = calloc(n, 1);
    s->order = malloc(n * sizeof(i64)), s->bounded = calloc(stride, sizeof(double));
    s->f = malloc(stride * sizeof(double)), s->up = malloc(stride * sizeof(double));
    s->low = malloc(stride * sizeof(float)), s->gains = malloc(stride * sizeof(float));
    int ready = s->cache && s->cached && s->order && s->bounded && s->f && s->up && s->low && s->gains;
    Outcome outcome = ready ? solve(s) : NO_MEMORY;
    if (outcome == SOLVED || outcome == UNFINISHED) {
        *found = threshold(s);
        int finite = fabs(*found) <= DBL_MAX;
        for (i64 k = 0; k < s->n; k++) finite &= fabs(s->f[k]) <= DBL_MAX;
        if (!finite) outcome = NOT_FINITE;
    }
    free(s->cache), free(s->cached), free(s->order), free(s->bounded);
    free(s->f), free(s->up), free(s->low), free(s->gains);
    return outcome;
}

/* Write e^x of each x [n] <= 700, within one unit of the last place; n is a multiple of LANES. e^x = 2^k e^r. */
VECTORS static void exponentials(i64 n, const double *x, double *out) {
    static const double ln2 = 0x1.62e42fee00000p-1, rest = 0x1.a39ef35793c76p-33, magic = 0x1.8p52;
    static const double taylor[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
                                    1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5};
    Reals zero = {0}, one = zero + 1.0;
    for (i64 t = 0; t < n; t += LANES) {
        Reals shifted = AT(x, t) * 0x1.71547652b82fep0 + magic, k = shifted - magic; /* low bits of `shifted`: k */
        Reals r = FMA(k, zero - rest, FMA(k, zero - ln2, AT(x, t))), p = zero + taylor[0];
        for (int d = 1; d < 12; d++) p = FMA(p, r, zero + taylor[d]);
        p = FMA(p, r * r, r) + one;
        AT(out, t) = (Reals)(((Integers)p + ((Integers)shifted << 52)) & (AT(x, t) > -700.0));
    }
}

/* Write e^(factor d) of rows and columns of a table d [., width]: to float [height, stride] with zeros behind each row,
 * or without a stride to double [height, n]. */
VECTORS static void kernel(const double *table, i64 width, i64 height, const int *rows, i64 n, const int *columns,
                           double factor, void *out, i64 stride) {
    enum { PART = 256 }; /* stays in the processor's cache */
    double x[PART];
    for (i64 r = 0; r < height; r++) {
        for (i64 start = 0, end; start < n; start = end) {
            const double *row = table + rows[r] * width;
            i64 c = 0;
            end = start + PART < n ? start + PART : n;
            for (; c < end - start; c++) x[c] = factor * row[columns[start + c]];
            for (; c % LANES; c++) x[c] = 0;
            exponentials(c, x, x);
            if (!stride) memcpy((double *)out + r * n + start, x, (size_t)(end - start) * sizeof(double));
            else
                for (c = start; c < end; c++) ((float *)out)[r * stride + c] = (float)x[c - start];
        }
        for (i64 c = n; c < stride; c++) ((float *)out)[r * stride + c] = 0;
    }
}

/* machine(kernel, n, positive, c, tolerance, steps) -> (threshold, multipliers, whether it converged in `steps` steps).
 * The kernel is a contiguous float32 array [n, stride] with stride a multiple of 16; the first `positive` rows are of
 * class +1. Multipliers: bytes of n doubles. */
static PyObject *py_machine(PyObject *self, PyObject *args) {
    const char *kernel;
    Py_ssize_t length;
    long long n, positive, steps;
    Machine s = {0};
    Outcome outcome;
    double found = 0;
    if (!PyArg_ParseTuple(args, "y#LLddL", &kernel, &length, &n, &positive, &s.c, &s.tolerance, &steps)) return NULL;
    i64 stride = n > 0 && n <= length / 4 ? length / (4 * n) : 0; /* 4 n stride <= length, so nothing overflows */
    if (n < 2 || stride < n || stride % BLOCK || length != 4 * n * stride || positive < 1 || positive >= n ||
        (uintptr_t)kernel % sizeof(float)) {
        PyErr_SetString(PyExc_ValueError,
                        "kernel must be float32 [n, stride], stride >= n a multiple of 16, 0 < positive < n");
        return NULL;
    }
    if (!(s.c > 0 && s.c <= DBL_MAX && s.tolerance > 0 && s.tolerance <= DBL_MAX && steps > 0)) {
        PyErr_SetString(PyExc_ValueError, "c, tolerance and steps must be positive and finite");
        return NULL;
    }
    PyObject *alpha = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(n * sizeof(double)));
    if (!alpha) return NULL;
    s.n = n, s.positive = positive, s.stride = stride, s.steps = steps;
    s.kernel = (const float *)kernel, s.alpha = (double *)PyBytes_AsString(alpha);
    memset(s.alpha, 0, (size_t)n * sizeof(double));
    Py_BEGIN_ALLOW_THREADS
    outcome = fit(&s, &found);
    Py_END_ALLOW_THREADS
    if (outcome == SOLVED || outcome == UNFINISHED)
        return Py_BuildValue("(dNO)", found, alpha, outcome == SOLVED ? Py_True : Py_False);
    Py_DECREF(alpha);
    if (outcome == NO_MEMORY) return PyErr_NoMemory();
    PyErr_SetString(PyExc_ValueError, "kernel and c must give finite sums");
    return NULL;
}

/* rbf(table, width, rows, columns, factor, out, stride): see `kernel`. `table` is float64, rows and columns are int32,
 * `out` is an address. */
static PyObject *py_rbf(PyObject *self, PyObject *args) {
    const char *table, *rows, *columns;
    Py_ssize_t size, height, n;
    long long width, stride;
    unsigned long long out;
    double factor;
    if (!PyArg_ParseTuple(args, "y#Ly#y#dKL", &table, &size, &width, &rows, &height, &columns, &n, &factor, &out,
                          &stride)) return NULL;
    const int *down = (const int *)rows, *across = (const int *)columns;
    size /= 8, height /= 4, n /= 4;
    int valid = width > 0 && (!stride || stride >= n);
    for (i64 r = 0; valid && r < height; r++) valid = down[r] >= 0 && down[r] < size / width;
    for (i64 c = 0; valid && c < n; c++) valid = across[c] >= 0 && across[c] < width;
    if (!valid) {
        PyErr_SetString(PyExc_IndexError, "rows and columns must be inside the table, and a stride >= columns");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    kernel((const double *)table, width, height, down, n, across, factor, (void *)(uintptr_t)out, stride);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"machine", py_machine, METH_VARARGS, NULL}, {"rbf", py_rbf, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_svm", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__svm(void) {
#ifdef __x86_64__
    if (!__builtin_cpu_supports("x86-64-v3")) {
        PyErr_SetString(PyExc_ImportError, "a processor with AVX2 is needed");
        return NULL;
    }
#endif
    return PyModule_Create(&module);
}
