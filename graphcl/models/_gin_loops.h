/* The loops of `_gin.c` over vectors of LANES numbers, included once a length; NAME tells them apart. */

typedef float NAME(vec) __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t NAME(bits) __attribute__((vector_size(4 * LANES)));
#define vec NAME(vec)
#define bits NAME(bits)
#define INLINE static inline __attribute__((always_inline))

INLINE vec NAME(load)(const float *p) { return *(const vec *)p; }
INLINE void NAME(store)(float *p, vec v) { *(vec *)p = v; }
/* ReLU and its gradient: as in torch, NaN passes. */
INLINE vec NAME(relu)(vec v) { return (vec)((bits)v & ~(bits)(v <= 0.0f)); }
INLINE vec NAME(relu_grad)(vec grad, vec activation) { return (vec)((bits)grad & ~(bits)(activation <= 0.0f)); }

/* -- products -------------------------------------------------------------------------------------------------------
 * c (m x n) = a b + start, a(i, k) = a[i * am + k * ak], b(k, j) = b[k * ldb + j], n a multiple of 16; `relu` clips. */

INLINE void NAME(tile)(const int rows, const int vectors, i64 depth, const float *a, i64 am, i64 ak, const float *b,
                       i64 ldb, float *c, i64 ldc, const float *bias, int add, int relu) {
    vec sum[ROWS][2];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++) {
            sum[i][j] = bias ? NAME(load)(bias + j * LANES) : (vec){0};
            if (add) sum[i][j] += NAME(load)(c + i * ldc + j * LANES);
        }
    for (i64 k = 0; k < depth; k++) {
        vec right[2];
        for (int j = 0; j < vectors; j++) right[j] = NAME(load)(b + k * ldb + j * LANES);
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < vectors; j++) sum[i][j] += a[i * am + k * ak] * right[j];
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++)
            NAME(store)(c + i * ldc + j * LANES, relu ? NAME(relu)(sum[i][j]) : sum[i][j]);
}

INLINE void NAME(product)(i64 m, i64 n, i64 depth, const float *a, i64 am, i64 ak, const float *b, i64 ldb, float *c,
                          i64 ldc, const float *bias, int add, int relu) {
    for (i64 j = 0; j < n; j += 2 * LANES) {
        const float *right = b + j, *start = bias ? bias + j : NULL;
        float *out = c + j;
        i64 i = 0;
        if (n - j < 2 * LANES) { /* one vector of columns is left */
            for (; i + ROWS <= m; i += ROWS)
                NAME(tile)(ROWS, 1, depth, a + i * am, am, ak, right, ldb, out + i * ldc, ldc, start, add, relu);
            for (; i < m; i++)
                NAME(tile)(1, 1, depth, a + i * am, am, ak, right, ldb, out + i * ldc, ldc, start, add, relu);
            continue;
        }
        for (; i + ROWS <= m; i += ROWS)
            NAME(tile)(ROWS, 2, depth, a + i * am, am, ak, right, ldb, out + i * ldc, ldc, start, add, relu);
        for (; i + 2 <= m; i += 2)
            NAME(tile)(2, 2, depth, a + i * am, am, ak, right, ldb, out + i * ldc, ldc, start, add, relu);
        for (; i < m; i++)
            NAME(tile)(1, 2, depth, a + i * am, am, ak, right, ldb, out + i * ldc, ldc, start, add, relu);
    }
}

/* -- forward ------------------------------------------------------------------------------------------------------- */

