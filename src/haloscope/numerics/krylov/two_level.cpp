// Correction on a coarse space of functions: projected matrices, transfers, and small dense inverses.
//
//   n nodes, B unknowns each; row i has the blocks starts[i] .. starts[i + 1] of A at columns[k]
//   P: node i has the functions p_columns[q] with weights[q], q from p_starts[i] to p_starts[i + 1],
//      for all unknowns
//   free: of each unknown, 1, or 0 where its row is the identity's: P is zero there
//   AP: row i has the blocks ap_starts[i] .. ap_starts[i + 1] at ap_columns; C = P' A P
//   list of function k: nodes[t] with the weights factors[t], t from lists[k] to lists[k + 1]
//   slots: which block of a row a product is added to, in the order in which products come
//
// stored: type of AP's values; stored2: of a pair of them on a GPU; slot: of slots. On a GPU galerkin
// takes LIST_TILE entries of a list and ROW_TILE blocks of a row at a time.
CONSTANTS(INT(B), TYPE(stored), TYPE(stored2), TYPE(slot), INT(LIST_TILE), INT(ROW_TILE))

#include "small_blocks.hpp"
#if !ON_GPU
#include "block_columns.hpp"
#endif

// Far below what smooth functions have over rough ones, far above the rounding of a stored A P.
#define SHIFT 1e-5

// coupled = 1 where an off-diagonal block couples an unknown to other nodes.
KERNEL(couplings, IN(int, starts), IN(int, diagonal), IN(double, A), LONG(n),
       OUT(double, coupled)) {
  PARTS(i, n) {
    int couples[B] = {}, count = 0;
    for (long k = starts[i]; k < starts[i + 1] && count < B; k++) {
      for (int c = 0; c < B; c++)
        for (int r = 0; r < B; r++)
          couples[r] |= k != diagonal[i] && absolute(A[k * ENTRIES + c * B + r]) > 0;
      count = 0;
      for (int r = 0; r < B; r++) count += couples[r];
    }
    for (int r = 0; r < B; r++) coupled[i * B + r] = couples[r];
  }
}

// 1 where something couples on any rank, from the sums over ranks.
KERNEL(mark, LONG(n), INOUT(double, sums)) { FOR_EACH(u, n * B) sums[u] = sums[u] > 0 ? 1 : 0; }

#if ON_GPU
// AP = A P. A team of ENTRIES threads adds up a row of at most `most` blocks in shared memory.
KERNEL(project, IN(int, starts), IN(int, columns), IN(double, A), IN(int, p_starts),
       IN(double, weights), IN(double, free), IN(slot, slots), IN(long, slot_starts),
       IN(int, ap_starts), LONG(n), LONG(most), OUT(stored, AP)) {
  DYNAMIC_SHARED(stored, sums);
  const int m = threadIdx.x % ENTRIES, team = threadIdx.x / ENTRIES, teams = blockDim.x / ENTRIES;
  stored *sum = sums + team * most * ENTRIES + m;
  for (long i = blockIdx.x * (long)teams + team; i < n; i += (long)gridDim.x * teams) {
    const long first = ap_starts[i], blocks = ap_starts[i + 1] - first;
    for (long k = 0; k < blocks; k++) sum[k * ENTRIES] = 0;
    long e = slot_starts[i];
    for (long t = starts[i]; t < starts[i + 1]; t++) {
      const long j = columns[t];
      const double entry = A[t * ENTRIES + m], own = free[j * B + m / B];
      for (long q = p_starts[j]; q < p_starts[j + 1]; q++, e++) {
        stored *to = sum + slots[e] * ENTRIES;
        *to = (stored)fused(weights[q] * own, entry, (double)*to);
      }
    }
    for (long k = 0; k < blocks; k++) AP[(first + k) * ENTRIES + m] = sum[k * ENTRIES];
  }
}

