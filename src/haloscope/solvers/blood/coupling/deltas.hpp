// Regularised delta functions: how a vertex between lattice points shares with the points around it.
//
//   delta(x, y, z) = phi(x) phi(y) phi(z),  phi the kernel named by the constant DELTA:
//   LINEAR  2 points: linear interpolation
//   ROMA    3 points: Roma, Peskin, Berger (1999), J. Comput. Phys. 153, eq. 22
//   COSINE  4 points: phi(r) = (1 + cos(pi r / 2)) / 4, |r| <= 2: Peskin (1977), J. Comput. Phys. 25
//   PESKIN  4 points: Peskin (2002), Acta Numerica 11, eq. 6.27
//
// All add up to 1 wherever the vertex lies. LINEAR, ROMA and PESKIN also have no first moment, so that
// they give linear fields back; COSINE has one of up to 0.021. LINEAR has no continuous slope.
// Needs own_box.hpp.

CONSTANTS(TYPE(DELTA))

#define ROMA 0
#define COSINE 1
#define PESKIN 2
#define LINEAR 3
#if DELTA == LINEAR
#define SUPPORT 2
#elif DELTA == ROMA
#define SUPPORT 3
#else
#define SUPPORT 4
#endif

// The first point of the support of a vertex at x, and the weights of it and of those after it. They
// go where they stay, `apart` from each other: lanes of a vector have no arrays of their own.
INLINE int delta_weights(real x, real *phi, int apart = 1) {
#if DELTA == LINEAR
  const int below = floor_of(x);
  const real t = x - (real)below;
  phi[0] = 1 - t;
  phi[apart] = t;
  return below;
#elif DELTA == ROMA
  const int centre = nearest_point(x);
  const real t = x - (real)centre, q = square_root(fused(-3 * t, t, (real)1));
  phi[0] = (2 - 3 * t - q) / 6;
  phi[apart] = (1 + q) / 3;
  phi[2 * apart] = (2 + 3 * t - q) / 6;
  return centre - 1;
#else
  const int below = floor_of(x);
  const real t = x - (real)below;
#if DELTA == COSINE
  // cos and sin of pi t / 2 from series in u = (pi / 2) (t - 1/2), |u| <= pi / 4.
  const real u = (real)1.5707963267948966 * (t - (real)0.5), v = -u * u;
  real even = 1, odd = 1;
#define TERM(n)                                               \
  even = fused(v * ((real)1 / (n * (n - 1))), even, (real)1); \
  odd = fused(v * ((real)1 / (n * (n + 1))), odd, (real)1);
  TERM(16) TERM(14) TERM(12) TERM(10) TERM(8) TERM(6) TERM(4) TERM(2)
  const real c = (real)0.70710678118654752 * (even - u * odd) / 4;
  const real s = (real)0.70710678118654752 * (even + u * odd) / 4;
  phi[0] = (real)0.25 - s;
  phi[apart] = (real)0.25 + c;
  phi[2 * apart] = (real)0.25 + s;
  phi[3 * apart] = (real)0.25 - c;
#else
  const real q = square_root(fused(4 * t, 1 - t, (real)1));
  phi[0] = (3 - 2 * t - q) / 8;
  phi[apart] = (3 - 2 * t + q) / 8;
  phi[2 * apart] = (1 + 2 * t + q) / 8;
  phi[3 * apart] = (1 + 2 * t - q) / 8;
#endif
  return below - 1;
#endif
}

// The first point of that support.
INLINE int first_of_support(real x) {
#if DELTA == LINEAR
  return floor_of(x);
#elif DELTA == ROMA
  return nearest_point(x) - 1;
#else
  return floor_of(x) - 1;
#endif
}
