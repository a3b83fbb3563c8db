// Correction on a coarse space of functions: projected matrices, transfers, and small dense inverses.
//
//   n nodes, B unknowns each; row i has the blocks starts[i] .. starts[i + 1] of A at columns[k]
//   P: at node i the functions with the weights p_starts[i] .. p_starts[i + 1], for all unknowns
//   free: of each unknown, 1, or 0 where its row is the identity's: P is zero there
//   AP: row i has the blocks ap_starts[i] .. ap_starts[i + 1] at functions, C = P' A P
//   list of function k: nodes[t] with the weights factors[t], t from lists[k] to lists[k + 1]
//   slots: which block of a row a product is added to, in the order in which products come

#include "small_blocks.hpp"
#if !ON_GPU
#include "block_columns.hpp"
#endif

// Far below what smooth functions have over rough ones, far above the rounding of a stored A P.
#define SHIFT 1e-5

// found = 1 where something couples an unknown to other nodes.
KERNEL couplings(const int *starts, const int *diagonal, const double *A, long n, double *found) {
  PARTS(i, n) {
    int couples[B] = {}, count = 0;
    for (long k = starts[i]; k < starts[i + 1] && count < B; k++) {
      for (int c = 0; c < B; c++)
        for (int r = 0; r < B; r++)
          couples[r] |= k != diagonal[i] && absolute(A[k * ENTRIES + c * B + r]) > 0;
      count = 0;
      for (int r = 0; r < B; r++) count += couples[r];
    }
    for (int r = 0; r < B; r++) found[i * B + r] = couples[r];
  }
}

// 1 where something couples on any rank, from the sums over ranks.
KERNEL mark(long n, double *sums) { FOR_EACH(u, n * B) sums[u] = sums[u] > 0 ? 1 : 0; }

