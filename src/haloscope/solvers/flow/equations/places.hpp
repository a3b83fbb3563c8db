// The elements of a node, each at a place of the node's row, and residuals added up over places.
//
// X nodes' positions [n][4]; q unknowns of the nodes; past what is known of earlier times [n][4]; the last
// of four is of no meaning in X and past. nodes of elements [E][4]; zones: of an element, the number of its
// medium. places and starts of nodes: numerics/krylov/block_rows.py.
//
// The row's node a comes first: the element's node b is taken for number b ^ a, which leaves its
// orientation.

struct Mesh {
  const double *X, *q, *past;
  const int *elements;
  const unsigned char *zones;
  const Medium<double> *media;
  const int *node_starts, *places;
};

// A place: the element, and the number in it of the row's node.
struct Place {
  long element;
  int first;
};
INLINE Place place_at(const Mesh &mesh, long t) {
  return {mesh.places[t] / NODES, mesh.places[t] % NODES};
}
INLINE long node_of(const Mesh &mesh, Place at, int b) {
  return mesh.elements[NODES * at.element + (at.first ^ b)];
}

#if ON_GPU
// Threads that have a row.
#define TEAM 32

// R = that before plus those of `count` places, which lie `pitch` apart.
template <int equations>
INLINE void add_residuals(const double *parts, int pitch, int count, bool first, double *R) {
  THREADS(k, equations) {
    double sum = first ? 0 : R[k];
    for (int l = 0; l < count; l++) sum += parts[l * pitch + k];
    R[k] = sum;
  }
}
#endif
