// Compiled after `#define`s of the dimensions. Rows are those of the batch (blockIdx.y); a table has for
// each row the addresses of its blocks of keys and values: BLOCK positions, each of LAYERS layers, each
// of WIDTH keys and WIDTH values.

typedef unsigned int u32;
typedef unsigned long long u64;
#define KERNEL extern "C" __global__ void
#define COLUMN (blockIdx.x * blockDim.x + threadIdx.x)

__device__ float* entry(const u64* tables, u32 row, u32 position, u32 layer) {
    float* block = (float*)tables[row * (CONTEXT / BLOCK) + position / BLOCK];
    return block + ((position % BLOCK) * LAYERS + layer) * 2 * WIDTH;
}

KERNEL embed(const u32* tokens, const u32* positions, const float* words, const float* places,
             float* out) {
    u32 row = blockIdx.y, i = COLUMN;
    out[row * WIDTH + i] = words[tokens[row] * WIDTH + i] + places[positions[row] * WIDTH + i];
}

// One thread of a row sums, always in the same order.
KERNEL normalize(const float* in, float* out) {
    __shared__ float scale;
    u32 row = blockIdx.y, i = COLUMN;
    if (i == 0) {
        float sum = 0;
        for (u32 j = 0; j < WIDTH; j++) sum += in[row * WIDTH + j] * in[row * WIDTH + j];
        scale = rsqrtf(sum / WIDTH + 1e-6f);
    }
    __syncthreads();
    out[row * WIDTH + i] = in[row * WIDTH + i] * scale;
}

KERNEL multiply(const float* in, const float* matrix, float* out, u32 outputs, u32 inputs) {
    u32 row = blockIdx.y, i = COLUMN;
    float sum = 0;
    for (u32 j = 0; j < inputs; j++) sum += in[row * inputs + j] * matrix[i * inputs + j];
    out[row * outputs + i] = sum;
}

KERNEL append(const float* qkv, const u64* tables, const u32* positions, u32 layer) {
    u32 row = blockIdx.y, i = COLUMN;
    float* to = entry(tables, row, positions[row], layer);
    to[i] = qkv[row * 3 * WIDTH + WIDTH + i];
    to[WIDTH + i] = qkv[row * 3 * WIDTH + 2 * WIDTH + i];
}

// A thread for each number of a head's result; each makes all the head's scores.
KERNEL attend(const float* qkv, const u64* tables, const u32* positions, float* out, u32 layer) {
    u32 row = blockIdx.y, i = COLUMN, head = i / (WIDTH / HEADS) * (WIDTH / HEADS);
    float scores[CONTEXT], most = -1e30f, total = 0, sum = 0;
    u32 last = positions[row];
    for (u32 at = 0; at <= last; at++) {
        const float* keys = entry(tables, row, at, layer) + head;
        float score = 0;
        for (u32 j = 0; j < WIDTH / HEADS; j++) score += qkv[row * 3 * WIDTH + head + j] * keys[j];
        scores[at] = score * rsqrtf(WIDTH / HEADS);
        most = fmaxf(most, scores[at]);
    }
    for (u32 at = 0; at <= last; at++) {
        float weight = expf(scores[at] - most);
        total += weight;
        sum += weight * entry(tables, row, at, layer)[WIDTH + i];
    }
    out[row * WIDTH + i] = sum / total;
}

KERNEL gate(const float* gates, const float* values, float* out) {
    u32 i = blockIdx.y * INNER + COLUMN;
    out[i] = gates[i] / (1 + expf(-gates[i])) * values[i];
}

KERNEL add(const float* a, const float* b, float* out) {
    u32 i = blockIdx.y * WIDTH + COLUMN;
    out[i] = a[i] + b[i];
}

// The first of the largest.
KERNEL choose(const float* logits, u32* out) {
    u32 row = blockIdx.y, best = 0;
    if (COLUMN != 0) return;
    for (u32 i = 1; i < WORDS; i++)
        if (logits[row * WORDS + i] > logits[row * WORDS + best]) best = i;
    out[row] = best;
}
