// Forces, energies and shapes of membranes: of cells whose elements are the same for all of a kind.
//
//   positions, velocities, forces   component d of vertex v of cell c at (d * capacity + c) * V + v
//   elements     vertex k of element e at k * E + e; first the triangle's corners a, b, c, then the
//                vertices beyond its edges ab, bc and ca
//   weights      of regular and irregular Loop elements, [2][12][5]: of the derivatives by v, w, vv, ww, vw
//   reference    [7][E]: A11, A12, A22, idet, w, A and Q of Rest
//   curvature    c0 of Loop elements or, where elements are linear, of vertices
//   counts       wedges of each vertex
//   wedges       wedge i of vertex v at i * V + v, in the ascending order of elements
//   rows         numbers of cells; those from span[0] up to span[1] are worked on
//   natural      of viscous membranes: component d (11, 12, 22) of the natural metric of element e of
//                cell c at (d * capacity + c) * V + e in the first array, where e < V, and + e - V in the
//                second: as positions are kept
//
// A vertex adds the contributions of its elements in ascending order; a cell's volume and area are
// added in PARTS_OF_A_CELL parts and these in pairs: on cores and on GPUs alike.

// LOOP: elements are those of subdivision surfaces, else flat triangles; VISCOUS: the membrane is viscous.
CONSTANTS(INT(LOOP), INT(VISCOUS))

#define PARTS_OF_A_CELL 128

#include "double_lanes.hpp"
#include "membrane.hpp"
#include "membrane_folds.hpp"

INLINE Rest rest_of(const double *reference, const double *curvature, long E, long e) {
  return {reference[e],         reference[E + e],     reference[2 * E + e], reference[3 * E + e],
          reference[4 * E + e], reference[5 * E + e], reference[6 * E + e], LOOP ? curvature[e] : 0.0};
}

// One cell's positions, relative to its first vertex: nothing is lost far from the origin.
struct OneCell {
  const double *x, *y, *z;
  Vec<double> origin;
};
INLINE Vec<double> at(OneCell cell, long v) {
  return {cell.x[v] - cell.origin.x, cell.y[v] - cell.origin.y, cell.z[v] - cell.origin.z};
}
INLINE OneCell cell_of(const double *positions, long capacity, long V, long c) {
  const double *x = positions + c * V, *y = x + capacity * V, *z = y + capacity * V;
  return {x, y, z, {*x, *y, *z}};
}
INLINE Triangle<double> triangle_of(OneCell cell, const int *elements, long E, long e) {
  return triangle(at(cell, elements[e]), at(cell, elements[E + e]), at(cell, elements[2 * E + e]));
}
INLINE Metric<double> metric_of(const double *first, const double *second, long capacity, long V, long c, long e) {
  const double *from = (e < V ? first + e : second + (e - V)) + c * V;
  return {from[0], from[capacity * V], from[2 * capacity * V]};
}
INLINE Vec<double> edge(Triangle<double> t, long k) { return k == 0 ? t.Ea : k == 1 ? t.Eb : t.Ec; }

// A triangle a, b, c around a vertex: at = 3 e + k, where the vertex is corner k of element e.
struct alignas(16) Wedge {
  int at, a, b, c;
};

// Sums over the triangles around a vertex.
INLINE Corner<double> corner_of(OneCell cell, const int *counts, const Wedge *wedges, long V, long v) {
  Corner<double> sum = {};
  for (long i = 0; i < counts[v]; i++) {
    const Wedge around = wedges[i * V + v];
    const Triangle<double> t = triangle(at(cell, around.a), at(cell, around.b), at(cell, around.c));
    add_corner(t, edge(t, around.at % 3), sum);
  }
  return sum;
}

// Derivatives d[FIRST] up to d[END - 1] of the position, of those by v, w, vv, ww and vw, in a Loop
// element: x gives its vertices' positions.
template <int FIRST, int END, typename T, typename Positions>
INLINE void derivatives(Positions x, const double *weights, Vec<T> *d) {
  UNROLLED for (int n = FIRST; n < END; n++) d[n] = Vec<T>{};
  UNROLLED for (int k = 0; k < 12; k++) {
    const Vec<T> p = x(k);
    UNROLLED for (int n = FIRST; n < END; n++) d[n] = fused(all<T>(weights[5 * k + n]), p, d[n]);
  }
}

