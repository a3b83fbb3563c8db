// What a thread of a GPU's block works on in a stage: pairs of nodes, their geometry, what they read.
//
// GEOMETRY, and constants beside those of maxwell.cpp; gpu_shapes.py chooses them:
//   GEOMETRY      0: stored; 2: of straight edges, geometry [24]: corners [xyz][k][j][i] of an element
//   MATRIX_UNITS  1 (doubles, N <= 7): derivatives along i and j by the matrix units, a warp a layer
//   BUFFERS       1 or 2: the copy engine (sm_90 on) brings elements to so many places in shared memory,
//                 where 16 bytes divide an element's fields; 0: the threads do
//   NEAR          1: it brings the geometry too; 0: the threads read it twice
//   BEHIND        1: it brings the traces behind the faces too
CONSTANTS(INT(MATRIX_UNITS), INT(BUFFERS), INT(NEAR), INT(BEHIND))
#define OF_A_NODE 10
#define OF_AN_ELEMENT (GEOMETRY == 2 ? 24 : OF_A_NODE * NP3)
// Fields become covariant components where the copy engine laid them, and are read again in the end.
#define IN_PLACE (!NEAR)
#if __CUDA_ARCH__ >= 900 && BUFFERS > 0
#define WITH_COPY_ENGINE ((!IN_PLACE || BUFFERS == 1) && 6 * NP3 * sizeof(real) % 16 == 0)
#else
#define WITH_COPY_ENGINE 0
#endif
#define GEOMETRY_IS_NEAR (WITH_COPY_ENGINE && NEAR)
#define FIELDS_ARE_FAR (!WITH_COPY_ENGINE || IN_PLACE)

#if defined(__CUDACC__)
#define UNROLLED _Pragma("unroll")
#else
#define UNROLLED
#endif

// Tables in shared memory: D, in rows with gaps against bank conflicts and zeros beyond N; for threads that
// work alone D's transpose; for elements with straight edges the distances of nodes from the first.
#define STEPS ((NP + 3) / 4)
#define ROW (MATRIX_UNITS ? 4 * (STEPS + 1 - STEPS % 2) : NP)
#define TRANSPOSED (ROW * (MATRIX_UNITS ? 8 : NP))
#define DISTANCES (TRANSPOSED + (MATRIX_UNITS ? 0 : NP2 + NP % 2))
#define TABLES (DISTANCES + (GEOMETRY == 2 ? NP + NP % 2 : 0))

// Of node i from the first: D_ij D_ji = -1 / (x_i - x_j)^2.
INLINE real distance(const real *D, int i) { return i ? 1 / square_root(-D[i] * D[i * NP]) : real(0); }

INLINE void fill_tables(const real *D, real *tables) {
  THREADS(n, TRANSPOSED) {
    const int i = n / ROW, m = n % ROW;
    tables[n] = i < NP && m < NP ? D[i * NP + m] : real(0);
  }
  if (!MATRIX_UNITS) THREADS(n, NP2) tables[TRANSPOSED + n] = D[n % NP * NP + n / NP];
  if (GEOMETRY == 2) THREADS(n, NP) tables[DISTANCES + n] = distance(D, n);
}

// Two nodes of a thread: neighbours along i, and where rows have an odd number of nodes along k. A warp of
// the matrix units has rows of four pairs, of which those beyond N repeat others and are not inside.
#define STACKED (!MATRIX_UNITS && NP % 2)
#define HALF ((NP + 1) / 2)
#define PAIRS (MATRIX_UNITS ? 32 * NP : NP2 * HALF)

struct Place {
  int i[2], j, k[2], n[2];
  bool inside[2];
};

INLINE Place place_of(int q) {
  Place at;
  if (MATRIX_UNITS) {
    const int row = q % 32 / 4, l = q % 4;
    at.j = smaller(row, N);
    for (int p = 0; p < 2; p++) {
      at.inside[p] = row < NP && 2 * l + p < NP;
      // A pair stays one, so that it can be loaded as such.
      at.i[p] = smaller(2 * l + p, NP % 2 ? N : N - 1 + p);
      at.k[p] = q / 32;
    }
  } else if (STACKED) {
    at.j = q / NP % NP;
    for (int p = 0; p < 2; p++) {
      const int k = 2 * (q / NP2) + p;
      at.i[p] = q % NP;
      at.inside[p] = k < NP;
      at.k[p] = smaller(k, N);
    }
  } else {
    at.j = q / HALF % NP;
    for (int p = 0; p < 2; p++) {
      at.i[p] = 2 * (q % HALF) + p;
      at.inside[p] = true;
      at.k[p] = q / (NP * HALF);
    }
  }
  for (int p = 0; p < 2; p++) at.n[p] = (at.k[p] * NP + at.j) * NP + at.i[p];
  return at;
}

