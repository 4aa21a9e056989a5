/* GIN's layers on the CPU, forward and backward, in float32: `graphcl/stack.py` says what is computed.
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
#define CLONED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define INLINE static inline __attribute__((always_inline))

typedef int64_t i64;
typedef float v16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t m16 __attribute__((vector_size(64)));

enum { LANES = 16, ROWS = 4, BLOCK = 64, SEGMENTS = 16 };

INLINE v16 load(const float *p) { return *(const v16 *)p; }
INLINE void store(float *p, v16 v) { *(v16 *)p = v; }
INLINE v16 positive(v16 v) { return (v16)((m16)v & (m16)(v > 0.0f)); }
INLINE v16 where_positive(v16 v, v16 activation) { return (v16)((m16)v & (m16)(activation > 0.0f)); }

/* -- products -------------------------------------------------------------------------------------------------------
 * c (m x n) = a b + start, a(i, k) = a[i * am + k * ak], b(k, j) = b[k * n + j], n a multiple of 16; `relu` clips. */

INLINE void tile(const int rows, const int vectors, i64 depth, const float *a, i64 am, i64 ak, const float *b, i64 ldb,
                 float *c, i64 ldc, const float *bias, int add, int relu) {
    v16 sum[ROWS][2];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++) {
            sum[i][j] = bias ? load(bias + j * LANES) : (v16){0};
            if (add) sum[i][j] += load(c + i * ldc + j * LANES);
        }
    for (i64 k = 0; k < depth; k++)
        for (int j = 0; j < vectors; j++) {
            v16 right = load(b + k * ldb + j * LANES);
            for (int i = 0; i < rows; i++) sum[i][j] += a[i * am + k * ak] * right;
        }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++) store(c + i * ldc + j * LANES, relu ? positive(sum[i][j]) : sum[i][j]);
}

INLINE void product(i64 m, i64 n, i64 depth, const float *a, i64 am, i64 ak, const float *b, i64 ldb, float *c, i64 ldc,
                    const float *bias, int add, int relu) {
    for (i64 j = 0; j < n; j += 2 * LANES) {
        const float *right = b + j, *start = bias ? bias + j : NULL;
        i64 i = 0;
        if (n - j >= 2 * LANES) {
            for (; i + ROWS <= m; i += ROWS)
                tile(ROWS, 2, depth, a + i * am, am, ak, right, ldb, c + i * ldc + j, ldc, start, add, relu);
            for (; i < m; i++) tile(1, 2, depth, a + i * am, am, ak, right, ldb, c + i * ldc + j, ldc, start, add, relu);
        } else {
            for (; i + ROWS <= m; i += ROWS)
                tile(ROWS, 1, depth, a + i * am, am, ak, right, ldb, c + i * ldc + j, ldc, start, add, relu);
            for (; i < m; i++) tile(1, 1, depth, a + i * am, am, ak, right, ldb, c + i * ldc + j, ldc, start, add, relu);
        }
    }
}

/* -- what a call is about ------------------------------------------------------------------------------------------- */

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

/* -- forward -------------------------------------------------------------------------------------------------------- */

