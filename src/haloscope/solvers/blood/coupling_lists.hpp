// Spreading on a GPU from lists of what is near each tile, kept until some vertex has moved too far.
//
// A list holds, in rising order, the vertices whose support met the tile when it was made or would
// have met it after a move by the margin. So lists stay complete while all vertices are within the
// margin of where they were, and sums, which leave out what does not meet a point, do not depend on
// when lists were made. What makes lists returns at once unless the flag `wanted` is set: all
// launches of a step stay the same, and a graph can hold them.
//
// A block sums up a tile of bricks, one warp a brick. A lane holds in registers the sums of a column
// of points; it adds what a vertex puts on them in the order of the list: the bits are those of cores.
//
// then: positions when lists were made, component c of vertex i at c * count + i.
// tiling: points of a tile along each axis, and tiles along each axis.
// Constants: MARGIN; BRICK_Z, points of a column; BRICKS_X, BRICKS_Y, BRICKS_Z of a tile;
// BLOCKS_TOGETHER, blocks that a processor has room for.

#define LANES 32
#define EVERY_LANE 0xffffffffu
#define BRICK_X 8
#define BRICK_Y 4
#define BRICKS (BRICKS_X * BRICKS_Y * BRICKS_Z)
// Vertices whose shares wait in shared memory; a thread brings one axis of one.
#define WAITING (8 * BRICKS)
#define NOWHERE (-100)
#define MOST_MET (SUPPORT + 1)

// The different tiles along an axis that the support of x meets after a move by the margin or less.
INLINE int tiles_near(real x, const Axis &axis, int edge, int met[MOST_MET]) {
  real unused[SUPPORT];
  const int low = delta_weights(x - (real)MARGIN, unused), high = delta_weights(x + (real)MARGIN, unused);
  const int from = from_first(low, axis);
  int count = 0;
  for (int a = 0; a < high - low + SUPPORT; a++) {
    const int at = further(from, a, axis), tile = at / edge;
    bool is_new = is_own(at, axis);
    for (int b = 0; b < count; b++) is_new = is_new && met[b] != tile;
    if (is_new) met[count++] = tile;
  }
  return count;
}

// Does `work` with each `tile` near vertex i.
template <typename Work>
INLINE void for_tiles_near(const real *X, long vertices, long i, const Box &box, const int *tiling,
                           Work work) {
  int met[3][MOST_MET], count[3];
  for (int d = 0; d < 3; d++) {
    const real x = X[d * vertices + i];
    if (!placeable(x)) return;
    count[d] = tiles_near(x, box.axes[d], tiling[d], met[d]);
  }
  for (int z = 0; z < count[2]; z++)
    for (int y = 0; y < count[1]; y++)
      for (int x = 0; x < count[0]; x++)
        work((met[2][z] * (long)tiling[4] + met[1][y]) * tiling[3] + met[0][x]);
}

// What is no number has always moved.
KERNEL watch_vertices(const real *X, long vertices, long count, const real *then, double far,
                      int *wanted) {
  FOR_EACH(i, count) {
    bool still = true;
    for (int c = 0; c < 3; c++)
      still = still && absolute(X[c * vertices + i] - then[c * count + i]) <= (real)far;
    if (!still) *wanted = 1;
  }
}

KERNEL count_near(const int *wanted, const int *numbers, const int *tiling, const real *X,
                  long vertices, long count, real *then, int *counts) {
  if (!*wanted) return;
  const Box box = box_of(numbers);
  FOR_EACH(i, count) {
    for (int c = 0; c < 3; c++) then[c * count + i] = X[c * vertices + i];
    for_tiles_near(X, vertices, i, box, tiling, [&](long tile) { atomicAdd(counts + tile, 1); });
  }
}

KERNEL sum_near(const int *wanted, const int *counts, long bins, int *sums) {
  if (*wanted) sum_counts(counts, bins, sums);
}

KERNEL scan_near(const int *wanted, const int *counts, long bins, const int *sums, int *starts) {
  if (*wanted) scan_counts(counts, bins, sums, starts);
}

KERNEL fill_near(const int *wanted, const int *numbers, const int *tiling, const real *X,
                 long vertices, long count, const int *starts, int *counts, int *items) {
  if (!*wanted) return;
  const Box box = box_of(numbers);
  FOR_EACH(i, count)
    for_tiles_near(X, vertices, i, box, tiling,
                   [&](long tile) { put(items, starts, counts, tile, (int)i); });
}

KERNEL sort_near(const int *wanted, const int *starts, long bins, int *items) {
  if (!*wanted) return;
  BLOCKS(b, bins) sort_by_block(items + starts[b], starts[b + 1] - starts[b]);
}

// What the waiting vertices put on rows of points, w F, their weights along x, y, z, and the first
// points of their supports, from the tile's first ones.
struct Waiting {
  real wF[WAITING][3][SUPPORT][SUPPORT], phi[WAITING][3][SUPPORT], force[WAITING][3];
  int first[3][WAITING];
};

// The support's first point from a tile's first one, where it meets the tile; else far from it.
INLINE int first_in_tile(int first, int begin, int edge, const Axis &axis) {
  int from = from_first(first, axis) - begin;
  if (axis.period && from < 0) from += axis.period;
  if (axis.period && from >= edge) from -= axis.period;
  return from > -SUPPORT && from < edge ? from : NOWHERE;
}

// What a thread brings for one axis of one vertex.
struct Brought {
  real x, force;
};

INLINE Brought brought(const real *X, const real *F, long vertices, const int *items, int entry,
                       int count, int d) {
  // What has no place meets nothing.
  if (d > 2 || entry >= count) return {(real)1e30, 0};
  const long at = d * vertices + items[entry];
  return {X[at], F[at]};
}

