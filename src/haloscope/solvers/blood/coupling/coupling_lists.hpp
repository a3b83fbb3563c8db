// Lists of what is near each tile, for spreading on a GPU, kept until some vertex has moved too far.
//
// A list holds, in rising order, the vertices whose support met the tile when it was made or would
// have met it after a move by the margin. So lists stay complete while all vertices are within the
// margin of where they were, and sums, which leave out what does not meet a point, do not depend on
// when lists were made. One launch watches the vertices and makes the lists where that is wanted: all launches of
// a step stay the same, and a graph can hold them.
//
// then: positions when lists were made (kept_positions.hpp), component c of vertex i at c * count + i.
// tiling: points of a tile along each axis, and tiles along each axis.
// starts: where each tile's list begins in `items`, and where the last one ends. A GPU of 100 GB holds
// so many vertices that their entries come to more than 2^31.

CONSTANTS(REAL(MARGIN))

#define LANES 32
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

// Bitonic sort of `count` items by all threads of a block; each compares towards rising order. Steps of
// up to a warp's lanes stay among the 2 * LANES items that a warp has.
INLINE void sort_by_block(int *items, int count) {
  int size = 1;
  while (size < count) size *= 2;
  for (int whole = 2; whole <= size; whole *= 2)
    for (int step = whole / 2; step > 0; step /= 2) {
      for (int n = threadIdx.x; n < size / 2; n += blockDim.x) {
        const int i = 2 * n - (n & (step - 1));
        const int j = step == whole / 2 ? i ^ (whole - 1) : i + step;
        if (j >= count) continue;
        const int a = items[i], b = items[j];
        if (a > b) {
          items[i] = b;
          items[j] = a;
        }
      }
      const int next = step > 1 ? step / 2 : whole;
      if (step > LANES || next > LANES)
        BARRIER();
      else
        __syncwarp();
    }
}

// Items of most lists are sorted in shared memory.
#define SORTED_ON_CHIP 2048

INLINE void sort_list(int *list, int count, int *few) {
  if (count > SORTED_ON_CHIP) {
    sort_by_block(list, count);
  } else if (count > 1) {
    THREADS(n, count) few[n] = list[n];
    BARRIER();
    sort_by_block(few, count);
    BARRIER();
    THREADS(n, count) list[n] = few[n];
  }
  BARRIER();
}

// Watches the vertices, and makes the lists anew if some has moved too far; what is no number has always moved.
// wanted: the flag, and how many blocks have arrived.
KERNEL_BOUNDS(__launch_bounds__(THREADS_A_BLOCK, BLOCKS_TOGETHER), keep_lists, INOUT(int, wanted),
              IN(int, box_numbers), IN(int, tiling), IN(real, positions), LONG(vertices), LONG(count),
              DOUBLE(far), INOUT(float, then), INOUT(int, counts), LONG(bins), INOUT(int, sums),
              INOUT(long, starts), INOUT(int, items)) {
  SHARED(int, few, SORTED_ON_CHIP);
  FOR_EACH(i, count) {
    bool still = true;
    for (int c = 0; c < 3; c++)
      still &= moved_at_most(positions[c * vertices + i], then[c * count + i]) <= (real)far;
    if (!still) *wanted = 1;
  }
  wait_for_all_blocks(wanted + 1);
  if (!is_set(wanted)) return;
  const Box box = box_of(box_numbers);
  FOR_EACH(i, count) {
    for (int c = 0; c < 3; c++) then[c * count + i] = (float)positions[c * vertices + i];
    for_tiles_near(positions, vertices, i, box, tiling,
                   [&](long tile) { atomicAdd(counts + tile, 1); });
  }
  wait_for_all_blocks(wanted + 1);
  sum_counts(counts, bins, sums);
  wait_for_all_blocks(wanted + 1);
  scan_counts(counts, bins, sums, starts);
  wait_for_all_blocks(wanted + 1);
  FOR_EACH(i, count)
    for_tiles_near(positions, vertices, i, box, tiling,
                   [&](long tile) { put(items, starts, counts, tile, (int)i); });
  wait_for_all_blocks(wanted + 1);
  BLOCKS(b, bins) sort_list(items + starts[b], (int)(starts[b + 1] - starts[b]), few);
}
