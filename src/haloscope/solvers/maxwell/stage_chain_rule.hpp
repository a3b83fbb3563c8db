// The stage with the curl by the chain rule, for cores and GPUs: as published for NekCEM, kept for
// comparison. On curved elements it lets energy grow; the covariant curl does not.
//
// J du/dx = sum_d (J dr_d/dx) D_d u, J grad r_1 = a_2 x a_3 and so on (cyclic): nine derivatives of each
// of the two fields. Otten, Gong, Mametjanov and others, Int. J. High Perform. Comput. Appl. 30 (2016)
// 320, Algorithms 2 and 3. Fluxes and traces are those of the covariant curl.

// Rows of NP nodes along the first direction. A thread of a GPU has one node of a row, a core goes
// through all of them: what LANES(i) encloses is done for each, ENDS(i) for the first and the last.
// OWN(name, count) are values of a node that outlive such a loop, OF(name, c) the c-th of node i.
#if ON_GPU
#define ROWS(row)            \
  THREADS(node, NP3)         \
  if (const int row = node / NP; true)
#define LANES(i) if (const int i = node % NP; true)
#define ENDS(i) if (const int i = node % NP; i == 0 || i == N)
#define OWN(name, count) real name[count]
#define OF(name, c) name[c]
#define NODE node
#define STAGE_BOUNDS __launch_bounds__(THREADS_A_BLOCK, BLOCKS_A_PROCESSOR)
#else
#define ROWS(row) for (int row = 0; row < NP2; row++)
#define LANES(i) PRAGMA(omp simd) for (int i = 0; i < NP; i++)
#define ENDS(i) for (int i = 0; i < NP; i += N)
#define OWN(name, count) alignas(64) real name[(count)*NP]
#define OF(name, c) name[(c)*NP + i]
#define NODE 0
#define STAGE_BOUNDS
#endif

// Applies `apply` to the face f, its node (b, a) and node n of the element, for all faces at the
// row.
#define AT_FACES(row, apply)                                     \
  do {                                                          \
    const int row_j = row % NP, row_k = row / NP;               \
    ENDS(i) { apply(i ? 1 : 0, row_k, row_j, row * NP + i); }    \
    if (row_j == 0 || row_j == N)                               \
      LANES(i) { apply(row_j ? 3 : 2, row_k, i, row * NP + i); } \
    if (row_k == 0 || row_k == N)                               \
      LANES(i) { apply(row_k ? 5 : 4, row_j, i, row * NP + i); } \
  } while (0)

// a_d . u at node n; u is one of the fields.
INLINE real along(const real *g, int d, const real *u, int n) {
  return fused(g[3 * d * NP3 + n], u[n],
               fused(g[(3 * d + 1) * NP3 + n], u[NP3 + n], g[(3 * d + 2) * NP3 + n] * u[2 * NP3 + n]));
}

// J times the gradient of reference coordinate d at node n.
struct Gradient {
  real x, y, z;
};
INLINE Gradient gradient(const real *g, int d, int n) {
  const real *a = g + 3 * ((d + 1) % 3) * NP3 + n, *b = g + 3 * ((d + 2) % 3) * NP3 + n;
  return {fused(a[NP3], b[2 * NP3], -(a[2 * NP3] * b[NP3])),
          fused(a[2 * NP3], b[0], -(a[0] * b[2 * NP3])), fused(a[0], b[NP3], -(a[NP3] * b[0]))};
}

// What derivatives along direction d add to the right-hand sides of a row.
template <int d>
INLINE void add_curl(int node, int row, const real *by, const real *v, const real *g, real *r) {
  const int j = row % NP, k = row / NP;
  OWN(D, 6);
  LANES(i) {
    for (int c = 0; c < 6; c++) OF(D, c) = 0;
  }
  for (int m = 0; m < NP; m++)
    LANES(i) {
      const real weight = by[m * NP + (d == 0 ? i : d == 1 ? j : k)];
      const int n = d == 0 ? row * NP + m : d == 1 ? (k * NP + m) * NP + i : (m * NP + j) * NP + i;
      for (int c = 0; c < 6; c++) OF(D, c) = fused(weight, v[c * NP3 + n], OF(D, c));
    }
  LANES(i) {
    const Gradient by_r = gradient(g, d, row * NP + i);
    OF(r, 0) += fused(by_r.y, OF(D, 5), -(by_r.z * OF(D, 4)));
    OF(r, 1) += fused(by_r.z, OF(D, 3), -(by_r.x * OF(D, 5)));
    OF(r, 2) += fused(by_r.x, OF(D, 4), -(by_r.y * OF(D, 3)));
    OF(r, 3) -= fused(by_r.y, OF(D, 2), -(by_r.z * OF(D, 1)));
    OF(r, 4) -= fused(by_r.z, OF(D, 0), -(by_r.x * OF(D, 2)));
    OF(r, 5) -= fused(by_r.x, OF(D, 1), -(by_r.y * OF(D, 0)));
  }
}