/* A layer of a segment up to BatchNorm, and the segment's count, means and squared deviations. */
CLONED static void forward_segment(Call *c, i64 l, i64 segment) {
    Layer *layer = c->layer + l;
    i64 H = c->hidden, K = layer->padded, width = layer->width;
    i64 first = c->graph_ptr[c->first_graph[segment]], last = c->graph_ptr[c->first_graph[segment + 1]];
    const float *in = l ? c->y : c->x;
    for (i64 start = first; start < last; start += BLOCK) {
        i64 rows = last - start < BLOCK ? last - start : BLOCK;
        for (i64 v = start; v < start + rows; v++) {
            float *total = layer->total + v * K;
            if (l) {
                for (i64 j = 0; j < K; j += LANES) {
                    v16 sum = load(in + v * K + j);
                    for (i64 e = c->target_ptr[v]; e < c->target_ptr[v + 1]; e++) sum += load(in + c->sources[e] * K + j);
                    store(total + j, sum);
                }
            } else {
                memcpy(total, in + v * width, (size_t)width * sizeof(float));
                memset(total + width, 0, (size_t)(K - width) * sizeof(float));
                for (i64 e = c->target_ptr[v]; e < c->target_ptr[v + 1]; e++) {
                    if (c->sources[e] < first || c->sources[e] >= last) {
                        c->failed = 1; /* an edge between segments: not for us */
                        continue;
                    }
                    const float *row = in + c->sources[e] * width;
                    for (i64 j = 0; j < width; j++) total[j] += row[j];
                }
            }
        }
        float *hidden = layer->hidden + start * H, *out = layer->out + start * H;
        product(rows, H, K, layer->total + start * K, K, 1, layer->packed1, H, hidden, H, layer->b1, 0, 1);
        product(rows, H, H, hidden, H, 1, layer->packed2, H, out, H, layer->b2, 0, 1);
    }
    double *mean = c->moments + segment * 3 * H, *square = mean + H;
    for (i64 j = 0; j < H; j += LANES) {
        v16 total = {0}, squares = {0};
        for (i64 v = first; v < last; v++) total += load(layer->out + v * H + j);
        v16 middle = total / (float)(last > first ? last - first : 1);
        for (i64 v = first; v < last; v++) {
            v16 away = load(layer->out + v * H + j) - middle;
            squares += away * away;
        }
        for (int i = 0; i < LANES; i++) mean[j + i] = middle[i], square[j + i] = squares[i];
    }
}

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
        if (write) layer->mean[j] = mean[j], layer->deviation[j] = deviation[j], layer->var[j] = (float)(squares / count);
    }
}

/* BatchNorm and the sums over graphs. */
CLONED static void normalise_segment(Call *c, i64 l, i64 segment, const float *mean, const float *deviation) {
    Layer *layer = c->layer + l;
    i64 H = c->hidden;
    for (i64 g = c->first_graph[segment]; g < c->first_graph[segment + 1]; g++)
        for (i64 j = 0; j < H; j += LANES) {
            v16 factor = load(deviation + j) * load(layer->scale + j);
            v16 term = load(layer->shift + j) - load(mean + j) * factor, pool = {0};
            for (i64 v = c->graph_ptr[g]; v < c->graph_ptr[g + 1]; v++) {
                v16 y = load(layer->out + v * H + j) * factor + term;
                store(c->y + v * H + j, y);
                pool += y;
            }
            store(c->pools + (g * c->layers + l) * H + j, pool);
        }
}

/* -- backward ------------------------------------------------------------------------------------------------------- */

/* What comes back to a layer's outcome, and the segment's two sums that BatchNorm's gradient needs. */
CLONED static void gather_segment(Call *c, i64 l, i64 segment) {
    Layer *layer = c->layer + l;
    i64 H = c->hidden;
    double *sums = c->moments + segment * 3 * H;
    int more = l + 1 < c->layers;
    for (i64 j = 0; j < H; j += LANES) {
        v16 plain = {0}, weighted = {0}, mean = load(layer->mean + j), deviation = load(layer->deviation + j);
        for (i64 g = c->first_graph[segment]; g < c->first_graph[segment + 1]; g++) {
            v16 pooled = load(c->dpools + (g * c->layers + l) * H + j);
            for (i64 v = c->graph_ptr[g]; v < c->graph_ptr[g + 1]; v++) {
                v16 grad = pooled;
                if (more) {
                    grad += load(c->sent + v * H + j);
                    for (i64 e = c->source_ptr[v]; e < c->source_ptr[v + 1]; e++)
                        grad += load(c->sent + c->targets[e] * H + j);
                }
                store(c->grad + v * H + j, grad);
                plain += grad;
                weighted += grad * (load(layer->out + v * H + j) - mean) * deviation;
            }
        }
        for (int i = 0; i < LANES; i++) sums[j + i] = plain[i], sums[H + j + i] = weighted[i];
    }
}

