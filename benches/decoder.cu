// Compiled after `#define`s of the dimensions. A block of 256 threads works on a row (blockIdx.x), on
// a head of a row (blockIdx.x of blockIdx.y), or on 256 elements.

typedef unsigned int u32;
typedef unsigned long long u64;
#define EACH(i, end) for (u32 i = threadIdx.x; i < end; i += 256)
#define KERNEL extern "C" __global__ void

// Always in the same order, so that the result is always the same.
__device__ float reduce(float value, bool largest) {
    __shared__ float shared[256];
    u32 thread = threadIdx.x;
    __syncthreads();
    shared[thread] = value;
    for (u32 half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (thread < half) {
            float other = shared[thread + half];
            shared[thread] = largest ? fmaxf(shared[thread], other) : shared[thread] + other;
        }
    }
    __syncthreads();
    return shared[0];
}

__device__ u64 mix(u32 bits, u64 place) {
    u64 value = (place << 32 | bits) * 0x9E3779B97F4A7C15ull;
    value = (value ^ (value >> 29)) * 0xBF58476D1CE4E5B9ull;
    return value ^ (value >> 32);
}

KERNEL fill(float* out, u32 seed, u32 columns) {
    u32 i = blockIdx.x * 256 + threadIdx.x;
    out[i] = (float)(int)(u32)mix(i, seed) * (rsqrtf((float)columns) / 2147483648.0f);
}

KERNEL clear(u32* out, u32 count) {
    u64 i = blockIdx.x * 256ull + threadIdx.x;
    if (i < count) out[i] = 0;
}

KERNEL begin(u32* tokens, u32* positions, u32 batch, u32 position) {
    EACH(row, batch) {
        tokens[row] = (row * 37 + 11) % VOCABULARY;
        positions[row] = position;
    }
}

KERNEL embed(float* out, const float* embedding, const u32* tokens) {
    u64 row = blockIdx.x;
    EACH(i, HIDDEN) out[row * HIDDEN + i] = embedding[(u64)tokens[row] * HIDDEN + i];
}

KERNEL normalize(const float* in, float* out) {
    u64 row = blockIdx.x * HIDDEN;
    float sum = 0;
    EACH(i, HIDDEN) sum += in[row + i] * in[row + i];
    float factor = rsqrtf(reduce(sum, false) / HIDDEN + 1e-6f);
    EACH(i, HIDDEN) out[row + i] = in[row + i] * factor;
}

// The caches are rings: a row remembers its last tokens.
KERNEL append(const float* qkv, float* keys, float* values, const u32* positions) {
    u64 row = blockIdx.x;
    u64 place = (row * CONTEXT + positions[row] % CONTEXT) * HIDDEN;
    EACH(i, HIDDEN) {
        keys[place + i] = qkv[row * 3 * HIDDEN + HIDDEN + i];
        values[place + i] = qkv[row * 3 * HIDDEN + 2 * HIDDEN + i];
    }
}

// The softmax of queries times keys.
KERNEL score(const float* qkv, float* scores, const float* keys, const u32* positions) {
    u32 head = blockIdx.x, width = HIDDEN / HEADS;
    u64 row = blockIdx.y;
    u32 length = min(positions[row] + 1, CONTEXT);
    const float* query = qkv + row * 3 * HIDDEN + head * width;
    scores += (row * HEADS + head) * CONTEXT;
    float best = -3.4e38f, sum = 0;
    EACH(slot, length) {
        const float* key = keys + (row * CONTEXT + slot) * HIDDEN + head * width;
        float dot = 0;
        for (u32 i = 0; i < width; i++) dot += query[i] * key[i];
        scores[slot] = dot * rsqrtf((float)width);
        best = fmaxf(best, scores[slot]);
    }
    best = reduce(best, true);
    EACH(slot, length) {
        scores[slot] = expf(scores[slot] - best);
        sum += scores[slot];
    }
    sum = reduce(sum, false);
    EACH(slot, length) scores[slot] /= sum;
}

KERNEL attend(const float* scores, float* out, const float* values, const u32* positions) {
    u32 head = blockIdx.x, width = HIDDEN / HEADS;
    u64 row = blockIdx.y;
    u32 length = min(positions[row] + 1, CONTEXT);
    scores += (row * HEADS + head) * CONTEXT;
    values += row * CONTEXT * HIDDEN + head * width;
    EACH(i, width) {
        float sum = 0;
        for (u64 slot = 0; slot < length; slot++) sum += scores[slot] * values[slot * HIDDEN + i];
        out[row * HIDDEN + head * width + i] = sum;
    }
}

KERNEL add(const float* a, const float* b, float* out) {
    u32 i = blockIdx.x * 256 + threadIdx.x;
    out[i] = a[i] + b[i];
}

KERNEL multiply(const float* a, const float* b, float* out) {
    u32 i = blockIdx.x * 256 + threadIdx.x;
    out[i] = a[i] * b[i];
}

KERNEL silu(const float* in, float* out) {
    u32 i = blockIdx.x * 256 + threadIdx.x;
    out[i] = in[i] / (1.0f + expf(-in[i]));
}

// Each row's next token. It is remembered with 32 bits that depend on every bit of its logits:
// 0 where one is not a number.
KERNEL choose(const float* logits, u32* tokens, u32* positions, u64* history) {
    __shared__ float values[256];
    __shared__ u32 places[256];
    __shared__ u64 sums[256];
    u32 thread = threadIdx.x, row = blockIdx.x, place = 0;
    float best = -3.4e38f;
    u64 sum = 0;
    int wrong = 0;
    EACH(i, VOCABULARY) {
        float logit = logits[(u64)row * VOCABULARY + i];
        if (logit > best) { best = logit; place = i; }
        if (!(fabsf(logit) < 1e30f)) wrong = 1;
        sum += mix(__float_as_uint(logit), i);
    }
    values[thread] = best;
    places[thread] = place;
    sums[thread] = sum;
    wrong = __syncthreads_or(wrong);
    if (thread != 0) return;
    for (u32 i = 1; i < 256; i++) {
        if (values[i] > best || (values[i] == best && places[i] < place)) {
            best = values[i];
            place = places[i];
        }
        sum += sums[i];
    }
    u32 position = positions[row];
    u64 digest = wrong ? 0 : sum >> 32 | 1;
    if (position < STEPS) history[position * gridDim.x + row] = digest << 32 | place;
    tokens[row] = place;
    positions[row] = position + 1;
}
