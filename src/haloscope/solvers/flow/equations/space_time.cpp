// The rows of the equations of a slab that belong to a node: gathered from its elements, one after the other.
//
// Legend: as in places.hpp; q unknowns u, v, w, p at the slab's start, then at its end [n][8]; past u, v, w
// at the end of the slab before. For all else see flow.cpp. Cores compute the elements of as many places
// at once as a vector has lanes, and go on to the next rows with what is left of them; a GPU's thread has
// one. Sums run in the order of places.

// As in flow.cpp.
CONSTANTS(INT(CARREAU), INT(TAU_SLOPE), TYPE(offset))

#include "lanes.hpp"
#include "space_time.hpp"
#include "places.hpp"

#define SIZE (SLAB_UNKNOWNS * SLAB_UNKNOWNS)

// All that the row of an element's first node needs.
template <typename T>
struct SlabStrip {
  Medium<T> medium;
  Tet<T> tet;
  Slab<T> slab;
  SlabStreamline<T> stream;
};

template <typename T>
INLINE void open_slab(const SlabFields<T> &f, SlabStrip<T> &s) {
  s.tet = tet_of(f.x);
  s.slab = slab_of(s.medium, s.tet, f);
  s.stream = slab_streamline_of(s.tet, s.slab);
}

// The derivatives of all equations by unknown q of node b at level j, equation after equation.
template <typename T>
INLINE void column_of(const SlabStrip<T> &s, const SlabRow<T> &row, const T K[3][UNKNOWNS][UNKNOWNS], int b,
                      int j, int q, T column[SLAB_UNKNOWNS]) {
#if !ON_GPU
  PRAGMA(GCC unroll 2)
#endif
  for (int k = 0; k < LEVELS; k++)
#if !ON_GPU
    PRAGMA(GCC unroll 4)
#endif
    for (int i = 0; i < UNKNOWNS; i++) {
      T entry = K[k + j][q][i];
#if TAU_SLOPE
      if (q < 3) entry = fused(row.by_tau[UNKNOWNS * k + i], tau_slope(s.tet, s.slab, b, q), entry);
#endif
      column[UNKNOWNS * k + i] = q == 3 ? entry : entry + inertia(s.medium, s.tet, row, b, j, q, k, i);
    }
}

#if ON_GPU
// Each of a team's threads computes the block of one node of a place's element, so that places are added
// up whole, one after the other. What the blocks of a place share four threads compute alike: to
// hand it on would take more of the memory that they share than leaves enough of them on a processor.
#define PLACES (TEAM / NODES)
#define PITCH (SIZE + 1)

INLINE void take_slab(const Mesh &mesh, long t, SlabStrip<double> &s) {
  const Place at = place_at(mesh, t);
  SlabFields<double> f;
  for (int b = 0; b < NODES; b++) {
    const long n = node_of(mesh, at, b);
    for (int d = 0; d < 3; d++) {
      f.x[b][d] = mesh.X[4 * n + d];
      f.before[b][d] = mesh.past[4 * n + d];
      for (int j = 0; j < LEVELS; j++) f.u[j][b][d] = mesh.q[SLAB_UNKNOWNS * n + UNKNOWNS * j + d];
    }
    for (int j = 0; j < LEVELS; j++) f.p[j][b] = mesh.q[SLAB_UNKNOWNS * n + UNKNOWNS * j + 3];
  }
  s.medium = mesh.media[mesh.zones[at.element]];
  open_slab(f, s);
}

KERNEL(slab_residuals, IN(double, X), IN(double, q), IN(double, past), IN(int, elements),
       IN(unsigned char, zones), IN(Medium<double>, media), IN(int, node_starts), IN(int, places),
       LONG(nodes), OUT(double, R)) {
  const Mesh mesh = {X, q, past, elements, zones, media, node_starts, places};
  BLOCKS(i, nodes) {
    SHARED(double, parts, TEAM * SLAB_UNKNOWNS);
    const long begin = node_starts[i], end = node_starts[i + 1];
    for (long t = begin; t < end; t += TEAM) {
      const int count = (int)smaller((long)TEAM, end - t);
      THREADS(l, count) {
        SlabStrip<double> s;
        take_slab(mesh, t + l, s);
        slab_residual(s.medium, s.tet, s.slab, s.stream, parts + l * SLAB_UNKNOWNS);
      }
      BARRIER();
      add_residuals<SLAB_UNKNOWNS>(parts, SLAB_UNKNOWNS, count, t == begin, R + SLAB_UNKNOWNS * i);
      BARRIER();
    }
  }
}

