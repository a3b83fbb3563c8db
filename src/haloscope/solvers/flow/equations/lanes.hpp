// Numbers of elements in the lanes of a vector: powers, and what brings them there and takes them away.

#include "double_lanes.hpp"

INLINE double raised(double a, double power) {
#if ON_GPU
  return pow(a, power);
#else
  return __builtin_pow(a, power);
#endif
}

#if !ON_GPU
typedef long long Places __attribute__((vector_size(LANES * sizeof(double))));

INLINE Lanes raised(Lanes a, Lanes power) {
  Lanes r;
  for (int l = 0; l < LANES; l++) r[l] = raised(a[l], power[l]);
  return r;
}

// Of v[0] to v[count - 1]: lane k of v[l] changes places with lane l of v[k], for the lanes from 0 on,
// from `count` on, and so forth.
template <int count, int half = count / 2>
INLINE void transpose(Lanes *v) {
  if constexpr (half > 0) {
    for (int k = 0; k < count; k++) {
      if (k & half) continue;
      const Lanes a = v[k], b = v[k + half];
#if defined(__clang__)
      for (int l = 0; l < LANES; l++) {
        v[k][l] = l & half ? b[l - half] : a[l];
        v[k + half][l] = l & half ? b[l] : a[l + half];
      }
#else
      Places low, high;
      for (int l = 0; l < LANES; l++) {
        low[l] = l & half ? LANES + l - half : l;
        high[l] = l & half ? LANES + l : l + half;
      }
      v[k] = __builtin_shuffle(a, b, low);
      v[k + half] = __builtin_shuffle(a, b, high);
#endif
    }
    transpose<count, half / 2>(v);
  }
}

typedef double Quad __attribute__((vector_size(32), aligned(8), may_alias));

// result[k], lane l = number k of the four at from[l].
INLINE void gather_four(const double *const from[LANES], Lanes result[4]) {
#if LANES >= 4
  const Quad *const *quads = reinterpret_cast<const Quad *const *>(from);
  for (int k = 0; k < 4; k++)
#if LANES == 4
    result[k] = *quads[k];
#elif __has_builtin(__builtin_shufflevector)
    result[k] = __builtin_shufflevector(*quads[k], *quads[k + 4], 0, 1, 2, 3, 4, 5, 6, 7);
#else
    for (int l = 0; l < LANES; l++) result[k][l] = from[l / 4 * 4 + k][l % 4];
#endif
  transpose<4>(result);
#else
  for (int k = 0; k < 4; k++)
    for (int l = 0; l < LANES; l++) result[k][l] = from[l][k];
#endif
}
#endif
