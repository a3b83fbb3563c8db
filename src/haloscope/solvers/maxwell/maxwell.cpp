// One Runge-Kutta stage of Maxwell's equations on curved hexahedra: covariant curl, upwind or central
// flux, lift, update, and the traces that the next stage's neighbours read, in one pass.
//
// In an element with coordinates x(r, s, t): a_1, a_2, a_3 are the derivatives of x along r, s, t,
// J = a_1 . (a_2 x a_3), covariant components u_k = a_k . u. Then
//   curl u = (1/J) sum_i a_i (D_j u_k - D_k u_j),  (i, j, k) cyclic,
// and a face whose own two directions are p and q has the area vector S = s a_p x a_q, s = +-1, so that
//   S x v = s (a_q v_p - a_p v_q),
//   S x (S x v) / |S| = (a_q (g_pq v_p - g_pp v_q) + a_p (g_pq v_q - g_qq v_p)) / |S|,  g = a . a:
// all that a face adds has components along a_p and a_q alone, and needs the neighbour's tangential
// covariant components only. Numbers of faces, their directions and orientations are those of
// domain/hexes.py. Fluxes: Hesthaven and Warburton, J. Comput. Phys. 181 (2002) 186;
// weights at the ends of an edge: 2 / (N (N + 1)).
//
// Constants: real, N (order), UPWIND (1 or 0), on GPUs THREADS_A_BLOCK and BLOCKS_A_PROCESSOR.
// Arrays, an element after the other: fields and increments [6][NP^3] (Ex, Ey, Ez, Hx, Hy, Hz),
// geometry [10][NP^3] (a_1, a_2, a_3, 1/J), material [4] (1/eps, 1/mu, Z, Y),
// traces [face][4][NP^2]: E along the face's first and second direction, then H.

#define NP (N + 1)
#define NP2 (NP * NP)
#define NP3 (NP * NP * NP)

// How a face meets what is behind it.
struct Face {
  int slot;            // face whose trace is read: the neighbour's, or its own at a boundary
  int turned;          // orientation: 4 directions exchanged, then 1 and 2: each reversed
  real electric;       // factors of the trace: 1 between elements; at a boundary -1 and 1 for a
  real magnetic;       // perfect electric conductor, 1 and -1 for a magnetic one, 0 and 0 to absorb
  real impedance;      // Z behind it
  real admittance;     // Y behind it
};

// What the jumps of tangential components across a face add, in components along a_p and a_q.
struct Lifted {
  real p, q;
};
INLINE Lifted across(real side, real jump_p, real jump_q) {
  return {-side * jump_q, side * jump_p};
}
INLINE Lifted twice_across(real gpp, real gpq, real gqq, real jump_p, real jump_q) {
  const real by_area = 1 / square_root(gpp * gqq - gpq * gpq);
  return {by_area * (gpq * jump_q - gqq * jump_p), by_area * (gpq * jump_p - gpp * jump_q)};
}

// What a face adds to the right-hand sides of its node, along a_p and a_q: electric, magnetic.
struct Addition {
  real ep, eq, hp, hq;
};
INLINE Addition added(real side, real by_weight, const real *material, const Face &face, real Ep, real Eq,
                      real Hp, real Hq, real gpp, real gpq, real gqq) {
  const real e = -by_weight / (material[2] + face.impedance);
  const real h = by_weight / (material[3] + face.admittance);
  const Lifted over_e = across(side, Ep, Eq), over_h = across(side, Hp, Hq);
  Addition sum = {face.impedance * over_h.p, face.impedance * over_h.q, face.admittance * over_e.p,
                  face.admittance * over_e.q};
  if (UPWIND) {
    const Lifted twice_e = twice_across(gpp, gpq, gqq, Ep, Eq);
    const Lifted twice_h = twice_across(gpp, gpq, gqq, Hp, Hq);
    sum.ep -= twice_e.p;
    sum.eq -= twice_e.q;
    sum.hp += twice_h.p;
    sum.hq += twice_h.q;
  }
  return {e * sum.ep, e * sum.eq, h * sum.hp, h * sum.hq};
}

// How the neighbour's trace is read: which of its components goes with p, and with what signs.
struct Reading {
  int first;
  real p, q;
};
INLINE Reading reading(int turned) {
  const int first = turned & 4 ? 1 : 0;
  return {first, real(turned & (first ? 2 : 1) ? -1 : 1), real(turned & (first ? 1 : 2) ? -1 : 1)};
}

