// Dense blocks of B x B numbers, columns one after the other: entry (r, c) at c * B + r.

#define ENTRIES (B * B)

// a = its inverse, by Gauss-Jordan elimination with row pivots; false where it has none.
#if ON_GPU && B <= 4
#define UNROLLED _Pragma("unroll") for
// With loops unrolled, and rows swapped without computed indices, the block stays in registers. Larger
// ones would not, and take seconds to compile.
INLINE bool invert(double *a) {
  double v[ENTRIES];
  int from[B];
  UNROLLED(int m = 0; m < ENTRIES; m++) v[m] = a[m];
  UNROLLED(int k = 0; k < B; k++) {
    int pivot = k;
    double most = absolute(v[k * B + k]);
    UNROLLED(int r = k + 1; r < B; r++)
      if (absolute(v[k * B + r]) > most) {
        most = absolute(v[k * B + r]);
        pivot = r;
      }
    from[k] = pivot;
    UNROLLED(int r = k + 1; r < B; r++)
      UNROLLED(int c = 0; c < B; c++) {
        const double upper = v[c * B + k], lower = v[c * B + r];
        v[c * B + k] = r == pivot ? lower : upper;
        v[c * B + r] = r == pivot ? upper : lower;
      }
    // Also false for what is not a number.
    if (!(most > 0)) return false;
    const double scale = 1 / v[k * B + k];
    v[k * B + k] = 1;
    UNROLLED(int c = 0; c < B; c++) v[c * B + k] *= scale;
    UNROLLED(int r = 0; r < B; r++)
      if (r != k) {
        const double factor = v[k * B + r];
        v[k * B + r] = 0;
        UNROLLED(int c = 0; c < B; c++) v[c * B + r] = fused(-factor, v[c * B + k], v[c * B + r]);
      }
  }
  UNROLLED(int k = B - 1; k >= 0; k--)
    UNROLLED(int c = k + 1; c < B; c++)
      UNROLLED(int r = 0; r < B; r++) {
        const double left = v[k * B + r], right = v[c * B + r];
        v[k * B + r] = c == from[k] ? right : left;
        v[c * B + r] = c == from[k] ? left : right;
      }
  UNROLLED(int m = 0; m < ENTRIES; m++) a[m] = v[m];
  return true;
}
#else
INLINE bool invert(double *a) {
  int from[B];
  for (int k = 0; k < B; k++) {
    int pivot = k;
    for (int r = k + 1; r < B; r++)
      if (absolute(a[k * B + r]) > absolute(a[k * B + pivot])) pivot = r;
    from[k] = pivot;
    for (int c = 0; c < B; c++) {
      const double upper = a[c * B + k];
      a[c * B + k] = a[c * B + pivot];
      a[c * B + pivot] = upper;
    }
    // Also false for what is not a number.
    if (!(absolute(a[k * B + k]) > 0)) return false;
    const double scale = 1 / a[k * B + k];
    a[k * B + k] = 1;
    for (int c = 0; c < B; c++) a[c * B + k] *= scale;
    for (int r = 0; r < B; r++) {
      if (r == k) continue;
      const double factor = a[k * B + r];
      a[k * B + r] = 0;
      for (int c = 0; c < B; c++) a[c * B + r] = fused(-factor, a[c * B + k], a[c * B + r]);
    }
  }
  for (int k = B - 1; k >= 0; k--)
    for (int r = 0; r < B; r++) {
      const double left = a[k * B + r];
      a[k * B + r] = a[from[k] * B + r];
      a[from[k] * B + r] = left;
    }
  return true;
}
#endif

#if !ON_GPU
// Blocks ahead that a core asks for while it multiplies: rows are too short for its own guess.
#define AHEAD 32

// s[0] = the sum of the columns of s, in pairs.
template <int half>
INLINE void add_columns(double (*s)[B]) {
  if constexpr (half < B) {
    for (int c = 0; c < B; c += 2 * half)
      PRAGMA(omp simd) for (int r = 0; r < B; r++) s[c][r] += s[c + half][r];
    add_columns<2 * half>(s);
  }
}

// sum[r] of blocks k from begin to end times the nodes at their columns. Each of a block's entries
// adds its own products in the order of blocks; last the columns' sums are added in pairs.
template <typename T>
INLINE void row_product(const int *columns, const T *A, const double *x, long begin, long end,
                        double *sum) {
  double s[B][B] = {};
  for (long k = begin; k < end; k++) {
    const T *a = A + k * ENTRIES;
    const double *xk = x + (long)columns[k] * B;
    for (int line = 0; line < ENTRIES; line += 64 / (int)sizeof(T))
      __builtin_prefetch(a + AHEAD * ENTRIES + line);
    for (int c = 0; c < B; c++) {
      const double factor = xk[c];
      PRAGMA(omp simd) for (int r = 0; r < B; r++)
          s[c][r] = fused((double)a[c * B + r], factor, s[c][r]);
    }
  }
  add_columns<1>(s);
  PRAGMA(omp simd) for (int r = 0; r < B; r++) sum[r] = s[0][r];
}
#endif
