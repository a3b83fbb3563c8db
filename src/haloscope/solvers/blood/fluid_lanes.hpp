// Points of the lattice side by side in the vectors of a processor core.

#if defined(__AVX512VL__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
#define UNROLLED _Pragma("GCC unroll 19")
#define ROLLED _Pragma("GCC unroll 1")  // where unrolling would make compilers slow
#define OPENINGS_BOUNDS
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

// The first `count` lanes from and to a row, or any addresses that all differ.
#if defined(__AVX512VL__)
typedef float Halves __attribute__((vector_size(32)));
INLINE pd512_lanes gathered(const double *f, const long long *at, int count) {
  return __builtin_ia32_gatherdiv8df(pd512_lanes{}, f, *(const Places *)at, (1 << count) - 1, 8);
}
INLINE void scatter(double *f, const long long *at, pd512_lanes a, int count) {
  __builtin_ia32_scatterdiv8df(f, (1 << count) - 1, *(const Places *)at, a, 8);
}
INLINE ps512_lanes gathered(const float *f, const long long *at, int count) {
  const Places *const parts = (const Places *)at;
  const int chosen = (1 << count) - 1;
  const Halves low = __builtin_ia32_gatherdiv16sf(Halves{}, f, parts[0], chosen, 4);
  const Halves high = __builtin_ia32_gatherdiv16sf(Halves{}, f, parts[1], chosen >> 8, 4);
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
INLINE void scatter(float *f, const long long *at, ps512_lanes a, int count) {
  const Places *const parts = (const Places *)at;
  const int chosen = (1 << count) - 1;
  __builtin_ia32_scatterdiv16sf(
      f, chosen, parts[0], __builtin_shufflevector(a, a, 0, 1, 2, 3, 4, 5, 6, 7), 4);
  __builtin_ia32_scatterdiv16sf(
      f, chosen >> 8, parts[1], __builtin_shufflevector(a, a, 8, 9, 10, 11, 12, 13, 14, 15), 4);
}
#define PART_OF_ROW(type, name)                                                     \
  INLINE name##_lanes load(const type *p, int count) {                              \
    return __builtin_ia32_loadu##name##_mask(p, name##_lanes{}, (1 << count) - 1);  \
  }                                                                                 \
  INLINE void store(type *p, name##_lanes a, int count) {                           \
    __builtin_ia32_storeu##name##_mask(p, a, (1 << count) - 1);                     \
  }
PART_OF_ROW(double, pd512)
PART_OF_ROW(float, ps512)
#else
INLINE Lanes load(const real *p, int count) {
  Lanes a = {};
  for (int l = 0; l < count; ++l) a[l] = p[l];
  return a;
}
INLINE void store(real *p, Lanes a, int count) {
  for (int l = 0; l < count; ++l) p[l] = a[l];
}
INLINE Lanes gathered(const real *f, const long long *at, int count) {
  Lanes a = {};
  for (int l = 0; l < count; ++l) a[l] = f[at[l]];
  return a;
}
INLINE void scatter(real *f, const long long *at, Lanes a, int count) {
  for (int l = 0; l < count; ++l) f[at[l]] = a[l];
}
#endif

// What goes lane by lane is called: in line in each of 19 places it makes compilers slow.
#define CALLED static __attribute__((noinline, unused))

#if HALF
typedef _Float16 Stored;
INLINE real number(Stored a) { return (real)a * ((real)1 / SCALE); }
INLINE Stored kept(real a) { return (Stored)rounded_for_half(a * SCALE); }
CALLED Lanes load(const Stored *p, int count) {
  Lanes a = {};
  for (int l = 0; l < count; ++l) a[l] = number(p[l]);
  return a;
}
INLINE Lanes load(const Stored *p) { return load(p, LANES); }
CALLED void store(Stored *p, Lanes a, int count) {
  for (int l = 0; l < count; ++l) p[l] = kept(a[l]);
}
INLINE void store(Stored *p, Lanes a) { store(p, a, LANES); }
CALLED Lanes gathered(const Stored *f, const long long *at, int count) {
  Lanes a = {};
  for (int l = 0; l < count; ++l) a[l] = number(f[at[l]]);
  return a;
}
CALLED void scatter(Stored *f, const long long *at, Lanes a, int count) {
  for (int l = 0; l < count; ++l) f[at[l]] = kept(a[l]);
}
#else
typedef real Stored;
INLINE real number(Stored a) { return a; }
INLINE Stored kept(real a) { return a; }
#endif

// Whether a part of a vector takes no longer than a whole one: masks, or what goes lane by lane anyway.
#if HALF || defined(__AVX512VL__)
constexpr bool CHEAP_PARTS = true;
#else
constexpr bool CHEAP_PARTS = false;
#endif

// Forces and velocities that are shared with cells, of `count` lanes.
#if SINGLE
CALLED Lanes taken_over(const CellReal *p, int count) {
  Lanes a = {};
  for (int l = 0; l < count; ++l) a[l] = (real)p[l];
  return a;
}
CALLED void hand_over(CellReal *p, Lanes a, int count) {
  for (int l = 0; l < count; ++l) p[l] = a[l];
}
#else
INLINE Lanes taken_over(const CellReal *p, int count) {
  return count == LANES ? load(p) : load(p, count);
}
INLINE void hand_over(CellReal *p, Lanes a, int count) {
  count == LANES ? store(p, a) : store(p, a, count);
}
#endif
