/* GIN's layers on the CPU, forward and backward, in float32: `graphcl/models/compiled.py` says what is computed.
 *
 * Graphs are dealt out to segments, and whole layers of a segment are computed block by block while the rows lie in the
 * cache; messages stay within a graph, so segments meet only where BatchNorm asks for the moments of all nodes: once a
 * layer. What is summed over nodes is summed by segment and then in order, so the number of threads changes nothing.
 */
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <dlfcn.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__x86_64__) || !defined(__linux__) || !defined(__GNUC__) || defined(__clang__)
#error "measured with GCC on x86-64 Linux; elsewhere torch's operations may be as quick, and are used"
#endif

typedef int64_t i64;

enum { PAD = 16, BLOCK = 64, SEGMENTS = 16 };

/* -- what a call is about ------------------------------------------------------------------------------------------ */

typedef struct {
    const float *w1, *b1, *w2, *b2, *scale, *shift; /* as torch has them: w1 [H, width], w2 [H, H] */
    float *total, *hidden, *out;                     /* kept for the gradient: [N, padded], [N, H], [N, H] */
    float *mean, *deviation;                         /* [H]; deviation is 1 / sqrt(var + eps) */
    float *var;                                      /* [H], biased; what the batch had */
    float *dw1, *db1, *dw2, *db2, *dscale, *dshift;  /* gradients */
    i64 width, padded;                               /* columns of what comes in, and rounded up to 16 */
    float *packed1, *packed2;                        /* w1 and w2 transposed, [padded, H] and [H, H] */
    float *wide1;                                    /* w1 with padded columns, [H, padded] */
} Layer;

typedef struct {
    i64 nodes, graphs, layers, hidden, training;
    float eps;
    const i64 *graph_ptr, *sources, *target_ptr, *targets, *source_ptr;
    const float *x;
    float *y, *pools;        /* [N, H] in use; [graphs, layers * H] */
    const float *dpools;     /* [graphs, layers * H] */
    float *grad, *sent;      /* [N, H] each */
    Layer *layer;
    i64 segments, first_graph[SEGMENTS + 1];
    double *moments;         /* [segments, 3, H] */
    float *partial;          /* [segments, size of one layer's weight gradients] */
    i64 partial_size;
    int threads, failed, backward;
    atomic_int taken, arrived, round;
} Call;

typedef struct {
    Call *call;
    int number, backward;
} Worker;

/* -- the loops, for processors with AVX-512 and for those with AVX2 ------------------------------------------------ */

typedef struct {
    void (*forward_segment)(Call *, i64, i64);
    void (*normalise_segment)(Call *, i64, i64, const float *, const float *);
    void (*gather_segment)(Call *, i64, i64);
    void (*backward_segment)(Call *, i64, i64, const float *, const float *);
} Loops;

#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4")
#define LANES 16
#define ROWS 4 /* of a product at a time: with them, what is summed up fits the processor's registers */
#define NAME(of) of##_16
#include "_gin_loops.h"
#undef LANES
#undef ROWS
#undef NAME
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define LANES 8
#define ROWS 6
#define NAME(of) of##_8
#include "_gin_loops.h"
#pragma GCC pop_options

static const Loops *loops;

/* The moments of all nodes out of the segments' (Chan, Golub, LeVeque 1979), by every thread for itself. */
static void merge(Call *c, i64 l, float *mean, float *deviation, int write) {
    Layer *layer = c->layer + l;
    i64 H = c->hidden;
    for (i64 j = 0; j < H; j++) {
        if (!c->training) {
            mean[j] = layer->mean[j], deviation[j] = layer->deviation[j];
            continue;
        }
        double count = 0, middle = 0, squares = 0;
        for (i64 s = 0; s < c->segments; s++) {
            double n = (double)(c->graph_ptr[c->first_graph[s + 1]] - c->graph_ptr[c->first_graph[s]]);
            if (n == 0) continue;
            double away = c->moments[s * 3 * H + j] - middle;
            squares += c->moments[s * 3 * H + H + j] + away * away * count * n / (count + n);
            middle += away * n / (count + n);
            count += n;
        }
        mean[j] = (float)middle;
        deviation[j] = (float)(1 / sqrt(squares / count + c->eps));
        if (!write) continue;
        layer->mean[j] = mean[j], layer->deviation[j] = deviation[j], layer->var[j] = (float)(squares / count);
    }
}

