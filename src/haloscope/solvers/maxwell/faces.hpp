// What a face adds to its nodes, and how its nodes and components meet those of the face behind it;
// for cores and GPUs.

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
// Products of a_p and a_q at a face's node over the area |a_p x a_q| there.
struct FaceShape {
  real pp, pq, qq;
};
INLINE FaceShape over_area(real gpp, real gpq, real gqq) {
  const real by_area = 1 / square_root(gpp * gqq - gpq * gpq);
  return {by_area * gpp, by_area * gpq, by_area * gqq};
}
INLINE Lifted twice_across(const FaceShape &g, real jump_p, real jump_q) {
  return {g.pq * jump_q - g.qq * jump_p, g.pq * jump_p - g.pp * jump_q};
}

// What a face adds to the right-hand sides of its node, along a_p and a_q: electric, magnetic.
struct Addition {
  real ep, eq, hp, hq;
};
INLINE Addition added(real side, real by_weight, const real *material, const Face &face, real Ep, real Eq,
                      real Hp, real Hq, const FaceShape &g) {
  const real e = -by_weight / (material[2] + face.impedance);
  const real h = by_weight / (material[3] + face.admittance);
  const Lifted over_e = across(side, Ep, Eq), over_h = across(side, Hp, Hq);
  Addition sum = {face.impedance * over_h.p, face.impedance * over_h.q, face.admittance * over_e.p,
                  face.admittance * over_e.q};
  if (UPWIND) {
    const Lifted twice_e = twice_across(g, Ep, Eq), twice_h = twice_across(g, Hp, Hq);
    sum.ep -= twice_e.p;
    sum.eq -= twice_e.q;
    sum.hp += twice_h.p;
    sum.hq += twice_h.q;
  }
  return {e * sum.ep, e * sum.eq, h * sum.hp, h * sum.hq};
}
INLINE Addition added(real side, real by_weight, const real *material, const Face &face, real Ep, real Eq,
                      real Hp, real Hq, real gpp, real gpq, real gqq) {
  return added(side, by_weight, material, face, Ep, Eq, Hp, Hq,
               UPWIND ? over_area(gpp, gpq, gqq) : FaceShape{});
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
