// The stage on GPUs: blocks go from element to element, their threads through pairs of nodes. Covariant
// components meet in shared memory; the copy engine brings an element while another is worked on.

#include "gpu_pairs.hpp"

// ---- Right-hand sides: curl H, then -curl E.
#if MATRIX_UNITS && defined(__CUDACC__)
// c += a b of a warp: a has 8 rows of 4, b 8 columns of 4, one value a lane; c 8 rows of 4 pairs.
INLINE void multiply_add(double c[2], double a, double b) {
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
               : "+d"(c[0]), "+d"(c[1])
               : "d"(a), "d"(b));
}
#endif
INLINE void curls_of(const real *tables, const real *v, const Place &at, real r[6][2]) {
#if MATRIX_UNITS
  // This lane's row of D is that of its column along i and of its row along j.
  const int row = threadIdx.x % 32 / 4, column = smaller(row, N);
UNROLLED
  for (int s = 0; s < STEPS; s++) {
    const int m = 4 * s + threadIdx.x % 4, there = smaller(m, N);
    const real d = tables[row * ROW + m];
    const real *line = v + (at.k[0] * NP + at.j) * NP + there;
    const real *across = v + (at.k[0] * NP + there) * NP + column;
    multiply_add(r[1], -line[5 * NP3], d);
    multiply_add(r[2], line[4 * NP3], d);
    multiply_add(r[4], line[2 * NP3], d);
    multiply_add(r[5], -line[NP3], d);
    multiply_add(r[0], d, across[5 * NP3]);
    multiply_add(r[2], d, -across[3 * NP3]);
    multiply_add(r[3], d, -across[2 * NP3]);
    multiply_add(r[5], d, across[0]);
  }
#endif
#if defined(__CUDACC__)
#pragma unroll 4
#endif
  for (int m = 0; m < NP; m++) {
    const int along_k[2] = {(m * NP + at.j) * NP + at.i[0], (m * NP + at.j) * NP + at.i[1]};
    const int along_j[2] = {(at.k[0] * NP + m) * NP + at.i[0], (at.k[1] * NP + m) * NP + at.i[1]};
    const int along_i[2] = {(at.k[0] * NP + at.j) * NP + m, (at.k[1] * NP + at.j) * NP + m};
    real x[2], di[2] = {};
    const real dk[2] = {tables[at.k[0] * ROW + m], tables[at.k[1] * ROW + m]}, dj = tables[at.j * ROW + m];
    if (!MATRIX_UNITS) both(tables + TRANSPOSED + m * NP, at.i, di);
    for (int half = 0; half < 2; half++) {
      const real *of = half ? v : v + 3 * NP3;
      const real sign = half ? -1 : 1;
      real(*to)[2] = r + 3 * half;
      both(of + NP3, along_k, x);
      for (int p = 0; p < 2; p++) to[0][p] = fused(-sign * dk[p], x[p], to[0][p]);
      both(of, along_k, x);
      for (int p = 0; p < 2; p++) to[1][p] = fused(sign * dk[p], x[p], to[1][p]);
      if (MATRIX_UNITS) continue;
      both(of + 2 * NP3, along_j, x);
      for (int p = 0; p < 2; p++) to[0][p] = fused(sign * dj, x[p], to[0][p]);
      both(of, along_j, x);
      for (int p = 0; p < 2; p++) to[2][p] = fused(-sign * dj, x[p], to[2][p]);
      for (int p = 0; p < 2; p++) to[1][p] = fused(-sign * di[p], of[2 * NP3 + along_i[p]], to[1][p]);
      for (int p = 0; p < 2; p++) to[2][p] = fused(sign * di[p], of[NP3 + along_i[p]], to[2][p]);
    }
  }
}

// ---- An element as its pairs see it.
struct Element {
  const real *v;         // covariant components [6][NP^3], in shared memory
  const real *u;         // fields, there too unless they are far
  const real *geometry;  // there too if it is near
  const real *traces;    // what is behind its faces: [6][4][NP^2], or all slots
  const Face *faces;
  const real *material;
  bool gathered;         // traces are those of its own faces
};

