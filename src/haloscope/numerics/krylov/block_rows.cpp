// Block sparse rows: product with a vector, fixed unknowns, diagonal blocks.
//
//   n nodes, B unknowns each; row i has the blocks starts[i] .. starts[i + 1] of A at columns[k]
//   A[k * ENTRIES + c * B + r]: equation r of the row's node, unknown c of the column's node
//
// Cores multiply with blocks of the type `stored`, also with a copy in single precision.
//
// y = A x adds, for each of the B x B entries alone, the products of a row's blocks in their order,
// and then the sums of the B columns in pairs: the same bits on cores and GPUs.
//
// BATCH: blocks of a row that a lane of a GPU has under way at once, also the last few.
CONSTANTS(INT(B), INT(BATCH), TYPE(stored))

#include "small_blocks.hpp"
#if !ON_GPU
#include "block_columns.hpp"
#endif

#if ON_GPU
// A lane has two equations of one column, so that ENTRIES / 2 lanes read a block as a whole.
#define ROW_LANES (ENTRIES / 2)

KERNEL(multiply, IN_RESTRICT(int, starts), IN_RESTRICT(int, columns), IN_RESTRICT(double, A),
       IN_RESTRICT(double, x), OUT_RESTRICT(double, y), IN(int, shares), LONG(parts), LONG(first),
       LONG(end)) {
  const int lane = threadIdx.x % ROW_LANES, c = lane / (B / 2), pair = lane % (B / 2);
  const long teams = (long)gridDim.x * blockDim.x / ROW_LANES;
  const long team = (blockIdx.x * (long)blockDim.x + threadIdx.x) / ROW_LANES;
  const double2 *entries = reinterpret_cast<const double2 *>(A) + lane;
  // All threads of a warp go on while one of them has a row, since they exchange sums.
  for (long turn = 0; turn * teams < end - first; turn++) {
    const long row = first + turn * teams + team;
    const bool mine = row < end;
    const long last = mine ? starts[row + 1] : 0;
    double s0 = 0, s1 = 0;
    for (long k = mine ? starts[row] : 0; k < last; k += BATCH) {
      double2 a[BATCH];
      double factor[BATCH];
      _Pragma("unroll") for (int m = 0; m < BATCH; m++)
        if (k + m < last) {
          a[m] = __ldcs(entries + (k + m) * ROW_LANES);
          factor[m] = x[(long)columns[k + m] * B + c];
        }
      _Pragma("unroll") for (int m = 0; m < BATCH; m++)
        if (k + m < last) {
          s0 = fused(a[m].x, factor[m], s0);
          s1 = fused(a[m].y, factor[m], s1);
        }
    }
    for (int half = B / 2; half < ROW_LANES; half *= 2) {
      s0 += __shfl_xor_sync(0xffffffffu, s0, half);
      s1 += __shfl_xor_sync(0xffffffffu, s1, half);
    }
    if (mine && c == 0) reinterpret_cast<double2 *>(y)[row * (B / 2) + pair] = {s0, s1};
  }
}
#else
// Rows from `first` to `end`, in parts of equal work with the bounds `shares`.
KERNEL(multiply, IN(int, starts), IN(int, columns), IN(stored, A), IN(double, x),
       OUT(double, y), IN(int, shares), LONG(parts), LONG(first), LONG(end)) {
  BLOCKS(part, parts) {
    for (long i = shares[part]; i < shares[part + 1]; i++)
      store_column(row_sum(columns, A, x, starts[i], starts[i + 1]), y + i * B);
  }
}
#endif

// single = A, rounded.
KERNEL(narrow, IN(double, A), LONG(n), OUT(float, single)) { FOR_EACH(m, n * ENTRIES) single[m] = (float)A[m]; }

// The rows of unknowns = 0, but `ones` on the diagonal.
KERNEL(fix, IN(int, starts), IN(int, diagonal), IN(int, unknowns), IN(double, ones), LONG(count),
       OUT(double, A)) {
  PARTS(f, count) {
    const long i = unknowns[f] / B, r = unknowns[f] % B;
    for (long k = starts[i]; k < starts[i + 1]; k++)
      for (int c = 0; c < B; c++) A[k * ENTRIES + c * B + r] = 0;
    A[(long)diagonal[i] * ENTRIES + r * B + r] = ones[f];
  }
}

KERNEL(take_diagonal, IN(double, A), IN(int, diagonal), LONG(n), OUT(double, blocks)) {
  FOR_EACH(m, n * ENTRIES) blocks[m] = A[(long)diagonal[m / ENTRIES] * ENTRIES + m % ENTRIES];
}

// Inverts n blocks; counts those that have no inverse.
KERNEL(invert_all, INOUT(double, blocks), LONG(n), INOUT(long, singular)) {
  PARTS(i, n) if (!invert(blocks + i * ENTRIES)) atomic_add(singular, 1L);
}