INLINE void let_wait(Waiting &waiting, const Brought &one, int entry, int d, int begin, int edge,
                     const Axis &axis) {
  if (d > 2) return;
  waiting.first[d][entry] = NOWHERE;
  if (!placeable(one.x)) return;
  const int first = delta_weights(one.x, waiting.phi[entry][d]);
  waiting.first[d][entry] = first_in_tile(first, begin, edge, axis);
  waiting.force[entry][d] = one.force;
}

INLINE void set_rows(Waiting &waiting, int count) {
  THREADS(n, count * SUPPORT * SUPPORT) {
    const int entry = n / (SUPPORT * SUPPORT), k = n / SUPPORT % SUPPORT, j = n % SUPPORT;
    const real w = waiting.phi[entry][2][k] * waiting.phi[entry][1][j];
    for (int c = 0; c < 3; c++) waiting.wF[entry][c][k][j] = w * waiting.force[entry][c];
  }
}

INLINE bool meets_brick(int first, int begin, int edge) {
  return (unsigned)(first - begin + SUPPORT - 1) < (unsigned)(edge + SUPPORT - 1);
}

// wanted: cleared for the next time.
KERNEL __launch_bounds__(LANES *BRICKS, BLOCKS_TOGETHER)
spread_listed(real *g, long stride, const int *points, const int *numbers, long halo, const real *X,
              const real *F, long vertices, const int *tiling, const int *starts, const int *items,
              long bins, int *wanted) {
  SHARED(Waiting, all_waiting, 1);
  Waiting &waiting = all_waiting[0];
  const Box box = box_of(numbers);
  const Table table = table_of(points, box, halo);
  const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
  const int brick[3] = {warp % BRICKS_X * BRICK_X, warp / BRICKS_X % BRICKS_Y * BRICK_Y,
                        warp / (BRICKS_X * BRICKS_Y) * BRICK_Z};
  const int x = brick[0] + lane % BRICK_X, y = brick[1] + lane / BRICK_X;
  const int entry_brought = threadIdx.x % WAITING, d = threadIdx.x / WAITING;
  const Axis axis = d == 0 ? box.axes[0] : d == 1 ? box.axes[1] : box.axes[2];
  if (blockIdx.x == 0 && threadIdx.x == 0) *wanted = 0;
  BLOCKS(b, bins) {
    const int from = starts[b], end = starts[b + 1];
    if (from == end) continue;
    const int begin[3] = {(int)(b % tiling[3]) * tiling[0], (int)(b / tiling[3] % tiling[4]) * tiling[1],
                          (int)(b / tiling[3] / tiling[4]) * tiling[2]};
    const bool mine = x < tiling[0] && y < tiling[1] && begin[0] + x < box.axes[0].count &&
                      begin[1] + y < box.axes[1].count;
    const int planes =
        mine ? smaller(smaller(BRICK_Z, tiling[2] - brick[2]), box.axes[2].count - begin[2] - brick[2]) : 0;
    const int *column =
        points + (planes > 0 ? place_of(table, begin[0] + x, begin[1] + y, begin[2] + brick[2]) : 0);
    const long plane = table.nx * table.ny;
    real sum[3][BRICK_Z];
#pragma unroll
    for (int k = 0; k < BRICK_Z; k++) {
      const int p = k < planes ? column[k * plane] : -1;
#pragma unroll
      for (int c = 0; c < 3; c++) sum[c][k] = p < 0 ? 0 : g[c * stride + p];
    }
    // The next vertices are on their way while these are added.
    Brought next = brought(X, F, vertices, items + from, entry_brought, end - from, d);
    for (int at = from; at < end; at += WAITING) {
      let_wait(waiting, next, entry_brought, d, d == 0 ? begin[0] : d == 1 ? begin[1] : begin[2],
               tiling[d > 2 ? 0 : d], axis);
      const int after = at + WAITING;
      next = brought(X, F, vertices, items + after, entry_brought, end - after, d);
      BARRIER();
      set_rows(waiting, smaller(WAITING, end - at));
      BARRIER();
      for (int n = lane; n < WAITING; n += LANES) {
        const int *const first = &waiting.first[0][n];
        const bool met = meets_brick(first[0], brick[0], BRICK_X) &&
                         meets_brick(first[WAITING], brick[1], BRICK_Y) &&
                         meets_brick(first[2 * WAITING], brick[2], BRICK_Z);
        unsigned left = __ballot_sync(EVERY_LANE, met);
        while (left) {
          const int entry = n - lane + __ffs(left) - 1;
          left &= left - 1;
          const int a = x - waiting.first[0][entry], j = y - waiting.first[1][entry];
          const int k = brick[2] - waiting.first[2][entry];
          if ((unsigned)a < SUPPORT && (unsigned)j < SUPPORT) {
            const real phi = waiting.phi[entry][0][a];
            const real *const row = &waiting.wF[entry][0][0][j];
#pragma unroll
            for (int q = 0; q < BRICK_Z; q++)
              if ((unsigned)(k + q) < SUPPORT)
#pragma unroll
                for (int c = 0; c < 3; c++)
                  sum[c][q] = fused(row[(c * SUPPORT + k + q) * SUPPORT], phi, sum[c][q]);
          }
        }
        __syncwarp();
      }
      BARRIER();
    }
#pragma unroll
    for (int k = 0; k < BRICK_Z; k++) {
      const int p = k < planes ? column[k * plane] : -1;
#pragma unroll
      for (int c = 0; c < 3; c++)
        if (p >= 0) g[c * stride + p] = sum[c][k];
    }
  }
}