#if ON_GPU
// All rows, and a thread for an entry of a row, in every block.
#define ROWS(i, n)                \
  FOR_EACH(u_##i, (n) * ENTRIES)  \
  for (long i = u_##i / ENTRIES, m = u_##i % ENTRIES, once = 1; once; once = 0)

// AP = A P.
KERNEL project(const int *starts, const int *columns, const double *A, const int *p_starts,
               const double *weights, const double *free, const slot *slots,
               const long *slot_starts, const int *ap_starts, long n, stored *AP) {
  ROWS(i, n) {
    stored *row = AP + (long)ap_starts[i] * ENTRIES;
    const long blocks = ap_starts[i + 1] - ap_starts[i];
    for (long k = 0; k < blocks; k++) row[k * ENTRIES + m] = 0;
    long e = slot_starts[i];
    for (long t = starts[i]; t < starts[i + 1]; t++) {
      const long j = columns[t];
      for (long q = p_starts[j]; q < p_starts[j + 1]; q++, e++) {
        stored *to = row + slots[e] * ENTRIES;
        const double weight = weights[q];
        to[m] = (stored)fused(weight * free[j * B + m / B], A[t * ENTRIES + m], (double)to[m]);
      }
    }
  }
}

// C = P' AP, where nodes are counted that the lists name.
KERNEL galerkin(const int *lists, const int *nodes, const double *factors, const double *free,
             const int *ap_starts, const stored *AP, const slot *slots, const long *slot_starts,
             const int *starts, long functions, double *C) {
  ROWS(k, functions) {
    double *row = C + (long)starts[k] * ENTRIES;
    const long blocks = starts[k + 1] - starts[k];
    for (long l = 0; l < blocks; l++) row[l * ENTRIES + m] = 0;
    for (long t = lists[k]; t < lists[k + 1]; t++) {
      const long i = nodes[t];
      const double factor = factors[t];
      long e = slot_starts[t];
      for (long l = ap_starts[i]; l < ap_starts[i + 1]; l++, e++) {
        double *to = row + slots[e] * ENTRIES;
        to[m] = fused(factor * free[i * B + m % B], (double)AP[l * ENTRIES + m], to[m]);
      }
    }
  }
}
#else
KERNEL project(const int *starts, const int *columns, const double *A, const int *p_starts,
               const double *weights, const double *free, const slot *slots,
               const long *slot_starts, const int *ap_starts, long n, stored *AP) {
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

KERNEL galerkin(const int *lists, const int *nodes, const double *factors, const double *free,
                const int *ap_starts, const stored *AP, const slot *slots, const long *slot_starts,
                const int *starts, long functions, double *C) {
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
// given unknowns leave so few free ones that functions depend on each other, C would be singular:
// it then still has small solutions, from which P takes what was free to choose.
KERNEL fill(const int *starts, const int *diagonal, long functions, double *C) {
  FOR_EACH(u, functions * B) {
    const long k = u / B, r = u % B;
    double sum = 0;
    for (long l = starts[k]; l < starts[k + 1]; l++)
      for (int c = 0; c < B; c++) sum += absolute(C[l * ENTRIES + c * B + r]);
    double *own = C + (long)diagonal[k] * ENTRIES + r * B + r;
    *own = sum == 0 ? 1 : *own * (1 + SHIFT);
  }
}

// coarse = P' x.
#if ON_GPU
KERNEL restrict_vector(const int *lists, const int *nodes, const double *factors,
                       const double *free, const double *x, long functions, double *coarse) {
  FOR_EACH(u, functions * B) {
    const long k = u / B, r = u % B;
    double sum = 0;
    for (long t = lists[k]; t < lists[k + 1]; t++) {
      const long at = (long)nodes[t] * B + r;
      sum = fused(factors[t] * free[at], x[at], sum);
    }
    coarse[u] = sum;
  }
}
#else
KERNEL restrict_vector(const int *lists, const int *nodes, const double *factors,
                       const double *free, const double *x, long functions, double *coarse) {
  PARTS(k, functions) {
    Column sum = {};
    for (long t = lists[k]; t < lists[k + 1]; t++) {
      const long at = (long)nodes[t] * B;
      sum = fused(column_at(x + at), factors[t] * column_at(free + at), sum);
    }
    store_column(sum, coarse + k * B);
  }
}
#endif

// rest = x - AP coarse.
#if ON_GPU
// A lane has two equations of one column, as in block_rows.cpp, and adds in the same order.
#define ROW_LANES (ENTRIES / 2)
KERNEL subtract_product(const int *__restrict__ starts, const int *__restrict__ columns,
                        const stored *__restrict__ AP, const double *__restrict__ coarse,
                        const double *__restrict__ x, long n, double *__restrict__ rest) {
  const int lane = threadIdx.x % ROW_LANES, c = lane / (B / 2), pair = lane % (B / 2);
  const long teams = (long)gridDim.x * blockDim.x / ROW_LANES;
  const long team = (blockIdx.x * (long)blockDim.x + threadIdx.x) / ROW_LANES;
  // All threads of a warp go on while one of them has a row, since they exchange sums.
  for (long turn = 0; turn * teams < n; turn++) {
    const long row = turn * teams + team;
    const bool mine = row < n;
    const long last = mine ? starts[row + 1] : 0;
    double s0 = 0, s1 = 0;
    for (long k = mine ? starts[row] : 0; k < last; k++) {
      const stored *a = AP + k * ENTRIES + c * B + 2 * pair;
      const double factor = coarse[(long)columns[k] * B + c];
      s0 = fused((double)a[0], factor, s0);
      s1 = fused((double)a[1], factor, s1);
    }
    for (int half = B / 2; half < ROW_LANES; half *= 2) {
      s0 += __shfl_xor_sync(0xffffffffu, s0, half);
      s1 += __shfl_xor_sync(0xffffffffu, s1, half);
    }
    if (mine && c == 0) {
      const long at = row * B + 2 * pair;
      rest[at] = x[at] - s0;
      rest[at + 1] = x[at + 1] - s1;
    }
  }
}
#else
KERNEL subtract_product(const int *starts, const int *columns, const stored *AP,
                        const double *coarse, const double *x, long n, double *rest) {
  PARTS(i, n) {
    const Column sum = row_sum(columns, AP, coarse, starts[i], starts[i + 1]);
    store_column(column_at(x + i * B) - sum, rest + i * B);
  }
}
#endif

// y += P coarse.
#if ON_GPU
KERNEL prolong(const int *p_starts, const int *functions, const double *weights,
               const double *free, const double *coarse, long n, double *y) {
  FOR_EACH(u, n * B) {
    const long i = u / B, r = u % B;
    double sum = 0;
    for (long q = p_starts[i]; q < p_starts[i + 1]; q++)
      sum = fused(weights[q], coarse[(long)functions[q] * B + r], sum);
    y[u] = fused(free[u], sum, y[u]);
  }
}
#else
KERNEL prolong(const int *p_starts, const int *functions, const double *weights,
               const double *free, const double *coarse, long n, double *y) {
  PARTS(i, n) {
    Column sum = {};
    for (long q = p_starts[i]; q < p_starts[i + 1]; q++)
      sum = fused(column_at(coarse + (long)functions[q] * B), weights[q], sum);
    store_column(fused(sum, column_at(free + i * B), column_at(y + i * B)), y + i * B);
  }
}
#endif

// D = A with all its zeros, a block for each pair of n nodes.
KERNEL spread(const int *starts, const int *columns, const double *A, long n, double *D) {
  BLOCKS(i, n) {
    double *row = D + i * n * ENTRIES;
    for (long j = 0; j < n; j++) THREADS(m, ENTRIES) row[j * ENTRIES + m] = 0;
    for (long k = starts[i]; k < starts[i + 1]; k++)
      THREADS(m, ENTRIES) row[columns[k] * ENTRIES + m] = A[k * ENTRIES + m];
  }
}

// Step k of Gauss and Jordan's inversion in place, block by block: first the pivot's row ...
KERNEL scale_row(double *D, long n, long k, long *singular) {
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
KERNEL eliminate(double *D, long n, long k) {
  const double *pivots = D + k * n * ENTRIES;
  BLOCKS(i, n) {
    SHARED(double, factor, ENTRIES);
    double *row = D + i * n * ENTRIES;
    if (i != k) {
      THREADS(m, ENTRIES) factor[m] = row[k * ENTRIES + m];
      BARRIER();
      for (long j = 0; j < n; j++) THREADS(m, ENTRIES) {
        const double *pivot = pivots + j * ENTRIES + m / B * B;
        double sum = j == k ? 0 : row[j * ENTRIES + m];
        for (int q = 0; q < B; q++) sum = fused(-factor[q * B + m % B], pivot[q], sum);
        row[j * ENTRIES + m] = sum;
      }
      BARRIER();
    }
  }
}
