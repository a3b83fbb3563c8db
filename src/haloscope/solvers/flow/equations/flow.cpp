// The rows of the flow equations that belong to a node: gathered from its elements, one after the other.
//
// X, q, past, elements, zones, node_starts, places: places.hpp. offsets: numerics/krylov/block_rows.py;
// values: numerics/krylov/block_rows.py, [block][unknown][equation].
//
// What an element's rows share is computed again for each of them. Sums run in the order of elements
// on cores and GPUs.

// CARREAU: 1 where the viscosity falls with the shear rate; TAU_SLOPE: 1 where tau is linearised,
// too; offset: type of offsets.
CONSTANTS(INT(CARREAU), INT(TAU_SLOPE), TYPE(offset))

#include "strips.hpp"

#define BLOCK (UNKNOWNS * UNKNOWNS)

// What has three numbers a node, as four.
KERNEL(spread, IN(double, three), LONG(nodes), OUT(double, four)) {
  PARTS(i, nodes) for (int d = 0; d < 3; d++) four[4 * i + d] = three[3 * i + d];
}

#if ON_GPU
// Numbers that a thread leaves for a place: blocks, the residual, and one against conflicts of banks.
#define PITCH (NODES * BLOCK + UNKNOWNS + 1)
// Blocks of a row for which shared memory has room; longer ones are added up where they belong.
#define ROOM 40

KERNEL(residuals, IN(double, X), IN(double, q), IN(double, past), IN(int, elements),
       IN(unsigned char, zones), IN(Medium<double>, media), IN(int, node_starts), IN(int, places),
       LONG(nodes), OUT(double, R)) {
  const Mesh mesh = {X, q, past, elements, zones, media, node_starts, places};
  BLOCKS(i, nodes) {
    SHARED(double, parts, TEAM * UNKNOWNS);
    const long begin = node_starts[i], end = node_starts[i + 1];
    for (long t = begin; t < end; t += TEAM) {
      const int count = (int)smaller((long)TEAM, end - t);
      THREADS(l, count) {
        Strip<double> s;
        take_place(mesh, t + l, s);
        residual(s.medium, s.tet, s.inside, s.streamline, parts + l * UNKNOWNS);
      }
      BARRIER();
      add_residuals<UNKNOWNS>(parts, UNKNOWNS, count, t == begin, R + UNKNOWNS * i);
      BARRIER();
    }
  }
}

