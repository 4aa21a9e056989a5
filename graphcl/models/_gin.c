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

enum { PAD = 16, BLOCK = 64, SEGMENTS = 16, WIDEST = 512, DEEPEST = 4096, MOST = 2 };

/* -- what a call is about ------------------------------------------------------------------------------------------ */

typedef struct {
    const float *w1, *b1, *w2, *b2, *scale, *shift; /* as torch has them: w1 [H, width], w2 [H, H] */
    float *total, *hidden, *out;                     /* kept for the gradient: [N, padded], [N, H], [N, H] */
    float *mean, *deviation;                         /* [H]; deviation is 1 / sqrt(var + eps) */
    float *var;                                      /* [H], biased; what the batch had */
    float *running_mean, *running_var;               /* [H] */
    i64 *batches;                                    /* how many BatchNorm has counted */
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
    float *y, *pools;        /* the rows that come into a layer [N, padded]; [graphs, layers * H] */
    const float *dpools;     /* [graphs, layers * H] */
    float *grad, *sent;      /* [N, H] each, where `y` lies in the forward loop */
    Layer *layer;
    i64 segments, first_graph[SEGMENTS + 1];
    double *moments;         /* [segments, 3, H] */
    float *partial;          /* [segments, size of one layer's weight gradients] */
    i64 partial_size;
    int threads, backward, number; /* number of the view; later ones add to the gradient of the earlier */
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
    if (c->number == 0) {
        memset(layer->dw1, 0, (size_t)(H * layer->width) * sizeof(float));
        memset(layer->dw2, 0, (size_t)(H * H) * sizeof(float));
        memset(layer->db1, 0, (size_t)H * sizeof(float)), memset(layer->db2, 0, (size_t)H * sizeof(float));
    }
    for (i64 s = 0; s < c->segments; s++) {
        const float *dw1 = c->partial + s * c->partial_size, *dw2 = dw1 + H * K, *db1 = dw2 + H * H, *db2 = db1 + H;
        for (i64 i = 0; i < H; i++)
            for (i64 j = 0; j < layer->width; j++) layer->dw1[i * layer->width + j] += dw1[j * H + i]; /* transposed */
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
                if (w->number) continue;
                c->layer[l].dshift[j] = one[j] + (c->number ? c->layer[l].dshift[j] : 0);
                c->layer[l].dscale[j] = other[j] + (c->number ? c->layer[l].dscale[j] : 0);
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
enum { WEIGHTS, STATISTICS, BATCHES, GRADS, MOMENTS, GRAPH_PTR, SOURCES, TARGET_PTR, TARGETS, SOURCE_PTR, X, POOLS, KEPT };
static const char *names[] = {"weights", "statistics", "batches", "grads",      "moments", "graph_ptr", "sources",
                              "target_ptr", "targets", "source_ptr", "x", "pools",   "kept"};
enum { OF_VIEW = KEPT - GRAPH_PTR }; /* tensors of a view before those that are kept */

/* Of a layer there are six weights, and then mean, variance and number of batches, or the gradients of the weights. */
static int of_layer(const Call *c) { return c->backward ? 12 : 9; }

/* Which of `names` is tensor i. */
static int kind_of(const Call *c, i64 i) {
    i64 head = c->layers * of_layer(c), place = i % of_layer(c);
    if (i < head) return place < 6 ? WEIGHTS : c->backward ? GRADS : place < 8 ? STATISTICS : BATCHES;
    if (i == head) return MOMENTS;
    place = (i - head - 1) % (OF_VIEW + 2 * c->layers);
    return place < OF_VIEW ? GRAPH_PTR + (int)place : KEPT;
}

typedef struct {
    char *data;
    i64 numel, rows, bytes;
} Array;

/* Read a capsule; 0 with a Python error unless it holds contiguous float32 or, for the indices, int64 on the CPU. */
static int read_tensor(PyObject *capsule, int kind, Array *array) {
    const Tensor *t = PyCapsule_GetPointer(capsule, "dltensor");
    if (!t) return 0;
    int whole = kind == BATCHES || (kind >= GRAPH_PTR && kind < X), contiguous = 1;
    int code = whole ? INTEGER : FLOAT, bits = whole ? 64 : 32;
    i64 numel = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        if (t->strides && t->shape[i] > 1 && t->strides[i] != numel) contiguous = 0;
        numel *= t->shape[i];
    }
    if (t->device.type != CPU || t->dtype.code != code || t->dtype.bits != bits || t->dtype.lanes != 1 || !contiguous) {
        PyErr_Format(PyExc_ValueError, "`%s` must be contiguous %s on the CPU", names[kind], whole ? "int64" : "float32");
        return 0;
    }
    *array = (Array){t->data + t->byte_offset, numel, t->ndim == 2 ? t->shape[0] : -1, numel * bits / 8};
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

/* Fill sizes and pointers of a call from its arrays, those of all views and its own; 0 with a Python error if they do not
 * fit each other. */
static int bind(Call *c, const Array *shared, const Array *a, i64 width) {
    i64 N = a[X - GRAPH_PTR].rows, H = c->hidden, L = c->layers, G = a->numel - 1, E = a[SOURCES - GRAPH_PTR].numel;
    if (H < PAD || H > WIDEST || H % PAD) return fail("hidden", "be a multiple of 16 up to 512");
    if (c->threads < 1) return fail("threads", "be positive");
    if (N < 1 || N > INT32_MAX || G < 1) return fail("x", "be a matrix with rows, and `graph_ptr` have two entries");
    if (width < 1 || width > INT32_MAX) return fail("x", "have 1 to 2^31 - 1 columns");
    i64 first = (width + PAD - 1) / PAD * PAD;
    for (i64 l = 0; l < L; l++) {
        const Array *of = shared + l * of_layer(c);
        i64 sizes[] = {H * (l ? H : width), H, H * H, H, H, H, H, H, 1};
        for (int i = 0; i < of_layer(c); i++)
            if (of[i].numel != sizes[c->backward ? i % 6 : i]) return fail("weights", "have the sizes of their layer");
        c->layer[l] = (Layer){.width = l ? H : width, .padded = l ? H : first};
        const float **weight = &c->layer[l].w1;
        for (int i = 0; i < 6; i++) weight[i] = (const float *)of[i].data;
        if (c->backward) {
            float **grad = &c->layer[l].dw1;
            for (int i = 0; i < 6; i++) grad[i] = (float *)of[6 + i].data;
        } else {
            c->layer[l].running_mean = (float *)of[6].data, c->layer[l].running_var = (float *)of[7].data;
            c->layer[l].batches = (i64 *)of[8].data;
        }
    }
    i64 sizes[] = {G + 1, E, N + 1, E, N + 1, N * width, G * L * H};
    for (i64 i = 0; i < OF_VIEW + 2 * L; i++) {
        i64 size = i < OF_VIEW ? sizes[i] : N * (i == OF_VIEW ? first : i % 2 == OF_VIEW % 2 ? H : 2 * H);
        if (a[i].numel != size) return fail(names[i < OF_VIEW ? GRAPH_PTR + i : KEPT], "have the size that others imply");
    }
    const Array *ptr = a - GRAPH_PTR; /* by the names above */
    if (!is_ptr(&ptr[GRAPH_PTR], N)) return fail("graph_ptr", "rise from 0 to the number of nodes");
    if (!is_ptr(&ptr[TARGET_PTR], E)) return fail("target_ptr", "rise from 0 to the number of edges");
    if (!is_ptr(&ptr[SOURCE_PTR], E)) return fail("source_ptr", "rise from 0 to the number of edges");
    if (!in_range(&ptr[SOURCES], N)) return fail("sources", "be nodes");
    if (!in_range(&ptr[TARGETS], N)) return fail("targets", "be nodes");
    c->nodes = N, c->graphs = G;
    c->graph_ptr = (i64 *)ptr[GRAPH_PTR].data, c->sources = (i64 *)ptr[SOURCES].data;
    c->target_ptr = (i64 *)ptr[TARGET_PTR].data, c->targets = (i64 *)ptr[TARGETS].data;
    c->source_ptr = (i64 *)ptr[SOURCE_PTR].data, c->x = (float *)ptr[X].data;
    c->pools = (float *)ptr[POOLS].data, c->dpools = c->pools;
    float *m = (float *)shared[L * of_layer(c)].data + c->number * 3 * L * H;
    for (i64 l = 0; l < L; l++) {
        Layer *layer = c->layer + l;
        layer->total = (float *)a[OF_VIEW + 2 * l].data, layer->hidden = (float *)a[OF_VIEW + 2 * l + 1].data;
        layer->out = layer->hidden + N * H;
        layer->mean = m + l * H, layer->deviation = m + (L + l) * H, layer->var = m + (2 * L + l) * H;
    }
    c->segments = G < SEGMENTS ? G : SEGMENTS;
    for (i64 s = 0, g = 0; s < c->segments; s++) { /* about as many nodes each */
        while (g < G && c->graph_ptr[g] * c->segments < s * N) g++;
        c->first_graph[s] = g;
    }
    c->first_graph[c->segments] = G;
    return 1;
}

/* 1 if an edge connects two segments. */
static int crosses(const Call *c) {
    int outside = 0;
    for (i64 s = 0; s < c->segments; s++) {
        i64 first = c->graph_ptr[c->first_graph[s]], last = c->graph_ptr[c->first_graph[s + 1]];
        for (i64 e = c->target_ptr[first]; e < c->target_ptr[last]; e++)
            outside |= c->sources[e] < first || c->sources[e] >= last;
    }
    return outside;
}

/* Allocate the working memory of all views, and pack the weights for the loops; NULL if memory runs out. */
static void *prepare(Call *c, int views) {
    i64 H = c->hidden, K = c->layer[0].padded, L = c->layers, widest = K > H ? K : H, rows = 0;
    i64 packed = H * (2 * K + H) + (L - 1) * 3 * H * H, partial = H * (widest + H + 2), moments = SEGMENTS * 3 * H;
    for (int v = 0; v < views; v++) rows = c[v].nodes > rows ? c[v].nodes : rows;
    i64 floats = SEGMENTS * partial + packed + rows * (c->backward ? 2 * H : widest);
    double *memory = malloc((size_t)moments * sizeof(double) + (size_t)floats * sizeof(float));
    if (!memory) return NULL;
    float *room = (float *)(memory + moments) + SEGMENTS * partial;
    for (i64 l = 0; l < L; l++) {
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
    for (int v = 0; v < views; v++) {
        c[v].moments = memory, c[v].partial = (float *)(memory + moments), c[v].partial_size = partial;
        c[v].y = c[v].grad = room, c[v].sent = room + rows * H;
        for (i64 l = 0; l < L; l++) {
            Layer *layer = c[v].layer + l;
            layer->packed1 = c->layer[l].packed1, layer->packed2 = c->layer[l].packed2, layer->wide1 = c->layer[l].wide1;
            for (i64 j = 0; j < H && !c->training && !c->backward; j++) {
                layer->mean[j] = layer->running_mean[j];
                layer->deviation[j] = (float)(1 / sqrt(layer->running_var[j] + c->eps));
            }
        }
    }
    return memory;
}

/* Move the running statistics of each layer towards those of the batch, as BatchNorm does. */
static void update_statistics(const Call *c, float momentum) {
    float unbiased = (float)c->nodes / (float)(c->nodes - 1);
    for (i64 l = 0; l < c->layers; l++) {
        const Layer *layer = c->layer + l;
        for (i64 j = 0; j < c->hidden; j++) {
            layer->running_mean[j] = momentum * layer->mean[j] + (1 - momentum) * layer->running_mean[j];
            layer->running_var[j] = momentum * layer->var[j] * unbiased + (1 - momentum) * layer->running_var[j];
        }
        ++*layer->batches;
    }
}

/* Arguments: a tuple of capsules, number of views, layers, hidden, training, raw, threads, eps, momentum. The capsules are
 * those of each layer (see `of_layer`), `moments` [views, 3, layers, H], and then of each view those from `graph_ptr` to
 * `pools` and two `kept` per layer. Return True, or False if an edge connects two graphs: nothing is written then. */
static PyObject *call(PyObject *args, int backward) {
    PyObject *tensors;
    Call like = {.backward = backward};
    int views, layers, hidden, training, raw, fits;
    double eps, momentum;
    if (!PyArg_ParseTuple(args, "O!iiippidd", &PyTuple_Type, &tensors, &views, &layers, &hidden, &training, &raw,
                          &like.threads, &eps, &momentum))
        return NULL;
    like.layers = layers, like.hidden = hidden, like.training = training, like.raw = raw, like.eps = (float)eps;
    if (layers < 1 || layers > DEEPEST) return fail("layers", "be in 1 .. 4096"), NULL;
    if (views < 1 || views > MOST) return fail("views", "be 1 or 2"), NULL;
    int head = layers * of_layer(&like) + 1, of_view = OF_VIEW + 2 * layers, count = head + views * of_view;
    if (PyTuple_Size(tensors) != count) return PyErr_Format(PyExc_ValueError, "expected %d tensors", count);
    Array *a = malloc((size_t)count * sizeof(Array));
    Layer *table = malloc((size_t)(views * layers) * sizeof(Layer));
    Call calls[MOST];
    fits = a != NULL && table != NULL;
    for (int i = 0; i < count && fits; i++) fits = read_tensor(PyTuple_GetItem(tensors, i), kind_of(&like, i), a + i);
    if (fits && a[head - 1].numel != (i64)views * 3 * layers * hidden) fits = fail("moments", "have the size that others imply");
    for (int v = 0; v < views && fits; v++) {
        calls[v] = like, calls[v].number = v, calls[v].layer = table + v * layers;
        fits = bind(calls + v, a, a + head + v * of_view, hidden > 0 ? a->numel / hidden : 0);
    }
    for (int i = 0; i < count && fits; i++) {
        int kind = kind_of(&like, i);
        if (backward ? kind != GRADS : kind != MOMENTS && kind < POOLS) continue;
        for (int j = 0; j < count && fits; j++)
            if (i != j && a[i].data < a[j].data + a[j].bytes && a[j].data < a[i].data + a[i].bytes)
                fits = fail(names[kind], "not share memory with other arguments");
    }
    int outside = 0;
    void *memory = NULL;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        for (int v = 0; v < views && !backward; v++) outside |= crosses(calls + v);
        fits = outside || (memory = prepare(calls, views)) != NULL;
        for (int v = 0; v < views && memory; v++) {
            run(calls + v);
            if (training && !backward) update_statistics(calls + v, (float)momentum);
        }
        free(memory);
        Py_END_ALLOW_THREADS
    }
    free(a), free(table);
    if (!fits) return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    return PyBool_FromLong(!outside);
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
