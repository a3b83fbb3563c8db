// Bins of a GPU's counting sorts: where each begins, and what puts items there.

// SCAN_BLOCKS: blocks of counts that are scanned side by side; BLOCKS_TOGETHER: blocks of a processor that wait for
// all others.
CONSTANTS(INT(THREADS_A_BLOCK), INT(SCAN_BLOCKS), INT(BLOCKS_TOGETHER))

// What each block of counts adds up to.
INLINE void sum_counts(const int *counts, long bins, int *sums) {
  const long share = (bins + SCAN_BLOCKS - 1) / SCAN_BLOCKS;
  SHARED(int, part, THREADS_A_BLOCK);
  BLOCKS(b, SCAN_BLOCKS) {
    const long end = smaller(bins, (b + 1) * share);
    int sum = 0;
    for (long n = b * share + threadIdx.x; n < end; n += THREADS_A_BLOCK) sum += counts[n];
    part[threadIdx.x] = sum;
    for (int half = THREADS_A_BLOCK / 2; half > 0; half /= 2) {
      BARRIER();
      if ((int)threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sums[b] = part[0];
    BARRIER();
  }
}

// The sum of the parts of all threads up to this one's, itself included.
INLINE int inclusive(int *part, int value) {
  part[threadIdx.x] = value;
  for (int back = 1; back < THREADS_A_BLOCK; back *= 2) {
    BARRIER();
    const int before = (int)threadIdx.x >= back ? part[threadIdx.x - back] : 0;
    BARRIER();
    part[threadIdx.x] += before;
  }
  BARRIER();
  return part[threadIdx.x];
}

// starts[n]: items in bins before n; starts[bins]: all. Start: a type in which all of them can be counted.
template <typename Start>
INLINE void scan_counts(const int *counts, long bins, const int *sums, Start *starts) {
  const long share = (bins + SCAN_BLOCKS - 1) / SCAN_BLOCKS;
  SHARED(int, part, THREADS_A_BLOCK);
  BLOCKS(b, SCAN_BLOCKS) {
    Start before = 0;
    for (int n = 0; n < b; n++) before += sums[n];
    const long end = smaller(bins, (b + 1) * share);
    for (long first = b * share; first < end; first += THREADS_A_BLOCK) {
      const long n = first + threadIdx.x;
      const int count = n < end ? counts[n] : 0, sum = inclusive(part, count);
      if (n < end) starts[n] = before + sum - count;
      if (n < end && n == bins - 1) starts[bins] = before + sum;
      before += part[THREADS_A_BLOCK - 1];
      BARRIER();
    }
  }
}

// Blocks that all run side by side wait for each other, and see what the others have left. arrived: 0 at the start of
// the launch; another kernel sets it back.
INLINE void wait_for_all_blocks(int *arrived) {
  BARRIER();
  if (threadIdx.x == 0) {
    __threadfence();
    const int blocks = gridDim.x, ticket = atomicAdd(arrived, 1), wanted = (ticket / blocks + 1) * blocks;
    while (*(volatile int *)arrived < wanted) {
    }
    __threadfence();
  }
  BARRIER();
}
INLINE bool is_set(const int *flag) { return *(const volatile int *)flag; }

// Puts an item into its bin, the last one first; its place. Counts go back to 0.
template <typename Start>
INLINE long put(int *items, const Start *starts, int *counts, long bin, int item) {
  const long at = starts[bin] + atomicAdd(counts + bin, -1) - 1;
  items[at] = item;
  return at;
}
