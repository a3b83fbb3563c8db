// On cores: weights of a batch of vertices in vector lanes, then one vertex after the other, a row
// of its support in a vector register. Also the velocities of vertices.

// A row may hold one point more than the support, with weight 0.
#define ROW 4
#define ROWS (SUPPORT * SUPPORT)
typedef real Row __attribute__((vector_size(ROW * sizeof(real)), aligned(sizeof(real)), may_alias));
#if defined(__FMA__) && !defined(__clang__)
// g++ takes `fused` of the lanes apart again wherever it unrolls a loop.
typedef double FourDoubles __attribute__((vector_size(32)));
typedef float FourFloats __attribute__((vector_size(16)));
INLINE FourDoubles fused(FourDoubles a, FourDoubles b, FourDoubles c) {
  return __builtin_ia32_vfmaddpd256(a, b, c);
}
INLINE FourFloats fused(FourFloats a, FourFloats b, FourFloats c) {
  return __builtin_ia32_vfmaddps(a, b, c);
}
INLINE Row fused_row(real w, Row b, Row c) { return fused((Row){w, w, w, w}, b, c); }
#else
INLINE Row fused_row(real w, Row b, Row c) {
  for (int a = 0; a < ROW; a++) c[a] = fused(w, b[a], c[a]);
  return c;
}
#endif
INLINE const Row &row_at(const real *from) { return *reinterpret_cast<const Row *>(from); }
INLINE Row &row_at(real *from) { return *reinterpret_cast<Row *>(from); }

// from: distance of the support's first point from the first own one. centre: of the nearest point.
// known: whether the position is one, for all axes.
#define VERTICES_A_BATCH 32
struct alignas(64) Batch {
  real phi[3][SUPPORT][VERTICES_A_BATCH];
  int from[3][VERTICES_A_BATCH], centre[3][VERTICES_A_BATCH], known[VERTICES_A_BATCH];
};

INLINE void weigh(Batch &batch, const Box &box, const real *X, long vertices, long begin,
                  long end) {
  THREADS(n, VERTICES_A_BATCH) batch.known[n] = 1;
  for (int d = 0; d < 3; d++) {
    const Axis axis = box.axes[d];
    THREADS(n, VERTICES_A_BATCH) {
      const real given = X[d * vertices + smaller(begin + n, end - 1)];
      const bool known = placeable(given);
      const real x = known ? given : 0;
      real phi[SUPPORT];
      const int first = delta_weights(x, phi);
      for (int a = 0; a < SUPPORT; a++) batch.phi[d][a][n] = phi[a];
      batch.from[d][n] = from_first(first, axis);
      batch.centre[d][n] = further(batch.from[d][n], nearest_point(x) - first, axis);
      batch.known[n] &= known;
    }
  }
}

// Where the points of all rows of a support begin; false if a row has gaps.
INLINE bool contiguous(const int *rows, const Table &table, long first, int *places) {
  int lowest = 0;
  for (int n = 0; n < ROWS; n++) {
    places[n] = rows[first + (n / SUPPORT * table.ny + n % SUPPORT) * table.nx];
    lowest |= places[n];
  }
  return lowest >= 0;
}

// Copies a support with gaps, rows one after the other; 0 where no fluid is.
static __attribute__((noinline)) void gather(const real *u, long stride, const Table &table,
                                             long first, real (*values)[ROWS][ROW], int *places) {
  for (int n = 0; n < ROWS; n++) {
    places[n] = n * ROW;
    const int *row = table.points + first + (n / SUPPORT * table.ny + n % SUPPORT) * table.nx;
    for (int a = 0; a < ROW; a++)
      for (int c = 0; c < 3; c++)
        values[c][n][a] = a < SUPPORT && row[a] >= 0 ? u[c * stride + row[a]] : 0;
  }
}

// Vertices of other ranks get 0.
KERNEL interpolate(const real *u, long stride, const int *points, const int *rows,
                   const int *numbers, long halo, const real *X, real *V, long vertices,
                   long count) {
  const Box box = box_of(numbers);
  const Table table = table_of(points, box, halo);
  BLOCKS(b, (count + VERTICES_A_BATCH - 1) / VERTICES_A_BATCH) {
    const long begin = b * VERTICES_A_BATCH, end = smaller(count, begin + VERTICES_A_BATCH);
    Batch batch;
    weigh(batch, box, X, vertices, begin, end);
    for (int n = 0; n < end - begin; n++) {
      long first[3];
      bool mine = batch.known[n];
      for (int d = 0; d < 3; d++) {
        mine = mine && is_own(batch.centre[d][n], box.axes[d]);
        // The support begins in the halo rather than at the other end of a periodic axis.
        const int from = batch.from[d][n];
        first[d] = from > batch.centre[d][n] ? from - box.axes[d].period : from;
      }
      real *to = V + begin + n;
      if (!mine) {
        to[0] = to[vertices] = to[2 * vertices] = 0;
        continue;
      }
      const long place = place_of(table, first[0], first[1], first[2]);
      alignas(64) real values[3][ROWS][ROW];
      int places[ROWS];
      const real *x = u, *y = u + stride, *z = u + 2 * stride;
      if (!contiguous(rows, table, place, places)) {
        gather(u, stride, table, place, values, places);
        x = values[0][0], y = values[1][0], z = values[2][0];
      }
      Row sums[3] = {};
#pragma GCC unroll 16
      for (int r = 0; r < ROWS; r++) {
        const real w = batch.phi[2][r / SUPPORT][n] * batch.phi[1][r % SUPPORT][n];
        sums[0] = fused_row(w, row_at(x + places[r]), sums[0]);
        sums[1] = fused_row(w, row_at(y + places[r]), sums[1]);
        sums[2] = fused_row(w, row_at(z + places[r]), sums[2]);
      }
      real phi[SUPPORT];
      for (int a = 0; a < SUPPORT; a++) phi[a] = batch.phi[0][a][n];
      for (int c = 0; c < 3; c++) to[c * vertices] = along_x(phi, (const real *)&sums[c]);
    }
  }
}
