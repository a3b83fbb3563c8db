// The loops whose rates are this machine's memory ceilings: copy, update in place, triad.

// On a GPU a thread has four accesses of 16 bytes in flight; n is a multiple of eight.

#if ON_GPU
#define FOR_PAIRS(i, n)                                                                  \
  const long pairs = (n) / 2, threads = (long)gridDim.x * blockDim.x;                    \
  _Pragma("unroll 4") for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < pairs; \
                           i += threads)

KERNEL copy(const double2 *__restrict__ a, double2 *__restrict__ b, long n) {
  FOR_PAIRS(i, n) b[i] = a[i];
}

KERNEL update(double2 *__restrict__ a, long n) {
  FOR_PAIRS(i, n) a[i] = {fused(a[i].x, 0.999, 1e-3), fused(a[i].y, 0.999, 1e-3)};
}

KERNEL triad(const double2 *__restrict__ a, const double2 *__restrict__ b,
             double2 *__restrict__ c, long n) {
  FOR_PAIRS(i, n) c[i] = {fused(0.5, b[i].x, a[i].x), fused(0.5, b[i].y, a[i].y)};
}

#else
KERNEL copy(const double *__restrict__ a, double *__restrict__ b, long n) {
  FOR_EACH(i, n) b[i] = a[i];
}

KERNEL update(double *__restrict__ a, long n) {
  FOR_EACH(i, n) a[i] = fused(a[i], 0.999, 1e-3);
}

KERNEL triad(const double *__restrict__ a, const double *__restrict__ b, double *__restrict__ c,
             long n) {
  FOR_EACH(i, n) c[i] = fused(0.5, b[i], a[i]);
}
#endif