// Place in the neighbour's trace of the node that meets this face's node (b, a).
INLINE int met(int turned, int b, int a) {
  int p = turned & 4 ? b : a, q = turned & 4 ? a : b;
  if (turned & 1) p = N - p;
  if (turned & 2) q = N - q;
  return q * NP + p;
}

// Of face f: its directions, whether S points along a_p x a_q, the node at (b, a).
INLINE int direction_p(int f) { return f < 2 ? 1 : 0; }
INLINE int direction_q(int f) { return f < 4 ? 2 : 1; }
INLINE int outward(int f) { return (f & 1) == (f / 2 != 1) ? 1 : -1; }
INLINE int node_of(int f, int b, int a) {
  const int end = f & 1 ? N : 0;
  return f < 2 ? (b * NP + a) * NP + end : f < 4 ? (b * NP + end) * NP + a : (end * NP + b) * NP + a;
}

#if !ON_GPU

INLINE void covariant(const real *u, const real *g, real *v) {
#pragma omp simd
  for (int n = 0; n < NP3; n++)
    for (int d = 0; d < 3; d++) {
      const real x = g[(3 * d) * NP3 + n], y = g[(3 * d + 1) * NP3 + n], z = g[(3 * d + 2) * NP3 + n];
      v[d * NP3 + n] = fused(x, u[n], fused(y, u[NP3 + n], z * u[2 * NP3 + n]));
      v[(3 + d) * NP3 + n] = fused(x, u[3 * NP3 + n], fused(y, u[4 * NP3 + n], z * u[5 * NP3 + n]));
    }
}

// r = curl of v in components along a_1, a_2, a_3, times J; turned round for the electric field, so
// that r holds the right-hand sides: curl H first, then -curl E.
INLINE void curls(const real *D, const real *DT, const real *v, real *r) {
  const real *E = v, *H = v + 3 * NP3;
  real *rE = r, *rH = r + 3 * NP3;
  for (int row = 0; row < NP2; row++) {
    real e1[NP] = {}, e2[NP] = {}, h1[NP] = {}, h2[NP] = {};
    for (int m = 0; m < NP; m++) {
      const real a = E[NP3 + row * NP + m], b = E[2 * NP3 + row * NP + m];
      const real c = H[NP3 + row * NP + m], d = H[2 * NP3 + row * NP + m];
#pragma omp simd
      for (int i = 0; i < NP; i++) {
        e1[i] = fused(DT[m * NP + i], a, e1[i]);
        e2[i] = fused(DT[m * NP + i], b, e2[i]);
        h1[i] = fused(DT[m * NP + i], c, h1[i]);
        h2[i] = fused(DT[m * NP + i], d, h2[i]);
      }
    }
#pragma omp simd
    for (int i = 0; i < NP; i++) {
      rE[NP3 + row * NP + i] = -h2[i];
      rE[2 * NP3 + row * NP + i] = h1[i];
      rH[NP3 + row * NP + i] = e2[i];
      rH[2 * NP3 + row * NP + i] = -e1[i];
    }
  }
  for (int k = 0; k < NP; k++)
    for (int j = 0; j < NP; j++) {
      real e0[NP] = {}, e2[NP] = {}, h0[NP] = {}, h2[NP] = {};
      for (int m = 0; m < NP; m++) {
        const real d = D[j * NP + m];
        const int at = (k * NP + m) * NP;
#pragma omp simd
        for (int i = 0; i < NP; i++) {
          e0[i] = fused(d, E[at + i], e0[i]);
          e2[i] = fused(d, E[2 * NP3 + at + i], e2[i]);
          h0[i] = fused(d, H[at + i], h0[i]);
          h2[i] = fused(d, H[2 * NP3 + at + i], h2[i]);
        }
      }
      const int at = (k * NP + j) * NP;
#pragma omp simd
      for (int i = 0; i < NP; i++) {
        rE[at + i] = h2[i];
        rE[2 * NP3 + at + i] -= h0[i];
        rH[at + i] = -e2[i];
        rH[2 * NP3 + at + i] += e0[i];
      }
    }
  for (int k = 0; k < NP; k++)
    for (int j = 0; j < NP; j++) {
      real e0[NP] = {}, e1[NP] = {}, h0[NP] = {}, h1[NP] = {};
      for (int m = 0; m < NP; m++) {
        const real d = D[k * NP + m];
        const int at = (m * NP + j) * NP;
#pragma omp simd
        for (int i = 0; i < NP; i++) {
          e0[i] = fused(d, E[at + i], e0[i]);
          e1[i] = fused(d, E[NP3 + at + i], e1[i]);
          h0[i] = fused(d, H[at + i], h0[i]);
          h1[i] = fused(d, H[NP3 + at + i], h1[i]);
        }
      }
      const int at = (k * NP + j) * NP;
#pragma omp simd
      for (int i = 0; i < NP; i++) {
        rE[at + i] -= h1[i];
        rE[NP3 + at + i] += h0[i];
        rH[at + i] += e1[i];
        rH[NP3 + at + i] -= e0[i];
      }
    }
}