/* A layer of a segment up to BatchNorm, and the segment's count, means and squared deviations. */
static void NAME(forward_segment)(Call *c, i64 l, i64 segment) {
    Layer *layer = c->layer + l;
    i64 H = c->hidden, K = layer->padded, width = layer->width;
    i64 first = c->graph_ptr[c->first_graph[segment]], last = c->graph_ptr[c->first_graph[segment + 1]];
    for (i64 v = first; v < last && l == 0; v++) {
        memcpy(c->y + v * K, c->x + v * width, (size_t)width * sizeof(float));
        memset(c->y + v * K + width, 0, (size_t)(K - width) * sizeof(float));
    }
    for (i64 start = first; start < last; start += BLOCK) {
        i64 rows = last - start < BLOCK ? last - start : BLOCK;
        for (i64 v = start; v < start + rows; v++)
            for (i64 j = 0; j < K; j += 2 * LANES) {
                i64 next = j + LANES < K ? j + LANES : j; /* the same again, if one vector is left */
                vec sum = NAME(load)(c->y + v * K + j), more = NAME(load)(c->y + v * K + next);
                for (i64 e = c->target_ptr[v]; e < c->target_ptr[v + 1]; e++) {
                    const float *row = c->y + c->sources[e] * K;
                    sum += NAME(load)(row + j), more += NAME(load)(row + next);
                }
                NAME(store)(layer->total + v * K + j, sum), NAME(store)(layer->total + v * K + next, more);
            }
        float *hidden = layer->hidden + start * H, *out = layer->out + start * H;
        NAME(product)(rows, H, width, layer->total + start * K, K, 1, layer->packed1, H, hidden, H, layer->b1, 0, 1);
        NAME(product)(rows, H, H, hidden, H, 1, layer->packed2, H, out, H, layer->b2, 0, 1);
    }
    double *mean = c->moments + segment * 3 * H, *square = mean + H;
    for (i64 j = 0; j < H; j += LANES) {
        vec total = {0}, squares = {0};
        for (i64 v = first; v < last; v++) total += NAME(load)(layer->out + v * H + j);
        vec middle = total / (float)(last > first ? last - first : 1);
        for (i64 v = first; v < last; v++) {
            vec away = NAME(load)(layer->out + v * H + j) - middle;
            squares += away * away;
        }
        for (int i = 0; i < LANES; i++) mean[j + i] = middle[i], square[j + i] = squares[i];
    }
}

/* BatchNorm and the sums over graphs, of the rows before it if `raw`. */
static void NAME(normalise_segment)(Call *c, i64 l, i64 segment, const float *mean, const float *deviation) {
    Layer *layer = c->layer + l;
    i64 H = c->hidden;
    for (i64 g = c->first_graph[segment]; g < c->first_graph[segment + 1]; g++)
        for (i64 j = 0; j < H; j += LANES) {
            vec factor = NAME(load)(deviation + j) * NAME(load)(layer->scale + j);
            vec term = NAME(load)(layer->shift + j) - NAME(load)(mean + j) * factor, pool = {0};
            for (i64 v = c->graph_ptr[g]; v < c->graph_ptr[g + 1]; v++) {
                vec out = NAME(load)(layer->out + v * H + j), y = out * factor + term;
                if (l + 1 < c->layers) NAME(store)(c->y + v * H + j, y);
                pool += c->raw ? out : y;
            }
            NAME(store)(c->pools + (g * c->layers + l) * H + j, pool);
        }
}

/* -- backward ------------------------------------------------------------------------------------------------------ */

/* What comes back to a layer's outcome, and the segment's two sums that BatchNorm's gradient needs. */
static void NAME(gather_segment)(Call *c, i64 l, i64 segment) {
    Layer *layer = c->layer + l;
    i64 H = c->hidden;
    double *sums = c->moments + segment * 3 * H;
    int more = l + 1 < c->layers;
    i64 first = c->first_graph[segment], last = c->first_graph[segment + 1];
    for (i64 v = c->graph_ptr[first]; v < c->graph_ptr[last] && more; v++)
        for (i64 j = 0; j < H; j += 2 * LANES) {
            i64 next = j + LANES < H ? j + LANES : j;
            vec grad = NAME(load)(c->sent + v * H + j), other = NAME(load)(c->sent + v * H + next);
            for (i64 e = c->source_ptr[v]; e < c->source_ptr[v + 1]; e++) {
                const float *row = c->sent + c->targets[e] * H;
                grad += NAME(load)(row + j), other += NAME(load)(row + next);
            }
            NAME(store)(c->grad + v * H + j, grad), NAME(store)(c->grad + v * H + next, other);
        }
    for (i64 j = 0; j < H; j += LANES) {
        vec plain = {0}, weighted = {0};
        vec mean = NAME(load)(layer->mean + j), deviation = NAME(load)(layer->deviation + j);
        for (i64 g = first; g < last; g++) {
            vec pooled = c->raw ? (vec){0} : NAME(load)(c->dpools + (g * c->layers + l) * H + j);
            for (i64 v = c->graph_ptr[g]; v < c->graph_ptr[g + 1]; v++) {
                vec grad = pooled;
                if (more) grad += NAME(load)(c->grad + v * H + j);
                NAME(store)(c->grad + v * H + j, grad);
                plain += grad;
                weighted += grad * (NAME(load)(layer->out + v * H + j) - mean) * deviation;
            }
        }
        for (int i = 0; i < LANES; i++) sums[j + i] = plain[i], sums[H + j + i] = weighted[i];
    }
}