static void add_up(Call *c, i64 l) {
    Layer *layer = c->layer + l;
    i64 H = c->hidden, K = layer->padded;
    memset(layer->dw1, 0, (size_t)(H * layer->width) * sizeof(float));
    memset(layer->dw2, 0, (size_t)(H * H) * sizeof(float));
    memset(layer->db1, 0, (size_t)H * sizeof(float)), memset(layer->db2, 0, (size_t)H * sizeof(float));
    for (i64 s = 0; s < c->segments; s++) {
        const float *dw1 = c->partial + s * c->partial_size, *dw2 = dw1 + H * K, *db1 = dw2 + H * H, *db2 = db1 + H;
        for (i64 i = 0; i < H; i++)
            for (i64 j = 0; j < layer->width; j++) layer->dw1[i * layer->width + j] += dw1[i * K + j];
        for (i64 i = 0; i < H * H; i++) layer->dw2[i] += dw2[i];
        for (i64 i = 0; i < H; i++) layer->db1[i] += db1[i], layer->db2[i] += db2[i];
    }
}

/* -- threads ------------------------------------------------------------------------------------------------------- */

/* All threads have come here. The others are a fraction of a layer away, so looking again soon is quicker than
 * sleeping; giving up the core in between keeps that harmless where another program needs it. */
static void meet(Call *c) {
    int round = atomic_load(&c->round);
    if (atomic_fetch_add(&c->arrived, 1) + 1 == c->threads) {
        atomic_store(&c->arrived, 0);
        atomic_fetch_add(&c->round, 1);
        return;
    }
    for (int look = 0; atomic_load(&c->round) == round; look++)
        if (look >= 2000) sched_yield();
}

static void *work(void *given) {
    Worker *w = given;
    Call *c = w->call;
    i64 H = c->hidden;
    float one[H], other[H]; /* means and deviations, or the two sums */
    for (i64 step = 0; step < c->layers; step++) {
        i64 l = w->backward ? c->layers - 1 - step : step;
        for (i64 s = w->number; s < c->segments; s += c->threads) {
            if (w->backward) loops->gather_segment(c, l, s);
            else loops->forward_segment(c, l, s);
        }
        meet(c);
        if (!w->backward) merge(c, l, one, other, w->number == 0);
        else
            for (i64 j = 0; j < H; j++) {
                double plain = 0, weighted = 0;
                for (i64 s = 0; s < c->segments; s++)
                    plain += c->moments[s * 3 * H + j], weighted += c->moments[s * 3 * H + H + j];
                one[j] = (float)plain, other[j] = (float)weighted;
                if (w->number == 0) c->layer[l].dshift[j] = one[j], c->layer[l].dscale[j] = other[j];
            }
        for (i64 s = w->number; s < c->segments; s += c->threads) {
            if (w->backward) loops->backward_segment(c, l, s, one, other);
            else loops->normalise_segment(c, l, s, one, other);
        }
        meet(c);
        if (w->backward && w->number == 0) add_up(c, l);
    }
    return NULL;
}

/* torch's own threads, where its OpenMP runtime is GCC's: they wait actively for a while after each of its operations,
 * so others would have to wait for the cores that they hold. The runtime is asked for by name, not linked: a second
 * copy of it would bring a second set of threads. */
static int (*threads_here)(void);

static void share_of_team(void *given) {
    Call *c = given;
    Worker w = {c, atomic_fetch_add(&c->taken, 1), c->backward};
    if (w.number == 0) c->threads = threads_here();
    /* Everybody waits for everybody, so all must know how many came. */
    int all = threads_here();
    if (atomic_fetch_add(&c->arrived, 1) + 1 == all) {
        atomic_store(&c->arrived, 0);
        atomic_fetch_add(&c->round, 1);
    } else
        while (atomic_load(&c->round) == 0) sched_yield();
    work(&w);
}

static void run(Call *c) {
    static void (*team)(void (*)(void *), void *, unsigned, unsigned);
    if (!team) {
        threads_here = (int (*)(void))dlsym(RTLD_DEFAULT, "omp_get_num_threads");
        team = (void (*)(void (*)(void *), void *, unsigned, unsigned))dlsym(RTLD_DEFAULT, "GOMP_parallel");
    }
    if (c->threads > c->segments) c->threads = (int)c->segments;
    if (c->threads > 1 && team && threads_here) {
        team(share_of_team, c, (unsigned)c->threads, 0);
        return;
    }
    c->threads = 1;
    work(&(Worker){c, 0, c->backward});
}

/* -- the module ---------------------------------------------------------------------------------------------------- */

enum { CALL = 17, LAYER = 19 };
#define AT(type, number) ((type *)(uintptr_t)(number))

