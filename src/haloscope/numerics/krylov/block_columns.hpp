// Columns of B numbers of dense blocks as vectors of a processor core, stored in double or single
// precision. Left alone, g++ takes half a vector where it widens numbers.

typedef double Column __attribute__((vector_size(8 * B), aligned(8), may_alias));
typedef float SingleColumn __attribute__((vector_size(4 * B), aligned(4), may_alias));

INLINE Column column_at(const double *p) { return *(const Column *)p; }
INLINE Column column_at(const float *p) {
#if defined(__AVX__) && !defined(__clang__) && B == 4
  return __builtin_ia32_cvtps2pd256(*(const SingleColumn *)p);
#elif defined(__AVX512F__) && !defined(__clang__) && B == 8
  return __builtin_ia32_cvtps2pd512_mask(*(const SingleColumn *)p, Column{}, -1, 4);
#else
  return __builtin_convertvector(*(const SingleColumn *)p, Column);
#endif
}
INLINE void store_column(Column a, double *p) { *(Column *)p = a; }
INLINE void store_column(Column a, float *p) { *(SingleColumn *)p = __builtin_convertvector(a, SingleColumn); }

INLINE Column fused(Column a, Column factor, Column c) {
#if defined(__FMA__) && !defined(__clang__) && B == 4
  return __builtin_ia32_vfmaddpd256(a, factor, c);
#elif defined(__AVX512F__) && !defined(__clang__) && B == 8
  return __builtin_ia32_vfmaddpd512_mask(a, factor, c, -1, 4);
#else
  Column r;
  for (int l = 0; l < B; l++) r[l] = fused(a[l], factor[l], c[l]);
  return r;
#endif
}
INLINE Column fused(Column a, double b, Column c) { return fused(a, b - Column{}, c); }

template <int half>
INLINE void add_in_pairs(Column *s) {
  if constexpr (half < B) {
    for (int c = 0; c < B; c += 2 * half) s[c] += s[c + half];
    add_in_pairs<2 * half>(s);
  }
}

// The sum of blocks k from begin to end times the nodes at their columns, with the bits of row_product.
template <typename T>
INLINE Column row_sum(const int *columns, const T *A, const double *x, long begin, long end) {
  Column s[B] = {};
  for (long k = begin; k < end; k++) {
    const T *a = A + k * ENTRIES;
    const double *xk = x + (long)columns[k] * B;
    for (int line = 0; line < ENTRIES; line += 64 / (int)sizeof(T))
      __builtin_prefetch(a + AHEAD * ENTRIES + line);
    for (int c = 0; c < B; c++) s[c] = fused(column_at(a + c * B), xk[c], s[c]);
  }
  add_in_pairs<1>(s);
  return s[0];
}
