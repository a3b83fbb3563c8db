// The mechanics of a membrane at a point of quadrature, in a triangle and at a vertex, for one cell
// or for the cells that lie in the lanes of a vector (T).
//
//   a1, a2            tangents: derivatives of the position by the element's coordinates v and w
//   A11, A12, A22     inverse of the metric of the shape at rest, upper indices
//   G, C              shear modulus and Skalak's constant (K = G (1 + 2 C))
//   kv, keep          spring in series with the surface shear viscosity mu, and mu / (mu + kv)
//   h                 natural metric of that spring, lower indices
//   kb, c0            bending modulus and spontaneous curvature (2 H of a sphere is 2 / R > 0)
//   S, n              vector area and unit normal of a triangle a, b, c, outward
//   M, N              gradients of the cell's area and volume by a vertex
//   p, s              derivatives of the energy by the volume and by the area

#if ON_GPU
#define UNROLLED
#else
#define UNROLLED _Pragma("GCC unroll 12")  // else arrays of vectors lie in memory
#endif

template <typename T>
struct Vec {
  T x, y, z;
};

#define OF_VEC template <typename T> INLINE
OF_VEC Vec<T> operator+(Vec<T> a, Vec<T> b) { return {a.x + b.x, a.y + b.y, a.z + b.z}; }
OF_VEC Vec<T> operator-(Vec<T> a, Vec<T> b) { return {a.x - b.x, a.y - b.y, a.z - b.z}; }
OF_VEC Vec<T> operator*(T a, Vec<T> b) { return {a * b.x, a * b.y, a * b.z}; }
OF_VEC Vec<T> fused(T a, Vec<T> b, Vec<T> c) {
  return {fused(a, b.x, c.x), fused(a, b.y, c.y), fused(a, b.z, c.z)};
}
OF_VEC T dot(Vec<T> a, Vec<T> b) { return fused(a.x, b.x, fused(a.y, b.y, a.z * b.z)); }
OF_VEC Vec<T> cross(Vec<T> a, Vec<T> b) {
  return {fused(a.y, b.z, -(a.z * b.y)), fused(a.z, b.x, -(a.x * b.z)), fused(a.x, b.y, -(a.y * b.x))};
}

// Moduli of one kind of cell; A0 and V0 are those of the shape at rest.
struct Law {
  double G, C, kb, kA, kV, A0, V0, kv, keep, skalak;  // the last is 0 for a neo-Hookean membrane
  double kf, cf, rf;                            // of membrane_folds.hpp
};

// What an element knows of the shape at rest: w is its area, idet = 1 / det of the metric; A is the
// area of the triangle of its corners, Q that over the sum of the squared sides.
struct Rest {
  double A11, A12, A22, idet, w, A, Q, c0;
};

// Derivatives of an element's energy by a1, a2, and the vector m for the second derivatives: by
// the one by vv it is a22 m, by ww a11 m, by vw -2 a12 m.
template <typename T>
struct Response {
  Vec<T> t1, t2, m;
  T a11, a12, a22;
};

template <typename T>
INLINE Response<T> response_of(Vec<T> a1, Vec<T> a2) {
  Response<T> r = {};
  r.a11 = dot(a1, a1), r.a12 = dot(a1, a2), r.a22 = dot(a2, a2);
  return r;
}

// Invariants I1 = A^ij a_ij - 2 and I2 + 1 = det a / det A, and the energy W by unit area at rest:
// Skalak et al., Biophys. J. 13 (1973), G / 4 (I1^2 + 2 I1 - 2 I2 + C I2^2), or neo-Hookean,
// G / 2 (I1 - 1 + 1 / (I2 + 1)) (Barthes-Biesel, Diaz, Dhenin, J. Fluid Mech. 460 (2002)).
template <typename T>
INLINE T elastic_energy(Law law, Rest rest, T a11, T a12, T a22) {
  const T I1 = rest.A11 * a11 + 2 * rest.A12 * a12 + rest.A22 * a22 - 2;
  const T I2 = (a11 * a22 - a12 * a12) * rest.idet - 1;
  if (law.skalak != 0) return law.G / 4 * (I1 * I1 + 2 * I1 - 2 * I2 + law.C * I2 * I2) * rest.w;
  return law.G / 2 * (I1 - 1 + 1 / (I2 + 1)) * rest.w;
}

