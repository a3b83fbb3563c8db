// The loops whose rates are this machine's memory ceilings: copy, update in place, triad.

// On a GPU a thread has four accesses of 16 bytes in flight; n is a multiple of eight.

#if ON_GPU
#define FOR_PAIRS(i, n)                                                                  \
  const long pairs = (n) / 2, threads = (long)gridDim.x * blockDim.x;                    \
  _Pragma("unroll 4") for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < pairs; \
                           i += threads)

KERNEL(copy, IN_RESTRICT(double2, a), OUT_RESTRICT(double2, b), LONG(n)) {
  FOR_PAIRS(i, n) b[i] = a[i];
}

KERNEL(update, INOUT_RESTRICT(double2, a), LONG(n)) {
  FOR_PAIRS(i, n) a[i] = {fused(a[i].x, 0.999, 1e-3), fused(a[i].y, 0.999, 1e-3)};
}

KERNEL(triad, IN_RESTRICT(double2, a), IN_RESTRICT(double2, b), OUT_RESTRICT(double2, c), LONG(n)) {
  FOR_PAIRS(i, n) c[i] = {fused(0.5, b[i].x, a[i].x), fused(0.5, b[i].y, a[i].y)};
}

#else
KERNEL(copy, IN_RESTRICT(double, a), OUT_RESTRICT(double, b), LONG(n)) {
  FOR_EACH(i, n) b[i] = a[i];
}

KERNEL(update, INOUT_RESTRICT(double, a), LONG(n)) {
  FOR_EACH(i, n) a[i] = fused(a[i], 0.999, 1e-3);
}

KERNEL(triad, IN_RESTRICT(double, a), IN_RESTRICT(double, b), OUT_RESTRICT(double, c), LONG(n)) {
  FOR_EACH(i, n) c[i] = fused(0.5, b[i], a[i]);
}
#endif
