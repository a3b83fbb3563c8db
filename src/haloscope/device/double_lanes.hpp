// Numbers in double precision, one by one or, on cores, as many at once as a vector has lanes: what is
// written for a type T is compiled for both.

// The same number for every lane.
template <typename T>
INLINE T all(double a) { return a - T{}; }

#if !ON_GPU
#if defined(__AVX512F__)
#define LANES 8
#elif defined(__AVX__)
#define LANES 4
#else
#define LANES 2
#endif
typedef double Lanes __attribute__((vector_size(LANES * sizeof(double))));

// By name where g++ knows one: where it unrolls a loop it takes lanes apart again.
INLINE Lanes fused(Lanes a, Lanes b, Lanes c) {
#if defined(__AVX512F__) && !defined(__clang__)
  return __builtin_ia32_vfmaddpd512_mask(a, b, c, -1, 4);
#elif defined(__AVX__) && defined(__FMA__) && !defined(__clang__)
  return __builtin_ia32_vfmaddpd256(a, b, c);
#else
  Lanes r;
  for (int l = 0; l < LANES; l++) r[l] = fused(a[l], b[l], c[l]);
  return r;
#endif
}
INLINE Lanes square_root(Lanes a) {
#if defined(__AVX512F__) && !defined(__clang__)
  return __builtin_ia32_sqrtpd512_mask(a, a, -1, 4);
#elif defined(__AVX__) && !defined(__clang__)
  return __builtin_ia32_sqrtpd256(a);
#else
  Lanes r;
  for (int l = 0; l < LANES; l++) r[l] = square_root(a[l]);
  return r;
#endif
}
INLINE Lanes root_of_normal(Lanes a) { return square_root(a); }
INLINE Lanes reciprocal_of_normal(Lanes a) { return 1.0 / a; }
#endif
