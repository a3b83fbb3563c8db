// Vectors with B numbers a node, some of whose nodes other ranks have too: orthogonalisation.
//
//   vectors: rows of `stride` numbers, whole chunks, zero beyond their end
//   owned: of each node, whether this rank counts it in inner products
//
// Inner products are computed as if in twice the working precision (Dot2 of Ogita, Rump and Oishi,
// SIAM J. Sci. Comput. 26, 2005, 1955): a sum is a pair high + low. What is rounded at the end is
// the exact product but for about one part in 10^29 of the sum of its terms' magnitudes, in any
// order, so that it does not depend on which rank holds which node, unless it lies that near to
// where rounding changes. The order is fixed all the same: a chunk has ROWS rows of WIDTH numbers;
// lanes add down the rows and are then added in pairs.

CONSTANTS(INT(B))

#include "pairs.hpp"

#define WIDTH 32
#define ROWS 16
#define CHUNK (WIDTH * ROWS)

#if ON_GPU
// A warp takes a vector; pairs[2 * v * chunks]: where the result for vector v goes.
INLINE void chunk_products(const double *vectors, long stride, long count, const double *with,
                           double *pairs, long chunks) {
  const int lane = threadIdx.x % WIDTH;
  for (long v = threadIdx.x / WIDTH; v < count; v += CHUNK / WIDTH) {
    const double *vector = vectors + v * stride + lane;
    double high = 0, low = 0;
    _Pragma("unroll") for (int row = 0; row < ROWS; row++)
        add_product(vector[row * WIDTH], with[row * WIDTH + lane], high, low);
    for (int half = WIDTH / 2; half > 0; half /= 2) {
      const double h = __shfl_xor_sync(0xffffffffu, high, half);
      const double l = __shfl_xor_sync(0xffffffffu, low, half);
      add_pair(h, l, high, low);
    }
    if (lane == 0) {
      pairs[2 * v * chunks] = high;
      pairs[2 * v * chunks + 1] = low;
    }
  }
}
#else
INLINE void chunk_products(const double *vectors, long stride, long count, const double *with,
                           double *pairs, long chunks) {
  for (long v = 0; v < count; v++) {
    const double *vector = vectors + v * stride;
    alignas(64) double high[WIDTH], low[WIDTH];
    PRAGMA(omp simd) for (int lane = 0; lane < WIDTH; lane++) {
      double h = 0, l = 0;
      for (int row = 0; row < ROWS; row++)
        add_product(vector[row * WIDTH + lane], with[row * WIDTH + lane], h, l);
      high[lane] = h;
      low[lane] = l;
    }
    for (int half = WIDTH / 2; half > 0; half /= 2)
      PRAGMA(omp simd) for (int lane = 0; lane < half; lane++)
          add_pair(high[lane + half], low[lane + half], high[lane], low[lane]);
    pairs[2 * v * chunks] = high[0];
    pairs[2 * v * chunks + 1] = low[0];
  }
}
#endif

// Steps of an orthogonalisation of w = vectors[count] against those before it. `first` and `second`
// are the products of vectors 0 .. count with w before the first and before the second turn.
//   PROJECT: parts = the products of vectors 0 .. count with w over each chunk
//   FIRST:   w -= sum of first[2 * v] * vectors[v]; then as PROJECT if there is a second turn
//   SECOND:  w -= sum of second[2 * v] * vectors[v]; nothing if there is no second turn
// After its last turn w is divided by its length, or is 0 where that was rounding.
//
// state[2 * count]: how large the Frobenius norm of V^T V - I may be, squared; state[2 * count + 1]:
// turns. A turn that leaves `left` of |w|^2 = `whole` gives the new unit vector parts along the others
// of at most (ROUNDING |w| + |V^T V - I| |V^T w|) / sqrt(left). Where that could pass 10^-8 there is a
// second turn: up to the root of a rounding a space is as good as orthonormal (H. D. Simon, Math.
// Comput. 42, 1984, 115). The bound grows far faster than the norm; but a second turn sees what V^T V - I
// has made of V^T w, and the norm is taken as ten times that from then on. Where a turn leaves less than
// a tenth of |w| Pythagoras loses digits, and there is a second one, too.
#define PROJECT 0
#define FIRST 1
#define SECOND 2
#define TENTH_SQUARED 0.01
#define SEMI_SQUARED 1e-16
#define ROUNDING_SQUARED 1e-30
#define SAFETY_SQUARED 100

// Square of w's parts along the others, and of what is left of w without them.
INLINE double along(const double *products, long count) {
  double sum = 0;
  for (long v = 0; v < count; v++) sum = sum + products[2 * v] * products[2 * v];
  return sum;
}

INLINE double left_of(const double *products, long count) {
  double left = products[2 * count];
  for (long v = 0; v < count; v++) left = left - products[2 * v] * products[2 * v];
  return left;
}

