// Reductions over a box of two arrays whose results do not depend on the order of summation.
//
// Sums are kept as integers: a value is scaled by a power of two, and its square is split into a
// whole part (added in `high`) and a fraction in units of 2^-FINE_BITS (added in `low`). Integer
// addition is associative, so any number of threads, blocks and ranks gives the same bits.
CONSTANTS(TYPE(real))

#define NOT_FINITE 1e300

INLINE double change(const real *a, const real *b, long i, double shift) {
  return ((double)a[i] - (double)b[i]) - shift;
}

// parts[k] = largest |a - b - shift| of part k, or NOT_FINITE where any is NaN or infinite.
KERNEL(largest_change, IN(real, a), IN(real, b), LONG(first), LONG(nx), LONG(ny), LONG(nz),
       LONG(sy), LONG(sz), DOUBLE(shift), OUT(double, parts), LONG(n)) {
  PARTS(k, n) {
    double most = 0;
    bool finite = true;
    CELLS_OF_PART(k, n, x, y, z, nx, ny, nz) {
      const double d = absolute(change(a, b, first + x + y * sy + z * sz, shift));
      finite = finite && d < NOT_FINITE;
      most = larger(d, most);
    }
    parts[k] = finite ? most : NOT_FINITE;
  }
}

// high[k], low[k] = sum of ((a - b - shift) * scale)^2 over part k, in whole numbers and in units
// of 1 / fine.
KERNEL(sum_of_squares, IN(real, a), IN(real, b), LONG(first), LONG(nx), LONG(ny), LONG(nz),
       LONG(sy), LONG(sz), DOUBLE(shift), DOUBLE(scale), DOUBLE(fine), OUT(long, high),
       OUT(long, low), LONG(n)) {
  PARTS(k, n) {
    long whole = 0, rest = 0;
    CELLS_OF_PART(k, n, x, y, z, nx, ny, nz) {
      // Scaled before it is squared, since the square itself may be too large for a number.
      const double d = change(a, b, first + x + y * sy + z * sz, shift) * scale;
      const double t = d * d;
      const long floor = (long)t;
      whole += floor;
      rest += (long)((t - (double)floor) * fine);
    }
    high[k] = whole;
    low[k] = rest;
  }
}

// result[b] = largest of the part of n values that block b of `blocks` goes through.
#define LANES 1024

KERNEL(largest, IN(double, values), LONG(n), OUT(double, result), LONG(blocks)) {
  BLOCKS(b, blocks) {
    SHARED(double, most, LANES);
    THREADS(i, LANES) {
      double greatest = values[0];
      for (long j = b * LANES + i; j < n; j += blocks * LANES) greatest = larger(values[j], greatest);
      most[i] = greatest;
    }
    BARRIER();
    for (int half = LANES / 2; half > 0; half /= 2) {
      THREADS(i, half) most[i] = larger(most[i + half], most[i]);
      BARRIER();
    }
    THREADS(i, 1) result[b] = most[0];
    BARRIER();
  }
}
