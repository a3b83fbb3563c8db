// What drives the fields at single nodes: currents and incident waves; and the time that they see.
//
// An entry adds shape (six components) times a waveform of t - delay to the increments of a node.
// Entries of a launch have different nodes. Time is origin + (steps + c) dt, so that no rounding
// adds up, and it lives on the device: clock = (origin, steps). c is the stage's, called rkc.
//
// Shapes: [6][entries].
CONSTANTS(TYPE(real), INT(N))  // N: order

#include "waveforms.hpp"

#define NP3 ((N + 1) * (N + 1) * (N + 1))

// All entries at once: currents.
KERNEL(drive, INOUT(real, increments), IN(long, places), IN(real, shape), LONG(count), IN(double, clock),
       IN(double, numbers), IN(double, table), LONG(kind), DOUBLE(dt), DOUBLE(rkc)) {
  const double t = fused(clock[1] + rkc, dt, clock[0]);
  const real amount = (real)(dt * waveform(kind, numbers, table, t));
  FOR_EACH(i, count)
    for (int m = 0; m < 6; m++)
      increments[places[i] + m * NP3] =
          fused(amount, shape[m * count + i], increments[places[i] + m * NP3]);
}

// Each entry in its own time: waves.
KERNEL(drive_delayed, INOUT(real, increments), IN(long, places), IN(real, shape), IN(double, delays),
       LONG(count), IN(double, clock), IN(double, numbers), IN(double, table), LONG(kind),
       DOUBLE(dt), DOUBLE(rkc)) {
  const double t = fused(clock[1] + rkc, dt, clock[0]);
  FOR_EACH(i, count) {
    const real amount = (real)(dt * waveform(kind, numbers, table, t - delays[i]));
    for (int m = 0; m < 6; m++)
      increments[places[i] + m * NP3] =
          fused(amount, shape[m * count + i], increments[places[i] + m * NP3]);
  }
}

// Increments of elements to which nothing else has applied the stage's factor.
KERNEL(scale, INOUT(real, increments), IN(long, elements), LONG(count), DOUBLE(rka)) {
  BLOCKS(b, count) {
    real *ke = increments + elements[b] * 6 * NP3;
    THREADS(n, 6 * NP3) ke[n] = (real)rka * ke[n];
  }
}

KERNEL(tick, INOUT(double, clock), LONG(steps)) { FOR_EACH(i, 1) clock[1] += steps; }
