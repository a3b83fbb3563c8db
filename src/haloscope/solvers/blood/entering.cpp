// Cells on their way into a vessel: what of them is not yet in it moves as it does where they come from.
//
// positions, velocities: component d of vertex v of cell c at (d * capacity + c) * V + v.
// Cell rows[k] takes velocities from place places[k] of led [3][room][V], for k below count[0]: vertices that are
// less than `deep` behind the plane across an axis, counted the way of `sign`, take all, and of those
// further in each a share that falls to nothing at `deep` + `fade`.

KERNEL lead(const double *positions, double *velocities, long capacity, long V, const int *rows, const int *places,
            const int *count, const double *led, long room, long axis, long sign, double plane, double deep,
            double fade) {
  FOR_EACH(i, count[0] * V) {
    const long c = rows[i / V], k = places[i / V], v = i % V;
    const double beyond = sign * (positions[(axis * capacity + c) * V + v] - plane) - deep;
    const double share = beyond > 0 ? 1 - beyond / fade : 1;
    if (share > 0)
      for (long d = 0; d < 3; d++) {
        double *u = velocities + (d * capacity + c) * V + v;
        *u += share * (led[(d * room + k) * V + v] - *u);
      }
  }
}
