// Spreading on cores: each thread adds to a slab of planes of its own, vertex after vertex.
//
// So the contributions to a point come in the order of vertices, whatever the number of threads.
// Threads pass over vertices that do not reach their slab. Slabs hold about as many vertices each.

#define HIGHEST 0x7fffffff

// What vertices of a batch put on each row, w F, in vector lanes.
struct alignas(64) Shares {
  real wF[ROWS][3][VERTICES_A_BATCH];
};

// A vertex whose support has gaps or does not lie in the slab as a whole.
static __attribute__((noinline)) void spread_parts(real *g, long stride, const Table &table,
                                                   const int *rows, const Box &box,
                                                   const Batch &batch, const Shares &shares, int n,
                                                   int begin, int end) {
  real phi[ROW] = {};
  for (int a = 0; a < SUPPORT; a++) phi[a] = batch.phi[0][a][n];
  const int from = batch.from[0][n];
  const bool within = from >= 0 && from + SUPPORT <= box.axes[0].count;
  int x[SUPPORT];
  for (int a = 0; a < SUPPORT; a++) {
    x[a] = further(from, a, box.axes[0]);
    if (!is_own(x[a], box.axes[0])) x[a] = -1;
  }
  for (int r = 0; r < ROWS; r++) {
    const int z = further(batch.from[2][n], r / SUPPORT, box.axes[2]);
    const int y = further(batch.from[1][n], r % SUPPORT, box.axes[1]);
    if (z < begin || z >= end || !is_own(y, box.axes[1])) continue;
    const long row = place_of(table, 0, y, z);
    if (within && rows[row + from] >= 0) {
      real *p = g + rows[row + from];
      for (int c = 0; c < 3; c++)
        row_at(p + c * stride) =
            fused_row(shares.wF[r][c][n], row_at(phi), row_at(p + c * stride));
      continue;
    }
    const real fx = shares.wF[r][0][n], fy = shares.wF[r][1][n], fz = shares.wF[r][2][n];
    for (int a = 0; a < SUPPORT; a++) {
      const int place = x[a] < 0 ? -1 : table.points[row + x[a]];
      if (place < 0) continue;
      real *p = g + place, *q = p + stride, *s = q + stride;
      *p = fused(fx, phi[a], *p);
      *q = fused(fy, phi[a], *q);
      *s = fused(fz, phi[a], *s);
    }
  }
}

// Which planes and rows of supports lie in the slab: first and one past the last, in vector lanes; `all`:
// all of those of every vertex.
struct alignas(64) Reach {
  int low[2][VERTICES_A_BATCH], high[2][VERTICES_A_BATCH];
  bool all;
};

// Where the rows of supports begin, and which of them lie in the slab. Supports that go over the end of
// the box along x, that have gaps or whose planes in the slab do not follow each other are not whole.
INLINE void find_rows(Batch &batch, Reach &reach, const Table &table, const int *rows, const Box &box,
                      int begin, int end) {
  const Axis ax = box.axes[0], ay = box.axes[1], az = box.axes[2];
  int x[VERTICES_A_BATCH], out = 0;
  for (int n = 0; n < VERTICES_A_BATCH; n++) {
    const int along = batch.from[0][n], y = batch.from[1][n], z = batch.from[2][n];
    out |= (along < 0) | (along + SUPPORT > ax.count) | (y < 0) | (y + SUPPORT > ay.count) |
           (z < begin) | (z + SUPPORT > end);
  }
  reach.all = !out;
  if (reach.all) {
    THREADS(n, VERTICES_A_BATCH)
      x[n] = (int)place_of(table, batch.from[0][n], batch.from[1][n], batch.from[2][n]);
    return find_rows_from(batch, table, rows, x);
  }
  THREADS(n, VERTICES_A_BATCH) {
    const int from = batch.from[0][n];
    const bool within = from >= 0 && from + SUPPORT <= ax.count;
    x[n] = within ? from : 0;
    batch.whole[n] = within ? 0 : -1;
  }
  for (int d = 0; d < 2; d++) {
    const Axis axis = d ? az : ay;
    const int first = d ? begin : 0, last = d ? end : ay.count;
    THREADS(n, VERTICES_A_BATCH) {
      int low = SUPPORT, high = 0, inside = 0;
      for (int a = 0; a < SUPPORT; a++) {
        const int there = further(batch.from[1 + d][n], a, axis);
        const int in = (there >= first) & (there < last);
        low = in & (a < low) ? a : low;
        high = in ? a + 1 : high;
        inside += in;
      }
      reach.low[d][n] = low;
      reach.high[d][n] = high;
      batch.whole[n] |= inside && inside != high - low ? -1 : 0;
    }
  }
  for (int r = 0; r < ROWS; r++)
    THREADS(n, VERTICES_A_BATCH) {
      const int y = further(batch.from[1][n], r % SUPPORT, ay);
      const int z = further(batch.from[2][n], r / SUPPORT, az);
      const bool within = is_own(y, ay) & (z >= begin) & (z < end);
      const int place = (int)place_of(table, x[n], within ? y : 0, within ? z : 0);
      const int p = rows[place];
      batch.rows[r][n] = p;
      batch.whole[n] |= within ? p : 0;
    }
}

