// Incomplete factors of block sparse rows without fill, row by row in an order of colours, and the two
// sweeps that apply them. Rows of one colour hold no blocks of each other: each is worked out on its own.
//
//   F: the matrix's blocks, replaced by L (columns of lower colours), U above, inverses on the diagonal
//   order: rows by colour; row order[p] has the blocks packed[p] .. packed[p + 1] of a sweep
//   sources: their numbers in F; columns of a sweep's blocks lie beside them
//
// B: unknowns a node; stored: type of a sweep's blocks; stored2: a pair of them on a GPU.
CONSTANTS(INT(B), TYPE(stored), TYPE(stored2))

#include "small_blocks.hpp"

// Gives each row the lowest colour that no neighbour has, in the order of their numbers; on one core.
KERNEL(colour, IN(int, starts), IN(int, columns), LONG(n), OUT(int, colours)) {
  PARTS(only, 1) for (long i = 0; i < n; i++) {
    int candidate = -1;
    for (bool taken = true; taken;) {
      candidate++;
      taken = false;
      for (long k = starts[i]; k < starts[i + 1]; k++)
        taken = taken || (columns[k] < i && colours[columns[k]] == candidate);
    }
    colours[i] = candidate;
  }
}

// Rows order[first] .. order[end] of one colour (Saad, Iterative Methods for Sparse Linear Systems,
// 2003, algorithm 10.4), whose blocks of lower colours come one after the other by colour. `upper`:
// those of higher colours, by columns. The row's own block is left for `invert_rows`.
KERNEL(factorise, IN(int, starts), IN(int, columns), IN(int, diagonal), IN(int, order),
       IN(int, lower_starts), IN(int, lower), IN(int, upper_starts), IN(int, upper), LONG(first),
       LONG(end), INOUT(double, F)) {
  BLOCKS(b, end - first) {
    SHARED(double, factor, ENTRIES);
    const long p = first + b, i = order[p];
    for (long s = lower_starts[p]; s < lower_starts[p + 1]; s++) {
      const long own = lower[s], row = columns[own];
      const double *inverse = F + (long)diagonal[row] * ENTRIES;
      THREADS(m, ENTRIES) {
        const int r = m % B, c = m / B;
        double sum = 0;
        for (int k = 0; k < B; k++) sum = fused(F[own * ENTRIES + k * B + r], inverse[c * B + k], sum);
        factor[m] = sum;
      }
      BARRIER();
      THREADS(m, ENTRIES) F[own * ENTRIES + m] = factor[m];
      long mine = starts[i];
      const long last = starts[i + 1];
      for (long u = upper_starts[row]; u < upper_starts[row + 1]; u++) {
        const long other = upper[u];
        while (mine < last && columns[mine] < columns[other]) mine++;
        if (mine == last) break;
        if (columns[mine] != columns[other]) continue;
        THREADS(m, ENTRIES) {
          const int r = m % B, c = m / B;
          double rest = F[mine * ENTRIES + m];
          for (int k = 0; k < B; k++)
            rest = fused(-factor[k * B + r], F[other * ENTRIES + c * B + k], rest);
          F[mine * ENTRIES + m] = rest;
        }
      }
      BARRIER();
    }
  }
}

// The own blocks of rows of one colour = their inverses; counts those that have none.
KERNEL(invert_rows, IN(int, diagonal), IN(int, order), LONG(first), LONG(end), INOUT(double, F),
       INOUT(long, singular)) {
  PARTS(b, end - first) {
    double *block = F + (long)diagonal[order[first + b]] * ENTRIES, own[ENTRIES];
    for (int m = 0; m < ENTRIES; m++) own[m] = block[m];
    if (!invert(own)) atomic_add(singular, 1L);
    for (int m = 0; m < ENTRIES; m++) block[m] = own[m];
  }
}

// The blocks of F in the order of a sweep.
KERNEL(pack, IN(double, F), IN(int, sources), LONG(count), OUT(stored, blocks)) {
  FOR_EACH(m, count * ENTRIES)
    blocks[m] = (stored)F[(long)sources[m / ENTRIES] * ENTRIES + m % ENTRIES];
}

#if ON_GPU
// A lane has two equations of one column, as in block_rows.cpp.
#define ROW_LANES (ENTRIES / 2)
#define BATCH 4

// Two sums of blocks begin .. end times y, those of lane % (B / 2), in all lanes of a row's team.
INLINE double2 team_product(const int *__restrict__ columns, const stored2 *__restrict__ entries,
                            const double *y, long begin, long end, int lane) {
  double2 s = {0, 0};
  for (long k = begin; k < end; k += BATCH) {
    stored2 a[BATCH];
    double factor[BATCH];
    _Pragma("unroll") for (int m = 0; m < BATCH; m++)
      if (k + m < end) {
        a[m] = __ldcs(entries + (k + m) * ROW_LANES + lane);
        factor[m] = y[(long)columns[k + m] * B + lane / (B / 2)];
      }
    _Pragma("unroll") for (int m = 0; m < BATCH; m++)
      if (k + m < end) {
        s.x = fused((double)a[m].x, factor[m], s.x);
        s.y = fused((double)a[m].y, factor[m], s.y);
      }
  }
  for (int half = B / 2; half < ROW_LANES; half *= 2) {
    s.x += __shfl_xor_sync(0xffffffffu, s.x, half);
    s.y += __shfl_xor_sync(0xffffffffu, s.y, half);
  }
  return s;
}