// C = P' AP, where nodes are counted that the lists name. A block takes a function; it looks up which
// of its nodes' products go to each block of C, some entries of the list and some of the row at a time,
// and a team of ENTRIES threads adds those of a block of C in the order of the list.
KERNEL(galerkin, IN(int, lists), IN(int, nodes), IN(double, factors), IN(double, free),
       IN(int, ap_starts), IN(stored, AP), IN(slot, slots), IN(long, slot_starts),
       IN(int, starts), LONG(functions), OUT(double, C)) {
  SHARED(int, ap_index, LIST_TILE * ROW_TILE);
  SHARED(double, weights, LIST_TILE * B);
  const int m = threadIdx.x % ENTRIES, team = threadIdx.x / ENTRIES, teams = blockDim.x / ENTRIES;
  BLOCKS(k, functions) {
    double *row = C + (long)starts[k] * ENTRIES;
    const long blocks = starts[k + 1] - starts[k], begin = lists[k], end = lists[k + 1];
    THREADS(e, blocks * ENTRIES) row[e] = 0;
    for (long base = 0; base < blocks; base += ROW_TILE)
      for (long first = begin; first < end; first += LIST_TILE) {
        const int entries = (int)smaller((long)LIST_TILE, end - first);
        const int wide = (int)smaller((long)ROW_TILE, blocks - base);
        THREADS(e, LIST_TILE * ROW_TILE) ap_index[e] = -1;
        THREADS(e, entries * B)
          weights[e] = factors[first + e / B] * free[(long)nodes[first + e / B] * B + e % B];
        BARRIER();
        for (int t = team; t < entries; t += teams) {
          const long i = nodes[first + t], from = ap_starts[i], slot_from = slot_starts[first + t];
          for (long l = from + m; l < ap_starts[i + 1]; l += ENTRIES) {
            const long place = slots[slot_from + l - from] - base;
            if (place >= 0 && place < ROW_TILE) ap_index[t * ROW_TILE + place] = (int)l;
          }
        }
        BARRIER();
        for (int s = team; s < wide; s += teams) {
          double sum = row[(base + s) * ENTRIES + m];
          for (int t = 0; t < entries; t++) {
            const long l = ap_index[t * ROW_TILE + s];
            if (l >= 0) sum = fused(weights[t * B + m % B], (double)AP[l * ENTRIES + m], sum);
          }
          row[(base + s) * ENTRIES + m] = sum;
        }
        BARRIER();
      }
  }
}
#else
KERNEL(project, IN(int, starts), IN(int, columns), IN(double, A), IN(int, p_starts),
       IN(double, weights), IN(double, free), IN(slot, slots), IN(long, slot_starts),
       IN(int, ap_starts), LONG(n), LONG(most), OUT(stored, AP)) {
  PARTS(i, n) {
    stored *row = AP + (long)ap_starts[i] * ENTRIES;
    for (long m = 0; m < (long)(ap_starts[i + 1] - ap_starts[i]) * ENTRIES; m++) row[m] = 0;
    long e = slot_starts[i];
    for (long t = starts[i]; t < starts[i + 1]; t++) {
      const long j = columns[t];
      Column block[B];
      for (int c = 0; c < B; c++) block[c] = column_at(A + t * ENTRIES + c * B);
      for (long q = p_starts[j]; q < p_starts[j + 1]; q++, e++) {
        stored *to = row + slots[e] * ENTRIES;
        for (int c = 0; c < B; c++) {
          const double factor = weights[q] * free[j * B + c];
          store_column(fused(block[c], factor, column_at(to + c * B)), to + c * B);
        }
      }
    }
  }
}

KERNEL(galerkin, IN(int, lists), IN(int, nodes), IN(double, factors), IN(double, free),
       IN(int, ap_starts), IN(stored, AP), IN(slot, slots), IN(long, slot_starts),
       IN(int, starts), LONG(functions), OUT(double, C)) {
  PARTS(k, functions) {
    double *row = C + (long)starts[k] * ENTRIES;
    for (long m = 0; m < (long)(starts[k + 1] - starts[k]) * ENTRIES; m++) row[m] = 0;
    for (long t = lists[k]; t < lists[k + 1]; t++) {
      const long i = nodes[t];
      const Column factor = factors[t] * column_at(free + i * B);
      long e = slot_starts[t];
      for (long l = ap_starts[i]; l < ap_starts[i + 1]; l++, e++) {
        double *to = row + slots[e] * ENTRIES;
        for (int c = 0; c < B; c++)
          store_column(fused(column_at(AP + l * ENTRIES + c * B), factor, column_at(to + c * B)), to + c * B);
      }
    }
  }
}
#endif

