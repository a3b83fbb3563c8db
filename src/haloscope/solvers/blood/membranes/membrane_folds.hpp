// What keeps neighbouring triangles from folding onto each other, and triangles from collapsing:
// an energy of the mesh of vertices that is zero unless a shape is near that.
//
//   S, N        vector areas of a triangle and of a neighbour
//   c, h        cosines of the angle between their normals, and of its half; below cf <= 0 an edge is
//               folded, hf is h there
//   r           area of a triangle over that at rest; below rf it is small
//   Q           area over the sum L of the squared sides, over that at rest; below THIN it is thin
//   kf          stiffness, an energy
//
// A folded edge has the energy 2 kf (hf - h)^2, half of it with each of its triangles: the moment
// grows up to a whole fold, its derivative by the angle stays below 1.07 kf. Small and thin triangles
// have kf (rf - r)^2 / 2 and kf (THIN - Q)^2 / 2. So what an explicit step has to bear is bounded;
// energies that grow without bound before such a limit (Zavodszky et al., Front. Physiol. 8 (2017)
// 563) would not be.

#define THIN 0.25
#define ROUNDING 1e-6  // added to h^2: a whole fold has a gradient, too

// Whether something is so in any lane, and value in those lanes, 0 in the others.
INLINE bool anywhere(int so) { return so != 0; }
INLINE double where(int so, double value) { return so ? value : 0.0; }
#if !ON_GPU
typedef decltype(Lanes{} < Lanes{}) Mask;
INLINE bool anywhere(Mask so) {
  long lanes = 0;
  for (int l = 0; l < LANES; l++) lanes |= so[l];
  return lanes != 0;
}
INLINE Lanes where(Mask so, Lanes value) {
  for (int l = 0; l < LANES; l++)
    if (!so[l]) value[l] = 0;
  return value;
}
#endif

template <typename T>
INLINE T half_angle(T c) { return square_root(0.5 + ROUNDING + 0.5 * c); }

// A triangle's S and the N beyond its edges ab, bc and ca, d = S.N; by how much its area is below that of
// a small or a thin one. x gives the vertices.
template <typename T>
struct Around {
  Vec<T> N[3];
  T d[3], L, small, thin;
};
template <typename T, typename Positions>
INLINE Around<T> around(Law law, Rest rest, Triangle<T> t, Positions x) {
  const Vec<T> corners[3] = {x(0), x(1), x(2)}, sides[3] = {t.Ec, t.Ea, t.Eb};
  Around<T> r;
  UNROLLED for (int k = 0; k < 3; k++) {
    r.N[k] = all<T>(0.5) * cross(x(3 + k) - corners[k], sides[k]);
    r.d[k] = dot(t.S, r.N[k]);
  }
  r.L = dot(t.Ea, t.Ea) + dot(t.Eb, t.Eb) + dot(t.Ec, t.Ec);
  r.small = law.rf * rest.A - t.area;
  r.thin = (THIN * rest.Q) * r.L - t.area;
  return r;
}
// Whether there is anything to resist: no root is taken of other triangles.
template <typename T>
INLINE bool is_sound(Around<T> r) {
  const T none = {};
  return !anywhere((r.d[0] < none) | (r.d[1] < none) | (r.d[2] < none) | (none < r.small) | (none < r.thin));
}

template <typename T, typename Positions>
INLINE T fold_energy(Law law, Rest rest, Triangle<T> t, Positions x) {
  const Around<T> r = around(law, rest, t, x);
  T energy = {};
  for (int k = 0; k < 3; k++) {
    const T c = r.d[k] / square_root(dot(t.S, t.S) * dot(r.N[k], r.N[k]));
    const T over = half_angle(law.cf) - half_angle(c);
    energy += where(c < law.cf, law.kf * over * over);
  }
  const T thin = r.thin / (rest.Q * r.L), small = r.small / rest.A, none = {};
  energy += where(none < thin, 0.5 * law.kf * thin * thin);
  return energy + where(none < small, 0.5 * law.kf * small * small);
}

// U is half of the energy's derivative by S, y twice the one by L.
template <typename T>
struct Resistance {
  Vec<T> U;
  T y;
};

// The derivative of c by S is (N / |N| - c S / |S|) / |S|.
template <typename T, typename Positions>
INLINE Resistance<T> against_folds(Law law, Rest rest, Triangle<T> t, Positions x) {
  Resistance<T> r = {};
  const Around<T> a = around(law, rest, t, x);
  if (is_sound(a)) return r;
  const T none = {};
  UNROLLED for (int k = 0; k < 3; k++) {
    const T one_by = 1.0 / square_root(dot(t.S, t.S) * dot(a.N[k], a.N[k])), c = a.d[k] * one_by;
    const T h = half_angle(c);
    const T by_c = where(c < law.cf, (0.5 * law.kf) * (h - half_angle(law.cf)) / h);
    r.U = fused(by_c * one_by, a.N[k], fused(-by_c * c / t.area, t.n, r.U));
  }
  const T by_r = where(none < a.small, (law.kf / (rest.A * rest.A)) * a.small);
  const T by_Q = where(none < a.thin, (law.kf / (rest.Q * rest.Q)) * a.thin / a.L);
  r.U = fused(-0.5 * (by_r + by_Q / a.L), t.n, r.U);
  r.y = 2.0 * by_Q * t.area / (a.L * a.L);
  return r;
}

template <typename T>
INLINE void add_to_gradients(Triangle<T> t, Resistance<T> r, Gradients<T> &g) {
  g.a = g.a + fused(r.y, t.Eb - t.Ec, cross(r.U, t.Ea));
  g.b = g.b + fused(r.y, t.Ec - t.Ea, cross(r.U, t.Eb));
  g.c = g.c + fused(r.y, t.Ea - t.Eb, cross(r.U, t.Ec));
}