// Adds the flux through face f to the right-hand sides.
INLINE void flux(int f, const Face &face, const real *traces, const real *g, const real *material,
                 real by_weight, const real *v, real *r) {
  const int p = direction_p(f), q = direction_q(f);
  const real side = outward(f);
  const real *other = traces + (long)face.slot * 4 * NP2;
  const Reading read = reading(face.turned);
  const real of_ep = face.electric * read.p, of_eq = face.electric * read.q;
  const real of_hp = face.magnetic * read.p, of_hq = face.magnetic * read.q;
  for (int b = 0; b < NP; b++)
#pragma omp simd
    for (int a = 0; a < NP; a++) {
      const int n = node_of(f, b, a), there = met(face.turned, b, a);
      real gpp = 0, gpq = 0, gqq = 0;
      for (int c = 0; UPWIND && c < 3; c++) {
        const real ap = g[(3 * p + c) * NP3 + n], aq = g[(3 * q + c) * NP3 + n];
        gpp = fused(ap, ap, gpp);
        gpq = fused(ap, aq, gpq);
        gqq = fused(aq, aq, gqq);
      }
      const Addition sum = added(side, by_weight, material, face,
                                 v[p * NP3 + n] - of_ep * other[read.first * NP2 + there],
                                 v[q * NP3 + n] - of_eq * other[(1 - read.first) * NP2 + there],
                                 v[(3 + p) * NP3 + n] - of_hp * other[(2 + read.first) * NP2 + there],
                                 v[(3 + q) * NP3 + n] - of_hq * other[(3 - read.first) * NP2 + there],
                                 gpp, gpq, gqq);
      r[p * NP3 + n] += sum.ep;
      r[q * NP3 + n] += sum.eq;
      r[(3 + p) * NP3 + n] += sum.hp;
      r[(3 + q) * NP3 + n] += sum.hq;
    }
}

INLINE void update(const real *r, const real *g, const real *material, real dt, real rka, real rkb,
                   real *k, real *u) {
#pragma omp simd
  for (int n = 0; n < NP3; n++) {
    const real by_j = dt * g[9 * NP3 + n];
    for (int field = 0; field < 2; field++)
      for (int c = 0; c < 3; c++) {
        const int at = (3 * field + c) * NP3 + n;
        const real *of = r + 3 * field * NP3 + n;
        const real sum = fused(g[c * NP3 + n], of[0],
                               fused(g[(3 + c) * NP3 + n], of[NP3], g[(6 + c) * NP3 + n] * of[2 * NP3]));
        const real step = fused(rka, k[at], by_j * material[field] * sum);
        k[at] = step;
        u[at] = fused(rkb, step, u[at]);
      }
  }
}

INLINE void trace(int f, const real *u, const real *g, real *out) {
  const int p = direction_p(f), q = direction_q(f);
  for (int b = 0; b < NP; b++)
#pragma omp simd
    for (int a = 0; a < NP; a++) {
      const int n = node_of(f, b, a);
      for (int field = 0; field < 2; field++) {
        const real x = u[(3 * field) * NP3 + n], y = u[(3 * field + 1) * NP3 + n], z = u[(3 * field + 2) * NP3 + n];
        out[2 * field * NP2 + b * NP + a] =
            fused(g[3 * p * NP3 + n], x, fused(g[(3 * p + 1) * NP3 + n], y, g[(3 * p + 2) * NP3 + n] * z));
        out[(2 * field + 1) * NP2 + b * NP + a] =
            fused(g[3 * q * NP3 + n], x, fused(g[(3 * q + 1) * NP3 + n], y, g[(3 * q + 2) * NP3 + n] * z));
      }
    }
}

