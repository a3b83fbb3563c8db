// On a GPU: the velocities of vertices. Four threads take a vertex, one for each x, so that they read a
// row of points together.

// The number of the i-th vertex that is wanted.
INLINE long vertex_at(const int *cells, const int *span, long a_cell, long i) {
  if (!a_cell) return i;
  const unsigned cell = (unsigned)i / (unsigned)a_cell;
  return cells[span[0] + cell] * a_cell + ((unsigned)i - cell * (unsigned)a_cell);
}

// What a vertex reads: the fluid's velocities, and where they lie.
struct Around {
  const real *u;
  long stride;
  const int *points;
  Table table;
};

// First point of the support of vertex i and its weights along each axis; whether it is in the own box.
INLINE bool own_place(const real *X, long vertices, long i, const Box &box, int first[3],
                      real phi[3][SUPPORT]) {
  for (int d = 0; d < 3; d++) {
    const real x = X[d * vertices + i];
    if (!placeable(x)) return false;
    const int nearest = nearest_point(x), at = own(nearest, box.axes[d]);
    if (at < 0) return false;
    first[d] = at + delta_weights(x, phi[d]) - nearest;
  }
  return true;
}

// Gives vertex i, if there is one, its velocity; all lanes of a warp call this.
INLINE void take_velocity(const Around &fluid, const Box &box, const real *X, real *V, long vertices,
                          bool there, long i) {
  const int a = threadIdx.x % 4;
  real phi[3][SUPPORT], sums[3] = {0, 0, 0};
  int first[3];
  const bool mine = there && own_place(X, vertices, i, box, first, phi);
  if (mine && a < SUPPORT)
    for (int k = 0; k < SUPPORT; k++)
      for (int j = 0; j < SUPPORT; j++) {
        const int p = fluid.points[place_of(fluid.table, first[0] + a, first[1] + j, first[2] + k)];
        if (p < 0) continue;
        const real w = phi[2][k] * phi[1][j];
        for (int c = 0; c < 3; c++) sums[c] = fused(w, fluid.u[c * fluid.stride + p], sums[c]);
      }
  for (int c = 0; c < 3; c++) {
    real row[SUPPORT];
    for (int b = 0; b < SUPPORT; b++) row[b] = of_four(sums[c], b);
    if (a == 0 && there) V[c * vertices + i] = mine ? along_x(phi[0], row) : 0;
  }
}

// Blocks that a processor takes, though a few numbers of each thread then wait in memory: threads wait
// for points, and the more there are, the less (4 in place of 3 took 186 us where it had been 204).
#define INTERPOLATING_TOGETHER (SUPPORT < 4 ? 5 : 4)

// A block takes `in_turn` vertices that follow each other: a cell's share what the first-level cache
// holds of the fluid around it.
KERNEL_BOUNDS(__launch_bounds__(THREADS_A_BLOCK, INTERPOLATING_TOGETHER), interpolate,
              IN(real, velocity), LONG(stride), IN(int, points), IN(int, rows),
              IN(int, box_numbers), LONG(halo), IN(real, positions), OUT(real, velocities),
              LONG(vertices), LONG(count), IN(int, cells), IN(int, span), LONG(a_cell),
              LONG(in_turn)) {
  const Box box = box_of(box_numbers);
  const long wanted = vertices_wanted(span, a_cell, count);
  const Around fluid = {velocity, stride, points, table_of(points, box, halo)};
  BLOCKS(b, (wanted + in_turn - 1) / in_turn)
  for (long begin = b * in_turn; begin < smaller(wanted, (b + 1) * in_turn); begin += blockDim.x / 4) {
    const long n = begin + threadIdx.x / 4;
    const bool there = n < smaller(wanted, (b + 1) * in_turn);
    take_velocity(fluid, box, positions, velocities, vertices, there,
                  there ? vertex_at(cells, span, a_cell, n) : 0);
  }
}