KERNEL(linearise_slab, IN(double, X), IN(double, q), IN(double, past), IN(int, elements),
       IN(unsigned char, zones), IN(Medium<double>, media), IN(int, node_starts), IN(int, places),
       IN(offset, offsets), IN(int, starts), LONG(nodes), OUT(double, values), OUT(double, R)) {
  const Mesh mesh = {X, q, past, elements, zones, media, node_starts, places};
  BLOCKS(i, nodes) {
    SHARED(double, parts, TEAM * PITCH);
    SHARED(double, residuals, PLACES * SLAB_UNKNOWNS);
    SHARED(int, blocks, TEAM);
    double *row = values + starts[i] * (long)SIZE;
    const long begin = node_starts[i], end = node_starts[i + 1];
    // A thread goes on with the entries that it has set to zero here.
    THREADS(m, SIZE) for (long k = 0; k < starts[i + 1] - starts[i]; k++) row[SIZE * k + m] = 0;
    for (long t = begin; t < end; t += PLACES) {
      const int count = (int)smaller((long)PLACES, end - t);
      THREADS(l, NODES * count) {
        const int b = l % NODES;
        const long place = t + l / NODES;
        SlabStrip<double> s;
        double K[3][UNKNOWNS][UNKNOWNS], *part = parts + l * PITCH;
        take_slab(mesh, place, s);
        if (b == 0) slab_residual(s.medium, s.tet, s.slab, s.stream, residuals + l / NODES * SLAB_UNKNOWNS);
        const SlabRow<double> shared = slab_row_of(s.medium, s.tet, s.slab, s.stream);
        slab_derivatives(s.medium, s.tet, s.slab, shared, b, K);
        for (int c = 0; c < SLAB_UNKNOWNS; c++)
          column_of(s, shared, K, b, c / UNKNOWNS, c % UNKNOWNS, part + SLAB_UNKNOWNS * c);
        blocks[l] = offsets[NODES * place + (b ^ places[place] % NODES)];
      }
      BARRIER();
      add_residuals<SLAB_UNKNOWNS>(residuals, SLAB_UNKNOWNS, count, t == begin, R + SLAB_UNKNOWNS * i);
      THREADS(m, SIZE)
        for (int l = 0; l < NODES * count; l++) row[(long)SIZE * blocks[l] + m] += parts[l * PITCH + m];
      BARRIER();
    }
  }
}
#else
// Rows that a core takes at a time: few enough for its cache, many enough to fill all lanes.
#define ROWS 32

// The places t to t + count, and their rows; lanes beyond repeat the last one.
struct SlabLanes {
  SlabStrip<Lanes> strip;
  const Medium<double> *media[LANES];
  int first[LANES], row[LANES], count;
};

INLINE void take_slabs(const Mesh &mesh, long t, long end, SlabLanes &at) {
  long nodes[NODES][LANES];
  int row = at.row[LANES - 1];
  at.count = (int)smaller((long)LANES, end - t);
  bool known = true;
  for (int l = 0; l < LANES; l++) {
    const long place = smaller(t + l, end - 1), e = mesh.places[place] / NODES;
    while (mesh.node_starts[row + 1] <= place) row++;
    at.row[l] = row;
    at.first[l] = mesh.places[place] % NODES;
    for (int b = 0; b < NODES; b++) nodes[b][l] = mesh.elements[NODES * e + (b ^ at.first[l])];
    const Medium<double> *medium = mesh.media + mesh.zones[e];
    known &= medium == at.media[l];
    at.media[l] = medium;
  }
  if (!known)
    for (int n = 0; n < (int)(sizeof(Medium<double>) / sizeof(double)); n++)
      for (int l = 0; l < LANES; l++)
        reinterpret_cast<Lanes *>(&at.strip.medium)[n][l] = reinterpret_cast<const double *>(at.media[l])[n];
  SlabFields<Lanes> f;
  for (int b = 0; b < NODES; b++) {
    const double *from[LANES];
    Lanes x[4], q[LEVELS][4], before[4];
    for (int l = 0; l < LANES; l++) from[l] = mesh.X + 4 * nodes[b][l];
    gather_four(from, x);
    for (int l = 0; l < LANES; l++) from[l] = mesh.past + 4 * nodes[b][l];
    gather_four(from, before);
    for (int j = 0; j < LEVELS; j++) {
      for (int l = 0; l < LANES; l++) from[l] = mesh.q + SLAB_UNKNOWNS * nodes[b][l] + UNKNOWNS * j;
      gather_four(from, q[j]);
      for (int d = 0; d < 3; d++) f.u[j][b][d] = q[j][d];
      f.p[j][b] = q[j][3];
    }
    for (int d = 0; d < 3; d++) f.x[b][d] = x[d], f.before[b][d] = before[d];
  }
  open_slab(f, at.strip);
}

