// The stage on cores: an element at a time; rows of nodes are vectors, and what a few rows need stays
// in registers from the derivatives to the update.

#include "lanes.hpp"
#include "shape_cores.hpp"

#define ROWS (VECTORS == 1 ? 2 : 1)  // done at once: six components of them fill the registers
// Rows of a plane that go through all planes together: their columns stay in the first-level cache.
#define COLUMNS (NP2 * PITCH * sizeof(real) > 8192 ? 3 : NP)
// While an element is computed the next one is fetched, if both fit the second-level cache.
#define PREFETCH ((12 * NP3 + NODE_VALUES) * sizeof(real) <= 1 << 18)

// Covariant components of row (k, j), vector b, of fields u.
INLINE void covariant(const Lanes *a, const Lanes *u, Lanes *v) {
  UNROLLED for (int d = 0; d < 3; d++)
    UNROLLED for (int field = 0; field < 2; field++)
      v[3 * field + d] =
          fused(a[3 * d], u[3 * field], fused(a[3 * d + 1], u[3 * field + 1], a[3 * d + 2] * u[3 * field + 2]));
}
INLINE void fields_of(const real *u, int b, Lanes *own) {
  UNROLLED for (int c = 0; c < 6; c++) own[c] = load_row(u + c * NP3, b);
}

// Adds J curl in components along a_1, a_2, a_3 of rows j to j + R - 1 of plane k: right-hand sides,
// curl H first, then -curl E. v is [NP2][6][PITCH], DT [NP][PITCH].
template <int R>
INLINE void curls(const real *D, const real *DT, const real *v, int k, int j, Lanes r[R][6][VECTORS]) {
  for (int m = 0; m < NP; m++) {
    const Lanes dk = all_lanes(D[k * NP + m]);
    UNROLLED for (int n = 0; n < R; n++) {
      const Lanes dj = all_lanes(D[(j + n) * NP + m]);
      const real *here = v + (k * NP + j + n) * 6 * PITCH + m;
      const Lanes e1 = all_lanes(here[PITCH]), e2 = all_lanes(here[2 * PITCH]);
      const Lanes h1 = all_lanes(here[4 * PITCH]), h2 = all_lanes(here[5 * PITCH]);
      const Lanes *along_j = (const Lanes *)(v + (k * NP + m) * 6 * PITCH);
      const Lanes *along_k = (const Lanes *)(v + (m * NP + j + n) * 6 * PITCH);
      UNROLLED for (int b = 0; b < VECTORS; b++) {
        const Lanes di = ((const Lanes *)(DT + m * PITCH))[b];
        r[n][1][b] = fused_off(di, h2, r[n][1][b]);
        r[n][2][b] = fused(di, h1, r[n][2][b]);
        r[n][4][b] = fused(di, e2, r[n][4][b]);
        r[n][5][b] = fused_off(di, e1, r[n][5][b]);
        r[n][0][b] = fused(along_j[5 * VECTORS + b], dj, r[n][0][b]);
        r[n][2][b] = fused_off(along_j[3 * VECTORS + b], dj, r[n][2][b]);
        r[n][3][b] = fused_off(along_j[2 * VECTORS + b], dj, r[n][3][b]);
        r[n][5][b] = fused(along_j[b], dj, r[n][5][b]);
        r[n][0][b] = fused_off(along_k[4 * VECTORS + b], dk, r[n][0][b]);
        r[n][1][b] = fused(along_k[3 * VECTORS + b], dk, r[n][1][b]);
        r[n][3][b] = fused(along_k[VECTORS + b], dk, r[n][3][b]);
        r[n][4][b] = fused_off(along_k[b], dk, r[n][4][b]);
      }
    }
  }
}