// Puts row r of a vertex's support on the points.
INLINE void add_row(real *g, long stride, const Batch &batch, const Shares &shares, Row phi, int r, int n) {
  real *p = g + batch.rows[r][n], *q = p + stride, *s = q + stride;
  row_at(p) = fused_row(shares.wF[r][0][n], phi, row_at(p));
  row_at(q) = fused_row(shares.wF[r][1][n], phi, row_at(q));
  row_at(s) = fused_row(shares.wF[r][2][n], phi, row_at(s));
}

// Vertices with given numbers, planes [begin, end) of the own box.
INLINE void spread_batch(real *g, long stride, const Table &table, const int *rows,
                         const Box &box, const real *X, const real *F, long vertices,
                         const int *numbers, int count, int begin, int end) {
  Batch batch;
  Shares shares;
  Reach reach;
  const long start = numbers[0];
  if (numbers[count - 1] - start == count - 1)
    weigh(batch, box, X, vertices, count, [&](int n) { return start + n; });
  else
    weigh(batch, box, X, vertices, count, [&](int n) { return (long)numbers[n]; });
  find_rows(batch, reach, table, rows, box, begin, end);
  for (int c = 0; c < 3; c++) {
    alignas(64) real force[VERTICES_A_BATCH] = {};
    for (int n = 0; n < count; n++) force[n] = F[c * vertices + numbers[n]];
    for (int r = 0; r < ROWS; r++)
      THREADS(n, VERTICES_A_BATCH) shares.wF[r][c][n] = batch.w[r][n] * force[n];
  }
  for (int n = 0; n < count; n++) {
    if (!batch.known[n]) continue;
    if (batch.whole[n] < 0) {
      spread_parts(g, stride, table, rows, box, batch, shares, n, begin, end);
      continue;
    }
    real phi[ROW] = {};
    for (int a = 0; a < SUPPORT; a++) phi[a] = batch.phi[0][a][n];
    const Row phi_x = row_at(phi);
    if (reach.all || reach.high[0][n] - reach.low[0][n] + reach.high[1][n] - reach.low[1][n] == 2 * SUPPORT) {
#pragma GCC unroll 16
      for (int r = 0; r < ROWS; r++) add_row(g, stride, batch, shares, phi_x, r, n);
      continue;
    }
    for (int k = reach.low[1][n]; k < reach.high[1][n]; k++)
      for (int j = reach.low[0][n]; j < reach.high[0][n]; j++)
        add_row(g, stride, batch, shares, phi_x, k * SUPPORT + j, n);
  }
}

