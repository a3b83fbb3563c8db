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

// In vector lanes, of vertices side by side. from: distance of the support's first point from the
// first own one. centre: of the nearest point. known: whether the position is one, for all axes.
// w: weights of rows. rows: number of the first point of each row. whole: whether all rows are
// contiguous.
#define VERTICES_A_BATCH 32
struct alignas(64) Batch {
  real phi[3][SUPPORT][VERTICES_A_BATCH], w[ROWS][VERTICES_A_BATCH];
  int from[3][VERTICES_A_BATCH], centre[3][VERTICES_A_BATCH], known[VERTICES_A_BATCH];
  int rows[ROWS][VERTICES_A_BATCH], whole[VERTICES_A_BATCH];
};

// `count` vertices, of which at(n) gives the numbers; lanes beyond hold some that are not known.
template <typename At>
INLINE void weigh(Batch &batch, const Box &box, const real *X, long vertices, long count, At at) {
  THREADS(n, VERTICES_A_BATCH) batch.known[n] = n < count;
  for (int d = 0; d < 3; d++) {
    const Axis axis = box.axes[d];
    // A loop of its own: with the next one it would not go into lanes.
    alignas(64) real x[VERTICES_A_BATCH] = {};
    THREADS(n, count) {
      const real coordinate = X[d * vertices + at(n)];
      const bool known = placeable(coordinate);
      x[n] = known ? coordinate : 0;
      batch.known[n] &= known;
    }
    THREADS(n, VERTICES_A_BATCH) {
      const int first = delta_weights(x[n], &batch.phi[d][0][n], VERTICES_A_BATCH);
      const int from = from_first(first, axis);
      batch.from[d][n] = from;
      batch.centre[d][n] = further(from, nearest_point(x[n]) - first, axis);
    }
  }
  for (int r = 0; r < ROWS; r++)
    THREADS(n, VERTICES_A_BATCH)
      batch.w[r][n] = batch.phi[2][r / SUPPORT][n] * batch.phi[1][r % SUPPORT][n];
}

// Rows of supports that begin at given places of the table and lie in it as a whole.
INLINE void find_rows_from(Batch &batch, const Table &table, const int *rows, const int *first) {
  THREADS(n, VERTICES_A_BATCH) batch.whole[n] = 0;
  for (int r = 0; r < ROWS; r++) {
    const int *row = rows + (r / SUPPORT * table.ny + r % SUPPORT) * table.nx;
    THREADS(n, VERTICES_A_BATCH) {
      const int p = row[first[n]];
      batch.rows[r][n] = p;
      batch.whole[n] |= p;
    }
  }
}

// The sums of a vertex whose support has gaps, point after point.
static __attribute__((noinline)) void sum_with_gaps(const real *u, long stride, const Table &table,
                                                    const Batch &batch, int n, long first,
                                                    real (*sums)[ROW]) {
  const real *v = u + stride, *w = v + stride;
  real x[SUPPORT] = {}, y[SUPPORT] = {}, z[SUPPORT] = {};
  for (int r = 0; r < ROWS; r++) {
    const int *points = table.points + first + (r / SUPPORT * table.ny + r % SUPPORT) * table.nx;
    const real weight = batch.w[r][n];
#pragma GCC unroll 4
    for (int a = 0; a < SUPPORT; a++) {
      const int p = points[a];
      if (p < 0) continue;
      x[a] = fused(weight, u[p], x[a]);
      y[a] = fused(weight, v[p], y[a]);
      z[a] = fused(weight, w[p], z[a]);
    }
  }
  for (int a = 0; a < SUPPORT; a++) sums[0][a] = x[a], sums[1][a] = y[a], sums[2][a] = z[a];
}

// The numbers of `count` vertices that are wanted, from the begin-th on; whether they follow each other.
INLINE bool number_vertices(const int *cells, const int *span, long a_cell, long begin, long count,
                            long *places) {
  if (!a_cell) {
    for (long n = 0; n < count; n++) places[n] = begin + n;
    return true;
  }
  long cell = span[0] + begin / a_cell, v = begin % a_cell;
  bool together = true;
  for (long n = 0; n < count; n++) {
    places[n] = cells[cell] * a_cell + v;
    together = together && (n == 0 || places[n] == places[n - 1] + 1);
    if (++v == a_cell) cell++, v = 0;
  }
  return together;
}

// Vertices of other ranks get 0.
KERNEL(interpolate, IN(real, velocity), LONG(stride), IN(int, points), IN(int, rows),
       IN(int, box_numbers), LONG(halo), IN(real, positions), OUT(real, velocities), LONG(vertices),
       LONG(count), IN(int, cells), IN(int, span), LONG(a_cell)) {
  const long wanted = vertices_wanted(span, a_cell, count);
  const Box box = box_of(box_numbers);
  const Table table = table_of(points, box, halo);
  BLOCKS(b, (wanted + VERTICES_A_BATCH - 1) / VERTICES_A_BATCH) {
    const long begin = b * VERTICES_A_BATCH, here = smaller(wanted - begin, (long)VERTICES_A_BATCH);
    long places[VERTICES_A_BATCH];
    const bool together = number_vertices(cells, span, a_cell, begin, here, places);
    Batch batch;
    const long start = places[0];
    if (together)
      weigh(batch, box, positions, vertices, here, [&](int n) { return start + n; });
    else
      weigh(batch, box, positions, vertices, here, [&](int n) { return places[n]; });
    int first[VERTICES_A_BATCH];
    for (int d = 0; d < 3; d++) {
      const Axis axis = box.axes[d];
      THREADS(n, VERTICES_A_BATCH) {
        const int from = batch.from[d][n], centre = batch.centre[d][n];
        batch.known[n] &= is_own(centre, axis);
        // The support begins in the halo rather than at the other end of a periodic axis.
        batch.from[d][n] = from > centre ? from - axis.period : from;
      }
    }
    THREADS(n, VERTICES_A_BATCH) {
      const int x = batch.from[0][n], y = batch.from[1][n], z = batch.from[2][n];
      first[n] = batch.known[n] ? (int)place_of(table, x, y, z) : 0;
    }
    find_rows_from(batch, table, rows, first);
    for (int n = 0; n < here; n++) {
      real *to = velocities + places[n];
      if (!batch.known[n]) {
        to[0] = to[vertices] = to[2 * vertices] = 0;
        continue;
      }
      alignas(64) real sums[3][ROW];
      if (batch.whole[n] < 0) {
        sum_with_gaps(velocity, stride, table, batch, n, first[n], sums);
      } else {
        Row rows_of[3] = {};
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++) {
          const real *x = velocity + batch.rows[r][n], *y = x + stride, *z = y + stride;
          const real w = batch.w[r][n];
          rows_of[0] = fused_row(w, row_at(x), rows_of[0]);
          rows_of[1] = fused_row(w, row_at(y), rows_of[1]);
          rows_of[2] = fused_row(w, row_at(z), rows_of[2]);
        }
        for (int c = 0; c < 3; c++) row_at(sums[c]) = rows_of[c];
      }
      real phi[SUPPORT];
      for (int a = 0; a < SUPPORT; a++) phi[a] = batch.phi[0][a][n];
      for (int c = 0; c < 3; c++) to[c * vertices] = along_x(phi, sums[c]);
    }
  }
}