template <typename T>
INLINE void add_elasticity(Law law, Rest rest, Vec<T> a1, Vec<T> a2, Response<T> &r) {
  const T det = fused(r.a11, r.a22, -(r.a12 * r.a12));
  T W1, W2;  // twice the derivatives of the element's energy by I1 and by det a
  if (law.skalak != 0) {
    const T I1 = fused(r.a11, all<T>(rest.A11),
                       fused(r.a12, all<T>(2 * rest.A12), fused(r.a22, all<T>(rest.A22), all<T>(-2.0))));
    const T I2 = fused(det, all<T>(rest.idet), all<T>(-1.0));
    W1 = (law.G * rest.w) * (I1 + 1.0);
    W2 = (law.G * rest.w * rest.idet) * fused(all<T>(law.C), I2, all<T>(-1.0));
  } else {
    W1 = all<T>(law.G * rest.w);
    W2 = -(law.G * rest.w / rest.idet) / (det * det);
  }
  // Upper components of the tension times the area: 2 dE / da_ij.
  const T T11 = fused(W1, all<T>(rest.A11), W2 * r.a22);
  const T T12 = fused(W1, all<T>(rest.A12), -(W2 * r.a12));
  const T T22 = fused(W1, all<T>(rest.A22), W2 * r.a11);
  r.t1 = fused(T11, a1, fused(T12, a2, r.t1));
  r.t2 = fused(T12, a1, fused(T22, a2, r.t2));
}

template <typename T>
struct Metric {
  T h11, h12, h22;
};

// Tension mu (2 D - tr(D) g) of a Newtonian surface without dilational viscosity (Barthes-Biesel
// and Sgaier, J. Fluid Mech. 160 (1985)) with a spring in series (Maxwell's model; on membranes:
// Yazdani and Bagchi, J. Fluid Mech. 718 (2013)). The spring's energy kv / 2 (I / J - 2), with
// I = h^ij a_ij and J^2 = det a / det h, by unit area in its natural metric is 0 for h = a and convex
// in h, so that giving way never raises it; its tension is kv (2 e - tr(e) g) to first order.
template <typename T>
INLINE void add_viscosity(Law law, Metric<T> h, Vec<T> a1, Vec<T> a2, Response<T> &r) {
  const T det = fused(r.a11, r.a22, -(r.a12 * r.a12)), half = (0.5 * law.kv) / square_root(det);
  const T s = half * (0.5 * (h.h22 * r.a11 + h.h11 * r.a22) - h.h12 * r.a12) / det;
  const T T11 = half * h.h22 - s * r.a22, T12 = s * r.a12 - half * h.h12, T22 = half * h.h11 - s * r.a11;
  r.t1 = fused(T11, a1, fused(T12, a2, r.t1));
  r.t2 = fused(T12, a1, fused(T22, a2, r.t2));
}

// Helfrich's energy kb / 2 (2 H - c0)^2 by area (Z. Naturforsch. C 28 (1973)) of half the
// parallelogram of a1 and a2; 2 H = -B / |S|^3 with B = S . (a22 a_vv + a11 a_ww - 2 a12 a_vw).
template <typename T>
INLINE T helfrich_energy(Law law, Rest rest, Vec<T> a1, Vec<T> a2, Vec<T> vv, Vec<T> ww, Vec<T> vw) {
  const Vec<T> S = cross(a1, a2);
  const T J2 = dot(S, S), J = square_root(J2);
  const Vec<T> Y = dot(a2, a2) * vv + dot(a1, a1) * ww - (2 * dot(a1, a2)) * vw;
  const T h = -dot(S, Y) / (J2 * J) - rest.c0;
  return law.kb / 4 * h * h * J;
}

template <typename T>
INLINE void add_bending(Law law, Rest rest, Vec<T> a1, Vec<T> a2, Vec<T> vv, Vec<T> ww, Vec<T> vw, Response<T> &r) {
  const Vec<T> S = cross(a1, a2);
  const T one_by_J = reciprocal_of_normal(root_of_normal(dot(S, S))), by_J2 = one_by_J * one_by_J;
  const T minus = -2.0 * r.a12;
  const Vec<T> Y = fused(r.a22, vv, fused(r.a11, ww, minus * vw));
  const T H = -dot(S, Y) * (by_J2 * one_by_J), h = H - rest.c0;
  const T by_H = (0.5 * law.kb) * h;
  const T by_B = -by_H * by_J2;                                         // times J / J^3
  const T by_J = fused(all<T>(0.25 * law.kb) * h, h, -(3.0 * by_H * H));
  const Vec<T> Z = fused(by_B, Y, (by_J * one_by_J) * S);               // dE / dS
  const T m11 = 2.0 * by_B * dot(S, ww), m22 = 2.0 * by_B * dot(S, vv), m12 = -2.0 * by_B * dot(S, vw);
  r.t1 = r.t1 + fused(m11, a1, fused(m12, a2, cross(a2, Z)));
  r.t2 = r.t2 + fused(m12, a1, fused(m22, a2, cross(Z, a1)));
  r.m = by_B * S;
}