INLINE Addition flux_at(int f, int b, int a, int n, const Face &face, const real *traces, const real *g,
                        const real *material, real by_weight, const real *v) {
  const int p = direction_p(f), q = direction_q(f);
  const real *other = traces + (long)face.slot * 4 * NP2 + met(face.turned, b, a);
  const Reading read = reading(face.turned);
  real gpp = 0, gpq = 0, gqq = 0;
  for (int c = 0; UPWIND && c < 3; c++) {
    const real ap = g[(3 * p + c) * NP3 + n], aq = g[(3 * q + c) * NP3 + n];
    gpp = fused(ap, ap, gpp);
    gpq = fused(ap, aq, gpq);
    gqq = fused(aq, aq, gqq);
  }
  const real *E = v, *H = v + 3 * NP3;
  return added(outward(f), by_weight, material, face,
               along(g, p, E, n) - face.electric * read.p * other[read.first * NP2],
               along(g, q, E, n) - face.electric * read.q * other[(1 - read.first) * NP2],
               along(g, p, H, n) - face.magnetic * read.p * other[(2 + read.first) * NP2],
               along(g, q, H, n) - face.magnetic * read.q * other[(3 - read.first) * NP2], gpp, gpq, gqq);
}

INLINE void trace_at(int f, int b, int a, int n, const real *u, const real *g, real *traces) {
  real *out = traces + (long)f * 4 * NP2 + b * NP + a;
  out[0] = along(g, direction_p(f), u, n);
  out[NP2] = along(g, direction_q(f), u, n);
  out[2 * NP2] = along(g, direction_p(f), u + 3 * NP3, n);
  out[3 * NP2] = along(g, direction_q(f), u + 3 * NP3, n);
}

KERNEL_BOUNDS(STAGE_BOUNDS, stage, INOUT(real, fields), INOUT(real, increments), IN(real, geometry),
              IN(real, materials), IN(Face, faces), IN(real, traces_before), OUT(real, traces_after),
              IN(real, D), IN(real, DT), LONG(first), LONG(elements), DOUBLE(dt), DOUBLE(rka),
              DOUBLE(rkb)) {
#if ON_GPU
  DYNAMIC_SHARED(real, shared);
  real *v = shared, *by = shared + 6 * NP3;
  THREADS(n, NP2) by[n] = DT[n];
#else
  const real *by = DT;
#endif
  const real by_weight = N * (N + 1) / real(2);
  BLOCKS(number, elements) {
    const long e = first + number;
#if !ON_GPU
    SHARED(real, v, 6 * NP3);
#endif
    real *ue = fields + e * 6 * NP3, *ke = increments + e * 6 * NP3;
    const real *g = geometry + number * 10 * NP3, *material = materials + 4 * e;
    THREADS(n, 6 * NP3) v[n] = ue[n];
    BARRIER();
    ROWS(row) {
      // Right-hand sides times J, curl H first, then -curl E: Cartesian components, and what faces
      // add, along a_1, a_2, a_3.
      OWN(r, 6);
      OWN(of_faces, 6);
      LANES(i) {
        for (int c = 0; c < 6; c++) OF(r, c) = OF(of_faces, c) = 0;
      }
      add_curl<0>(NODE, row, by, v, g, r);
      add_curl<1>(NODE, row, by, v, g, r);
      add_curl<2>(NODE, row, by, v, g, r);
#define ADD_FLUX(f, b, a, n)                                                                          \
  const Addition sum =                                                                                \
      flux_at(f, b, a, n, faces[6 * e + (f)], traces_before, g, material, by_weight, v);              \
  OF(of_faces, direction_p(f)) += sum.ep;                                                             \
  OF(of_faces, direction_q(f)) += sum.eq;                                                             \
  OF(of_faces, 3 + direction_p(f)) += sum.hp;                                                         \
  OF(of_faces, 3 + direction_q(f)) += sum.hq
      AT_FACES(row, ADD_FLUX);
      LANES(i) {
        const int n = row * NP + i;
        const real by_j = (real)dt * g[9 * NP3 + n];
        for (int c = 0; c < 6; c++) {
          const int half = c / 3, x = c % 3;
          const real sum =
              fused(g[x * NP3 + n], OF(of_faces, 3 * half),
                    fused(g[(3 + x) * NP3 + n], OF(of_faces, 3 * half + 1),
                          fused(g[(6 + x) * NP3 + n], OF(of_faces, 3 * half + 2), OF(r, c))));
          const real step = fused((real)rka, ke[c * NP3 + n], by_j * material[half] * sum);
          ke[c * NP3 + n] = step;
          ue[c * NP3 + n] = fused((real)rkb, step, v[c * NP3 + n]);
        }
      }
      real *after = traces_after + e * 24 * NP2;
#define WRITE_TRACE(f, b, a, n) trace_at(f, b, a, n, ue, g, after)
      AT_FACES(row, WRITE_TRACE);
    }
    BARRIER();
  }
}

KERNEL(first_traces, IN(real, fields), IN(real, geometry), OUT(real, traces), ELEMENTS_AND_DERIVATIVES) {
  BLOCKS(number, elements) {
    const long e = first + number;
    const real *ue = fields + e * 6 * NP3, *g = geometry + number * 10 * NP3;
    real *after = traces + e * 24 * NP2;
    ROWS(row) { AT_FACES(row, WRITE_TRACE); }
  }
}