KERNEL(linearise, IN(double, X), IN(double, q), IN(double, past), IN(int, elements),
       IN(unsigned char, zones), IN(Medium<double>, media), IN(int, node_starts), IN(int, places),
       IN(offset, offsets), IN(int, starts), LONG(nodes), OUT(double, values), OUT(double, R)) {
  const Mesh mesh = {X, q, past, elements, zones, media, node_starts, places};
  BLOCKS(i, nodes) {
    SHARED(double, parts, TEAM * PITCH);
    SHARED(double, sums, ROOM * BLOCK);
    SHARED(int, columns, TEAM * NODES);
    const long begin = node_starts[i], end = node_starts[i + 1];
    const int blocks = starts[i + 1] - starts[i];
    double *row = values + (long)starts[i] * BLOCK, *sum = blocks <= ROOM ? sums : row;
    THREADS(m, TEAM) for (int n = m; n < blocks * BLOCK; n += TEAM) sum[n] = 0;
    for (long t = begin; t < end; t += TEAM) {
      const int count = (int)smaller((long)TEAM, end - t);
      THREADS(l, count) {
        Strip<double> s;
        take_place(mesh, t + l, s);
        double *to = parts + l * PITCH;
        residual(s.medium, s.tet, s.inside, s.streamline, to + NODES * BLOCK);
        const Row<double> shared = row_of(s.medium, s.tet, s.inside, s.streamline);
        for (int b = 0; b < NODES; b++)
          derivatives(s.medium, s.tet, s.inside, shared, b,
                      reinterpret_cast<double(*)[UNKNOWNS]>(to + b * BLOCK));
        const int first = places[t + l] % NODES;
        for (int b = 0; b < NODES; b++) columns[NODES * l + b] = offsets[NODES * (t + l) + (first ^ b)];
      }
      BARRIER();
      THREADS(m, TEAM) {
        for (int l = 0; l < count; l++) {
          // An element's blocks are four different ones: all are read before one is written.
          int n[NODES];
          double value[NODES];
          for (int b = 0; b < NODES; b++) {
            const int column = columns[NODES * l + b];
            n[b] = column % 2 == m / BLOCK ? column * BLOCK + m % BLOCK : -1;
            value[b] = parts[l * PITCH + b * BLOCK + m % BLOCK];
          }
          for (int b = 0; b < NODES; b++)
            if (n[b] >= 0) value[b] = sum[n[b]] + value[b];
          for (int b = 0; b < NODES; b++)
            if (n[b] >= 0) sum[n[b]] = value[b];
        }
      }
      add_residuals<UNKNOWNS>(parts + NODES * BLOCK, PITCH, count, t == begin, R + UNKNOWNS * i);
      BARRIER();
    }
    if (blocks <= ROOM)
      THREADS(m, TEAM) for (int n = m; n < blocks * BLOCK; n += TEAM) row[n] = sums[n];
  }
}
#else
KERNEL(residuals, IN(double, X), IN(double, q), IN(double, past), IN(int, elements),
       IN(unsigned char, zones), IN(Medium<double>, media), IN(int, node_starts), IN(int, places),
       LONG(nodes), OUT(double, R)) {
  const Mesh mesh = {X, q, past, elements, zones, media, node_starts, places};
  PARTS(i, nodes) {
    double sum[UNKNOWNS] = {0, 0, 0, 0};
    for (long t = node_starts[i]; t < node_starts[i + 1]; t += LANES) {
      const int count = (int)smaller((long)LANES, node_starts[i + 1] - t);
      Strip<Lanes> s;
      take_places(mesh, t, count, s);
      add_residual(s, count, sum);
    }
    for (int k = 0; k < UNKNOWNS; k++) R[UNKNOWNS * i + k] = sum[k];
  }
}

KERNEL(linearise, IN(double, X), IN(double, q), IN(double, past), IN(int, elements),
       IN(unsigned char, zones), IN(Medium<double>, media), IN(int, node_starts), IN(int, places),
       IN(offset, offsets), IN(int, starts), LONG(nodes), OUT(double, values), OUT(double, R)) {
  const Mesh mesh = {X, q, past, elements, zones, media, node_starts, places};
  PARTS(i, nodes) {
    double sum[UNKNOWNS] = {0, 0, 0, 0};
    double *row = values + (long)starts[i] * BLOCK;
    for (long n = 0; n < (long)(starts[i + 1] - starts[i]) * BLOCK; n++) row[n] = 0;
    for (long t = node_starts[i]; t < node_starts[i + 1]; t += LANES) {
      const int count = (int)smaller((long)LANES, node_starts[i + 1] - t);
      Strip<Lanes> s;
      take_places(mesh, t, count, s);
      add_residual(s, count, sum);
      const Row<Lanes> shared = row_of(s.medium, s.tet, s.inside, s.streamline);
      Lanes K[NODES][BLOCK];
      for (int b = 0; b < NODES; b++) {
        derivatives(s.medium, s.tet, s.inside, shared, b, reinterpret_cast<Lanes(*)[UNKNOWNS]>(K[b]));
        for (int part = 0; part < BLOCK; part += LANES) transpose<LANES>(K[b] + part);
      }
      for (int lane = 0; lane < count; lane++) {
        const int a = places[t + lane] % NODES;
        for (int b = 0; b < NODES; b++) {
          double *block = row + BLOCK * offsets[NODES * (t + lane) + (a ^ b)];
          for (int part = 0; part < BLOCK; part += LANES) {
            Lanes *to = reinterpret_cast<Lanes *>(block + part);
            *to += K[b][part + lane];
          }
        }
      }
    }
    for (int k = 0; k < UNKNOWNS; k++) R[UNKNOWNS * i + k] = sum[k];
  }
}
#endif