/* Through BatchNorm and the perceptron. */
CLONED static void backward_segment(Call *c, i64 l, i64 segment, const float *plain, const float *weighted) {
    Layer *layer = c->layer + l;
    i64 H = c->hidden, K = layer->padded;
    i64 first = c->graph_ptr[c->first_graph[segment]], last = c->graph_ptr[c->first_graph[segment + 1]];
    float *dw1 = c->partial + segment * c->partial_size, *dw2 = dw1 + H * K, *db1 = dw2 + H * H, *db2 = db1 + H;
    memset(dw1, 0, (size_t)(H * (K + H + 2)) * sizeof(float));
    float inner[BLOCK * H];
    float part = c->training ? 1.0f / (float)c->nodes : 0.0f;
    for (i64 start = first; start < last; start += BLOCK) {
        i64 rows = last - start < BLOCK ? last - start : BLOCK;
        float *grad = c->grad + start * H;
        const float *out = layer->out + start * H, *hidden = layer->hidden + start * H;
        for (i64 j = 0; j < H; j += LANES) {
            v16 deviation = load(layer->deviation + j), factor = deviation * load(layer->scale + j), sum = {0};
            v16 mean = load(layer->mean + j), away = load(plain + j) * part, tilt = load(weighted + j) * part * deviation;
            for (i64 i = 0; i < rows; i++) {
                v16 r = load(out + i * H + j);
                v16 d = where_positive((load(grad + i * H + j) - away - (r - mean) * tilt) * factor, r);
                store(grad + i * H + j, d);
                sum += d;
            }
            store(db2 + j, load(db2 + j) + sum);
        }
        product(H, H, rows, grad, 1, H, hidden, H, dw2, H, NULL, 1, 0);
        product(rows, H, H, grad, H, 1, layer->w2, H, inner, H, NULL, 0, 0);
        for (i64 j = 0; j < H; j += LANES) {
            v16 sum = {0};
            for (i64 i = 0; i < rows; i++) {
                v16 d = where_positive(load(inner + i * H + j), load(hidden + i * H + j));
                store(inner + i * H + j, d);
                sum += d;
            }
            store(db1 + j, load(db1 + j) + sum);
        }
        product(H, K, rows, inner, 1, H, layer->total + start * K, K, dw1, K, NULL, 1, 0);
        if (l) product(rows, K, H, inner, H, 1, layer->wide1, K, c->sent + start * K, K, NULL, 0, 0);
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

/* -- threads -------------------------------------------------------------------------------------------------------- */

/* All threads have come here. The others are a fraction of a layer away, so looking again soon is quicker than sleeping;
 * giving up the core in between keeps that harmless where another program needs it. */
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
            if (w->backward) gather_segment(c, l, s);
            else forward_segment(c, l, s);
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
            if (w->backward) backward_segment(c, l, s, one, other);
            else normalise_segment(c, l, s, one, other);
        }
        meet(c);
        if (w->backward && w->number == 0) add_up(c, l);
    }
    return NULL;
}

/* torch's own threads, where its OpenMP runtime is GCC's: they wait actively for a while after each of its operations, so
 * others would have to wait for the cores that they hold. The runtime is asked for by name, not linked: a second copy of
 * it would bring a second set of threads. */
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

/* -- the module ----------------------------------------------------------------------------------------------------- */

enum { CALL = 17, LAYER = 19 };
#define AT(type, number) ((type *)(uintptr_t)(number))

/* What stands in the table that `graphcl/stack.py` fills: sizes, addresses, and LAYER more of them for each layer. */
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
        layer->padded = (layer->width + LANES - 1) / LANES * LANES;
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
        memset(layer->packed1, 0, (size_t)(H * K) * sizeof(float)), memset(layer->wide1, 0, (size_t)(H * K) * sizeof(float));
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
    if (!__builtin_cpu_supports("avx2")) { /* then torch's operations are quicker */
        PyErr_SetString(PyExc_ImportError, "a processor with AVX2 is needed");
        return NULL;
    }
    return PyModule_Create(&module);
}
