// Velocities of openings whose profile changes over time: a sum of oscillating profiles.

CONSTANTS(TYPE(real))

// target[places[i]]: real part of the sum of amplitudes [modes][2] times profiles [modes][2][count], each with its real
// and its imaginary part.
KERNEL(add_waves, IN(double, profiles), IN(double, amplitudes), LONG(modes), LONG(count), IN(int, places),
       OUT(real, target)) {
  FOR_EACH(i, count) {
    double sum = 0;
    for (long k = 0; k < modes; k++)
      sum += amplitudes[2 * k] * profiles[2 * k * count + i] - amplitudes[2 * k + 1] * profiles[(2 * k + 1) * count + i];
    target[places[i]] = (real)sum;
  }
}
