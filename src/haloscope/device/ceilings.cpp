// The loops whose rates are this machine's memory ceilings: copy, update in place, triad.

KERNEL copy(const real *__restrict__ a, real *__restrict__ b, long n) {
  FOR_EACH(i, n) b[i] = a[i];
}

KERNEL update(real *__restrict__ a, long n) {
  FOR_EACH(i, n) a[i] = fused(a[i], (real)0.999, (real)1e-3);
}

KERNEL triad(const real *__restrict__ a, const real *__restrict__ b, real *__restrict__ c,
             long n) {
  FOR_EACH(i, n) c[i] = fused((real)0.5, b[i], a[i]);
}