// A triangle as part of the closed polyhedron of the vertices.
template <typename T>
struct Triangle {
  Vec<T> Ea, Eb, Ec, S, n;  // edges opposite to the corners
  T area;
};

template <typename T>
INLINE Triangle<T> triangle(Vec<T> a, Vec<T> b, Vec<T> c) {
  Triangle<T> t;
  t.Ea = c - b, t.Eb = a - c, t.Ec = b - a;
  t.S = all<T>(0.5) * cross(t.Eb, t.Ec);
  t.area = root_of_normal(dot(t.S, t.S));
  t.n = reciprocal_of_normal(t.area) * t.S;
  return t;
}

// What a corner's triangles say of it: M, N and a third of their area.
template <typename T>
struct Corner {
  Vec<T> M, N;
  T area;
};

template <typename T>
INLINE void add_corner(Triangle<T> t, Vec<T> edge, Corner<T> &v) {
  v.M = v.M + cross(all<T>(0.5) * t.n, edge);
  v.N = v.N + all<T>(1.0 / 3) * t.S;
  v.area = v.area + t.area * (1.0 / 3);
}

// Derivatives of the bending energy kb / 2 (M.n / A - c0)^2 A of a vertex by M, N and A, where
// n = N / |N| and A is a third of the area around (the gradient of the area as curvature: Gompper
// and Kroll, J. Phys. I 6 (1996); Meyer et al., Visualization and Mathematics III (2003)).
template <typename T>
struct CornerResponse {
  Vec<T> g, q;
  T s;
};

template <typename T>
INLINE T corner_energy(Law law, double c0, Corner<T> v) {
  const T h = dot(v.M, v.N) / square_root(dot(v.N, v.N)) / v.area - c0;
  return law.kb / 2 * h * h * v.area;
}

template <typename T>
INLINE CornerResponse<T> corner_response(Law law, double c0, Corner<T> v) {
  const T one_by = 1.0 / square_root(dot(v.N, v.N));
  const Vec<T> n = one_by * v.N;
  const T M = dot(v.M, n), H = M / v.area, h = H - c0, by_M = law.kb * h;
  CornerResponse<T> r;
  r.g = by_M * n;
  r.q = (by_M * one_by) * (v.M - M * n);
  r.s = by_M * (0.5 * h - H);
  return r;
}

// Gradients by the corners of s area + p volume + what the corners' responses say.
template <typename T>
struct Gradients {
  Vec<T> a, b, c;
};

template <typename T>
INLINE Vec<T> corner(Gradients<T> g, long k) { return k == 0 ? g.a : k == 1 ? g.b : g.c; }

// Energies kV (V - V0)^2 / (2 V0) and kA (A - A0)^2 / (2 A0), derived; the sums are 3 V and A.
template <typename T>
INLINE T volume_derivative(Law law, T sum) { return (law.kV / law.V0) * (sum * (1.0 / 3) - law.V0); }
template <typename T>
INLINE T area_derivative(Law law, T sum) { return (law.kA / law.A0) * (sum - law.A0); }

template <typename T>
INLINE Gradients<T> constraint_gradients(Triangle<T> t, T p, T s) {
  const Vec<T> U = (0.5 * s) * t.n, P = (p * (1.0 / 3)) * t.S;
  return {cross(U, t.Ea) + P, cross(U, t.Eb) + P, cross(U, t.Ec) + P};
}

template <typename T>
INLINE Gradients<T> bending_gradients(Triangle<T> t, T p, T s, CornerResponse<T> a, CornerResponse<T> b,
                                      CornerResponse<T> c) {
  const T third = all<T>(1.0 / 3);
  const Vec<T> Ga = c.g - b.g, Gb = a.g - c.g, Gc = b.g - a.g;
  // Change of S and of n when each corner moves along its g.
  const Vec<T> dS = all<T>(0.5) * (cross(Gb, t.Ec) + cross(t.Eb, Gc));
  const Vec<T> dn = (1.0 / t.area) * (dS - dot(t.n, dS) * t.n);
  const Vec<T> U = all<T>(0.5) * (dn + fused(third, a.q + b.q + c.q, fused(third, a.s + b.s + c.s, s) * t.n));
  const Vec<T> half = all<T>(0.5) * t.n, P = (p * third) * t.S;
  return {cross(U, t.Ea) + cross(half, Ga) + P, cross(U, t.Eb) + cross(half, Gb) + P,
          cross(U, t.Ec) + cross(half, Gc) + P};
}
