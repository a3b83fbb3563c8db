// Spreading on cores: each thread adds to a slab of planes of its own, vertex after vertex.
//
// So the contributions to a point come in the order of vertices, whatever the number of threads.
// Threads pass over batches of vertices that do not reach their slab. Slabs hold about as many
// vertices each.

#define HIGHEST 0x7fffffff

// A vertex whose support has gaps or does not lie in the slab as a whole.
static __attribute__((noinline)) void spread_parts(real *g, long stride, const Table &table,
                                                   const int *rows, const Box &box,
                                                   const Batch &batch, int n, const real *force,
                                                   const real *phi, int begin, int end) {
  const Axis &axis = box.axes[0];
  const int from = batch.from[0][n];
  const bool whole = from >= 0 && from + SUPPORT <= axis.count;
  for (int k = 0; k < SUPPORT; k++) {
    const int z = further(batch.from[2][n], k, box.axes[2]);
    if (z < begin || z >= end) continue;
    for (int j = 0; j < SUPPORT; j++) {
      const int y = further(batch.from[1][n], j, box.axes[1]);
      if (!is_own(y, box.axes[1])) continue;
      const real w = batch.phi[2][k][n] * batch.phi[1][j][n];
      const long row = place_of(table, 0, y, z);
      if (whole && rows[row + from] >= 0) {
        real *p = g + rows[row + from];
        for (int c = 0; c < 3; c++)
          row_at(p + c * stride) = fused_row(w * force[c], row_at(phi), row_at(p + c * stride));
        continue;
      }
      for (int a = 0; a < SUPPORT; a++) {
        const int x = further(from, a, axis), p = is_own(x, axis) ? table.points[row + x] : -1;
        for (int c = 0; c < 3 && p >= 0; c++)
          g[c * stride + p] = fused(w * force[c], phi[a], g[c * stride + p]);
      }
    }
  }
}

// Vertices begin_vertex to end_vertex, planes [begin, end) of the own box.
INLINE void spread_batch(real *g, long stride, const Table &table, const int *rows,
                         const Box &box, const real *X, const real *F, long vertices,
                         long begin_vertex, long end_vertex, int begin, int end) {
  Batch batch;
  weigh(batch, box, X, vertices, begin_vertex, end_vertex);
  for (int n = 0; n < end_vertex - begin_vertex; n++) {
    if (!batch.known[n]) continue;
    const real *from = F + begin_vertex + n;
    const real force[3] = {from[0], from[vertices], from[2 * vertices]};
    const int x = batch.from[0][n], y = batch.from[1][n], z = batch.from[2][n];
    real phi[ROW] = {};
    for (int a = 0; a < SUPPORT; a++) phi[a] = batch.phi[0][a][n];
    int places[ROWS];
    const bool whole = x >= 0 && x + SUPPORT <= box.axes[0].count && y >= 0 &&
                       y + SUPPORT <= box.axes[1].count && z >= begin && z + SUPPORT <= end;
    if (!whole || !contiguous(rows, table, place_of(table, x, y, z), places)) {
      spread_parts(g, stride, table, rows, box, batch, n, force, phi, begin, end);
      continue;
    }
    const Row phi_x = row_at(phi);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) {
      const real w = batch.phi[2][r / SUPPORT][n] * batch.phi[1][r % SUPPORT][n];
      real *p = g + places[r], *q = p + stride, *s = q + stride;
      row_at(p) = fused_row(w * force[0], phi_x, row_at(p));
      row_at(q) = fused_row(w * force[1], phi_x, row_at(q));
      row_at(s) = fused_row(w * force[2], phi_x, row_at(s));
    }
  }
}

// Whether planes low..high of the lattice, periodic images included, meet own planes [begin, end).
INLINE bool meets(int low, int high, const Axis &axis, int begin, int end) {
  if (high < low) return false;
  if (axis.period && high - low >= axis.period - 1) return true;
  const int from = from_first(low, axis), to = from + high - low + 1;
  return (from < end && to > begin) || (axis.period && to - axis.period > begin);
}

// extents: lowest and highest plane that vertices of each batch touch. histogram[part][own plane]:
// vertices nearest to it. slabs: first plane of each part, and the end.
KERNEL spread(real *g, long stride, const int *points, const int *rows, const int *numbers,
              long halo, const real *X, const real *F, long vertices, long count, int *extents,
              int *histogram, int *slabs, long parts) {
  const Box box = box_of(numbers);
  const Table table = table_of(points, box, halo);
  const Axis axis = box.axes[2];
  const long batches = (count + VERTICES_A_BATCH - 1) / VERTICES_A_BATCH;
  const real *Z = X + 2 * vertices;
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
  PARTS(k, parts)
    for (long b = 0; b < batches; b++)
      if (meets(extents[2 * b], extents[2 * b + 1], axis, slabs[k], slabs[k + 1]))
        spread_batch(g, stride, table, rows, box, X, F, vertices, b * VERTICES_A_BATCH,
                     smaller(count, (b + 1) * VERTICES_A_BATCH), slabs[k], slabs[k + 1]);
}
