// The rows of the flow equations that belong to a node: gathered from its elements, one after the other.
//
// X nodes' positions [n][3]; q unknowns u, v, w, p [n][4]; past what udot has beside alpha u [n][3].
// nodes of elements [E][4]; zones: of an element, the number of its medium. places, starts of nodes,
// offsets: numerics/block_pattern.py; values: numerics/block_rows.py, [block][unknown][equation].
// Constants: CARREAU (1: viscosity falls with the shear rate), offset (type of offsets).

#include "elements.hpp"

struct Element {
  double x[NODES][3];
  Tet tet;
  Inside inside;
};

INLINE Element element_at(const double *X, const double *q, const double *past, const int *nodes,
                          const Medium &medium) {
  Element e;
  Fields f;
  for (int b = 0; b < NODES; b++) {
    const long n = nodes[b];
    for (int d = 0; d < 3; d++) {
      e.x[b][d] = X[3 * n + d];
      f.u[b][d] = q[UNKNOWNS * n + d];
      f.past[b][d] = past[3 * n + d];
    }
    f.p[b] = q[UNKNOWNS * n + 3];
  }
  e.tet = tet_of(e.x);
  e.inside = inside_of(medium, e.tet, e.x, f);
  return e;
}

KERNEL residuals(const double *X, const double *q, const double *past, const int *elements,
                 const unsigned char *zones, const Medium *media, const int *node_starts,
                 const int *places, long nodes, double *R) {
  PARTS(i, nodes) {
    double sum[UNKNOWNS] = {0, 0, 0, 0};
    for (long t = node_starts[i]; t < node_starts[i + 1]; t++) {
      const long e = places[t] / NODES;
      const int a = places[t] % NODES;
      const Medium &medium = media[zones[e]];
      const Element at = element_at(X, q, past, elements + NODES * e, medium);
      double r[UNKNOWNS];
      residual(medium, at.tet, at.inside, a, r);
      for (int k = 0; k < UNKNOWNS; k++) sum[k] += r[k];
    }
    for (int k = 0; k < UNKNOWNS; k++) R[UNKNOWNS * i + k] = sum[k];
  }
}

KERNEL linearise(const double *X, const double *q, const double *past, const int *elements,
                 const unsigned char *zones, const Medium *media, const int *node_starts,
                 const int *places, const offset *offsets, const int *starts, long nodes,
                 double *values, double *R) {
  PARTS(i, nodes) {
    double sum[UNKNOWNS] = {0, 0, 0, 0};
    const long size = UNKNOWNS * UNKNOWNS, begin = starts[i] * size, end = starts[i + 1] * size;
    for (long n = begin; n < end; n++) values[n] = 0;
    for (long t = node_starts[i]; t < node_starts[i + 1]; t++) {
      const long e = places[t] / NODES;
      const int a = places[t] % NODES;
      const Medium &medium = media[zones[e]];
      const Element at = element_at(X, q, past, elements + NODES * e, medium);
      double r[UNKNOWNS], K[UNKNOWNS][UNKNOWNS];
      residual(medium, at.tet, at.inside, a, r);
      for (int k = 0; k < UNKNOWNS; k++) sum[k] += r[k];
      for (int b = 0; b < NODES; b++) {
        derivatives(medium, at.tet, at.inside, a, b, K);
        double *block = values + begin + size * offsets[NODES * t + b];
        for (int j = 0; j < UNKNOWNS; j++)
          for (int k = 0; k < UNKNOWNS; k++) block[UNKNOWNS * j + k] += K[k][j];
      }
    }
    for (int k = 0; k < UNKNOWNS; k++) R[UNKNOWNS * i + k] = sum[k];
  }
}