KERNEL stage(real *u, real *k, const real *geometry, const real *materials, const Face *faces,
             const real *traces_before, real *traces_after, const real *D, const real *DT, long first,
             long elements, double dt, double rka, double rkb) {
  const real by_weight = N * (N + 1) / real(2);
  BLOCKS(number, elements) {
    const long e = first + number;
    SHARED(real, v, 6 * NP3);
    SHARED(real, r, 6 * NP3);
    real *ue = u + e * 6 * NP3;
    const real *g = geometry + e * 10 * NP3, *material = materials + 4 * e;
    covariant(ue, g, v);
    curls(D, DT, v, r);
    for (int f = 0; f < 6; f++) flux(f, faces[6 * e + f], traces_before, g, material, by_weight, v, r);
    update(r, g, material, (real)dt, (real)rka, (real)rkb, k + e * 6 * NP3, ue);
    for (int f = 0; f < 6; f++) trace(f, ue, g, traces_after + (6 * e + f) * 4 * NP2);
  }
}

KERNEL first_traces(const real *u, const real *geometry, real *traces, long elements) {
  BLOCKS(e, elements) {
    for (int f = 0; f < 6; f++)
      trace(f, u + e * 6 * NP3, geometry + e * 10 * NP3, traces + (6 * e + f) * 4 * NP2);
  }
}

#else

// One block an element, one thread a node where that many threads fit: covariant components meet in
// shared memory, all else of a node stays in registers.
INLINE void covariant_of(const real g[9], const real u[6], real v[6]) {
  for (int d = 0; d < 3; d++) {
    v[d] = fused(g[3 * d], u[0], fused(g[3 * d + 1], u[1], g[3 * d + 2] * u[2]));
    v[3 + d] = fused(g[3 * d], u[3], fused(g[3 * d + 1], u[4], g[3 * d + 2] * u[5]));
  }
}

INLINE void load(const real *geometry, const real *fields, int n, real g[10], real u[6]) {
  for (int c = 0; c < 10; c++) g[c] = geometry[c * NP3 + n];
  for (int c = 0; c < 6; c++) u[c] = fields[c * NP3 + n];
}

INLINE void curls_of(const real *D, const real *v, int i, int j, int k, real r[6]) {
  for (int c = 0; c < 6; c++) r[c] = 0;
  for (int m = 0; m < NP; m++) {
    const real di = D[i * NP + m], dj = D[j * NP + m], dk = D[k * NP + m];
    const real *along_i = v + (k * NP + j) * NP + m, *along_j = v + (k * NP + m) * NP + i;
    const real *along_k = v + (m * NP + j) * NP + i;
    // Right-hand sides: curl H, then -curl E.
    for (int half = 0; half < 2; half++) {
      const int from = half ? 0 : 3;
      const real sign = half ? -1 : 1;
      real *to = r + 3 * half;
      to[1] = fused(-sign * di, along_i[(from + 2) * NP3], to[1]);
      to[2] = fused(sign * di, along_i[(from + 1) * NP3], to[2]);
      to[0] = fused(sign * dj, along_j[(from + 2) * NP3], to[0]);
      to[2] = fused(-sign * dj, along_j[from * NP3], to[2]);
      to[0] = fused(-sign * dk, along_k[(from + 1) * NP3], to[0]);
      to[1] = fused(sign * dk, along_k[from * NP3], to[1]);
    }
  }
}

INLINE void flux_of(int f, int b, int a, const Face &face, const real *traces, const real g[10],
                    const real *material, real by_weight, const real v[6], real r[6]) {
  const int p = direction_p(f), q = direction_q(f);
  const real *other = traces + (long)face.slot * 4 * NP2 + met(face.turned, b, a);
  const Reading read = reading(face.turned);
  real gpp = 0, gpq = 0, gqq = 0;
  for (int c = 0; UPWIND && c < 3; c++) {
    gpp = fused(g[3 * p + c], g[3 * p + c], gpp);
    gpq = fused(g[3 * p + c], g[3 * q + c], gpq);
    gqq = fused(g[3 * q + c], g[3 * q + c], gqq);
  }
  const Addition sum =
      added(outward(f), by_weight, material, face,
            v[p] - face.electric * read.p * other[read.first * NP2],
            v[q] - face.electric * read.q * other[(1 - read.first) * NP2],
            v[3 + p] - face.magnetic * read.p * other[(2 + read.first) * NP2],
            v[3 + q] - face.magnetic * read.q * other[(3 - read.first) * NP2], gpp, gpq, gqq);
  r[p] += sum.ep;
  r[q] += sum.eq;
  r[3 + p] += sum.hp;
  r[3 + q] += sum.hq;
}

