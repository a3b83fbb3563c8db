// Spreading on a GPU by tiles of the own box, summed up in shared memory.
//
// Vertices are put into bins, one bin for each tile that their support meets. Then several warps a
// tile take its vertices in any order and add in whole multiples of the resolution: the same bits
// whatever the order. A lane adds the shares of its own points alone.

// WARPS: of a block.
CONSTANTS(INT(WARPS))

#define TILE_X 8
#define TILE_Y 8
#define TILE_Z 4
#define TILE_POINTS (TILE_X * TILE_Y * TILE_Z)
#define LANES 32

struct Tiles {
  int along[3];
};

INLINE int tile_edge(int d) { return d == 2 ? TILE_Z : d == 1 ? TILE_Y : TILE_X; }

INLINE Tiles tiles_of(const Box &box) {
  Tiles tiles;
  for (int d = 0; d < 3; d++)
    tiles.along[d] = (box.axes[d].count + tile_edge(d) - 1) / tile_edge(d);
  return tiles;
}

// The different tiles that the support of a vertex meets along an axis.
INLINE int tiles_met(const int at[SUPPORT], int edge, int met[SUPPORT]) {
  int count = 0;
  for (int a = 0; a < SUPPORT; a++) {
    bool is_new = at[a] >= 0;
    for (int b = 0; b < a; b++) is_new = is_new && !(at[b] >= 0 && at[b] / edge == at[a] / edge);
    if (is_new) met[count++] = at[a] / edge;
  }
  return count;
}

// Does `work` with `tile` for each tile that vertex i meets.
#define FOR_TILES_MET(tile, i, work)                                                          \
  {                                                                                           \
    int at[3][SUPPORT], met[3][SUPPORT], count_met[3];                                        \
    real phi[3][SUPPORT];                                                                     \
    if (own_support(positions, vertices, i, box, at, phi)) {                                  \
      for (int d = 0; d < 3; d++) count_met[d] = tiles_met(at[d], tile_edge(d), met[d]);      \
      for (int z = 0; z < count_met[2]; z++)                                                  \
        for (int y = 0; y < count_met[1]; y++)                                                \
          for (int x = 0; x < count_met[0]; x++) {                                            \
            const long tile =                                                                 \
                (met[2][z] * (long)tiles.along[1] + met[1][y]) * tiles.along[0] + met[0][x];  \
            work;                                                                             \
          }                                                                                   \
    }                                                                                         \
  }

KERNEL(count_tiles, IN(int, box_numbers), IN(real, positions), LONG(vertices), LONG(count),
       INOUT(int, counts)) {
  const Box box = box_of(box_numbers);
  const Tiles tiles = tiles_of(box);
  FOR_EACH(i, count) FOR_TILES_MET(tile, i, atomicAdd(counts + tile, 1))
}

KERNEL(fill_tiles, IN(int, box_numbers), IN(real, positions), LONG(vertices), LONG(count),
       IN(int, starts), INOUT(int, counts), OUT(int, items)) {
  const Box box = box_of(box_numbers);
  const Tiles tiles = tiles_of(box);
  FOR_EACH(i, count) FOR_TILES_MET(tile, i, put(items, starts, counts, tile, (int)i))
}

// 32 vertices as the lanes of a warp left them for each other: number of points from the tile's
// first one (-1: outside), weights, forces.
struct Batch {
  signed char at[3][SUPPORT][LANES];
  real phi[3][SUPPORT][LANES], force[3][LANES];
};

INLINE long whole(double value) {
  const double shifted = value + 0.5;
  const long below = (long)shifted;
  return below - (shifted < (double)below);
}

// The lattice point at place n of a tile that begins at an own place; -1: none.
INLINE int point_of_tile(const Table &table, const Box &box, const int first[3], int n) {
  const int x = first[0] + n % TILE_X, y = first[1] + n / TILE_X % TILE_Y;
  const int z = first[2] + n / (TILE_X * TILE_Y);
  for (int d = 0; d < 3; d++)
    if ((d == 0 ? x : d == 1 ? y : z) >= box.axes[d].count) return -1;
  return table.points[place_of(table, x, y, z)];
}

// The warps of a block share a tile. unit: whole numbers in 1.
KERNEL(spread_fixed_point, INOUT(real, force), LONG(stride), IN(int, points), IN(int, box_numbers),
       LONG(halo), IN(real, positions), IN(real, forces), LONG(vertices), IN(int, starts),
       IN(int, items), LONG(bins), DOUBLE(unit)) {
  SHARED(long, sum, 3 * TILE_POINTS);
  SHARED(Batch, batches, WARPS);
  const Box box = box_of(box_numbers);
  const Tiles tiles = tiles_of(box);
  const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
  const Table table = table_of(points, box, halo);
  Batch &batch = batches[warp];
  const int a = lane % 4, j = lane / 4 % 4, upper = lane / 16;
  BLOCKS(tile, bins) {
    const int first[3] = {(int)(tile % tiles.along[0]) * TILE_X,
                          (int)(tile / tiles.along[0] % tiles.along[1]) * TILE_Y,
                          (int)(tile / tiles.along[0] / tiles.along[1]) * TILE_Z};
    const int begin = starts[tile], end = starts[tile + 1];
    if (begin == end) continue;
    THREADS(n, 3 * TILE_POINTS) sum[n] = 0;
    BARRIER();
    for (int from = begin + warp * LANES; from < end; from += WARPS * LANES) {
      if (from + lane < end) {
        const long i = items[from + lane];
        int at[3][SUPPORT];
        real phi[3][SUPPORT];
        own_support(positions, vertices, i, box, at, phi);
        for (int d = 0; d < 3; d++) {
          for (int s = 0; s < SUPPORT; s++) {
            const int inner = at[d][s] - first[d];
            batch.at[d][s][lane] = at[d][s] >= 0 && inner >= 0 && inner < tile_edge(d) ? inner : -1;
            batch.phi[d][s][lane] = phi[d][s];
          }
          batch.force[d][lane] = forces[d * vertices + i];
        }
      }
      __syncwarp();
      for (int n = 0; n < smaller(LANES, end - from); n++) {
        const int x = a < SUPPORT ? batch.at[0][a][n] : -1, y = j < SUPPORT ? batch.at[1][j][n] : -1;
        if (x >= 0 && y >= 0)
          for (int k = upper; k < SUPPORT; k += 2) {
            const int z = batch.at[2][k][n];
            if (z < 0) continue;
            const real w = batch.phi[2][k][n] * batch.phi[1][j][n], phi_x = batch.phi[0][a][n];
            for (int c = 0; c < 3; c++) {
              const real share = w * batch.force[c][n] * phi_x;
              atomic_add(&sum[c * TILE_POINTS + (z * TILE_Y + y) * TILE_X + x],
                         whole((double)share * unit));
            }
          }
      }
      __syncwarp();
    }
    BARRIER();
    THREADS(n, TILE_POINTS) {
      const int p = point_of_tile(table, box, first, n);
      for (int c = 0; c < 3 && p >= 0; c++)
        force[c * stride + p] =
            force[c * stride + p] + (real)((double)sum[c * TILE_POINTS + n] / unit);
    }
    BARRIER();
  }
}