/* What stands in the table that `graphcl/models/compiled.py` fills: sizes, addresses, and LAYER more of them for each layer. */
static int unpack(const i64 *t, double eps, Call *c, Layer *layers) {
    *c = (Call){.nodes = t[0], .graphs = t[1], .layers = t[2], .hidden = t[3], .training = t[4], .threads = (int)t[5],
                .graph_ptr = AT(i64, t[6]), .sources = AT(i64, t[7]), .target_ptr = AT(i64, t[8]),
                .targets = AT(i64, t[9]), .source_ptr = AT(i64, t[10]), .x = AT(float, t[11]), .y = AT(float, t[12]),
                .pools = AT(float, t[13]), .dpools = AT(float, t[14]), .grad = AT(float, t[15]),
                .sent = AT(float, t[16]), .eps = (float)eps, .layer = layers};
    i64 H = c->hidden, largest = 0, packed = 0;
    for (i64 l = 0; l < c->layers; l++) {
        const i64 *u = t + CALL + l * LAYER;
        Layer *layer = layers + l;
        *layer = (Layer){.w1 = AT(float, u[0]), .b1 = AT(float, u[1]), .w2 = AT(float, u[2]), .b2 = AT(float, u[3]),
                         .scale = AT(float, u[4]), .shift = AT(float, u[5]), .total = AT(float, u[6]),
                         .hidden = AT(float, u[7]), .out = AT(float, u[8]), .mean = AT(float, u[9]),
                         .deviation = AT(float, u[10]), .var = AT(float, u[11]), .dw1 = AT(float, u[12]),
                         .db1 = AT(float, u[13]), .dw2 = AT(float, u[14]), .db2 = AT(float, u[15]),
                         .dscale = AT(float, u[16]), .dshift = AT(float, u[17]), .width = u[18]};
        layer->padded = (layer->width + PAD - 1) / PAD * PAD;
        if (layer->padded > largest) largest = layer->padded;
        packed += 2 * H * layer->padded + H * H;
    }
    c->segments = c->graphs < SEGMENTS ? c->graphs : SEGMENTS;
    for (i64 s = 0, g = 0; s < c->segments; s++) { /* about as many nodes each */
        while (g < c->graphs && c->graph_ptr[g] * c->segments < s * c->nodes) g++;
        c->first_graph[s] = g;
    }
    c->first_graph[c->segments] = c->graphs;
    c->partial_size = H * (largest + H + 2);
    c->moments = malloc((size_t)(c->segments * 3 * H) * sizeof(double));
    c->partial = malloc((size_t)(c->segments * c->partial_size + packed) * sizeof(float));
    if (!c->moments || !c->partial) return 0;
    float *room = c->partial + c->segments * c->partial_size;
    for (i64 l = 0; l < c->layers; l++) {
        Layer *layer = layers + l;
        i64 K = layer->padded;
        layer->packed1 = room, layer->packed2 = room + H * K, layer->wide1 = room + H * K + H * H;
        room += 2 * H * K + H * H;
        memset(layer->packed1, 0, (size_t)(H * K) * sizeof(float));
        memset(layer->wide1, 0, (size_t)(H * K) * sizeof(float));
        for (i64 i = 0; i < H; i++) {
            for (i64 j = 0; j < layer->width; j++)
                layer->packed1[j * H + i] = layer->wide1[i * K + j] = layer->w1[i * layer->width + j];
            for (i64 j = 0; j < H; j++) layer->packed2[j * H + i] = layer->w2[i * H + j];
        }
    }
    return 1;
}

/* 1: done; 0: an edge connects two graphs, and nothing is to be used. */
static PyObject *call(PyObject *args, int backward) {
    unsigned long long table;
    double eps;
    int fits, failed;
    if (!PyArg_ParseTuple(args, "Kd", &table, &eps)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    const i64 *t = AT(i64, table);
    Layer *layers = malloc((size_t)t[2] * sizeof(Layer));
    Call c = {0};
    fits = layers && unpack(t, eps, &c, layers);
    c.backward = backward;
    if (fits) run(&c);
    failed = c.failed;
    free(c.moments), free(c.partial), free(layers);
    Py_END_ALLOW_THREADS
    if (!fits) return PyErr_NoMemory();
    return PyBool_FromLong(!failed);
}

static PyObject *py_forward(PyObject *self, PyObject *args) { return call(args, 0); }
static PyObject *py_backward(PyObject *self, PyObject *args) { return call(args, 1); }

static PyMethodDef methods[] = {
    {"forward", py_forward, METH_VARARGS, NULL},
    {"backward", py_backward, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_gin", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__gin(void) {
    int shorter = getenv("GRAPHCL_AVX2") != NULL; /* for tests */
    if (__builtin_cpu_supports("x86-64-v4") && !shorter) loops = &loops_16;
    else if (__builtin_cpu_supports("x86-64-v3")) loops = &loops_8;
    else { /* torch's operations are quicker then */
        PyErr_SetString(PyExc_ImportError, "a processor with AVX2 is needed");
        return NULL;
    }
    return PyModule_Create(&module);
}
