// The shape of the element at hand on a core: tangents and 1/J of rows of nodes, and what a face needs
// of them. How it is known is decided by GEOMETRY, see geometry.hpp.

#define MEMBER inline __attribute__((always_inline))
#define FACE_PITCH (NP2 + LANES)  // of a face's values in arrays of the kernel's own: rows reach over

#if GEOMETRY == 0
struct Shape {
  const real *stored;
  MEMBER void open(const real *values, const real *, const real *) { stored = values; }
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

#elif GEOMETRY == 1
struct Shape {
  Lanes derived[NP2][10][VECTORS];
  // Derivatives of the coordinates x and 1/J; DT [NP][PITCH].
  MEMBER void open(const real *x, const real *D, const real *DT) {
    for (int k = 0; k < NP; k++)
      for (int j = 0; j < NP; j++) {
        Lanes a[VECTORS][9] = {};
        for (int m = 0; m < NP; m++) {
          const Lanes dj = all_lanes(D[j * NP + m]), dk = all_lanes(D[k * NP + m]);
          const real *along_i = place(x + (k * NP + j) * NP + m), *along_j = place(x + (k * NP + m) * NP);
          const real *along_k = place(x + (m * NP + j) * NP);
          UNROLLED for (int b = 0; b < VECTORS; b++) {
            const Lanes di = ((const Lanes *)(DT + m * PITCH))[b];
            UNROLLED for (int c = 0; c < 3; c++) {
              a[b][c] = fused(all_lanes(along_i[c * NP3]), di, a[b][c]);
              a[b][3 + c] = fused(dj, load_row(along_j + c * NP3, b), a[b][3 + c]);
              a[b][6 + c] = fused(dk, load_row(along_k + c * NP3, b), a[b][6 + c]);
            }
          }
        }
        UNROLLED for (int b = 0; b < VECTORS; b++) {
          UNROLLED for (int c = 0; c < 9; c++) derived[k * NP + j][c][b] = a[b][c];
          derived[k * NP + j][9][b] = 1 / determinant(a[b]);
        }
      }
  }
  MEMBER void tangents(int k, int j, int b, Lanes *a) const {
    UNROLLED for (int c = 0; c < 9; c++) a[c] = derived[k * NP + j][c][b];
  }
  MEMBER Lanes by_jacobian(const Lanes *, int k, int j, int b) const { return derived[k * NP + j][9][b]; }
  MEMBER real tangent(int d, int c, int k, int j, int i) const {
    return ((const real *)derived[k * NP + j][3 * d + c])[i];
  }
};

#elif GEOMETRY == 3
struct Shape {
  const real *same;
  MEMBER void open(const real *values, const real *, const real *) { same = values; }
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
  MEMBER void open(const real *corners, const real *D, const real *) {
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
