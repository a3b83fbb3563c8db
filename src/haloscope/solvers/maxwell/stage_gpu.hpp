// The stage on GPUs: a block of threads an element.

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
    const real *ge = geometry + number * 10 * NP3, *material = materials + 4 * e;
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

KERNEL first_traces(const real *u, const real *geometry, real *traces, long first, long elements) {
  BLOCKS(number, elements) {
    const long e = first + number;
    THREADS(n, NP3) {
      const int i = n % NP, j = n / NP % NP, l = n / NP2;
      real g[10], own[6], cov[6];
      load(geometry + number * 10 * NP3, u + e * 6 * NP3, n, g, own);
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
