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

#define WIDTH 32
#define ROWS 16
#define CHUNK (WIDTH * ROWS)
#define LANES 256

// high + low += a * b.
INLINE void add_product(double a, double b, double &high, double &low) {
  const double p = a * b, rest = fused(a, b, -p), s = high + p, t = s - high;
  low += ((high - (s - t)) + (p - t)) + rest;
  high = s;
}

// high + low += another pair.
INLINE void add_pair(double h, double l, double &high, double &low) {
  const double s = high + h, t = s - high;
  low = (low + l) + ((high - (s - t)) + (h - t));
  high = s;
}

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

// Steps of an orthogonalisation of w = vectors[count] against those before it; each is left out
// where its flag is 0.
//   subtract: w -= sum of products[2 * v] * vectors[v]
//   normalise: w /= sqrt(products[2 * count] - sum of products[2 * v]^2), its length after that;
//              w = 0 where that is no more than limit * before[2 * count]
//   project: parts = the products of vectors 0 .. count with w over each chunk
KERNEL orthogonalise(double *vectors, long stride, long count, const unsigned char *owned,
                     const double *before, const double *products, double limit, long subtract,
                     long normalise, long project, double *parts) {
  const long chunks = stride / CHUNK;
  BLOCKS(b, chunks) {
    SHARED(double, with, CHUNK);
    PRIVATE(double, value, CHUNK);
    double *chunk = vectors + b * CHUNK, *w = chunk + count * stride;
    THREADS(i, CHUNK) MINE(value, i) = w[i];
    if (subtract)
      for (long v = 0; v < count; v++) {
        const double factor = -products[2 * v];
        THREADS(i, CHUNK) MINE(value, i) = fused(factor, chunk[v * stride + i], MINE(value, i));
      }
    if (normalise) {
      double left = products[2 * count];
      for (long v = 0; v < count; v++) left = left - products[2 * v] * products[2 * v];
      const double scale = left <= limit * before[2 * count] ? 0 : 1 / square_root(left);
      THREADS(i, CHUNK) MINE(value, i) *= scale;
    }
    if (subtract || normalise) THREADS(i, CHUNK) w[i] = MINE(value, i);
    if (project) {
      THREADS(i, CHUNK) with[i] = owned[(b * CHUNK + i) / B] ? MINE(value, i) : 0;
      // Also for w itself, which a warp reads as others have written it.
      BARRIER();
      chunk_products(chunk, stride, count + 1, with, parts + 2 * b, chunks);
      BARRIER();
    }
  }
}

// products[v] = the pair that the pairs of all chunks of vector v add to.
KERNEL add_parts(const double *parts, long chunks, long count, double *products) {
  BLOCKS(v, count) {
    SHARED(double, high, LANES);
    SHARED(double, low, LANES);
    const double *part = parts + 2 * v * chunks;
    THREADS(i, LANES) {
      double h = 0, l = 0;
      for (long b = i; b < chunks; b += LANES) add_pair(part[2 * b], part[2 * b + 1], h, l);
      high[i] = h;
      low[i] = l;
    }
    BARRIER();
    for (int half = LANES / 2; half > 0; half /= 2) {
      THREADS(i, half) add_pair(high[i + half], low[i + half], high[i], low[i]);
      BARRIER();
    }
    THREADS(i, 1) {
      const double sum = high[0] + low[0];
      products[2 * v] = sum;
      products[2 * v + 1] = (high[0] - sum) + low[0];
    }
    BARRIER();
  }
}

// result += sum of factors[v] * vectors[v].
KERNEL combine(const double *vectors, long stride, long count, const double *factors, long n,
               double *result) {
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
KERNEL subtract_from(const double *b, long n, double *y) { FOR_EACH(u, n) y[u] = b[u] - y[u]; }

// x = 0 at nodes that another rank owns.
KERNEL keep_owned(const unsigned char *owned, long n, double *x) {
  FOR_EACH(u, n * B) x[u] = owned[u / B] ? x[u] : 0;
}