// Whether planes low..high of the lattice, periodic images included, meet own planes [begin, end).
INLINE bool meets(int low, int high, const Axis &axis, int begin, int end) {
  if (high < low) return false;
  if (axis.period && high - low >= axis.period - 1) return true;
  const int from = from_first(low, axis), to = from + high - low + 1;
  return (from < end && to > begin) || (axis.period && to - axis.period > begin);
}

// Whether all of these planes are among own planes [begin, end).
INLINE bool covered(int low, int high, const Axis &axis, int begin, int end) {
  if (begin == 0 && end == axis.period) return true;
  const int from = from_first(low, axis);
  return from >= begin && from + high - low < end;
}

// extents: lowest and highest plane that vertices of each batch touch. histogram[part][own plane]:
// vertices nearest to it. slabs: first plane of each part, and the end.
KERNEL(spread, INOUT(real, force), LONG(stride), IN(int, points), IN(int, rows),
       IN(int, box_numbers), LONG(halo), IN(real, positions), IN(real, forces), LONG(vertices),
       LONG(count), INOUT(int, extents), INOUT(int, histogram), INOUT(int, slabs), LONG(parts)) {
  const Box box = box_of(box_numbers);
  const Table table = table_of(points, box, halo);
  const Axis axis = box.axes[2];
  const long batches = (count + VERTICES_A_BATCH - 1) / VERTICES_A_BATCH;
  const real *Z = positions + 2 * vertices;
  PARTS(k, parts) {
    int *planes = histogram + k * axis.count;
    for (int z = 0; z < axis.count; z++) planes[z] = 0;
    for (long b = k * batches / parts; b < (k + 1) * batches / parts; b++) {
      int low = HIGHEST, high = -HIGHEST;
      for (long i = b * VERTICES_A_BATCH; i < smaller(count, (b + 1) * VERTICES_A_BATCH); i++) {
        if (!placeable(Z[i])) continue;
        const int nearest = nearest_point(Z[i]), z = own(nearest, axis);
        low = smaller(low, nearest - 2);
        high = larger(high, nearest + 2);
        if (z >= 0) planes[z]++;
      }
      extents[2 * b] = low;
      extents[2 * b + 1] = high;
    }
  }
  long total = 0, before = 0;
  for (long n = 0; n < parts * axis.count; n++) total += histogram[n];
  int z = 0;
  for (long k = 0; k <= parts; k++) {
    while (z < axis.count && (before * parts < k * total || k == parts)) {
      for (long part = 0; part < parts; part++) before += histogram[part * axis.count + z];
      z++;
    }
    slabs[k] = z;
  }
  PARTS(k, parts) {
    // What waits is spread once it fills a batch: few vertices of those that follow each other meet a slab.
    int waiting[2 * VERTICES_A_BATCH], held = 0;
    const int begin = slabs[k], end = slabs[k + 1];
    if (begin == end) continue;
    for (long b = 0; b < batches; b++) {
      const int low = extents[2 * b], high = extents[2 * b + 1];
      if (!meets(low, high, axis, begin, end)) continue;
      const long from = b * VERTICES_A_BATCH, to = smaller(count, from + VERTICES_A_BATCH);
      if (covered(low, high, axis, begin, end)) {
        for (long i = from; i < to; i++) waiting[held++] = (int)i;
      } else for (long i = from; i < to; i++) {
        const bool known = placeable(Z[i]);
        const int first = first_of_support(known ? Z[i] : 0);
        waiting[held] = (int)i;
        held += known && meets(first, first + SUPPORT - 1, axis, begin, end);
      }
      if (held < VERTICES_A_BATCH) continue;
      spread_batch(force, stride, table, rows, box, positions, forces, vertices, waiting,
                   VERTICES_A_BATCH, begin, end);
      held -= VERTICES_A_BATCH;
      for (int n = 0; n < held; n++) waiting[n] = waiting[VERTICES_A_BATCH + n];
    }
    if (held)
      spread_batch(force, stride, table, rows, box, positions, forces, vertices, waiting, held,
                   begin, end);
  }
}
