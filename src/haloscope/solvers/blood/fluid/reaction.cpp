// Openings whose pressure follows the flow through them: what has passed in a step gives the density of the next.
//
// passed: what passed points and links of openings (fluid.cpp), of which outlet k has those at places from starts[k]
// to starts[k + 1]. laws [9][outlets], in lattice units: 0 and 1 factors of c and of the flow rate in c after a step,
// 2 proximal resistance, 3 outside pressure, 4 share of what the pressure lacks that it takes in a step, 5 pressure of
// the fluid at the start, 6 share of the outflow (negative: a Windkessel), 7 factor of what lacks of the share, 8
// whether `passed` is mass rather than volume. state [5][outlets]: c, pressure of the law, flow rate, pressure set, and
// what passed in the last step alone.

CONSTANTS(TYPE(real))

#define LANES 256
#define PIECES 16
#define OUTLETS 64

// sums[k][b], b below PIECES: of every PIECES-th run of LANES places, in whole parts of 1 / scale, which add up to the
// same whatever their order. Values beyond 1 count as 1, what is no number as 0.
KERNEL(sum_passed, IN(double, passed), IN(int, places), IN(int, starts), LONG(outlets), DOUBLE(scale),
       OUT(long, sums)) {
  BLOCKS(block, outlets * PIECES) {
    const long k = block / PIECES, b = block % PIECES;
    SHARED(long, parts, LANES);
    THREADS(t, LANES) {
      parts[t] = 0;
      for (long i = starts[k] + b * LANES + t; i < starts[k + 1]; i += PIECES * LANES) {
        const double a = passed[places[i]];
        const double value = a == a ? smaller(larger(a, -1.0), 1.0) * scale : 0;
        parts[t] += (long)(value < 0 ? value - 0.5 : value + 0.5);
      }
    }
    BARRIER();
    for (long half = LANES / 2; half; half /= 2) {
      THREADS(t, half) parts[t] += parts[t + half];
      BARRIER();
    }
    THREADS(only, 1) sums[block] = parts[0];
    BARRIER();
  }
}

// The flow rate is the mean of two steps: momentum that changes its sign from step to step, which halfway walls keep,
// would be fed by any resistance. Damped, as the lattice's own impedance makes pressures of the last flow grow without
// limit where the resistance is larger. coming[0]: share of the pressure that has come up in the next step.
KERNEL(react, IN(long, sums), LONG(outlets), DOUBLE(scale), IN(double, laws), IN(int, numbers),
       IN(double, coming), INOUT(double, state), INOUT(real, drive)) {
  BLOCKS(block, 1) {
    SHARED(double, flows, OUTLETS);
    SHARED(double, pressures, OUTLETS);
    THREADS(k, outlets) {
      long sum = 0;
      for (long b = 0; b < PIECES; b++) sum += sums[k * PIECES + b];
      const double flow = sum / scale;
      const double passed = laws[8 * outlets + k] != 0 ? flow / (double)drive[numbers[k]] : flow;
      flows[k] = 0.5 * (passed + state[4 * outlets + k]);
      state[4 * outlets + k] = passed;
    }
    BARRIER();
    THREADS(k, outlets) {
      const double share = laws[6 * outlets + k], flow = flows[k];
      double pressure = state[outlets + k], total = 0;
      for (long j = 0; j < outlets; j++) total += flows[j];
      if (share < 0) {
        const double c = laws[k] * state[k] + laws[outlets + k] * flow;
        const double wanted = laws[3 * outlets + k] + c + laws[2 * outlets + k] * flow;
        pressure += laws[4 * outlets + k] * (wanted - pressure);
        state[k] = c;
      } else {
        pressure += laws[7 * outlets + k] * (flow - share * total);
      }
      pressures[k] = pressure;
    }
    BARRIER();
    THREADS(k, outlets) {
      double mean = 0, reference = 0;
      for (long j = 0; j < outlets; j++) {
        const double share = laws[6 * outlets + j];
        if (share >= 0) mean += share * pressures[j], reference += share * laws[3 * outlets + j];
      }
      const double pressure = laws[6 * outlets + k] < 0 ? pressures[k] : pressures[k] + (reference - mean);
      const double start = laws[5 * outlets + k], set = start + coming[0] * (pressure - start);
      state[outlets + k] = pressure;
      state[2 * outlets + k] = flows[k];
      state[3 * outlets + k] = set;
      drive[numbers[k]] = (real)(1 + 3 * set);
    }
    BARRIER();
  }
}
