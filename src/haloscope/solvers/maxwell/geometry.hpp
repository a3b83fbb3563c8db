// Shapes of elements as a stage on cores reads them, in one of four ways.
//
// GEOMETRY 0: stored, [10][NP^3]: a_1, a_2, a_3 and 1/J at the nodes.
// GEOMETRY 1: recomputed from coordinates [3][NP^3] by the derivative matrix.
// GEOMETRY 2: recomputed from eight corners [3][2][2][2] (xyz, k, j, i), exact for trilinear elements.
// GEOMETRY 3: the same at all nodes, [10]: a_1, a_2, a_3 and 1/J of a parallelepiped.
// With FACE_SHAPES (only 0 and 1), behind these: FaceShape at the nodes of the faces [6][3][NP^2].
CONSTANTS(INT(FACE_SHAPES))

#define CORNERS 24
#define NODE_VALUES (GEOMETRY == 0 ? 10 * NP3 : GEOMETRY == 1 ? 3 * NP3 : GEOMETRY == 2 ? CORNERS : 10)
#define SHAPE_VALUES (NODE_VALUES + (FACE_SHAPES ? 18 * NP2 : 0))  // of an element

// Places of the nodes on [-1, 1], from the derivative matrix:
// D_ij = P(x_i) / (P(x_j) (x_i - x_j)) off the diagonal, so that D_ij D_ji = -1 / (x_i - x_j)^2.
INLINE real node_place(const real *D, int i) {
  return i == 0 ? -1 : i == N ? 1 : 1 / square_root(-D[i * NP] * D[i]) - 1;
}

// Derivative of a coordinate along an element's edges: half of what lies between a corner and the
// corner `step` further on.
INLINE real edge(const real *x, int corner, int step) { return (x[corner + step] - x[corner]) / 2; }

// Between four edges' derivatives, at (p, q): edges 0 and `p_step` differ along p.
INLINE real between(const real *x, int step, int p_step, int q_step, real p, real q) {
  const real at_p = (1 + p) / 2, at_q = (1 + q) / 2;
  const real low = fused(at_p, edge(x, p_step, step), (1 - at_p) * edge(x, 0, step));
  const real high = fused(at_p, edge(x, p_step + q_step, step), (1 - at_p) * edge(x, q_step, step));
  return fused(at_q, high, (1 - at_q) * low);
}

// Component c of a_1 at (s, t), of a_2 at (r, t), of a_3 at (r, s), each in [-1, 1].
INLINE real trilinear_1(const real *corners, int c, real s, real t) { return between(corners + 8 * c, 1, 2, 4, s, t); }
INLINE real trilinear_2(const real *corners, int c, real r, real t) { return between(corners + 8 * c, 2, 1, 4, r, t); }
INLINE real trilinear_3(const real *corners, int c, real r, real s) { return between(corners + 8 * c, 4, 1, 2, r, s); }

// a_1 . (a_2 x a_3) of a[9]: a_1, a_2, a_3.
template <typename T>
INLINE T determinant(const T *a) {
  return fused(a[0], fused(a[4], a[8], -a[5] * a[7]),
               fused(a[1], fused(a[5], a[6], -a[3] * a[8]), a[2] * fused(a[3], a[7], -a[4] * a[6])));
}