// Cores have registers for the first derivatives or for the second ones, GPUs for all at once.
#define AT_ONCE (ON_GPU ? 5 : 2)

// What an element of the membrane says; h gives its natural metric.
template <typename T, typename Positions, typename Natural>
INLINE Response<T> loop_response(Law law, Rest rest, const double *weights, Positions x, Natural h) {
  Vec<T> d[5];
  if (law.kb != 0)
    derivatives<0, AT_ONCE>(x, weights, d);
  else
    derivatives<0, 2>(x, weights, d);
  Response<T> r = response_of(d[0], d[1]);
  add_elasticity(law, rest, d[0], d[1], r);
#if VISCOUS
  add_viscosity(law, h(), d[0], d[1], r);
#endif
  if (law.kb != 0) {
    derivatives<AT_ONCE, 5>(x, weights, d);
    add_bending(law, rest, d[0], d[1], d[2], d[3], d[4], r);
  }
  return r;
}
template <typename T, typename Natural>
INLINE Response<T> linear_response(Law law, Rest rest, Triangle<T> t, Natural h) {
  const Vec<T> a1 = t.Ec, a2 = Vec<T>{} - t.Eb;
  Response<T> r = response_of(a1, a2);
  add_elasticity(law, rest, a1, a2, r);
#if VISCOUS
  add_viscosity(law, h(), a1, a2, r);
#endif
  return r;
}

// Gradient of an element's energy by a vertex, from the vertex's weights.
template <typename T>
INLINE Vec<T> loop_gradient(Response<T> r, const double *weights) {
  const T m = fused(r.a22, all<T>(weights[2]), fused(r.a11, all<T>(weights[3]), r.a12 * all<T>(-2.0 * weights[4])));
  return fused(all<T>(weights[0]), r.t1, fused(all<T>(weights[1]), r.t2, m * r.m));
}

// Vertices move with the mean of their velocities and those `before`, which then are the former.
KERNEL(advance, INOUT(double, positions), IN(double, velocities), INOUT(double, before),
       IN(int, rows), IN(int, span), LONG(capacity), LONG(V)) {
  FOR_EACH(i, (span[1] - span[0]) * V) {
    const long c = rows[span[0] + i / V];
    for (long d = 0; d < 3; d++) {
      const long at = (d * capacity + c) * V + i % V;
      positions[at] += 0.5 * (velocities[at] + before[at]);
      before[at] = velocities[at];
    }
  }
}

// The metric of an element; x gives its vertices' positions.
template <typename T, typename Positions>
INLINE Metric<T> metric_now(const double *weights, Positions x) {
#if LOOP
  Vec<T> d[2];
  derivatives<0, 2>(x, weights, d);
  const Response<T> r = response_of(d[0], d[1]);
#else
  const Triangle<T> t = triangle(x(0), x(1), x(2));
  const Response<T> r = response_of(t.Ec, Vec<T>{} - t.Eb);
#endif
  return {r.a11, r.a12, r.a22};
}

// Springs give way for a step: h' = a + keep (h - a), so that a steady rate of deformation D leaves
// a - h = 2 D mu / kv, with steps of 1, whatever mu and kv are.
template <typename T>
INLINE T relaxed(Law law, T h, T a) { return fused(all<T>(law.keep), h - a, a); }
template <typename T>
INLINE Metric<T> relaxed(Law law, Metric<T> h, Metric<T> a) {
  return {relaxed(law, h.h11, a.h11), relaxed(law, h.h12, a.h12), relaxed(law, h.h22, a.h22)};
}

#if ON_GPU
#include "membrane_gpu.hpp"
#else
#include "membrane_cores.hpp"
#endif
#include "membrane_sums.hpp"