INLINE bool is_end(int at) { return at == 0 || at == N; }

// Face at an end of direction d; (b, a): place on it.
INLINE void flux_of(int d, int end, int b, int a, const Face &face, const real *other, const real g[OF_A_NODE],
                    const real *material, const real v[6], real r[6]) {
  const int p = d == 0 ? 1 : 0, q = d == 2 ? 1 : 2;
  const Reading read = reading(face.turned);
  other += met(face.turned, b, a);
  const Addition sum =
      added(outward(2 * d + end), N * (N + 1) / real(2), material, face,
            v[p] - face.electric * read.p * other[read.first * NP2],
            v[q] - face.electric * read.q * other[(1 - read.first) * NP2],
            v[3 + p] - face.magnetic * read.p * other[(2 + read.first) * NP2],
            v[3 + q] - face.magnetic * read.q * other[(3 - read.first) * NP2],
            UPWIND ? product_of(g, p, p) : 0, UPWIND ? product_of(g, p, q) : 0, UPWIND ? product_of(g, q, q) : 0);
  r[p] += sum.ep;
  r[q] += sum.eq;
  r[3 + p] += sum.hp;
  r[3 + q] += sum.hq;
}
INLINE void fluxes_of(const Element &element, const real *tables, const Place &at, const real g[2][OF_A_NODE],
                      real r[6][2]) {
  // Along the pair's own direction one of the two is at an end, and which one is known only here.
  const int apart = STACKED ? 2 : 0, ending = is_end(STACKED ? at.k[0] : at.i[0]) ? 0 : 1;
  const int ends[3] = {at.i[STACKED ? 0 : ending], at.j, at.k[STACKED ? ending : 0]};
  if (!at.inside[0]) return;
UNROLLED
  for (int d = 0; d < 3; d++) {
    if (!is_end(ends[d])) continue;
UNROLLED
    for (int p = 0; p < 2; p++) {
      const bool one = d == apart && N > 1;
      if (one && p == 1) continue;
      const int chosen = one ? ending : p;
      if (!at.inside[chosen]) continue;
      const int end = (d == 0 ? at.i[chosen] : ends[d]) == N, b = d == 2 ? at.j : at.k[chosen];
      const Face &face = element.faces[2 * d + end];
      const real *other = element.traces + (long)(element.gathered ? 2 * d + end : face.slot) * 4 * NP2;
      real v[6], of[OF_A_NODE], sum[6] = {};
      for (int c = 0; c < 6; c++) v[c] = element.v[c * NP3 + at.n[chosen]];
      if (GEOMETRY_IS_NEAR)
        geometry_of_node(element.geometry, tables, at, chosen, of);
      else
        for (int c = 0; c < OF_A_NODE; c++) of[c] = chosen ? g[1][c] : g[0][c];
      flux_of(d, end, b, d == 0 ? at.j : at.i[chosen], face, other, of, element.material, v, sum);
      for (int c = 0; c < 6; c++) {
        if (c % 3 == d) continue;
        r[c][0] += chosen ? 0 : sum[c];
        r[c][1] += chosen ? sum[c] : 0;
      }
    }
  }
}
INLINE void trace_of(int d, int end, int b, int a, const real v[6], real *traces) {
  const int p = d == 0 ? 1 : 0, q = d == 2 ? 1 : 2;
  real *out = traces + (2 * d + end) * 4 * NP2 + b * NP + a;
  out[0] = v[p];
  out[NP2] = v[q];
  out[2 * NP2] = v[3 + p];
  out[3 * NP2] = v[3 + q];
}
INLINE void traces_of(const Place &at, const real g[2][OF_A_NODE], const real u[2][6], real *traces) {
  if (!at.inside[0]) return;
  real v[2][6];
  for (int p = 0; p < 2; p++) covariant_of(g[p], u[p], v[p]);
UNROLLED
  for (int d = 0; d < 3; d++) {
    if (NP % 2 == 0 && d > 0) {
      const int of = d == 1 ? at.j : at.k[0], b = d == 2 ? at.j : at.k[0], q = d == 2 ? 1 : 2;
      if (!is_end(of)) continue;
      Two *out = reinterpret_cast<Two *>(traces + (2 * d + (of == N)) * 4 * NP2 + b * NP + at.i[0]);
      out[0] = {v[0][0], v[1][0]};
      out[NP2 / 2] = {v[0][q], v[1][q]};
      out[NP2] = {v[0][3], v[1][3]};
      out[3 * NP2 / 2] = {v[0][3 + q], v[1][3 + q]};
      continue;
    }
UNROLLED
    for (int p = 0; p < 2; p++) {
      const int of = d == 0 ? at.i[p] : d == 1 ? at.j : at.k[p];
      if (!at.inside[p] || !is_end(of)) continue;
      trace_of(d, of == N, d == 2 ? at.j : at.k[p], d == 0 ? at.j : at.i[p], v[p], traces);
    }
  }
}

