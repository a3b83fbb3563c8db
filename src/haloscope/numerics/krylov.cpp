// Inner products and sums of many vectors at once, each in an order that neither threads nor the
// machine decide.
//
// Vectors lie one after the other. Blocks go through ranges of whole rows of LANES values; a lane
// adds what it meets, and the lanes of a block are added in pairs. The host adds the blocks.
//
// real: type of the vectors.
CONSTANTS(TYPE(real))

#define LANES 256
#define PER_BLOCK(n, blocks) (((n) + (blocks)*LANES - 1) / ((blocks)*LANES) * LANES)

// parts[v * blocks + b] = sum of vectors[v] * other over the range of block b.
KERNEL(products, IN(real, vectors), IN(real, other), LONG(n), LONG(count), OUT(double, parts),
       LONG(blocks)) {
  const long range = PER_BLOCK(n, blocks);
  BLOCKS(b, blocks) {
    SHARED(double, sums, LANES);
    PRIVATE(double, sum, LANES);
    const long begin = b * range, end = smaller(begin + range, n);
    for (long v = 0; v < count; v++) {
      const real *vector = vectors + v * n;
      THREADS(i, LANES) MINE(sum, i) = 0;
      for (long row = begin; row < end; row += LANES) {
        const long lanes = smaller((long)LANES, end - row);
        THREADS(i, lanes) MINE(sum, i) = fused((double)vector[row + i], (double)other[row + i], MINE(sum, i));
      }
      THREADS(i, LANES) sums[i] = MINE(sum, i);
      BARRIER();
      for (int half = LANES / 2; half > 0; half /= 2) {
        THREADS(i, half) sums[i] += sums[i + half];
        BARRIER();
      }
      THREADS(i, 1) parts[v * blocks + b] = sums[0];
      BARRIER();
    }
  }
}

// result = keep * result + sum of factors[v] * vectors[v].
KERNEL(combination, IN(real, vectors), IN(double, factors), LONG(n), LONG(count), DOUBLE(keep),
       INOUT(real, result), LONG(blocks)) {
  const long range = PER_BLOCK(n, blocks);
  BLOCKS(b, blocks) {
    PRIVATE(double, sum, LANES);
    const long begin = b * range, end = smaller(begin + range, n);
    for (long row = begin; row < end; row += LANES) {
      const long lanes = smaller((long)LANES, end - row);
      THREADS(i, lanes) MINE(sum, i) = keep == 0 ? 0 : keep * (double)result[row + i];
      for (long v = 0; v < count; v++) {
        const real *vector = vectors + v * n + row;
        const double factor = factors[v];
        THREADS(i, lanes) MINE(sum, i) = fused(factor, (double)vector[i], MINE(sum, i));
      }
      THREADS(i, lanes) result[row + i] = (real)MINE(sum, i);
    }
  }
}
