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

enum { PAD = 16, BLOCK = 64, SEGMENTS = 16, WIDEST = 512, DEEPEST = 4096 };

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
    i64 nodes, graphs, layers, hidden, training, raw;
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

/* The sums of `raw` rows do not use the last layer's BatchNorm, so it has no gradient: not even 0 times infinity. */
static int norm_is_unused(const Call *c, i64 l) { return c->raw && l + 1 == c->layers; }

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
        double count = 0, middle = 0, squares = 0, total = 0;
        for (i64 s = 0; s < c->segments; s++) {
            double n = (double)(c->graph_ptr[c->first_graph[s + 1]] - c->graph_ptr[c->first_graph[s]]);
            if (n == 0) continue;
            double away = c->moments[s * 3 * H + j] - middle;
            squares += c->moments[s * 3 * H + H + j] + away * away * count * n / (count + n);
            middle += away * n / (count + n);
            count += n, total += n * c->moments[s * 3 * H + j];
        }
        if (isnan(middle)) middle = total / count; /* an infinite mean makes `away` infinite with either sign */
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
                for (i64 s = 0; s < c->segments && !norm_is_unused(c, l); s++)
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

/* -- the module ----------------------------------------------------------------------------------------------------
 * Arguments are DLPack capsules. Everything that the loops rely on is checked here: types, devices, layouts and sizes,
 * that indices are in range, and that nothing written overlaps with anything else. */

typedef struct { /* DLTensor of DLPack's C header, the first member of the DLManagedTensor in a capsule */
    char *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    i64 *shape, *strides;
    uint64_t byte_offset;
} Tensor;

enum { CPU = 1, INTEGER = 0, FLOAT = 2 };
enum { GRAPH_PTR, SOURCES, TARGET_PTR, TARGETS, SOURCE_PTR, X, WEIGHTS, POOLS, MOMENTS, WORK, GRADS, KEPT };
static const char *names[] = {"graph_ptr", "sources", "target_ptr", "targets", "source_ptr", "x",
                              "weights",   "pools",   "moments",    "work",    "grads",      "kept"};
#define NAME_OF(i) names[(i) < KEPT ? (i) : KEPT]

typedef struct {
    char *data;
    i64 numel, rows;
} Array;

/* Read a capsule; 0 with a Python error unless it holds contiguous float32 or, for the indices, int64 on the CPU. */
static int read_tensor(PyObject *capsule, int which, Array *array) {
    const Tensor *t = PyCapsule_GetPointer(capsule, "dltensor");
    if (!t) return 0;
    int code = which < X ? INTEGER : FLOAT, bits = which < X ? 64 : 32, contiguous = 1;
    i64 numel = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        if (t->strides && t->shape[i] > 1 && t->strides[i] != numel) contiguous = 0;
        numel *= t->shape[i];
    }
    if (t->device.type != CPU || t->dtype.code != code || t->dtype.bits != bits || t->dtype.lanes != 1 || !contiguous) {
        PyErr_Format(PyExc_ValueError, "`%s` must be contiguous %s on the CPU", NAME_OF(which), code ? "float32" : "int64");
        return 0;
    }
    *array = (Array){t->data + t->byte_offset, numel, t->ndim == 2 ? t->shape[0] : -1};
    return 1;
}

static int fail(const char *name, const char *rule) {
    PyErr_Format(PyExc_ValueError, "`%s` must %s", name, rule);
    return 0;
}

static int is_ptr(const Array *ptr, i64 end) {
    const i64 *p = (const i64 *)ptr->data;
    int rising = ptr->numel > 0 && p[0] == 0 && p[ptr->numel - 1] == end;
    for (i64 i = 1; i < ptr->numel; i++) rising &= p[i - 1] <= p[i];
    return rising;
}

static int in_range(const Array *index, i64 end) {
    const i64 *p = (const i64 *)index->data;
    int inside = 1;
    for (i64 i = 0; i < index->numel; i++) inside &= (uint64_t)p[i] < (uint64_t)end;
    return inside;
}