// Values of the pair n: in one access where rows are even.
struct alignas(2 * sizeof(real)) Two {
  real a, b;
};
INLINE void both(const real *from, const int n[2], real to[2]) {
  if (NP % 2 == 0) {
    const Two two = *reinterpret_cast<const Two *>(from + n[0]);
    to[0] = two.a;
    to[1] = two.b;
  } else {
    to[0] = from[n[0]];
    to[1] = from[n[1]];
  }
}
// The same from the GPU's memory, asked for at this very place of the program.
INLINE void ask_both(const real *from, const int n[2], real to[2]) {
#if defined(__CUDACC__)
  if (sizeof(real) == 8 && NP % 2 == 0) {
    asm volatile("ld.global.v2.f64 {%0, %1}, [%2];"
                 : "=d"(*(double *)&to[0]), "=d"(*(double *)&to[1])
                 : "l"(from + n[0]));
    return;
  }
  if (sizeof(real) == 8) {
    for (int p = 0; p < 2; p++)
      asm volatile("ld.global.f64 %0, [%1];" : "=d"(*(double *)&to[p]) : "l"(from + n[p]));
    return;
  }
#endif
  both(from, n, to);
}
INLINE void put_both(real *to, const Place &at, const real from[2]) {
  if (NP % 2 == 0) {
    if (at.inside[0]) *reinterpret_cast<Two *>(to + at.n[0]) = {from[0], from[1]};
  } else {
    for (int p = 0; p < 2; p++)
      if (at.inside[p]) to[at.n[p]] = from[p];
  }
}
// `count` components of a pair, in shared memory or in the GPU's.
template <int COUNT>
INLINE void components_of(const real *from, const Place &at, bool far, int count, real to[2][COUNT]) {
  for (int c = 0; c < count; c++) {
    real two[2];
    if (far)
      ask_both(from + c * NP3, at.n, two);
    else
      both(from + c * NP3, at.n, two);
    to[0][c] = two[0];
    to[1][c] = two[1];
  }
}

// Geometry of a node, `g`: a_1, a_2, a_3 and 1/J.
INLINE void from_tangents(const real a[9], real g[]) {
  const real x = fused(a[4], a[8], -(a[5] * a[7])), y = fused(a[5], a[6], -(a[3] * a[8]));
  const real z = fused(a[3], a[7], -(a[4] * a[6]));
  const real by_j = 1 / fused(a[0], x, fused(a[1], y, a[2] * z));
  for (int c = 0; c < 9; c++) g[c] = a[c];
  g[9] = by_j;
}
// From corners `x`; r, s, t: distances from the first node, 0 to 2.
INLINE void from_corners(const real *x, real r, real s, real t, real g[]) {
  const real to[3] = {r / 2, s / 2, t / 2}, from[3] = {1 - r / 2, 1 - s / 2, 1 - t / 2};
  real a[9];
  for (int d = 0; d < 3; d++) {
    // Corners differ by `step` along d, by p and q along the others.
    const int e = (d + 1) % 3, f = (d + 2) % 3, step = 1 << d, p = 1 << e, q = 1 << f;
    const real w00 = from[e] * from[f] / 2, w10 = to[e] * from[f] / 2;
    const real w01 = from[e] * to[f] / 2, w11 = to[e] * to[f] / 2;
    for (int c = 0; c < 3; c++, x += 8)
      a[3 * d + c] = fused(w00, x[step] - x[0],
                           fused(w10, x[step + p] - x[p], fused(w01, x[step + q] - x[q], w11 * (x[step + p + q] - x[p + q]))));
    x -= 24;
  }
  from_tangents(a, g);
}
INLINE void geometry_of_node(const real *geometry, const real *tables, const Place &at, int p, real g[OF_A_NODE]) {
  const real *along = tables + DISTANCES;
  if (GEOMETRY == 2)
    from_corners(geometry, along[at.i[p]], along[at.j], along[at.k[p]], g);
  else
    for (int c = 0; c < OF_A_NODE; c++) g[c] = geometry[c * NP3 + at.n[p]];
}
INLINE void geometry_of_pair(const real *geometry, const real *tables, const Place &at, bool far, int count,
                             real g[2][OF_A_NODE]) {
  if (GEOMETRY == 2)
    for (int p = 0; p < 2; p++) geometry_of_node(geometry, tables, at, p, g[p]);
  else
    components_of<OF_A_NODE>(geometry, at, far, count, g);
}
INLINE void covariant_of(const real g[OF_A_NODE], const real u[6], real v[6]) {
  for (int d = 0; d < 3; d++)
    for (int h = 0; h < 6; h += 3)
      v[h + d] = fused(g[3 * d], u[h], fused(g[3 * d + 1], u[h + 1], g[3 * d + 2] * u[h + 2]));
}
// What curls along a_1, a_2, a_3 (times J) are in the components of the fields.
INLINE void rates_of(const real g[OF_A_NODE], const real r[3], real rate[3]) {
  for (int c = 0; c < 3; c++) rate[c] = g[9] * fused(g[c], r[0], fused(g[3 + c], r[1], g[6 + c] * r[2]));
}
// a_d . a_e.
INLINE real product_of(const real g[OF_A_NODE], int d, int e) {
  return fused(g[3 * d], g[3 * e], fused(g[3 * d + 1], g[3 * e + 1], g[3 * d + 2] * g[3 * e + 2]));
}