/* Through BatchNorm and the perceptron. */
static void NAME(backward_segment)(Call *c, i64 l, i64 segment, const float *plain, const float *weighted) {
    Layer *layer = c->layer + l;
    i64 H = c->hidden, K = layer->padded;
    i64 first = c->graph_ptr[c->first_graph[segment]], last = c->graph_ptr[c->first_graph[segment + 1]];
    float *dw1 = c->partial + segment * c->partial_size, *dw2 = dw1 + H * K, *db1 = dw2 + H * H, *db2 = db1 + H;
    memset(dw1, 0, (size_t)(H * (K + H + 2)) * sizeof(float));
    float inner[BLOCK * H];
    float part = 1.0f / (float)c->nodes;
    int unused = norm_is_unused(c, l);
    i64 graph = c->first_graph[segment]; /* of the block's first row */
    for (i64 start = first; start < last; start += BLOCK) {
        i64 rows = last - start < BLOCK ? last - start : BLOCK;
        float *grad = c->grad + start * H;
        const float *out = layer->out + start * H, *hidden = layer->hidden + start * H;
        while (c->graph_ptr[graph + 1] <= start) graph++;
        for (i64 j = 0; j < H; j += LANES) {
            vec deviation = NAME(load)(layer->deviation + j), factor = deviation * NAME(load)(layer->scale + j);
            vec sum = {0};
            vec mean = NAME(load)(layer->mean + j), away = NAME(load)(plain + j) * part;
            vec tilt = NAME(load)(weighted + j) * part * deviation;
            for (i64 i = 0, g = graph; i < rows; i++) {
                vec r = NAME(load)(out + i * H + j), d = NAME(load)(grad + i * H + j);
                if (c->training) d = d - away - (r - mean) * tilt;
                d = d * factor;
                if (unused) d = (vec){0};
                if (c->raw) {
                    while (c->graph_ptr[g + 1] <= start + i) g++;
                    d += NAME(load)(c->dpools + (g * c->layers + l) * H + j);
                }
                d = NAME(relu_grad)(d, r);
                NAME(store)(grad + i * H + j, d);
                sum += d;
            }
            NAME(store)(db2 + j, NAME(load)(db2 + j) + sum);
        }
        NAME(product)(H, H, rows, grad, 1, H, hidden, H, dw2, H, NULL, 1, 0);
        NAME(product)(rows, H, H, grad, H, 1, layer->w2, H, inner, H, NULL, 0, 0);
        for (i64 j = 0; j < H; j += LANES) {
            vec sum = {0};
            for (i64 i = 0; i < rows; i++) {
                vec d = NAME(relu_grad)(NAME(load)(inner + i * H + j), NAME(load)(hidden + i * H + j));
                NAME(store)(inner + i * H + j, d);
                sum += d;
            }
            NAME(store)(db1 + j, NAME(load)(db1 + j) + sum);
        }
        NAME(product)(layer->width, H, rows, layer->total + start * K, 1, K, inner, H, dw1, H, NULL, 1, 0);
        if (l) NAME(product)(rows, K, H, inner, H, 1, layer->wide1, K, c->sent + start * K, K, NULL, 0, 0);
    }
}

static const Loops NAME(loops) = {NAME(forward_segment), NAME(normalise_segment), NAME(gather_segment),
                                  NAME(backward_segment)};

#undef vec
#undef bits
#undef INLINE
