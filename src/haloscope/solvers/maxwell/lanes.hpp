// Rows of an element's nodes as vectors of a processor core; the last vector of a row is in part
// empty unless the row fills it.

#if defined(__AVX512VL__)
#define WIDEST 64
#elif defined(__AVX__)
#define WIDEST 32
#else
#define WIDEST 16
#endif

constexpr int ROW_BYTES = NP * sizeof(real);
constexpr int VECTOR_BYTES =
    WIDEST == 16 || ROW_BYTES <= 16 ? 16 : WIDEST == 32 || ROW_BYTES <= 32 ? 32 : 64;
constexpr int LANES = VECTOR_BYTES / sizeof(real);
constexpr int VECTORS = (NP + LANES - 1) / LANES;     // of a row
constexpr int PITCH = VECTORS * LANES;                // of rows in arrays of the kernel's own
constexpr int LAST = VECTORS - 1, REST = NP - LAST * LANES;  // the last vector, and its values

// Of loops over components or vectors, which are to stay in registers.
#define UNROLLED _Pragma("GCC unroll 16")

typedef real Lanes __attribute__((vector_size(VECTOR_BYTES)));
typedef real AnyLanes __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));
typedef real Pair __attribute__((vector_size(2 * sizeof(real)), aligned(sizeof(real)), may_alias));

INLINE Lanes all_lanes(real a) { return a - Lanes{}; }

// a b + c with one rounding.
template <typename V>
INLINE V fused(V a, V b, V c) {
  V r;
  for (int l = 0; l < LANES; l++) r[l] = fused(a[l], b[l], c[l]);
  return r;
}

// c - a b with one rounding.
template <typename V>
INLINE V fused_off(V a, V b, V c) {
  V r;
  for (int l = 0; l < LANES; l++) r[l] = fused(-a[l], b[l], c[l]);
  return r;
}

// The first REST values from a place on, then zeros; no other place is read or written.
template <typename V>
INLINE V load_rest(const real *p, V r) {
  for (int l = 0; l < REST; l++) r[l] = p[l];
  return r;
}
template <typename V>
INLINE void store_rest(real *p, V a) {
  for (int l = 0; l < REST; l++) p[l] = a[l];
}
#if defined(__AVX512VL__)
#define OF_MASKS(type, bytes, name)                                     \
  typedef type name##_lanes __attribute__((vector_size(bytes)));        \
  INLINE name##_lanes load_rest(const type *p, name##_lanes zeros) {    \
    return __builtin_ia32_loadu##name##_mask(p, zeros, (1 << REST) - 1); \
  }                                                                     \
  INLINE void store_rest(type *p, name##_lanes a) {                     \
    __builtin_ia32_storeu##name##_mask(p, a, (1 << REST) - 1);          \
  }
#define WIDE(type, name)                                                          \
  OF_MASKS(type, 64, name)                                                        \
  INLINE name##_lanes fused(name##_lanes a, name##_lanes b, name##_lanes c) {     \
    return __builtin_ia32_vfmadd##name##_mask(a, b, c, -1, 4);                    \
  }                                                                               \
  INLINE name##_lanes fused_off(name##_lanes a, name##_lanes b, name##_lanes c) { \
    return __builtin_ia32_vfnmadd##name##_mask(a, b, c, -1, 4);                   \
  }
WIDE(double, pd512)
WIDE(float, ps512)
OF_MASKS(double, 32, pd256)
OF_MASKS(float, 32, ps256)
#endif

// A place as a pointer of its own: what lies at fixed distances from it is then addressed so, where
// the compiler would keep a pointer to each.
template <typename T>
INLINE T *place(T *p) {
  asm("" : "+r"(p));
  return p;
}

// Vector b of the row that begins at p.
INLINE Lanes load_row(const real *p, int b) {
  p += b * LANES;
  return b < LAST || REST == LANES ? Lanes(*(const AnyLanes *)p) : load_rest(p, Lanes{});
}
INLINE void store_row(real *p, int b, Lanes a) {
  p += b * LANES;
  if (b < LAST || REST == LANES)
    *(AnyLanes *)p = a;
  else
    store_rest(p, a);
}
