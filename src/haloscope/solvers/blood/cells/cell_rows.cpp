// What the host must know of cells to say who holds them, and rows of arrays as cells come and go.
//
// Arrays (3, room, a_cell): component d of vertex v of cell c is at (d * room + c) * a_cell + v.
// States of cells that travel (cells, fields, a_cell): of each array its three components.

CONSTANTS(TYPE(real))

#define LANES 32
#define LOW 0
#define HIGH 3
#define SUM 6
#define SPEED 9
#define FASTEST 12
#define FINITE 13
#define QUANTITIES 14
#define FAR 1e300

// outlines[q * count + c]: lowest and highest position along x, y, z, mean position, mean velocity, largest
// component of a velocity, and 1 where all of these are finite, else 0. Sums run in a fixed order.
KERNEL(outline, IN(real, positions), IN(real, velocities), LONG(room), LONG(a_cell), LONG(count),
       OUT(real, outlines)) {
  BLOCKS(c, count) {
    SHARED(real, parts[QUANTITIES], LANES);
    THREADS(i, LANES) {
      for (int d = 0; d < 3; d++) {
        parts[LOW + d][i] = FAR, parts[HIGH + d][i] = -FAR;
        parts[SUM + d][i] = parts[SPEED + d][i] = 0;
      }
      parts[FASTEST][i] = 0, parts[FINITE][i] = 1;
    }
    for (int d = 0; d < 3; d++) {
      const real *x = positions + (d * room + c) * a_cell;
      const real *u = velocities + (d * room + c) * a_cell;
      for (long first = 0; first < a_cell; first += LANES)
        THREADS(i, smaller((long)LANES, a_cell - first)) {
          const real at = x[first + i], along = u[first + i], speed = absolute(along);
          parts[LOW + d][i] = smaller(parts[LOW + d][i], at);
          parts[HIGH + d][i] = larger(parts[HIGH + d][i], at);
          parts[SUM + d][i] += at;
          parts[SPEED + d][i] += along;
          parts[FASTEST][i] = larger(parts[FASTEST][i], speed);
          // Neither infinities nor NaN are 0 less themselves.
          parts[FINITE][i] = at - at == 0 && speed - speed == 0 ? parts[FINITE][i] : 0;
        }
    }
    BARRIER();
    THREADS(q, QUANTITIES) {
      real value = parts[q][0];
      for (int i = 1; i < LANES; i++) {
        const real other = parts[q][i];
        if (q < HIGH || q == FINITE) value = smaller(value, other);
        else if (q < SUM || q == FASTEST) value = larger(value, other);
        else value += other;
      }
      outlines[q * count + c] = q >= SUM && q < FASTEST ? value / a_cell : value;
    }
    BARRIER();
  }
}

// What an array has of the cells in given rows becomes fields first to first + 2 of their states.
KERNEL(give_rows, IN(real, array), LONG(room), LONG(a_cell), IN(int, rows), LONG(count),
       OUT(real, states), LONG(first), LONG(fields)) {
  BLOCKS(b, 3 * count) {
    const long k = b / 3, d = b - 3 * k;
    const real *from = array + (d * room + rows[k]) * a_cell;
    real *to = states + (k * fields + first + d) * a_cell;
    THREADS(v, a_cell) to[v] = from[v];
  }
}

// Row k of `fresh` becomes row rows[k] of `old`; where that is negative, fields first to first + 2 of
// state -1 - rows[k].
KERNEL(take_rows, IN(real, old), LONG(room), IN(real, states), LONG(first), LONG(fields),
       LONG(a_cell), IN(int, rows), LONG(count), OUT(real, fresh), LONG(fresh_room)) {
  BLOCKS(b, 3 * count) {
    const long d = b / count, k = b - d * count, row = rows[k];
    const real *source = row < 0 ? states + ((-1 - row) * fields + first + d) * a_cell
                                 : old + (d * room + row) * a_cell;
    real *target = fresh + (d * fresh_room + k) * a_cell;
    THREADS(v, a_cell) target[v] = source[v];
  }
}
