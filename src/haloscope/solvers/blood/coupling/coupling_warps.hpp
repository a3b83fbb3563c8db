// Spreading on a GPU from the lists of coupling_lists.hpp, a warp a tile.
//
// A lane has the points of a tile whose numbers along x and y are lane % 4 and lane / 4 % 4 modulo 4,
// and along z lane / 16 modulo 2. So each lane meets one column of any support of four points, and
// every second point of it: no lane idles, no two want the same bank of shared memory or the same
// sum, and sums stay in registers. Each adds in the order of the list: the bits are those of cores.
//
// column: columns of a lane, those along x first. slot: its points along z.
// place: of a support in a tile: 4 + number of its first point along x, y and z, a byte each; 0 where it
// does not meet the tile.

// WARPS_TOGETHER: warps that a processor has room for.
CONSTANTS(INT(COLUMNS_X), INT(COLUMNS_Y), INT(SLOTS), INT(WARPS_TOGETHER))

#define EVERY_LANE 0xffffffffu
#define NOWHERE (-100)
#define COLUMNS (COLUMNS_X * COLUMNS_Y)
// Weights along x, y and z, four each, then the force. Odd, so that lanes write to different banks.
#define ENTRY 15

// A lane's, by component, slot and column.
typedef real Sums[3][SLOTS][COLUMNS];

// Registers have fixed names: each column is asked for.
INLINE void add_to_column(Sums &sums, int s, int column, const real *wF, real phi) {
#pragma unroll
  for (int q = 0; q < COLUMNS; q++)
    if (column == q) {
#pragma unroll
      for (int c = 0; c < 3; c++) sums[c][s][q] = fused(wF[c], phi, sums[c][s][q]);
    }
}

// The support's first point from a tile's first one, where it meets the tile; else far from it.
INLINE int first_in_tile(int first, int begin, int edge, const Axis &axis) {
  int from = from_first(first, axis) - begin;
  if (axis.period && from < 0) from += axis.period;
  if (axis.period && from >= edge) from -= axis.period;
  return from > -SUPPORT && from < edge ? from : NOWHERE;
}

// Weights and force of vertex i into an entry; its place.
INLINE unsigned prepare(const real *X, const real *F, long vertices, long i, const Box &box,
                        const int *tiling, const int *begin, real *entry) {
  unsigned place = 0;
#pragma unroll
  for (int d = 0; d < 3; d++) {
    const real x = X[d * vertices + i];
    if (!placeable(x)) return 0;
    const int first = delta_weights(x, entry + 4 * d);
    const int from = first_in_tile(first, begin[d], tiling[d], box.axes[d]);
    if (from == NOWHERE) return 0;
    entry[12 + d] = F[d * vertices + i];
    place |= (unsigned)(4 + from) << 8 * d;
  }
  return place;
}

// What an entry puts on a lane's points; the lane's x, y, z.
INLINE void add_entry(Sums &sums, const real *entry, unsigned place, int x, int y, int z) {
  const int fx = place & 255, fy = place >> 8 & 255, fz = place >> 16;
  // The only numbers from the first one on that are this lane's.
  const int a = (x - fx) & 3, j = (y - fy) & 3;
  const int at_x = ((fx + 3 - x) >> 2) - 1, at_y = ((fy + 3 - y) >> 2) - 1;
  const bool mine = (unsigned)at_x < COLUMNS_X && (unsigned)at_y < COLUMNS_Y && a < SUPPORT && j < SUPPORT;
  const int column = mine ? at_y * COLUMNS_X + at_x : -1;
  const real phi_x = entry[a], phi_y = entry[4 + j];
  const real force[3] = {entry[12], entry[13], entry[14]};
#pragma unroll
  for (int s = 0; s < SLOTS; s++) {
    const int k = 2 * s + z + 4 - fz;
    if (!mine || (unsigned)k >= SUPPORT) continue;
    const real w = entry[8 + k] * phi_y, wF[3] = {w * force[0], w * force[1], w * force[2]};
    add_to_column(sums, s, column, wF, phi_x);
  }
}

// Calls visit(slot, column, point) for a lane's points of a tile; -1: none.
template <typename Visit>
INLINE void for_points(const Table &table, const Box &box, const int *tiling, const int *begin, int x,
                       int y, int z, Visit visit) {
  const long plane = table.nx * table.ny;
#pragma unroll
  for (int q = 0; q < COLUMNS; q++) {
    const int at_x = 4 * (q % COLUMNS_X) + x, at_y = 4 * (q / COLUMNS_X) + y;
    const bool mine = at_x < smaller(tiling[0], box.axes[0].count - begin[0]) &&
                      at_y < smaller(tiling[1], box.axes[1].count - begin[1]);
    const int planes = mine ? smaller(tiling[2], box.axes[2].count - begin[2]) : 0;
    const int *const column =
        table.points + (mine ? place_of(table, begin[0] + at_x, begin[1] + at_y, begin[2]) : 0);
#pragma unroll
    for (int s = 0; s < SLOTS; s++)
      visit(s, q, 2 * s + z < planes ? column[(2 * s + z) * plane] : -1);
  }
}

// afresh: what points hold is left aside, and gone also where no vertex is near.
// wanted: cleared for the next time, as is the number of blocks that have arrived.
KERNEL_BOUNDS(__launch_bounds__(LANES, WARPS_TOGETHER), spread_by_warps, INOUT(real, force),
              LONG(stride), IN(int, points), IN(int, box_numbers), LONG(halo), IN(real, positions),
              IN(real, forces), LONG(vertices), IN(int, tiling), IN(long, starts), IN(int, items),
              LONG(bins), LONG(afresh), OUT(int, wanted)) {
  SHARED(real, entries, LANES * ENTRY);
  SHARED(unsigned, places, LANES);
  Sums sums;
  const Box box = box_of(box_numbers);
  const Table table = table_of(points, box, halo);
  const int lane = threadIdx.x, x = lane % 4, y = lane / 4 % 4, z = lane / 16;
  if (blockIdx.x == 0 && lane == 0) wanted[0] = wanted[1] = 0;
  BLOCKS(b, bins) {
    const int *const list = items + starts[b];
    const int count = (int)(starts[b + 1] - starts[b]);
    if (count == 0 && !afresh) continue;
    const int begin[3] = {(int)(b % tiling[3]) * tiling[0], (int)(b / tiling[3] % tiling[4]) * tiling[1],
                          (int)(b / tiling[3] / tiling[4]) * tiling[2]};
    for_points(table, box, tiling, begin, x, y, z, [&](int s, int q, int p) {
#pragma unroll
      for (int c = 0; c < 3; c++) sums[c][s][q] = p < 0 || afresh ? 0 : force[c * stride + p];
    });
    for (int at = 0; at < count; at += LANES) {
      unsigned place = 0;
      if (at + lane < count)
        place = prepare(positions, forces, vertices, list[at + lane], box, tiling, begin,
                        entries + lane * ENTRY);
      places[lane] = place;
      __syncwarp();
      for (unsigned left = __ballot_sync(EVERY_LANE, place != 0); left; left &= left - 1) {
        const int n = __ffs(left) - 1;
        add_entry(sums, entries + n * ENTRY, places[n], x, y, z);
      }
      __syncwarp();
    }
    for_points(table, box, tiling, begin, x, y, z, [&](int s, int q, int p) {
#pragma unroll
      for (int c = 0; c < 3; c++)
        if (p >= 0) force[c * stride + p] = sums[c][s][q];
    });
  }
}