// Functions that no free unknown has get the identity's rows; other diagonals grow by SHIFT. Where
// prescribed unknowns leave too few free ones, functions depend on each other and C would be
// singular: with SHIFT it keeps small solutions, of which P uses the free unknowns.
KERNEL(fill, IN(int, starts), IN(int, diagonal), LONG(functions), INOUT(double, C)) {
  FOR_EACH(u, functions * B) {
    const long k = u / B, r = u % B;
    double sum = 0;
    for (long l = starts[k]; l < starts[k + 1]; l++)
      for (int c = 0; c < B; c++) sum += absolute(C[l * ENTRIES + c * B + r]);
    double *own = C + (long)diagonal[k] * ENTRIES + r * B + r;
    *own = sum == 0 ? 1 : *own * (1 + SHIFT);
  }
}

// coarse = P' x. STRANDS of partial sums, each of every STRANDS-th entry of a list, are added in pairs.
#define STRANDS (32 / B)
#if ON_GPU
// A warp takes a function, a lane an unknown of a strand, which has so many entries under way.
#define MANY 8
KERNEL(restrict_vector, IN_RESTRICT(int, lists), IN_RESTRICT(int, nodes), IN_RESTRICT(double, factors),
       IN_RESTRICT(double, free), IN_RESTRICT(double, x), LONG(functions), OUT_RESTRICT(double, coarse)) {
  const int r = threadIdx.x % B, strand = threadIdx.x % 32 / B;
  const long teams = (long)gridDim.x * blockDim.x / 32;
  for (long k = (blockIdx.x * (long)blockDim.x + threadIdx.x) / 32; k < functions; k += teams) {
    const long last = lists[k + 1];
    double sum = 0;
    for (long t = lists[k] + strand; t < last; t += MANY * STRANDS) {
      double factor[MANY], value[MANY];
      _Pragma("unroll") for (int m = 0; m < MANY; m++) {
        // Beyond the end the last one again, so that all loads are under way at once.
        const long entry = smaller(t + m * STRANDS, last - 1), at = (long)nodes[entry] * B + r;
        factor[m] = factors[entry] * free[at];
        value[m] = x[at];
      }
      _Pragma("unroll") for (int m = 0; m < MANY; m++)
        if (t + m * STRANDS < last) sum = fused(factor[m], value[m], sum);
    }
    for (int half = B; half < 32; half *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half);
    if (strand == 0) coarse[k * B + r] = sum;
  }
}
#else
KERNEL(restrict_vector, IN(int, lists), IN(int, nodes), IN(double, factors), IN(double, free),
       IN(double, x), LONG(functions), OUT(double, coarse)) {
  PARTS(k, functions) {
    Column sums[STRANDS] = {};
    for (long first = lists[k]; first < lists[k + 1]; first += STRANDS) {
      const long strands = smaller((long)STRANDS, lists[k + 1] - first);
      for (long s = 0; s < strands; s++) {
        const long at = (long)nodes[first + s] * B;
        sums[s] = fused(column_at(x + at), factors[first + s] * column_at(free + at), sums[s]);
      }
    }
    for (int half = 1; half < STRANDS; half *= 2)
      for (int s = 0; s < STRANDS; s += 2 * half) sums[s] += sums[s + half];
    store_column(sums[0], coarse + k * B);
  }
}
#endif

// rest = x - AP coarse.
#if ON_GPU
// A lane has two equations of one column, as in block_rows.cpp, and adds in the same order.
#define ROW_LANES (ENTRIES / 2)
#define AT_ONCE 4
INLINE void add_over_columns(double2 &s) {
  for (int half = B / 2; half < ROW_LANES; half *= 2) {
    s.x += __shfl_xor_sync(0xffffffffu, s.x, half);
    s.y += __shfl_xor_sync(0xffffffffu, s.y, half);
  }
}

// s = two sums of blocks begin .. end times `coarse`, those of lane % (B / 2), in all lanes of a team.
INLINE void team_product(const int *__restrict__ columns, const stored *__restrict__ AP,
                         const double *__restrict__ coarse, long begin, long end, int lane,
                         double2 &s) {
  const stored2 *entries = reinterpret_cast<const stored2 *>(AP) + lane;
  for (long k = begin; k < end; k += AT_ONCE) {
    stored2 a[AT_ONCE];
    double factor[AT_ONCE];
    _Pragma("unroll") for (int m = 0; m < AT_ONCE; m++)
      if (k + m < end) {
        a[m] = __ldcs(entries + (k + m) * ROW_LANES);
        factor[m] = coarse[(long)columns[k + m] * B + lane / (B / 2)];
      }
    _Pragma("unroll") for (int m = 0; m < AT_ONCE; m++)
      if (k + m < end) {
        s.x = fused((double)a[m].x, factor[m], s.x);
        s.y = fused((double)a[m].y, factor[m], s.y);
      }
  }
  add_over_columns(s);
}

