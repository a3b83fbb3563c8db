// The stage on cores: an element at a time, each loop over its nodes a vector loop.

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
    const real *g = geometry + number * 10 * NP3, *material = materials + 4 * e;
    covariant(ue, g, v);
    curls(D, DT, v, r);
    for (int f = 0; f < 6; f++) flux(f, faces[6 * e + f], traces_before, g, material, by_weight, v, r);
    update(r, g, material, (real)dt, (real)rka, (real)rkb, k + e * 6 * NP3, ue);
    for (int f = 0; f < 6; f++) trace(f, ue, g, traces_after + (6 * e + f) * 4 * NP2);
  }
}

KERNEL first_traces(const real *u, const real *geometry, real *traces, long first, long elements) {
  BLOCKS(number, elements) {
    const long e = first + number;
    for (int f = 0; f < 6; f++)
      trace(f, u + e * 6 * NP3, geometry + number * 10 * NP3, traces + (6 * e + f) * 4 * NP2);
  }
}