/* Fill sizes and pointers of a call from its arrays; 0 with a Python error if they do not fit each other. */
static int bind(Call *c, Layer **layers, const Array *a, int count) {
    i64 N = a[X].rows, H = c->hidden, L = c->layers, G = a[GRAPH_PTR].numel - 1, E = a[SOURCES].numel;
    if (H < PAD || H > WIDEST || H % PAD) return fail("hidden", "be a multiple of 16 up to 512");
    if (c->threads < 1) return fail("threads", "be positive");
    if (N < 1 || G < 1) return fail("x", "be a matrix with rows, and `graph_ptr` have two entries");
    i64 width = a[X].numel / N, first = (width + PAD - 1) / PAD * PAD;
    if (width < 1 || width > INT32_MAX || N > INT32_MAX) return fail("x", "have 1 to 2^31 - 1 rows and columns");
    i64 weights = H * (width + H + 4) + (L - 1) * H * (2 * H + 4), work = N * H * (c->backward ? 2 : 1);
    i64 sizes[KEPT] = {G + 1,   E,         N + 1,     E,    N + 1,                       N * width,
                       weights, G * L * H, 3 * L * H, work, c->backward ? weights : 0};
    for (int i = 0; i < count; i++) {
        i64 size = i < KEPT ? sizes[i] : N * (i == KEPT ? first : i % 2 == KEPT % 2 ? H : 2 * H);
        if (a[i].numel != size) return fail(NAME_OF(i), "have the size that the other arguments imply");
    }
    if (!is_ptr(&a[GRAPH_PTR], N)) return fail("graph_ptr", "rise from 0 to the number of nodes");
    if (!is_ptr(&a[TARGET_PTR], E)) return fail("target_ptr", "rise from 0 to the number of edges");
    if (!is_ptr(&a[SOURCE_PTR], E)) return fail("source_ptr", "rise from 0 to the number of edges");
    if (!in_range(&a[SOURCES], N)) return fail("sources", "be nodes");
    if (!in_range(&a[TARGETS], N)) return fail("targets", "be nodes");
    for (int i = c->backward ? WORK : POOLS; i < (c->backward ? KEPT : count); i++)
        for (int j = 0; j < count; j++)
            if (i != j && a[i].data < a[j].data + a[j].numel * (j < X ? 8 : 4) && a[j].data < a[i].data + a[i].numel * 4)
                return fail(NAME_OF(i), "not share memory with other arguments");
    if (!(*layers = malloc((size_t)L * sizeof(Layer)))) return PyErr_NoMemory() != NULL;

    c->layer = *layers, c->nodes = N, c->graphs = G;
    c->graph_ptr = (i64 *)a[GRAPH_PTR].data, c->sources = (i64 *)a[SOURCES].data;
    c->target_ptr = (i64 *)a[TARGET_PTR].data, c->targets = (i64 *)a[TARGETS].data;
    c->source_ptr = (i64 *)a[SOURCE_PTR].data, c->x = (float *)a[X].data;
    c->pools = (float *)a[POOLS].data, c->dpools = c->pools;
    c->y = c->grad = (float *)a[WORK].data, c->sent = c->grad + (c->backward ? N * H : 0);
    float *w = (float *)a[WEIGHTS].data, *d = (float *)a[GRADS].data;
    float *m = (float *)a[MOMENTS].data;
    for (i64 l = 0; l < L; l++) {
        Layer *layer = c->layer + l;
        *layer = (Layer){.width = l ? H : width, .padded = l ? H : first};
        layer->total = (float *)a[KEPT + 2 * l].data, layer->hidden = (float *)a[KEPT + 2 * l + 1].data;
        layer->out = layer->hidden + N * H;
        layer->mean = m + l * H, layer->deviation = m + (L + l) * H, layer->var = m + (2 * L + l) * H;
        layer->w1 = w, layer->dw1 = d, w += H * layer->width, d += H * layer->width;
        layer->b1 = w, layer->db1 = d, w += H, d += H;
        layer->w2 = w, layer->dw2 = d, w += H * H, d += H * H;
        layer->b2 = w, layer->db2 = d, w += H, d += H;
        layer->scale = w, layer->dscale = d, w += H, d += H;
        layer->shift = w, layer->dshift = d, w += H, d += H;
    }
    return 1;
}

/* Cut the graphs into segments and pack the weights for the loops; 0 if memory runs out. */
static int prepare(Call *c) {
    i64 H = c->hidden, K = c->layer[0].padded, largest = K > H ? K : H;
    i64 packed = H * (2 * K + H) + (c->layers - 1) * 3 * H * H;
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
        Layer *layer = c->layer + l;
        K = layer->padded;
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

/* Arguments: a tuple of capsules (see `names`; `grads` is empty in the forward loop; two `kept` per layer), layers,
 * hidden, training, raw, threads, eps. Return True, or False if an edge connects two graphs: outputs are undefined then. */
static PyObject *call(PyObject *args, int backward) {
    PyObject *tensors;
    Call c = {.backward = backward};
    int layers, hidden, training, raw, fits;
    double eps;
    if (!PyArg_ParseTuple(args, "O!iippid", &PyTuple_Type, &tensors, &layers, &hidden, &training, &raw, &c.threads,
                          &eps))
        return NULL;
    c.layers = layers, c.hidden = hidden, c.training = training, c.raw = raw, c.eps = (float)eps;
    if (layers < 1 || layers > DEEPEST) return fail("layers", "be in 1 .. 4096"), NULL;
    int count = KEPT + 2 * layers;
    if (PyTuple_Size(tensors) != count) return PyErr_Format(PyExc_ValueError, "expected %d tensors", count);
    Array *arrays = malloc((size_t)count * sizeof(Array));
    Layer *table = NULL;
    fits = arrays != NULL;
    for (int i = 0; i < count && fits; i++) fits = read_tensor(PyTuple_GetItem(tensors, i), i, arrays + i);
    fits = fits && bind(&c, &table, arrays, count);
    free(arrays);
    if (!fits) return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
    fits = prepare(&c);
    if (fits) run(&c);
    free(c.moments), free(c.partial), free(table);
    Py_END_ALLOW_THREADS
    if (!fits) return PyErr_NoMemory();
    return PyBool_FromLong(!c.failed);
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