KERNEL(subtract_product, IN_RESTRICT(int, ap_starts), IN_RESTRICT(int, ap_columns), IN_RESTRICT(stored, AP),
       IN_RESTRICT(double, coarse), IN_RESTRICT(double, x), LONG(n), OUT_RESTRICT(double, rest)) {
  const int lane = threadIdx.x % ROW_LANES;
  const long teams = (long)gridDim.x * blockDim.x / ROW_LANES;
  const long team = (blockIdx.x * (long)blockDim.x + threadIdx.x) / ROW_LANES;
  // All threads of a warp go on while one of them has a row, since they exchange sums.
  for (long turn = 0; turn * teams < n; turn++) {
    const long row = turn * teams + team;
    const bool mine = row < n;
    const long at = mine ? row * (B / 2) + lane % (B / 2) : 0;
    // Asked for before the row's blocks, so that it is there when they are.
    const double2 x_pair = reinterpret_cast<const double2 *>(x)[at];
    double2 s = {0, 0};
    team_product(ap_columns, AP, coarse, mine ? ap_starts[row] : 0, mine ? ap_starts[row + 1] : 0, lane, s);
    if (mine && lane < B / 2) reinterpret_cast<double2 *>(rest)[at] = {x_pair.x - s.x, x_pair.y - s.y};
  }
}
#else
KERNEL(subtract_product, IN(int, ap_starts), IN(int, ap_columns), IN(stored, AP), IN(double, coarse),
       IN(double, x), LONG(n), OUT(double, rest)) {
  PARTS(i, n) {
    const Column sum = row_sum(ap_columns, AP, coarse, ap_starts[i], ap_starts[i + 1]);
    store_column(column_at(x + i * B) - sum, rest + i * B);
  }
}
#endif

// y += P coarse.
#if ON_GPU
KERNEL(prolong, IN(int, p_starts), IN(int, p_columns), IN(double, weights), IN(double, free),
       IN(double, coarse), LONG(n), INOUT(double, y)) {
  FOR_EACH(u, n * B) {
    const long i = u / B, r = u % B;
    double sum = 0;
    for (long q = p_starts[i]; q < p_starts[i + 1]; q++)
      sum = fused(weights[q], coarse[(long)p_columns[q] * B + r], sum);
    y[u] = fused(free[u], sum, y[u]);
  }
}
#else
KERNEL(prolong, IN(int, p_starts), IN(int, p_columns), IN(double, weights), IN(double, free),
       IN(double, coarse), LONG(n), INOUT(double, y)) {
  PARTS(i, n) {
    Column sum = {};
    for (long q = p_starts[i]; q < p_starts[i + 1]; q++)
      sum = fused(column_at(coarse + (long)p_columns[q] * B), weights[q], sum);
    store_column(fused(sum, column_at(free + i * B), column_at(y + i * B)), y + i * B);
  }
}
#endif