// y = x - L y in the rows order[first] .. order[end] of one colour.
KERNEL(sweep_down, IN(int, order), IN(int, packed), IN(int, columns), IN(stored, blocks),
       IN(double, x), INOUT(double, y), LONG(first), LONG(end)) {
  const int lane = threadIdx.x % ROW_LANES, pair = lane % (B / 2);
  const long teams = (long)gridDim.x * blockDim.x / ROW_LANES;
  const long team = (blockIdx.x * (long)blockDim.x + threadIdx.x) / ROW_LANES;
  // All threads of a warp go on while one of them has a row, since they exchange sums.
  for (long turn = 0; turn * teams < end - first; turn++) {
    const long p = first + turn * teams + team;
    const bool mine = p < end;
    const long at = mine ? order[p] * (long)(B / 2) + pair : 0;
    // Asked for before the row's blocks, so that it is there when they are.
    const double2 x_pair = reinterpret_cast<const double2 *>(x)[at];
    const double2 s = team_product(columns, reinterpret_cast<const stored2 *>(blocks), y,
                                   mine ? packed[p] : 0, mine ? packed[p + 1] : 0, lane);
    if (mine && lane < B / 2) reinterpret_cast<double2 *>(y)[at] = {x_pair.x - s.x, x_pair.y - s.y};
  }
}

// y = inverse diagonal times (y - U y) in these rows; the diagonal comes first.
KERNEL(sweep_up, IN(int, order), IN(int, packed), IN(int, columns), IN(stored, blocks),
       INOUT(double, y), LONG(first), LONG(end)) {
  const int lane = threadIdx.x % ROW_LANES, pair = lane % (B / 2);
  const long teams = (long)gridDim.x * blockDim.x / ROW_LANES;
  const long team = (blockIdx.x * (long)blockDim.x + threadIdx.x) / ROW_LANES;
  const stored2 *entries = reinterpret_cast<const stored2 *>(blocks);
  for (long turn = 0; turn * teams < end - first; turn++) {
    const long p = first + turn * teams + team;
    const bool mine = p < end;
    const long begin = mine ? packed[p] : 0, at = mine ? order[p] * (long)(B / 2) + pair : 0;
    const double2 y_pair = reinterpret_cast<const double2 *>(y)[at];
    stored2 inverse[B];
    _Pragma("unroll") for (int c = 0; c < B; c++)
      inverse[c] = entries[begin * ROW_LANES + c * (B / 2) + pair];
    const double2 s = team_product(columns, entries, y, mine ? begin + 1 : 0,
                                   mine ? packed[p + 1] : 0, lane);
    const double rest[2] = {y_pair.x - s.x, y_pair.y - s.y};
    double2 result = {0, 0};
    _Pragma("unroll") for (int c = 0; c < B; c++) {
      const double factor = __shfl_sync(0xffffffffu, rest[c % 2], c / 2, ROW_LANES);
      result.x = fused((double)inverse[c].x, factor, result.x);
      result.y = fused((double)inverse[c].y, factor, result.y);
    }
    if (mine && lane < B / 2) reinterpret_cast<double2 *>(y)[at] = result;
  }
}
#else
KERNEL(sweep_down, IN(int, order), IN(int, packed), IN(int, columns), IN(stored, blocks),
       IN(double, x), INOUT(double, y), LONG(first), LONG(end)) {
  BLOCKS(b, end - first) {
    const long p = first + b, i = order[p];
    double sum[B];
    row_product(columns, blocks, y, packed[p], packed[p + 1], sum);
    for (int r = 0; r < B; r++) y[i * B + r] = x[i * B + r] - sum[r];
  }
}

KERNEL(sweep_up, IN(int, order), IN(int, packed), IN(int, columns), IN(stored, blocks),
       INOUT(double, y), LONG(first), LONG(end)) {
  BLOCKS(b, end - first) {
    const long p = first + b, i = order[p];
    double sum[B], result[B] = {};
    row_product(columns, blocks, y, packed[p] + 1, packed[p + 1], sum);
    const stored *inverse = blocks + (long)packed[p] * ENTRIES;
    for (int c = 0; c < B; c++) {
      const double rest = y[i * B + c] - sum[c];
      PRAGMA(omp simd) for (int r = 0; r < B; r++)
          result[r] = fused((double)inverse[c * B + r], rest, result[r]);
    }
    for (int r = 0; r < B; r++) y[i * B + r] = result[r];
  }
}
#endif