// What may be lost after a first turn, by what was lost before.
INLINE double loss_of(double before, double whole, double left) {
  return before + 2 * (ROUNDING_SQUARED * whole + before * (whole - left)) / left;
}

// What is taken as lost after a second turn: `seen` of parts that the first had taken out.
INLINE double loss_seen(double seen, double parts) {
  return larger(ROUNDING_SQUARED, SAFETY_SQUARED * seen / parts);
}

KERNEL(orthogonalise, INOUT(double, vectors), LONG(stride), LONG(count), IN(unsigned char, owned),
       IN(double, first), IN(double, second), DOUBLE(limit), LONG(step), INOUT(double, state),
       OUT(double, parts)) {
  const long chunks = stride / CHUNK;
  if (step == SECOND && state[2 * count + 1] < 2) return;
  const double *products = step == SECOND ? second : first;
  const double whole = products[2 * count], left = step == PROJECT ? 0 : left_of(products, count);
  double loss = ROUNDING_SQUARED;
  if (count && step == FIRST) loss = loss_of(state[2 * count - 2], whole, left);
  if (count && step == SECOND) loss = loss_seen(along(second, count), along(first, count));
  // The second also where the first is not a number.
  const bool again = step == FIRST && count > 0 && !(loss <= SEMI_SQUARED && left >= TENTH_SQUARED * whole);
  const bool project = step == PROJECT || again;
  const double scale = left <= limit * first[2 * count] ? 0 : 1 / square_root(left);
  BLOCKS(b, chunks) {
    if (step != PROJECT && b == 0) THREADS(i, 1) {
      state[2 * count] = loss;
      if (step == FIRST) state[2 * count + 1] = again ? 2 : 1;
    }
    SHARED(double, with, CHUNK);
    PRIVATE(double, value, CHUNK);
    double *chunk = vectors + b * CHUNK, *w = chunk + count * stride;
    THREADS(i, CHUNK) MINE(value, i) = w[i];
    if (step != PROJECT) {
      for (long v = 0; v < count; v++) {
        const double factor = -products[2 * v];
        THREADS(i, CHUNK) MINE(value, i) = fused(factor, chunk[v * stride + i], MINE(value, i));
      }
      if (!project) THREADS(i, CHUNK) MINE(value, i) *= scale;
      THREADS(i, CHUNK) w[i] = MINE(value, i);
    }
    if (project) {
      THREADS(i, CHUNK) with[i] = owned[(b * CHUNK + i) / B] ? MINE(value, i) : 0;
      // Also for w itself, which a warp reads as others have written it.
      BARRIER();
      chunk_products(chunk, stride, count + 1, with, parts + 2 * b, chunks);
      BARRIER();
    }
  }
}

// products[v] = the pair that the pairs of all chunks of vector v add to; nothing below `least` turns.
KERNEL(add_parts, IN(double, parts), LONG(chunks), LONG(count), IN(double, turns), DOUBLE(least),
       OUT(double, products)) {
  if (*turns < least) return;
  BLOCKS(v, count) {
    SHARED(double, high, LANES);
    SHARED(double, low, LANES);
    ADD_CHUNKS(parts + 2 * v * chunks, chunks, high, low);
    THREADS(i, 1) round_pair(high[0], low[0], products + 2 * v);
    BARRIER();
  }
}

// products[v] = the pair that the pairs of all ranks add to, in their order; a row of `table` each.
KERNEL(add_ranks, IN(double, table), LONG(row), LONG(ranks), LONG(count), OUT(double, products)) {
  FOR_EACH(v, count) {
    double high = 0, low = 0;
    for (long r = 0; r < ranks; r++)
      add_pair(table[r * row + 2 * v], table[r * row + 2 * v + 1], high, low);
    round_pair(high, low, products + 2 * v);
  }
}

// result += sum of factors[v] * vectors[v].
KERNEL(combine, IN(double, vectors), LONG(stride), LONG(count), IN(double, factors), LONG(n),
       INOUT(double, result)) {
  const long chunks = stride / CHUNK;
  BLOCKS(b, chunks) {
    PRIVATE(double, value, CHUNK);
    const double *chunk = vectors + b * CHUNK;
    double *to = result + b * CHUNK;
    const long lanes = smaller((long)CHUNK, n - b * CHUNK);
    THREADS(i, lanes) MINE(value, i) = to[i];
    for (long v = 0; v < count; v++) {
      const double factor = factors[v];
      THREADS(i, lanes) MINE(value, i) = fused(factor, chunk[v * stride + i], MINE(value, i));
    }
    THREADS(i, lanes) to[i] = MINE(value, i);
  }
}

// y = b - y.
KERNEL(subtract_from, IN(double, b), LONG(n), INOUT(double, y)) { FOR_EACH(u, n) y[u] = b[u] - y[u]; }

// x = 0 at some nodes.
KERNEL(clear, IN(int, nodes), LONG(count), OUT(double, x)) {
  PARTS(k, count) for (int r = 0; r < B; r++) x[(long)nodes[k] * B + r] = 0;
}