// y = inverse (x - AP coarse) + P coarse, where `inverse` has a block for each node: what subtract_product,
// a product with these blocks and prolong do one after the other, with their bits.
#if ON_GPU
KERNEL(correct, IN_RESTRICT(int, ap_starts), IN_RESTRICT(int, ap_columns), IN_RESTRICT(stored, AP),
       IN_RESTRICT(double, coarse), IN_RESTRICT(double, x), IN_RESTRICT(double, inverse),
       IN_RESTRICT(int, p_starts), IN_RESTRICT(int, p_columns), IN_RESTRICT(double, weights),
       IN_RESTRICT(double, free), LONG(n), OUT_RESTRICT(double, y)) {
  const int lane = threadIdx.x % ROW_LANES, c = lane / (B / 2), pair = lane % (B / 2);
  const long teams = (long)gridDim.x * blockDim.x / ROW_LANES;
  const long team = (blockIdx.x * (long)blockDim.x + threadIdx.x) / ROW_LANES;
  for (long turn = 0; turn * teams < n; turn++) {
    const long row = turn * teams + team;
    const bool mine = row < n;
    const long at = mine ? row * (B / 2) + pair : 0;
    const double2 x_pair = reinterpret_cast<const double2 *>(x)[at];
    const double2 own = reinterpret_cast<const double2 *>(free)[at];
    const double2 block = reinterpret_cast<const double2 *>(inverse)[mine ? row * ROW_LANES + lane : 0];
    double2 s = {0, 0};
    team_product(ap_columns, AP, coarse, mine ? ap_starts[row] : 0, mine ? ap_starts[row + 1] : 0, lane, s);
    const double even = __shfl_sync(0xffffffffu, x_pair.x - s.x, c / 2, ROW_LANES);
    const double odd = __shfl_sync(0xffffffffu, x_pair.y - s.y, c / 2, ROW_LANES);
    const double rest = c % 2 ? odd : even;
    s = {fused(block.x, rest, 0.0), fused(block.y, rest, 0.0)};
    add_over_columns(s);
    if (mine && c == 0) {
      double smooth[2] = {0, 0};
      for (long q = p_starts[row]; q < p_starts[row + 1]; q++) {
        const double *value = coarse + (long)p_columns[q] * B + 2 * pair;
        smooth[0] = fused(weights[q], value[0], smooth[0]);
        smooth[1] = fused(weights[q], value[1], smooth[1]);
      }
      reinterpret_cast<double2 *>(y)[at] = {fused(own.x, smooth[0], s.x), fused(own.y, smooth[1], s.y)};
    }
  }
}
#else
KERNEL(correct, IN(int, ap_starts), IN(int, ap_columns), IN(stored, AP), IN(double, coarse),
       IN(double, x), IN(double, inverse), IN(int, p_starts), IN(int, p_columns),
       IN(double, weights), IN(double, free), LONG(n), OUT(double, y)) {
  PARTS(i, n) {
    const int own = 0;
    double rest[B];
    store_column(column_at(x + i * B) - row_sum(ap_columns, AP, coarse, ap_starts[i], ap_starts[i + 1]),
                 rest);
    const Column smooth = row_sum(&own, inverse + i * ENTRIES, rest, 0, 1);
    Column sum = {};
    for (long q = p_starts[i]; q < p_starts[i + 1]; q++)
      sum = fused(column_at(coarse + (long)p_columns[q] * B), weights[q], sum);
    store_column(fused(sum, column_at(free + i * B), smooth), y + i * B);
  }
}
#endif

// D = A with all its zeros, a block for each pair of n nodes.
KERNEL(spread, IN(int, starts), IN(int, columns), IN(double, A), LONG(n), OUT(double, D)) {
  BLOCKS(i, n) {
    double *row = D + i * n * ENTRIES;
    for (long j = 0; j < n; j++) THREADS(m, ENTRIES) row[j * ENTRIES + m] = 0;
    for (long k = starts[i]; k < starts[i + 1]; k++)
      THREADS(m, ENTRIES) row[columns[k] * ENTRIES + m] = A[k * ENTRIES + m];
  }
}

// Step k of Gauss and Jordan's inversion in place, block by block: first the pivot's row ...
KERNEL(scale_row, INOUT(double, D), LONG(n), LONG(k), INOUT(long, singular)) {
  double *row = D + k * n * ENTRIES;
  BLOCKS(one, 1) {
    SHARED(double, pivot, ENTRIES);
    THREADS(t, 1) {
      for (int m = 0; m < ENTRIES; m++) pivot[m] = row[k * ENTRIES + m];
      if (!invert(pivot)) ++*singular;
    }
    BARRIER();
    THREADS(j, n) {
      double *block = row + j * ENTRIES;
      double column[B];
      for (int c = 0; c < B; c++) {
        for (int r = 0; r < B; r++) column[r] = block[c * B + r];
        for (int r = 0; r < B; r++) {
          double sum = 0;
          for (int q = 0; q < B; q++) sum = fused(pivot[q * B + r], column[q], sum);
          block[c * B + r] = j == k ? pivot[c * B + r] : sum;
        }
      }
    }
  }
}

// ... then all others.
KERNEL(eliminate, INOUT(double, D), LONG(n), LONG(k)) {
  const double *pivots = D + k * n * ENTRIES;
  BLOCKS(i, n) {
    SHARED(double, factor, ENTRIES);
    double *row = D + i * n * ENTRIES;
    if (i != k) {
      THREADS(m, ENTRIES) factor[m] = row[k * ENTRIES + m];
      BARRIER();
      THREADS2(j, m, n, ENTRIES) {
        const double *pivot = pivots + j * ENTRIES + m / B * B;
        double sum = j == k ? 0 : row[j * ENTRIES + m];
        for (int q = 0; q < B; q++) sum = fused(-factor[q * B + m % B], pivot[q], sum);
        row[j * ENTRIES + m] = sum;
      }
      BARRIER();
    }
  }
}