INLINE void trace_of(int f, int b, int a, const real v[6], real *traces) {
  real *out = traces + (long)f * 4 * NP2 + b * NP + a;
  out[0] = v[direction_p(f)];
  out[NP2] = v[direction_q(f)];
  out[2 * NP2] = v[3 + direction_p(f)];
  out[3 * NP2] = v[3 + direction_q(f)];
}

extern "C" __global__ void __launch_bounds__(THREADS_A_BLOCK, BLOCKS_A_PROCESSOR)
stage(real *u, real *k, const real *geometry, const real *materials, const Face *faces,
      const real *traces_before, real *traces_after, const real *D, const real *, long first,
      long elements, double dt, double rka, double rkb) {
  DYNAMIC_SHARED(real, shared);
  real *v = shared, *derivative = shared + 6 * NP3;
  const real by_weight = N * (N + 1) / real(2);
  THREADS(n, NP2) derivative[n] = D[n];
  BLOCKS(number, elements) {
    const long e = first + number;
    real *ue = u + e * 6 * NP3, *ke = k + e * 6 * NP3;
    const real *ge = geometry + e * 10 * NP3, *material = materials + 4 * e;
    THREADS(n, NP3) {
      real g[10], own[6], cov[6];
      load(ge, ue, n, g, own);
      covariant_of(g, own, cov);
      for (int c = 0; c < 6; c++) v[c * NP3 + n] = cov[c];
    }
    BARRIER();
    THREADS(n, NP3) {
      const int i = n % NP, j = n / NP % NP, l = n / NP2;
      real g[10], own[6], cov[6], r[6];
      load(ge, ue, n, g, own);
      for (int c = 0; c < 6; c++) cov[c] = v[c * NP3 + n];
      curls_of(derivative, v, i, j, l, r);
      const int ends[3] = {i, j, l};
      for (int d = 0; d < 3; d++) {
        if (ends[d] != 0 && ends[d] != N) continue;
        const int f = 2 * d + (ends[d] == N), a = d == 0 ? j : i, b = d == 2 ? j : l;
        flux_of(f, b, a, faces[6 * e + f], traces_before, g, material, by_weight, cov, r);
      }
      const real by_j = (real)dt * g[9];
      for (int half = 0; half < 2; half++)
        for (int c = 0; c < 3; c++) {
          const real *of = r + 3 * half;
          const real sum = fused(g[c], of[0], fused(g[3 + c], of[1], g[6 + c] * of[2]));
          real *at = ke + (3 * half + c) * NP3 + n;
          const real step = fused((real)rka, *at, by_j * material[half] * sum);
          *at = step;
          own[3 * half + c] = fused((real)rkb, step, own[3 * half + c]);
          ue[(3 * half + c) * NP3 + n] = own[3 * half + c];
        }
      covariant_of(g, own, cov);
      for (int d = 0; d < 3; d++) {
        if (ends[d] != 0 && ends[d] != N) continue;
        const int f = 2 * d + (ends[d] == N), a = d == 0 ? j : i, b = d == 2 ? j : l;
        trace_of(f, b, a, cov, traces_after + e * 24 * NP2);
      }
    }
    BARRIER();
  }
}

KERNEL first_traces(const real *u, const real *geometry, real *traces, long elements) {
  BLOCKS(e, elements) {
    THREADS(n, NP3) {
      const int i = n % NP, j = n / NP % NP, l = n / NP2;
      real g[10], own[6], cov[6];
      load(geometry + e * 10 * NP3, u + e * 6 * NP3, n, g, own);
      covariant_of(g, own, cov);
      const int ends[3] = {i, j, l};
      for (int d = 0; d < 3; d++) {
        if (ends[d] != 0 && ends[d] != N) continue;
        const int f = 2 * d + (ends[d] == N), a = d == 0 ? j : i, b = d == 2 ? j : l;
        trace_of(f, b, a, cov, traces + e * 24 * NP2);
      }
    }
  }
}

#endif