// A pair's part of the stage; `ue`, `ke` and `traces` are the element's in the GPU's memory.
template <bool LAST>
INLINE void step_pair(const Element &element, const real *tables, const Place &at, real g[2][OF_A_NODE], real dt,
                      real rka, real rkb, real *ue, real *ke, real *traces) {
  real r[6][2], before[2][6], u[2][6];
  for (int c = 0; c < 6; c++) r[c][0] = r[c][1] = before[0][c] = before[1][c] = 0;
  fluxes_of(element, tables, at, g, r);
  if (rka != 0) components_of<6>(ke, at, true, 6, before);  // the first stage has no increments yet
  if (FIELDS_ARE_FAR) components_of<6>(ue, at, true, 6, u);
  curls_of(tables, element.v, at, r);
  if (GEOMETRY_IS_NEAR) geometry_of_pair(element.geometry, tables, at, false, OF_A_NODE, g);
  if (!FIELDS_ARE_FAR) components_of<6>(element.u, at, false, 6, u);
UNROLLED
  for (int half = 0; half < 2; half++) {
    const real by = dt * element.material[half];
UNROLLED
    for (int p = 0; p < 2; p++) {
      const real of[3] = {r[3 * half][p], r[3 * half + 1][p], r[3 * half + 2][p]};
      real rate[3];
      rates_of(g[p], of, rate);
UNROLLED
      for (int c = 3 * half; c < 3 * half + 3; c++) {
        before[p][c] = fused(rka, before[p][c], by * rate[c - 3 * half]);
        u[p][c] = fused(rkb, before[p][c], u[p][c]);
      }
    }
  }
  for (int c = 0; c < 6; c++) {
    const real step[2] = {before[0][c], before[1][c]}, after[2] = {u[0][c], u[1][c]};
    if (!LAST) put_both(ke + c * NP3, at, step);
    put_both(ue + c * NP3, at, after);
  }
  traces_of(at, g, u, traces);
}

// Covariant components of fields.
INLINE void transform(const real *geometry, const real *tables, const real *u, bool near_u, real *v) {
  THREADS(q, PAIRS) {
    const Place at = place_of(q);
    real g[2][OF_A_NODE], own[2][6], cov[2][6];
    geometry_of_pair(geometry, tables, at, !GEOMETRY_IS_NEAR, 9, g);  // all but 1/J
    components_of<6>(u, at, !near_u, 6, own);
    for (int p = 0; p < 2; p++) covariant_of(g[p], own[p], cov[p]);
    for (int c = 0; c < 6; c++) {
      const real two[2] = {cov[0][c], cov[1][c]};
      put_both(v + c * NP3, at, two);
    }
  }
}

