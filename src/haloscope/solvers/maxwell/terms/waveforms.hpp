// Functions of time that drive sources and waves, in double whatever the fields are.

#if ON_GPU
INLINE double sine(double a) { return sin(a); }
INLINE double exponential(double a) { return exp(a); }
INLINE double rounded_down(double a) { return floor(a); }
#else
INLINE double sine(double a) { return __builtin_sin(a); }
INLINE double exponential(double a) { return __builtin_exp(a); }
INLINE double rounded_down(double a) { return __builtin_floor(a); }
#endif

// From 0 at x = 0 to 1 at x = 1, with three derivatives that vanish at both ends.
INLINE double risen(double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  return x * x * x * x * (35 + x * (-84 + x * (70 - 20 * x)));
}

// Cubic through the four nearest of `count` values; s counts from the first. 0 before and after.
INLINE double of_table(const double *values, long count, double s) {
  const double slack = 1e-6;
  if (s < -slack || s > count - 1 + slack) return 0;
  const long first = (long)smaller(larger(rounded_down(s) - 1, 0.0), count - 4.0);
  const double a = s - first, b = a - 1, c = a - 2, d = a - 3;
  const double *v = values + first;
  return -b * c * d * v[0] / 6 + a * c * d * v[1] / 2 - a * b * d * v[2] / 2 + a * b * c * v[3] / 6;
}

// Kinds and numbers w as in waveforms.py.
INLINE double waveform(long kind, const double *w, const double *table, double t) {
  const double s = (t - w[0]) * w[1];
  switch (kind) {
    case 0: return exponential(-s * s);
    case 1: return exponential(-s * s) * sine(w[2] * (t - w[0]) + w[3]);
    case 2: return (1 - 2 * s * s) * exponential(-s * s);
    case 3: return risen(s) * sine(w[2] * (t - w[0]) + w[3]);
    default: return of_table(table, (long)w[2], s);
  }
}
