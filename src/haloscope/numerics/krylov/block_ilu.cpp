// Incomplete factors of block sparse rows without fill, and the two sweeps that apply them. Cores only.
//
//   order       rows as they are eliminated: those of slices, of which none has a block in another's
//               rows, one slice after the other, and last the rows between them
//   bounds      where each slice begins in it, where the rows between begin, and its end
//   lower       L: blocks lower_starts[p] .. lower_starts[p + 1] belong to the row order[p]
//   upper       from the last row on, each with those of U and then the inverse of its diagonal:
//               blocks upper_starts[n - 1 - p] .. upper_starts[n - p] belong to the row order[p]
//   columns     their nodes, those last that a sweep comes by last; sources: their numbers in the matrix
//
// Slices are worked out side by side; what comes out does not depend on who does. Levels of rows that
// need not wait for each other would do for one slice, too, but their rows lie apart: on two cores
// they gained a sixth at best.
//
// B: unknowns a node; stored: type of the blocks of L and U.
CONSTANTS(INT(B), TYPE(stored))

#include "small_blocks.hpp"

#if !ON_GPU
#include "block_columns.hpp"

// c = a b, or c - a b.
template <bool subtracts>
INLINE void block_product(const double *a, const stored *b, double *c) {
  Column columns[B];
  // Widened as columns: a core then takes each from its cache to all lanes at once.
  double factors[ENTRIES];
  for (int k = 0; k < B; k++) {
    columns[k] = column_at(a + k * B);
    store_column(subtracts ? -column_at(b + k * B) : column_at(b + k * B), factors + k * B);
  }
  for (int n = 0; n < B; n++) {
    Column sum = subtracts ? column_at(c + n * B) : Column{};
    for (int k = 0; k < B; k++) sum = fused(columns[k], factors[n * B + k], sum);
    store_column(sum, c + n * B);
  }
}

struct Factors {
  const int *order;
  const int *lower_starts, *lower_columns, *lower_sources;
  const int *upper_starts, *upper_columns, *upper_sources;
  stored *lower, *upper;
};

// Rows of A from begin to end, one after the other (Saad, Iterative Methods for Sparse Linear Systems,
// 2003, algorithm 10.4). row: room for the longest. place: of each node 0, or 1 + its place in the row.
INLINE void eliminate(const Factors &f, const int *positions, const double *A, long n, long begin, long end,
                      double *row, int *place, long *singular) {
  for (long p = begin; p < end; p++) {
    const long low = f.lower_starts[p], lows = f.lower_starts[p + 1] - low;
    const long up = f.upper_starts[n - 1 - p], blocks = lows + f.upper_starts[n - p] - up;
    for (long k = 0; k < blocks; k++) {
      const int source = k < lows ? f.lower_sources[low + k] : f.upper_sources[up + k - lows];
      for (int c = 0; c < B; c++)
        store_column(column_at(A + (long)source * ENTRIES + c * B), row + k * ENTRIES + c * B);
      place[k < lows ? f.lower_columns[low + k] : f.upper_columns[up + k - lows]] = (int)k + 1;
    }
    for (long k = 0; k < lows; k++) {
      double *factor = row + k * ENTRIES;
      const long other = n - 1 - positions[f.lower_columns[low + k]];
      const long first = f.upper_starts[other], last = f.upper_starts[other + 1];
      block_product<false>(factor, f.upper + (last - 1) * ENTRIES, factor);
      for (long u = first; u < last - 1; u++) {
        const int at = place[f.upper_columns[u]];
        if (at) block_product<true>(factor, f.upper + u * ENTRIES, row + (at - 1) * ENTRIES);
      }
    }
    if (!invert(row + (blocks - 1) * ENTRIES)) atomic_add(singular, 1L);
    for (long k = 0; k < blocks; k++) {
      place[k < lows ? f.lower_columns[low + k] : f.upper_columns[up + k - lows]] = 0;
      stored *to = k < lows ? f.lower + (low + k) * ENTRIES : f.upper + (up + k - lows) * ENTRIES;
      for (int c = 0; c < B; c++) store_column(column_at(row + k * ENTRIES + c * B), to + c * B);
    }
  }
}

// rows: room for `longest` blocks, and places: for n numbers that are 0, for each slice.
KERNEL(factorise, IN(int, order), IN(int, positions), IN(int, bounds), LONG(slices), LONG(n),
       IN(int, lower_starts), IN(int, lower_columns), IN(int, lower_sources),
       OUT(stored, lower), IN(int, upper_starts), IN(int, upper_columns),
       IN(int, upper_sources), OUT(stored, upper), IN(double, A), OUT(double, rows),
       LONG(longest), INOUT(int, places), INOUT(long, singular)) {
  const Factors f = {order,        lower_starts,  lower_columns, lower_sources, upper_starts,
                     upper_columns, upper_sources, lower,         upper};
  BLOCKS(s, slices)
  eliminate(f, positions, A, n, bounds[s], bounds[s + 1], rows + s * longest * ENTRIES, places + s * n, singular);
  eliminate(f, positions, A, n, bounds[slices], n, rows, places, singular);
}

// y = x - L y.
INLINE void sweep_down(const int *order, const int *starts, const int *columns, const stored *blocks,
                       long begin, long end, const double *x, double *y) {
  for (long p = begin; p < end; p++) {
    const long i = order[p];
    const Column sum = row_sum(columns, blocks, y, starts[p], starts[p + 1]);
    store_column(column_at(x + i * B) - sum, y + i * B);
  }
}

// y = inverse diagonal times (y - U y), from the last row on.
INLINE void sweep_up(const int *order, const int *starts, const int *columns, const stored *blocks, long n,
                     long begin, long end, double *y) {
  for (long p = end - 1; p >= begin; p--) {
    const long i = order[p], last = starts[n - p] - 1;
    const Column rest = column_at(y + i * B) - row_sum(columns, blocks, y, starts[n - 1 - p], last);
    const stored *inverse = blocks + last * ENTRIES;
    Column s[B];
    for (int c = 0; c < B; c++) s[c] = column_at(inverse + c * B) * rest[c];
    add_in_pairs<1>(s);
    store_column(s[0], y + i * B);
  }
}

KERNEL(solve, IN(int, order), IN(int, bounds), LONG(slices), LONG(n), IN(int, lower_starts),
       IN(int, lower_columns), IN(stored, lower), IN(int, upper_starts), IN(int, upper_columns),
       IN(stored, upper), IN(double, x), OUT(double, y)) {
  BLOCKS(s, slices)
  sweep_down(order, lower_starts, lower_columns, lower, bounds[s], bounds[s + 1], x, y);
  sweep_down(order, lower_starts, lower_columns, lower, bounds[slices], n, x, y);
  sweep_up(order, upper_starts, upper_columns, upper, n, bounds[slices], n, y);
  BLOCKS(s, slices) sweep_up(order, upper_starts, upper_columns, upper, n, bounds[s], bounds[s + 1], y);
}
#endif