// v, eight numbers of all lanes, becomes those of each lane side by side: see add_lane.
INLINE void turn(Lanes v[SLAB_UNKNOWNS]) {
  for (int part = 0; part < SLAB_UNKNOWNS; part += LANES) transpose<LANES>(v + part);
}

INLINE void add_lane(const Lanes v[SLAB_UNKNOWNS], int l, double *to) {
  for (int part = 0; part < SLAB_UNKNOWNS; part += LANES)
    for (int k = 0; k < LANES; k++) to[part + k] += v[part + l][k];
}

INLINE void add_residuals(const SlabLanes &at, double *R) {
  const SlabStrip<Lanes> &s = at.strip;
  Lanes r[SLAB_UNKNOWNS];
  slab_residual(s.medium, s.tet, s.slab, s.stream, r);
  turn(r);
  for (int l = 0; l < at.count; l++) add_lane(r, l, R + SLAB_UNKNOWNS * (long)at.row[l]);
}

INLINE void start_rows(long first, long last, double *R, SlabLanes &at) {
  for (long k = SLAB_UNKNOWNS * first; k < SLAB_UNKNOWNS * last; k++) R[k] = 0;
  for (int l = 0; l < LANES; l++) at.media[l] = nullptr;
  at.row[LANES - 1] = (int)first;
}

KERNEL(slab_residuals, IN(double, X), IN(double, q), IN(double, past), IN(int, elements),
       IN(unsigned char, zones), IN(Medium<double>, media), IN(int, node_starts), IN(int, places),
       LONG(nodes), OUT(double, R)) {
  const Mesh mesh = {X, q, past, elements, zones, media, node_starts, places};
  BLOCKS(part, (nodes + ROWS - 1) / ROWS) {
    const long first = part * ROWS, last = smaller(first + ROWS, nodes), end = node_starts[last];
    SlabLanes at;
    start_rows(first, last, R, at);
    for (long t = node_starts[first]; t < end; t += LANES) {
      take_slabs(mesh, t, end, at);
      add_residuals(at, R);
    }
  }
}

KERNEL(linearise_slab, IN(double, X), IN(double, q), IN(double, past), IN(int, elements),
       IN(unsigned char, zones), IN(Medium<double>, media), IN(int, node_starts), IN(int, places),
       IN(offset, offsets), IN(int, starts), LONG(nodes), OUT(double, values), OUT(double, R)) {
  const Mesh mesh = {X, q, past, elements, zones, media, node_starts, places};
  BLOCKS(part, (nodes + ROWS - 1) / ROWS) {
    const long first = part * ROWS, last = smaller(first + ROWS, nodes), end = node_starts[last];
    SlabLanes at;
    start_rows(first, last, R, at);
    for (long k = SIZE * (long)starts[first]; k < SIZE * (long)starts[last]; k++) values[k] = 0;
    for (long t = node_starts[first]; t < end; t += LANES) {
      take_slabs(mesh, t, end, at);
      add_residuals(at, R);
      const SlabStrip<Lanes> &s = at.strip;
      const SlabRow<Lanes> row = slab_row_of(s.medium, s.tet, s.slab, s.stream);
      Lanes columns[NODES][SLAB_UNKNOWNS][SLAB_UNKNOWNS];
      for (int b = 0; b < NODES; b++) {
        Lanes K[3][UNKNOWNS][UNKNOWNS];
        slab_derivatives(s.medium, s.tet, s.slab, row, b, K);
        PRAGMA(GCC unroll 8)
        for (int c = 0; c < SLAB_UNKNOWNS; c++) {
          column_of(s, row, K, b, c / UNKNOWNS, c % UNKNOWNS, columns[b][c]);
          turn(columns[b][c]);
        }
      }
      for (int l = 0; l < at.count; l++) {
        double *const blocks = values + SIZE * (long)starts[at.row[l]];
        for (int b = 0; b < NODES; b++) {
          double *const block = blocks + SIZE * offsets[NODES * (t + l) + (b ^ at.first[l])];
          for (int c = 0; c < SLAB_UNKNOWNS; c++) add_lane(columns[b][c], l, block + SLAB_UNKNOWNS * c);
        }
      }
    }
  }
}
#endif
