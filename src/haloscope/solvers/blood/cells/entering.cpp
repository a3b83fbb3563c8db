// What a periodic flow before an inlet hands over to the vessel: velocities of the inlet's points, and of
// vertices; and what flows in it.
//
// positions, velocities: component d of vertex v of cell c at (d * capacity + c) * a_cell + v.
// led [3][room][a_cell]: velocities of the vertices of cells on their way in, of which there are count[0].

CONSTANTS(TYPE(real))

#define LANES 256
#define PIECES 64

// sums[b], b below PIECES: of every PIECES-th run of LANES values of u, in whole parts of 1 / scale, which add up to
// the same whatever their order. Values beyond 1 count as 1, what is no number as 0.
KERNEL(sum_along, IN(double, u), LONG(count), DOUBLE(scale), OUT(long, sums)) {
  BLOCKS(b, PIECES) {
    SHARED(long, parts, LANES);
    THREADS(t, LANES) {
      parts[t] = 0;
      for (long i = b * LANES + t; i < count; i += PIECES * LANES) {
        const double value = u[i] == u[i] ? smaller(larger(u[i], -1.0), 1.0) * scale : 0;
        parts[t] += (long)(value < 0 ? value - 0.5 : value + 0.5);
      }
    }
    BARRIER();
    for (long half = LANES / 2; half; half /= 2) {
      THREADS(t, half) parts[t] += parts[t + half];
      BARRIER();
    }
    THREADS(only, 1) sums[b] = parts[0];
    BARRIER();
  }
}

// Cell k of `led` has the velocities of the cell in row rows[k].
KERNEL(fetch, IN(double, velocities), LONG(capacity), LONG(a_cell), IN(int, rows), IN(int, count),
       OUT(double, led), LONG(room)) {
  FOR_EACH(i, count[0] * a_cell) {
    const long k = i / a_cell, v = i % a_cell;
    for (long d = 0; d < 3; d++)
      led[(d * room + k) * a_cell + v] = velocities[(d * capacity + rows[k]) * a_cell + v];
  }
}

// Cell rows[k] takes velocities from place places[k] of `led`: vertices that are less than `deep` behind the
// plane across an axis, counted the way of `sign`, take all, and of those further in each a share that
// falls to nothing at `deep` + `fade`.
KERNEL(lead, IN(double, positions), INOUT(double, velocities), LONG(capacity), LONG(a_cell),
       IN(int, rows), IN(int, places), IN(int, count), IN(double, led), LONG(room), LONG(axis),
       LONG(sign), DOUBLE(plane), DOUBLE(deep), DOUBLE(fade)) {
  FOR_EACH(i, count[0] * a_cell) {
    const long c = rows[i / a_cell], k = places[i / a_cell], v = i % a_cell;
    const double beyond = sign * (positions[(axis * capacity + c) * a_cell + v] - plane) - deep;
    const double share = beyond > 0 ? 1 - beyond / fade : 1;
    if (share > 0)
      for (long d = 0; d < 3; d++) {
        double *u = velocities + (d * capacity + c) * a_cell + v;
        *u += share * (led[(d * room + k) * a_cell + v] - *u);
      }
  }
}

// Point i of an inlet has the velocity u [3][stride] at at[i], and along the axis so much of relative[i] more that the
// mean into the vessel is wanted[0]; relative[i] is 1 on average. It goes to place to[i] of prescribed [3][own], where
// that is not negative.
KERNEL(set_inlet, IN(double, u), LONG(stride), IN(int, at), LONG(points), IN(double, relative),
       IN(double, wanted), LONG(axis), LONG(sign), IN(int, to), OUT(real, prescribed), LONG(own)) {
  BLOCKS(b, 1) {
    SHARED(double, sums, LANES);
    THREADS(t, LANES) {
      sums[t] = 0;
      for (long i = t; i < points; i += LANES) sums[t] += u[axis * stride + at[i]];
    }
    BARRIER();
    for (long half = LANES / 2; half; half /= 2) {
      THREADS(t, half) sums[t] += sums[t + half];
      BARRIER();
    }
    THREADS(t, LANES) {
      const double lacking = sign * wanted[0] - sums[0] / points;
      for (long i = t; i < points; i += LANES)
        if (to[i] >= 0)
          for (long d = 0; d < 3; d++)
            prescribed[d * own + to[i]] = (real)(u[d * stride + at[i]] + (d == axis ? lacking * relative[i] : 0));
    }
    BARRIER();
  }
}
