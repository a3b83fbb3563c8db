// Winding numbers of lattice points in closed surfaces, from the cuts of rows along x with triangles.
//
// A row that goes into a surface adds 1 to the points behind, one that comes out takes 1 away. All
// sums are of whole numbers. Positions are used by their numbers in the whole lattice, so that every
// rank finds the same cuts.
//
// positions of a kind: component c of vertex i at c * vertices + i, a_cell of them to a cell.
// Of cell m: home, at 3 m, what is taken from its vertices to bring the lowest to the first period.
// images, at 6 m: for each axis the first of the whole periods by which it is then moved to meet own
// points, and the first that is too many.
// steps[z][y][x]: of own points and one place more along x, for what is met only behind the box.

CONSTANTS(TYPE(real))

#include "own_box.hpp"

INLINE int ceiling_of(real x) { return -floor_of(-x); }

INLINE void add_one(int *to, int sign) {
#if ON_GPU
  atomicAdd(to, sign);
#else
#pragma omp atomic
  *to += sign;
#endif
}

// Periods that a cell may be long: one that has burst would be met in each of millions of them.
const int MOST_PERIODS = 8;

// Cells of which a vertex has no place, or that have burst, have no images.
KERNEL(find_images, IN(int, box_numbers), IN(real, positions), LONG(vertices), LONG(cells),
       LONG(a_cell), INOUT(real, home), INOUT(int, images)) {
  const Box box = box_of(box_numbers);
  PARTS(m, cells) {
    bool known = true;
    for (int d = 0; d < 3; d++) {
      const Axis &axis = box.axes[d];
      const real *x = positions + d * vertices + m * a_cell;
      real low = x[0], high = x[0];
      for (long i = 0; i < a_cell; i++) {
        known = known && placeable(x[i]);
        low = smaller(low, x[i]);
        high = larger(high, x[i]);
      }
      const real first = (real)axis.first, last = (real)(axis.first + axis.count - 1);
      int begin = 0, end = 0;
      home[3 * m + d] = 0;
      known = known && (!axis.period || high - low < (real)MOST_PERIODS * (real)axis.period);
      if (known && axis.period) {
        const real n = (real)axis.period;
        home[3 * m + d] = n * floor_of(low / n);
        begin = ceiling_of((first - (high - home[3 * m + d])) / n);
        end = floor_of((last - (low - home[3 * m + d])) / n) + 1;
      } else if (known) {
        end = high >= first && low <= last;
      }
      images[6 * m + 2 * d] = begin;
      images[6 * m + 2 * d + 1] = end;
    }
    if (!known) images[6 * m + 1] = images[6 * m];
  }
}

// Where the edge between two corners meets a plane z: the same numbers whichever triangle asks.
INLINE void meet(const real (*corners)[3], const int *vertex, int edge, real z, real *x, real *y) {
  const int next = edge == 2 ? 0 : edge + 1;
  const bool forward = vertex[edge] < vertex[next];
  const real *a = corners[forward ? edge : next], *b = corners[forward ? next : edge];
  const real t = (z - a[2]) / (b[2] - a[2]);
  *x = a[0] + t * (b[0] - a[0]);
  *y = a[1] + t * (b[1] - a[1]);
}

INLINE void cut_triangle(const real (*corners)[3], const int *vertex, const Box &box, int *steps) {
  const Axis &ax = box.axes[0], &ay = box.axes[1], &az = box.axes[2];
  const real low = smaller(corners[0][2], smaller(corners[1][2], corners[2][2]));
  const real high = larger(corners[0][2], larger(corners[1][2], corners[2][2]));
  const int end = smaller(ceiling_of(high), az.first + az.count);
  for (int z = larger(ceiling_of(low), az.first); z < end; z++) {
    // A plane cuts two edges: those from below, or in it, to above. It runs from the edge that comes
    // down to the one that goes up.
    int down = 0, up = 0;
    for (int e = 0; e < 3; e++) {
      const bool from = corners[e][2] > (real)z, to = corners[e == 2 ? 0 : e + 1][2] > (real)z;
      if (from && !to) down = e;
      if (to && !from) up = e;
    }
    real x0, y0, x1, y1;
    meet(corners, vertex, down, (real)z, &x0, &y0);
    meet(corners, vertex, up, (real)z, &x1, &y1);
    const int sign = y1 > y0 ? -1 : 1;
    const int stop = smaller(ceiling_of(larger(y0, y1)), ay.first + ay.count);
    for (int y = larger(ceiling_of(smaller(y0, y1)), ay.first); y < stop; y++) {
      const real x = x0 + ((real)y - y0) / (y1 - y0) * (x1 - x0);
      const int behind = smaller(larger(ceiling_of(x) - ax.first, 0), ax.count);
      const long row = (long)(z - az.first) * ay.count + (y - ay.first);
      add_one(steps + row * (ax.count + 1) + behind, sign);
    }
  }
}

// triangles: of a cell, `count` of three vertices each.
KERNEL(cut_rows, IN(int, box_numbers), IN(real, positions), LONG(vertices), LONG(cells),
       LONG(a_cell), IN(int, triangles), LONG(count), IN(real, home), IN(int, images),
       INOUT(int, steps)) {
  const Box box = box_of(box_numbers);
  PARTS(n, cells * count) {
    const long m = n / count;
    const int *vertex = triangles + 3 * (n % count), *range = images + 6 * m;
    for (int k = range[4]; k < range[5]; k++)
      for (int j = range[2]; j < range[3]; j++)
        for (int i = range[0]; i < range[1]; i++) {
          const int periods[3] = {i, j, k};
          real corners[3][3];
          for (int c = 0; c < 3; c++)
            for (int d = 0; d < 3; d++)
              corners[c][d] = positions[d * vertices + m * a_cell + vertex[c]] - home[3 * m + d] +
                              (real)(periods[d] * box.axes[d].period);
          cut_triangle(corners, vertex, box, steps);
        }
  }
}

// From what cuts add to what points have.
KERNEL(add_up_rows, IN(int, box_numbers), INOUT(int, steps)) {
  const Box box = box_of(box_numbers);
  const long places = box.axes[0].count + 1;
  PARTS(row, (long)box.axes[1].count * box.axes[2].count) {
    int sum = 0;
    for (long x = row * places; x < (row + 1) * places; x++) steps[x] = sum += steps[x];
  }
}

// Flags of own points by their numbers; clears the winding numbers.
KERNEL(flag_points, IN(int, box_numbers), IN(int, points), LONG(halo), INOUT(int, windings),
       OUT(unsigned char, flags)) {
  const Box box = box_of(box_numbers);
  const Table table = table_of(points, box, halo);
  const long nx = box.axes[0].count, ny = box.axes[1].count;
  PARTS(row, ny * box.axes[2].count) {
    const int *p = points + place_of(table, 0, row % ny, row / ny);
    int *w = windings + row * (nx + 1);
    for (long x = 0; x < nx; x++) {
      if (p[x] >= 0) flags[p[x]] = w[x] != 0;
      w[x] = 0;
    }
    w[nx] = 0;
  }
}
