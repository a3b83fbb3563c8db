// The shape of the element at hand on a core: tangents and 1/J of rows of nodes, and what a face needs
// of them. It is known in one of three ways.
//
// GEOMETRY 0: stored, [10][NP^3]: a_1, a_2, a_3 and 1/J at the nodes.
// GEOMETRY 2: recomputed from eight corners [3][2][2][2] (xyz, k, j, i), exact for trilinear elements.
// GEOMETRY 3: the same at all nodes, [10]: a_1, a_2, a_3 and 1/J of a parallelepiped.
// With FACE_SHAPES (only 0), behind these: FaceShape at the nodes of the faces [6][3][NP^2].
CONSTANTS(INT(FACE_SHAPES))

#define CORNERS 24
#define NODE_VALUES (GEOMETRY == 0 ? 10 * NP3 : GEOMETRY == 2 ? CORNERS : 10)
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

#define MEMBER inline __attribute__((always_inline))
#define FACE_PITCH (NP2 + LANES)  // of a face's values in arrays of the kernel's own: rows reach over

#if GEOMETRY == 0
struct Shape {
  const real *stored;
  MEMBER void open(const real *values, const real *) { stored = values; }
  MEMBER void tangents(int k, int j, int b, Lanes *a) const {
    const real *row = place(stored + (k * NP + j) * NP);
    UNROLLED for (int c = 0; c < 9; c++) a[c] = load_row(row + c * NP3, b);
  }
  MEMBER Lanes by_jacobian(const Lanes *, int k, int j, int b) const {
    return load_row(stored + 9 * NP3 + (k * NP + j) * NP, b);
  }
  MEMBER real tangent(int d, int c, int k, int j, int i) const {
    return stored[(3 * d + c) * NP3 + (k * NP + j) * NP + i];
  }
};

#elif GEOMETRY == 3
struct Shape {
  const real *same;
  MEMBER void open(const real *values, const real *) { same = values; }
  MEMBER void tangents(int, int, int, Lanes *a) const {
    UNROLLED for (int c = 0; c < 9; c++) a[c] = all_lanes(same[c]);
  }
  MEMBER Lanes by_jacobian(const Lanes *, int, int, int) const { return all_lanes(same[9]); }
};

#else
struct Shape {
  // a_1 does not change along i, a_2 not along j, a_3 not along k.
  real first[NP2][3];
  Lanes second[NP][3][VECTORS], third[NP][3][VECTORS];
  MEMBER void open(const real *corners, const real *D) {
    real places[PITCH] = {};
    for (int i = 0; i < NP; i++) places[i] = node_place(D, i);
    for (int k = 0; k < NP; k++)
      for (int c = 0; c < 3; c++) {
        for (int j = 0; j < NP; j++) first[k * NP + j][c] = trilinear_1(corners, c, places[j], places[k]);
        for (int i = 0; i < PITCH; i++) {
          ((real *)second[k][c])[i] = trilinear_2(corners, c, places[i], places[k]);
          ((real *)third[k][c])[i] = trilinear_3(corners, c, places[i], places[k]);
        }
      }
  }
  MEMBER void tangents(int k, int j, int b, Lanes *a) const {
    UNROLLED for (int c = 0; c < 3; c++) {
      a[c] = all_lanes(first[k * NP + j][c]);
      a[3 + c] = second[k][c][b];
      a[6 + c] = third[j][c][b];
    }
  }
  MEMBER Lanes by_jacobian(const Lanes *a, int, int, int) const { return 1 / determinant(a); }
  MEMBER real tangent(int d, int c, int k, int j, int i) const {
    return d == 0 ? first[k * NP + j][c] : ((const real *)(d == 1 ? second[k][c] : third[j][c]))[i];
  }
};
#endif

// FaceShape at the nodes of face f: where it is stored, or computed into own [3][FACE_PITCH].
#if GEOMETRY == 3
struct FaceShapes {
  FaceShape same;
  MEMBER FaceShape at(int) const { return same; }
};
INLINE FaceShapes face_shapes(int f, const Shape &shape, const real *, real *) {
  const real *p = shape.same + 3 * direction_p(f), *q = shape.same + 3 * direction_q(f);
  const auto product = [](const real *a, const real *b) {
    return fused(a[0], b[0], fused(a[1], b[1], a[2] * b[2]));
  };
  return {over_area(product(p, p), product(p, q), product(q, q))};
}
#else
struct FaceShapes {
  const real *pp, *pq, *qq;
  MEMBER FaceShape at(int n) const { return {pp[n], pq[n], qq[n]}; }
};
template <int AXIS>
INLINE void products(int end, const Shape &shape, real *own) {
  const int p = direction_p(2 * AXIS), q = direction_q(2 * AXIS);
  for (int b = 0; b < NP; b++)
#pragma omp simd
    for (int a = 0; a < NP; a++) {
      const int i = AXIS == 0 ? end : a, j = AXIS == 0 ? a : AXIS == 1 ? end : b, k = AXIS < 2 ? b : end;
      real gpp = 0, gpq = 0, gqq = 0;
      for (int c = 0; c < 3; c++) {
        const real ap = shape.tangent(p, c, k, j, i), aq = shape.tangent(q, c, k, j, i);
        gpp = fused(ap, ap, gpp);
        gpq = fused(ap, aq, gpq);
        gqq = fused(aq, aq, gqq);
      }
      own[b * NP + a] = gpp;
      own[FACE_PITCH + b * NP + a] = gpq;
      own[2 * FACE_PITCH + b * NP + a] = gqq;
    }
}
INLINE FaceShapes face_shapes(int f, const Shape &shape, const real *stored, real *own) {
  if (FACE_SHAPES) {
    const real *at = stored + NODE_VALUES + f * 3 * NP2;
    return {at, at + NP2, at + 2 * NP2};
  }
  if (UPWIND) {
    const int end = f & 1 ? N : 0;
    f < 2 ? products<0>(end, shape, own) : f < 4 ? products<1>(end, shape, own) : products<2>(end, shape, own);
#pragma omp simd
    for (int n = 0; n < NP2; n++) {
      const FaceShape g = over_area(own[n], own[FACE_PITCH + n], own[2 * FACE_PITCH + n]);
      own[n] = g.pp;
      own[FACE_PITCH + n] = g.pq;
      own[2 * FACE_PITCH + n] = g.qq;
    }
  }
  return {own, own + FACE_PITCH, own + 2 * FACE_PITCH};
}
#endif
