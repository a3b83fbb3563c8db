// One small kernel for each word of the dialect, run on cores and on a GPU by dialect.py.
//
// WIDTH: values of a block, and threads of a block on a GPU.
CONSTANTS(TYPE(real), INT(WIDTH))

KERNEL(each, IN(real, a), OUT(real, b), LONG(n)) {
  FOR_EACH(i, n) b[i] = 2 * a[i] + (real)i;
}

KERNEL(from_an_end, IN(real, a), INOUT(real, b), LONG(n), LONG(backward)) {
  FOR_EACH_FROM(i, n, backward) b[i] += 2 * a[i] + (real)i;
}

KERNEL(cells, INOUT(long, visits), LONG(nx), LONG(ny), LONG(nz)) {
  FOR_CELLS(x, y, z, nx, ny, nz) visits[x + nx * (y + ny * z)] += 1 + x + 100 * y + 10000 * z;
}

// Each block turns its values round, through memory that its threads share.
KERNEL(blocks, IN(real, a), OUT(real, b), LONG(count)) {
  BLOCKS(block, count) {
    SHARED(real, row, WIDTH);
    THREADS(i, WIDTH) row[i] = a[block * WIDTH + i];
    BARRIER();
    THREADS(i, WIDTH) b[block * WIDTH + i] = row[WIDTH - 1 - i];
    BARRIER();
  }
}

// Each block transposes a square of WIDTH * WIDTH values.
KERNEL(squares, IN(real, a), OUT(real, b), LONG(count)) {
  BLOCKS(block, count) {
    SHARED(real, square, WIDTH * WIDTH);
    THREADS2(j, i, WIDTH, WIDTH) square[j * WIDTH + i] = a[(block * WIDTH + j) * WIDTH + i];
    BARRIER();
    THREADS2(j, i, WIDTH, WIDTH) b[(block * WIDTH + j) * WIDTH + i] = square[i * WIDTH + j];
    BARRIER();
  }
}

// Each thread keeps a value of its own across a barrier and adds its neighbour's to it.
KERNEL(kept, IN(real, a), OUT(real, b), LONG(count)) {
  BLOCKS(block, count) {
    SHARED(real, row, WIDTH);
    PRIVATE(real, own, WIDTH);
    THREADS(i, WIDTH) {
      MINE(own, i) = 10 * a[block * WIDTH + i];
      row[i] = a[block * WIDTH + i];
    }
    BARRIER();
    THREADS(i, WIDTH) b[block * WIDTH + i] = MINE(own, i) + row[(i + 1) % WIDTH];
    BARRIER();
  }
}

KERNEL(parts, INOUT(long, visits), OUT(long, counts), LONG(n), LONG(nx), LONG(ny), LONG(nz)) {
  PARTS(k, n) {
    long count = 0;
    CELLS_OF_PART(k, n, x, y, z, nx, ny, nz) {
      visits[x + nx * (y + ny * z)] += 1;
      count += 1;
    }
    counts[k] = count;
  }
}

// All parts add to the same few bins.
KERNEL(bins, INOUT(float, singles), INOUT(double, doubles), INOUT(long, integers), LONG(bins),
       LONG(n)) {
  PARTS(k, n) {
    atomic_add(&singles[k % bins], 1.0f);
    atomic_add(&doubles[k % bins], (double)k);
    atomic_add(&integers[k % bins], k);
  }
}

// Both roots of each value, and what the first is of 1.
KERNEL(roots, IN(real, a), OUT(real, results), LONG(n)) {
  FOR_EACH(i, n) {
    results[i] = root_of_normal(a[i]);
    results[i + n] = square_root(a[i]);
    results[i + 2 * n] = reciprocal_of_normal(root_of_normal(a[i]));
  }
}

// results[k] of all values: fused, product and sum apart, larger, smaller, root, magnitude.
INLINE real apart(real a, real b, real c) { return a * b + c; }

KERNEL(arithmetic, IN(real, a), IN(real, b), IN(real, c), OUT(real, results), LONG(n)) {
  FOR_EACH(i, n) {
    results[i] = fused(a[i], b[i], c[i]);
    results[i + n] = apart(a[i], b[i], c[i]);
    results[i + 2 * n] = larger(a[i], b[i]);
    results[i + 3 * n] = smaller(a[i], b[i]);
    results[i + 4 * n] = square_root(absolute(a[i]));
    results[i + 5 * n] = absolute(a[i]);
  }
}