// What face f adds at its nodes, [4][FACE_PITCH].
INLINE void flux(int f, const Face &face, const real *own, const real *traces, const FaceShapes &g,
                 const real *material, real by_weight, real *sums) {
  const real side = outward(f);
  const real *other = traces + (long)face.slot * 4 * NP2;
  const Reading read = reading(face.turned);
  SHARED(real, in_order, 4 * NP2);
  if (face.turned) {
    const int swapped = read.first;
    for (int b = 0; b < NP; b++)
      for (int a = 0; a < NP; a++)
        UNROLLED for (int c = 0; c < 4; c++)
          in_order[(c ^ swapped) * NP2 + b * NP + a] = other[c * NP2 + met(face.turned, b, a)];
    other = in_order;
  }
  const real of_ep = face.electric * read.p, of_eq = face.electric * read.q;
  const real of_hp = face.magnetic * read.p, of_hq = face.magnetic * read.q;
#pragma omp simd
  for (int n = 0; n < NP2; n++) {
    const FaceShape shape = g.at(n);
    const Addition sum = added(side, by_weight, material, face, own[n] - of_ep * other[n],
                               own[NP2 + n] - of_eq * other[NP2 + n],
                               own[2 * NP2 + n] - of_hp * other[2 * NP2 + n],
                               own[3 * NP2 + n] - of_hq * other[3 * NP2 + n], shape);
    sums[n] = sum.ep;
    sums[FACE_PITCH + n] = sum.eq;
    sums[2 * FACE_PITCH + n] = sum.hp;
    sums[3 * FACE_PITCH + n] = sum.hq;
  }
  // What the last row reaches over is not used, but if it were denormal it would cost time.
  UNROLLED for (int c = 0; c < 4; c++) *(AnyLanes *)(sums + c * FACE_PITCH + NP2) = Lanes{};
}

// Takes what the faces of a row add to its right-hand sides.
INLINE void take_faces(const real *sums, int k, int j, int b, Lanes r[6][VECTORS]) {
  const auto take = [&](int f, int at) {
    const real *const from = place(sums + 4 * f * FACE_PITCH + at);
    UNROLLED for (int c = 0; c < 4; c++) {
      const int to = (c & 2 ? 3 : 0) + (c & 1 ? direction_q(f) : direction_p(f));
      r[to][b] += ((const AnyLanes *)(from + c * FACE_PITCH))[b];
    }
  };
  if (k == 0) take(4, j * NP);
  if (k == N) take(5, j * NP);
  if (j == 0) take(2, k * NP);
  if (j == N) take(3, k * NP);
  const real *const ends = place(sums + k * NP + j);
  UNROLLED for (int end = 0; end < 2; end++) {
    if (b != (end ? LAST : 0)) continue;
    Lanes at = {};
    at[end ? REST - 1 : 0] = 1;
    UNROLLED for (int c = 0; c < 4; c++) {
      const int to = (c & 2 ? 3 : 0) + (c & 1 ? 2 : 1);
      r[to][b] = fused(at, all_lanes(ends[(4 * end + c) * FACE_PITCH]), r[to][b]);
    }
  }
}

// Writes the traces of a row's covariant components; those of its two ends as pairs [4][NP2][2].
INLINE void leave_traces(const Lanes v[VECTORS][6], int k, int j, real *traces, real *pairs) {
  const auto leave = [&](int f, int at) {
    real *const to = place(traces + 4 * f * NP2 + at);
    UNROLLED for (int c = 0; c < 4; c++)
      UNROLLED for (int b = 0; b < VECTORS; b++) {
        const int from = (c & 2 ? 3 : 0) + (c & 1 ? direction_q(f) : direction_p(f));
        store_row(to + c * NP2, b, v[b][from]);
      }
  };
  if (k == 0) leave(4, j * NP);
  if (k == N) leave(5, j * NP);
  if (j == 0) leave(2, k * NP);
  if (j == N) leave(3, k * NP);
  real *const to = place(pairs + 2 * (k * NP + j));
  UNROLLED for (int c = 0; c < 4; c++) {
    const int from = (c & 2 ? 3 : 0) + (c & 1 ? 2 : 1);
    const Pair ends = {v[0][from][0], v[LAST][from][REST - 1]};
    *(Pair *)(to + 2 * c * NP2) = ends;
  }
}
INLINE void part_pairs(const real *pairs, real *traces) {
  UNROLLED for (int end = 0; end < 2; end++)
#pragma omp simd
    for (int n = 0; n < 4 * NP2; n++) traces[end * 4 * NP2 + n] = pairs[2 * n + end];
}

