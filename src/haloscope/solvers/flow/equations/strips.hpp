// An element as one of its nodes sees it, that node first: loaded at a place of a row.
//
// Legend: as in places.hpp; q unknowns u, v, w, p [n][4]; past what udot has beside alpha u.
// Cores load as many of a node's elements at once as a vector has lanes, GPUs one a thread.

#include "lanes.hpp"
#include "elements.hpp"
#include "places.hpp"

// All that the row of an element's first node needs.
template <typename T>
struct Strip {
  Medium<T> medium;
  Tet<T> tet;
  Inside<T> inside;
  Streamline<T> streamline;
};

template <typename T>
INLINE void open_strip(const Fields<T> &f, Strip<T> &s) {
  s.tet = tet_of(f.x);
  s.inside = inside_of(s.medium, s.tet, f);
  s.streamline = streamline_of(s.tet, s.inside);
}

#if ON_GPU
INLINE void take_place(const Mesh &mesh, long t, Strip<double> &s) {
  const Place at = place_at(mesh, t);
  Fields<double> f;
  for (int b = 0; b < NODES; b++) {
    const long n = 4 * node_of(mesh, at, b);
    for (int d = 0; d < 3; d++) {
      f.x[b][d] = mesh.X[n + d];
      f.u[b][d] = mesh.q[n + d];
      f.past[b][d] = mesh.past[n + d];
    }
    f.p[b] = mesh.q[n + 3];
  }
  s.medium = mesh.media[mesh.zones[at.element]];
  open_strip(f, s);
}
#else
// The places t to t + count; lanes beyond count repeat the last one.
INLINE void take_places(const Mesh &mesh, long t, int count, Strip<Lanes> &s) {
  const Medium<double> *media[LANES];
  bool same = true;
  long nodes[NODES][LANES];
  for (int lane = 0; lane < LANES; lane++) {
    const Place at = place_at(mesh, t + (lane < count ? lane : count - 1));
    for (int b = 0; b < NODES; b++) nodes[b][lane] = 4 * node_of(mesh, at, b);
    media[lane] = mesh.media + mesh.zones[at.element];
    same &= media[lane] == media[0];
  }
  Fields<Lanes> f;
  for (int b = 0; b < NODES; b++) {
    const double *from[LANES];
    Lanes x[4], q[4], past[4];
    for (int lane = 0; lane < LANES; lane++) from[lane] = mesh.X + nodes[b][lane];
    gather_four(from, x);
    for (int lane = 0; lane < LANES; lane++) from[lane] = mesh.q + nodes[b][lane];
    gather_four(from, q);
    for (int lane = 0; lane < LANES; lane++) from[lane] = mesh.past + nodes[b][lane];
    gather_four(from, past);
    for (int d = 0; d < 3; d++) f.x[b][d] = x[d], f.u[b][d] = q[d], f.past[b][d] = past[d];
    f.p[b] = q[3];
  }
  constexpr int numbers = sizeof(Medium<double>) / sizeof(double);
  Lanes *to = reinterpret_cast<Lanes *>(&s.medium);
  if (same)
    for (int n = 0; n < numbers; n++) to[n] = all<Lanes>(reinterpret_cast<const double *>(media[0])[n]);
  else
    for (int n = 0; n < numbers; n++)
      for (int lane = 0; lane < LANES; lane++)
        to[n][lane] = reinterpret_cast<const double *>(media[lane])[n];
  open_strip(f, s);
}

INLINE void add_residual(const Strip<Lanes> &s, int count, double sum[UNKNOWNS]) {
  Lanes R[UNKNOWNS];
  residual(s.medium, s.tet, s.inside, s.streamline, R);
  for (int lane = 0; lane < count; lane++)
    for (int k = 0; k < UNKNOWNS; k++) sum[k] += R[k][lane];
}
#endif
