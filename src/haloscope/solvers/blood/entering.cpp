// Cells on their way into a vessel: what of them is not yet in it moves as it does where they come from.
//
// positions, velocities: component d of vertex v of cell c at (d * capacity + c) * V + v.
// Cell rows[k] takes its velocities from place places[k] of led [3][room][V], for k below count[0]; its vertices
// that are not yet `deep` behind the plane across an axis do, counted the way of `sign`.

KERNEL lead(const double *positions, double *velocities, long capacity, long V, const int *rows, const int *places,
            const int *count, const double *led, long room, long axis, long sign, double plane, double deep) {
  FOR_EACH(i, count[0] * V) {
    const long c = rows[i / V], k = places[i / V], v = i % V;
    if (sign * (positions[(axis * capacity + c) * V + v] - plane) < deep)
      for (long d = 0; d < 3; d++) velocities[(d * capacity + c) * V + v] = led[(d * room + k) * V + v];
  }
}