struct Coefficients {
  real dt, rka, rkb;
};

INLINE void pad_rows(const real *matrix, real *rows) {
  for (int m = 0; m < NP; m++)
    for (int i = 0; i < PITCH; i++) rows[m * PITCH + i] = i < NP ? matrix[m * NP + i] : 0;
}

// Has values of a number of components fetched to the second-level cache.
constexpr int LINE = 64 / sizeof(real);
template <int COMPONENTS, int VALUES>
INLINE void announce(const real *p) {
  UNROLLED for (int c = 0; c < COMPONENTS; c++)
    UNROLLED for (int n = 0; n < VALUES; n += LINE) __builtin_prefetch(p + c * NP3 + n, 0, 2);
}
// The same for the traces of an element that is to come: from the begin-th of their values on those
// that it reads, its own and what lies behind its faces, and places of those that it leaves.
template <int VALUES>
INLINE void announce_traces(const real *traces, const real *own, const real *after, const Face *faces, int begin) {
  UNROLLED for (int n = begin; n < begin + VALUES; n += LINE) {
    const int face = n / (4 * NP2);
    __builtin_prefetch(own + n, 0, 2);
    __builtin_prefetch(traces + (long)faces[face].slot * 4 * NP2 + (n - face * 4 * NP2), 0, 2);
    __builtin_prefetch(after + n, 1, 2);
  }
}

template <int R>
INLINE void rows(const Shape &shape, const real *D, const real *DT, const real *v, const real *sums,
                 const real *material, const Coefficients &by, int k, int j, real *increments, real *u,
                 real *traces, real *pairs) {
  Lanes r[R][6][VECTORS] = {};
  curls<R>(D, DT, v, k, j, r);
  UNROLLED for (int n = 0; n < R; n++) {
    real *const ur = place(u + (k * NP + j + n) * NP), *const kr = place(increments + (k * NP + j + n) * NP);
    Lanes after[VECTORS][6];
    UNROLLED for (int b = 0; b < VECTORS; b++) {
      take_faces(sums, k, j + n, b, r[n]);
      Lanes a[9], own[6], last[6] = {};
      shape.tangents(k, j + n, b, a);
      const Lanes by_j = by.dt * shape.by_jacobian(a, k, j + n, b);
      fields_of(ur, b, own);
      if (by.rka != 0) fields_of(kr, b, last);
      UNROLLED for (int field = 0; field < 2; field++)
        UNROLLED for (int c = 0; c < 3; c++) {
          const int at = 3 * field + c;
          const Lanes sum = fused(a[c], r[n][3 * field][b],
                                  fused(a[3 + c], r[n][3 * field + 1][b], a[6 + c] * r[n][3 * field + 2][b]));
          const Lanes step = fused(all_lanes(by.rka), last[at], by_j * material[field] * sum);
          own[at] = fused(all_lanes(by.rkb), step, own[at]);
          store_row(kr + at * NP3, b, step);
          store_row(ur + at * NP3, b, own[at]);
        }
      covariant(a, own, after[b]);
    }
    leave_traces(after, k, j + n, traces, pairs);
  }
}