#if __CUDA_ARCH__ >= 900 && BUFFERS > 0
// Where the copy engine lays an element down.
#define AT_GEOMETRY (6 * NP3)
#define AT_TRACES (AT_GEOMETRY + (NEAR ? OF_AN_ELEMENT : 0))
#define AT_MATERIAL (AT_TRACES + (BEHIND ? 24 * NP2 : 0))
#define AT_FACES (AT_MATERIAL + 4)
#define OF_A_BUFFER (AT_FACES + 6 * sizeof(Face) / sizeof(real))

// Six threads let it bring an element: number `number` of a launch from `first` on.
INLINE void fetch(real *buffer, Gate *gate, long first, long number, const real *u, const real *geometry,
                  const real *materials, const Face *faces, const real *traces) {
  const int f = threadIdx.x;
  const long e = first + number;
  if (f >= 6) return;
  if (f == 0) {
    gate_expect(gate, OF_A_BUFFER * sizeof(real));
    copy_row(buffer, u + e * 6 * NP3, 6 * NP3 * sizeof(real), gate);
    if (NEAR) copy_row(buffer + AT_GEOMETRY, geometry + number * OF_AN_ELEMENT, OF_AN_ELEMENT * sizeof(real), gate);
    copy_row(buffer + AT_MATERIAL, materials + 4 * e, 4 * sizeof(real), gate);
    copy_row(buffer + AT_FACES, faces + 6 * e, 6 * sizeof(Face), gate);
  }
  if (BEHIND)
    copy_row(buffer + AT_TRACES + f * 4 * NP2, traces + (long)faces[6 * e + f].slot * 4 * NP2,
             4 * NP2 * sizeof(real), gate);
}
// What this thread wrote to shared memory is there before the copy engine writes over it.
INLINE void copies_may_follow() {
#if defined(__CUDACC__)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

template <bool LAST>
INLINE void with_copy_engine(real *shared, real *u, real *k, const real *geometry, const real *materials,
                             const Face *faces, const real *traces_before, real *traces_after, const real *D,
                             long first, long elements, real dt, real rka, real rkb) {
  Gate *gates = reinterpret_cast<Gate *>(shared);
  real *buffers = shared + 16 / sizeof(real), *tables = buffers + BUFFERS * OF_A_BUFFER;
  if (threadIdx.x == 0)
    for (int b = 0; b < BUFFERS; b++) gate_open(gates + b);
  fill_tables(D, tables);
  gates_ready();
  const auto bring = [&](long number, int buffer) {
    if (number < elements)
      fetch(buffers + buffer * OF_A_BUFFER, gates + buffer, first, number, u, geometry, materials, faces,
            traces_before);
  };
  bring(blockIdx.x, 0);
  int turn = 0;
  BLOCKS(number, elements) {
    const int buffer = turn % BUFFERS;
    const unsigned parity = turn / BUFFERS % 2;
    real *here = buffers + buffer * OF_A_BUFFER, *v = IN_PLACE ? here : tables + TABLES;
    const long e = first + number;
    real *ue = u + e * 6 * NP3, *ke = k + e * 6 * NP3;
    const real *ge = NEAR ? here + AT_GEOMETRY : geometry + number * OF_AN_ELEMENT;
    const Element element = {v, here, ge, BEHIND ? here + AT_TRACES : traces_before,
                             reinterpret_cast<const Face *>(here + AT_FACES), here + AT_MATERIAL, BEHIND > 0};
    turn++;
    if (BUFFERS == 2) bring(number + gridDim.x, turn % BUFFERS);
    gate_wait(gates + buffer, parity);
    transform(ge, tables, here, true, v);
    BARRIER();
    THREADS(q, PAIRS) {
      const Place at = place_of(q);
      real g[2][OF_A_NODE];
      if (!NEAR) geometry_of_pair(ge, tables, at, true, OF_A_NODE, g);
      step_pair<LAST>(element, tables, at, g, dt, rka, rkb, ue, ke, traces_after + e * 24 * NP2);
    }
    if (IN_PLACE) copies_may_follow();
    BARRIER();
    if (BUFFERS == 1) bring(number + gridDim.x, 0);
  }
}
#endif

template <bool LAST>
INLINE void stage_of(real *shared, real *u, real *k, const real *geometry, const real *materials,
                     const Face *faces, const real *traces_before, real *traces_after, const real *D, long first,
                     long elements, real dt, real rka, real rkb) {
#if __CUDA_ARCH__ >= 900 && BUFFERS > 0
  if (WITH_COPY_ENGINE) {
    with_copy_engine<LAST>(shared, u, k, geometry, materials, faces, traces_before, traces_after, D, first,
                           elements, dt, rka, rkb);
    return;
  }
#endif
  real *v = shared, *tables = shared + 6 * NP3;
  fill_tables(D, tables);
  BARRIER();
  BLOCKS(number, elements) {
    const long e = first + number;
    const real *ge = geometry + number * OF_AN_ELEMENT;
    real *ue = u + e * 6 * NP3, *ke = k + e * 6 * NP3;
    const Element element = {v, v, ge, traces_before, faces + 6 * e, materials + 4 * e, false};
    transform(ge, tables, ue, false, v);
    BARRIER();
    THREADS(q, PAIRS) {
      const Place at = place_of(q);
      real g[2][OF_A_NODE];
      geometry_of_pair(ge, tables, at, true, OF_A_NODE, g);
      step_pair<LAST>(element, tables, at, g, dt, rka, rkb, ue, ke, traces_after + e * 24 * NP2);
    }
    BARRIER();
  }
}

#define STAGE_BOUNDS __launch_bounds__(THREADS_A_BLOCK, BLOCKS_A_PROCESSOR)
KERNEL_BOUNDS(STAGE_BOUNDS, stage, INOUT(real, fields), INOUT(real, increments), IN(real, geometry),
              IN(real, materials), IN(Face, faces), IN(real, traces_before), OUT(real, traces_after),
              IN(real, D), IN(real, DT), LONG(first), LONG(elements), DOUBLE(dt), DOUBLE(rka),
              DOUBLE(rkb)) {
  DYNAMIC_SHARED(real, shared);
  stage_of<false>(shared, fields, increments, geometry, materials, faces, traces_before, traces_after, D,
                  first, elements, (real)dt, (real)rka, (real)rkb);
}
// The last stage of a step: nobody reads its increments, and they are not written.
KERNEL_BOUNDS(STAGE_BOUNDS, last_stage, INOUT(real, fields), IN(real, increments), IN(real, geometry),
              IN(real, materials), IN(Face, faces), IN(real, traces_before), OUT(real, traces_after),
              IN(real, D), IN(real, DT), LONG(first), LONG(elements), DOUBLE(dt), DOUBLE(rka),
              DOUBLE(rkb)) {
  DYNAMIC_SHARED(real, shared);
  stage_of<true>(shared, fields, const_cast<real *>(increments), geometry, materials, faces, traces_before,
                 traces_after, D, first, elements, (real)dt, (real)rka, (real)rkb);
}

KERNEL(first_traces, IN(real, fields), IN(real, geometry), OUT(real, traces), ELEMENTS_AND_DERIVATIVES) {
  BLOCKS(number, elements) {
    const long e = first + number;
    const real *ge = geometry + number * OF_AN_ELEMENT;
    THREADS(n, NP3) {
      const int i = n % NP, j = n / NP % NP, k = n / NP2, ends[3] = {i, j, k};
      real g[OF_A_NODE] = {}, own[6], v[6];
      for (int c = 0; c < 6; c++) own[c] = fields[(e * 6 + c) * NP3 + n];
#if GEOMETRY == 2
      from_corners(ge, distance(D, i), distance(D, j), distance(D, k), g);
#else
      for (int c = 0; c < 9; c++) g[c] = ge[c * NP3 + n];
#endif
      covariant_of(g, own, v);
      for (int d = 0; d < 3; d++)
        if (is_end(ends[d])) trace_of(d, ends[d] == N, d == 2 ? j : k, d == 0 ? j : i, v, traces + e * 24 * NP2);
    }
  }
}
