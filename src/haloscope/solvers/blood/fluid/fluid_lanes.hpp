// Points of the lattice side by side in the vectors of a processor core.

#if defined(__AVX512VL__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
#if HALF && defined(__F16C__)
#include <immintrin.h>
#endif
#define UNROLLED _Pragma("GCC unroll 19")
#define ROLLED _Pragma("GCC unroll 1")  // where unrolling would make compilers slow
#define OPENINGS_BOUNDS
#define PAIR_BY_PAIR true
constexpr int LANES = VECTOR_BYTES / sizeof(real);

typedef real Lanes __attribute__((vector_size(VECTOR_BYTES)));
typedef real AnyLanes __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));
// As many addresses as a vector holds: wider ones go lane by lane.
constexpr int PLACES = VECTOR_BYTES / 8;
typedef int AnyIndices __attribute__((vector_size(4 * PLACES), aligned(4), may_alias));
typedef long long Places __attribute__((vector_size(VECTOR_BYTES), may_alias));

template <typename V>
INLINE V fused(V a, V b, V c) {
  V r;
  for (int l = 0; l < LANES; l++) r[l] = fused(a[l], b[l], c[l]);
  return r;
}
#if defined(__AVX512VL__)
#define WIDE(type, name)                                                        \
  typedef type name##_lanes __attribute__((vector_size(64)));                   \
  INLINE name##_lanes fused(name##_lanes a, name##_lanes b, name##_lanes c) {   \
    return __builtin_ia32_vfmadd##name##_mask(a, b, c, -1, 4);                  \
  }
WIDE(double, pd512)
WIDE(float, ps512)
#endif
template <typename V>
INLINE V fused(real a, V b, V c) {
  return fused(a - V{}, b, c);
}
#if CARREAU
INLINE real raised(real a, real power) {
  return sizeof(real) == 4 ? __builtin_powf(a, power) : __builtin_pow(a, power);
}
template <typename V>
INLINE V raised(V a, real power) {
  V r;
  for (int l = 0; l < LANES; l++) r[l] = raised((real)a[l], power);
  return r;
}
#endif

INLINE Places indices(const int *p) {
  return __builtin_convertvector(*(const AnyIndices *)p, Places);
}
INLINE Lanes load(const real *p) { return *(const AnyLanes *)p; }
INLINE void store(real *p, Lanes a) { *(AnyLanes *)p = a; }

// What goes lane by lane is called: in line in each of 19 places it makes compilers slow.
#define CALLED static __attribute__((noinline, unused))

#if HALF
typedef _Float16 Stored;
INLINE real number(Stored a) { return (real)a * ((real)1 / SCALE); }
INLINE Stored kept(real a) { return (Stored)rounded_for_half(a * SCALE); }
#if VECTOR_BYTES == 64 || defined(__F16C__) && VECTOR_BYTES == 32
typedef unsigned BitLanes __attribute__((vector_size(VECTOR_BYTES)));
INLINE Lanes load(const Stored *p) {
#if VECTOR_BYTES == 64
  return (Lanes)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)) * ((real)1 / SCALE);
#else
  return (Lanes)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)) * ((real)1 / SCALE);
#endif
}
INLINE void store(Stored *p, Lanes a) {
  a *= (real)SCALE;
  const BitLanes bits = (BitLanes)a, in_range = (BitLanes)((Lanes)(bits & 0x7fffffffu) < 65504.0f);
  a = (Lanes)((up_or_down(bits) & in_range) | (bits & ~in_range));
#if VECTOR_BYTES == 64
  _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph((__m512)a, _MM_FROUND_TO_NEAREST_INT));
#else
  _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph((__m256)a, _MM_FROUND_TO_NEAREST_INT));
#endif
}
#else
CALLED Lanes load(const Stored *p) {
  Lanes a = {};
  for (int l = 0; l < LANES; ++l) a[l] = number(p[l]);
  return a;
}
CALLED void store(Stored *p, Lanes a) {
  for (int l = 0; l < LANES; ++l) p[l] = kept(a[l]);
}
#endif
typedef short StoredBits __attribute__((may_alias));
#else
typedef real Stored;
INLINE real number(Stored a) { return a; }
INLINE Stored kept(real a) { return a; }
typedef real StoredBits __attribute__((may_alias));
#endif
typedef StoredBits StoredLanes
    __attribute__((vector_size(LANES * sizeof(Stored)), aligned(sizeof(Stored)), may_alias));

// Forces and velocities that are shared with cells.
#if SINGLE
CALLED Lanes taken_over(const CellReal *p) {
  Lanes a = {};
  for (int l = 0; l < LANES; ++l) a[l] = (real)p[l];
  return a;
}
CALLED void hand_over(CellReal *p, Lanes a) {
  for (int l = 0; l < LANES; ++l) p[l] = a[l];
}
#else
INLINE Lanes taken_over(const CellReal *p) { return load(p); }
INLINE void hand_over(CellReal *p, Lanes a) { store(p, a); }
#endif