KERNEL(stage, INOUT(real, fields), INOUT(real, increments), IN(real, geometry), IN(real, materials),
       IN(Face, faces), IN(real, traces_before), OUT(real, traces_after), IN(real, D), IN(real, DT),
       LONG(first), LONG(elements), DOUBLE(dt), DOUBLE(rka), DOUBLE(rkb)) {
  const real by_weight = N * (N + 1) / real(2);
  const Coefficients by = {(real)dt, (real)rka, (real)rkb};
  BLOCKS(number, elements) {
    const long e = first + number;
    SHARED(real, v, NP2 * 6 * PITCH);
    SHARED(real, sums, 6 * 4 * FACE_PITCH);
    SHARED(real, pairs, 2 * 4 * NP2);
    SHARED(real, own_shapes, 3 * FACE_PITCH);
    SHARED(real, turned, NP *PITCH);
    real *ue = fields + e * 6 * NP3, *ke = increments + e * 6 * NP3, *after = traces_after + e * 24 * NP2;
    const real *stored = geometry + number * SHAPE_VALUES, *material = materials + 4 * e;
    const long next = number + 1 < elements ? e + 1 : e;
    pad_rows(DT, turned);
    Shape shape;
    shape.open(stored, D);
    for (int kk = 0; kk < NP; kk++)
      for (int j = 0; j < NP; j++)
        UNROLLED for (int b = 0; b < VECTORS; b++) {
          Lanes a[9], own[6], cov[6];
          shape.tangents(kk, j, b, a);
          fields_of(place(ue + (kk * NP + j) * NP), b, own);
          covariant(a, own, cov);
          UNROLLED for (int c = 0; c < 6; c++) ((Lanes *)(v + ((kk * NP + j) * 6 + c) * PITCH))[b] = cov[c];
        }
    for (int f = 0; f < 6; f++)
      flux(f, faces[6 * e + f], traces_before + (6 * e + f) * 4 * NP2, traces_before,
           face_shapes(f, shape, stored, own_shapes), material, by_weight, sums + 4 * f * FACE_PITCH);
    for (int begin = 0; begin < NP; begin += COLUMNS)
      for (int kk = 0; kk < NP; kk++) {
        const int end = smaller(begin + COLUMNS, NP);
        int j = begin;
        for (; j + ROWS <= end; j += ROWS) {
          if (PREFETCH) {
            const int at = (kk * NP + j) * NP;
            announce<6, ROWS * NP>(place(ue + 6 * NP3 + at));
            announce<6, ROWS * NP>(place(ke + 6 * NP3 + at));
            if (GEOMETRY == 0) announce<10, ROWS * NP>(place(stored + SHAPE_VALUES + at));
            announce_traces<24 * ROWS>(traces_before, traces_before + next * 24 * NP2, traces_after + next * 24 * NP2,
                                       faces + 6 * next, 24 * (kk * NP + j));
          }
          rows<ROWS>(shape, D, turned, v, sums, material, by, kk, j, ke, ue, after, pairs);
        }
        for (; j < end; j++) rows<1>(shape, D, turned, v, sums, material, by, kk, j, ke, ue, after, pairs);
      }
    part_pairs(pairs, after);
  }
}

KERNEL(first_traces, IN(real, fields), IN(real, geometry), OUT(real, traces), ELEMENTS_AND_DERIVATIVES) {
  BLOCKS(number, elements) {
    const long e = first + number;
    const real *const matrix = GEOMETRY ? D : nullptr;
    SHARED(real, pairs, 2 * 4 * NP2);
    real *after = traces + e * 24 * NP2;
    Shape shape;
    shape.open(geometry + number * SHAPE_VALUES, matrix);
    for (int k = 0; k < NP; k++)
      for (int j = 0; j < NP; j++) {
        Lanes v[VECTORS][6];
        UNROLLED for (int b = 0; b < VECTORS; b++) {
          Lanes a[9], own[6];
          shape.tangents(k, j, b, a);
          fields_of(place(fields + e * 6 * NP3 + (k * NP + j) * NP), b, own);
          covariant(a, own, v[b]);
        }
        leave_traces(v, k, j, after, pairs);
      }
    part_pairs(pairs, after);
  }
}
