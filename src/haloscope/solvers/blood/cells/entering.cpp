// What a periodic flow before an inlet hands over to the vessel: velocities of the inlet's points, and of
// vertices; and what flows in it.
//
// positions, velocities: component d of vertex v of cell c at (d * capacity + c) * a_cell + v.
// led [3][room][a_cell]: velocities of the vertices of cells on their way in, of which there are count[0], along the
// axes of the periodic flow.

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

// Cell rows[k] takes velocities from place places[k] of `led`: vertices that are less than `deep` behind a plane
// take all, and of those further in each a share that falls to nothing at `deep` + `fade`. frame [15]: the turn
// [3][3] that makes velocities of the vessel out of those led, the plane's normal into the vessel and a point in it.
KERNEL(lead, IN(double, positions), INOUT(double, velocities), LONG(capacity), LONG(a_cell),
       IN(int, rows), IN(int, places), IN(int, count), IN(double, led), LONG(room),
       IN(double, frame), DOUBLE(deep), DOUBLE(fade)) {
  FOR_EACH(i, count[0] * a_cell) {
    const long c = rows[i / a_cell], k = places[i / a_cell], v = i % a_cell;
    const double *normal = frame + 9, *point = frame + 12;
    double beyond = 0;
    for (long d = 0; d < 3; d++)
      beyond += normal[d] * (positions[(d * capacity + c) * a_cell + v] - point[d]);
    beyond -= deep;
    const double share = beyond > 0 ? 1 - beyond / fade : 1;
    if (share > 0)
      for (long d = 0; d < 3; d++) {
        double *u = velocities + (d * capacity + c) * a_cell + v, turned = 0;
        for (long e = 0; e < 3; e++)
          turned += frame[3 * d + e] * led[(e * room + k) * a_cell + v];
        *u += share * (turned - *u);
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

// What comes in through link i of an inlet askew to the axes beyond what it throws back: ways[i] * u, where u [3]
// [stride] lies between the four points at[i] with the shares[i].
INLINE double crossing(const double *u, long stride, const int *at, const double *shares,
                       const double *ways, long links, long i) {
  double sum = 0;
  for (long d = 0; d < 3; d++) {
    double between = 0;
    for (long n = 0; n < 4; n++) between += shares[n * links + i] * u[d * stride + at[n * links + i]];
    sum += ways[d * links + i] * between;
  }
  return sum;
}

// And relative[i], 1 in all, times what makes up the flow wanted[0]. It goes to place to[i] of `thrown`, where that is
// not negative. at, shares [4][links]; ways [3][links].
KERNEL(set_links, IN(double, u), LONG(stride), IN(int, at), IN(double, shares), IN(double, ways),
       LONG(links), IN(double, relative), IN(double, wanted), IN(int, to), OUT(real, thrown)) {
  BLOCKS(b, 1) {
    SHARED(double, sums, LANES);
    THREADS(t, LANES) {
      sums[t] = 0;
      for (long i = t; i < links; i += LANES)
        sums[t] += crossing(u, stride, at, shares, ways, links, i);
    }
    BARRIER();
    for (long half = LANES / 2; half; half /= 2) {
      THREADS(t, half) sums[t] += sums[t + half];
      BARRIER();
    }
    THREADS(t, LANES) {
      const double lacking = wanted[0] - sums[0];
      for (long i = t; i < links; i += LANES)
        if (to[i] >= 0)
          thrown[to[i]] = (real)(crossing(u, stride, at, shares, ways, links, i) + lacking * relative[i]);
    }
    BARRIER();
  }
}
