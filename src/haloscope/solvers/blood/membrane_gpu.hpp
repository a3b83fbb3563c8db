// Forces on GPUs: a block goes through cells one after the other; its threads take elements, then
// vertices, which gather. What elements say (Loop) or vertices (linear) waits in shared memory, or
// in the block's part of the scratch array where it does not fit; behind it four sheets of what
// elements say against folds.

KERNEL __launch_bounds__(THREADS_A_BLOCK)
forces(const double *positions, const double *velocities, double *result, const int *elements,
       const double *weights, const double *reference, const double *curvature, const int *begins,
       const int *entries, Law law, double *scratch, long slots, long on_chip, long capacity,
       long count, long V, long E, long regular) {
  DYNAMIC_SHARED(double, chip);
  SHARED(double, volumes, PARTS_OF_A_CELL);
  SHARED(double, areas, PARTS_OF_A_CELL);
  BLOCKS(slot, slots) {
    const long waiting_values = LOOP ? 12 * E : 7 * V;
    double *store = on_chip ? chip : scratch + slot * (waiting_values + (law.kf != 0 ? 4 * E : 0));
    double *folds = store + waiting_values;
    for (long c = slot; c < count; c += slots) {
      const OneCell cell = cell_of(positions, capacity, V, c, true);
      const OneCell moving = cell_of(velocities, capacity, V, c, false);
      THREADS(i, PARTS_OF_A_CELL) {
        double volume = 0, area = 0;
        for (long e = i; e < E; e += PARTS_OF_A_CELL) {
          const Triangle<double> t = triangle_of(cell, elements, E, e);
          volume += dot(at(cell, elements[e]), t.S);
          area += t.area;
        }
        volumes[i] = volume;
        areas[i] = area;
      }
      if (LOOP || law.kf != 0)
        THREADS(e, E) {
          const auto place = [&](long k) { return at(cell, elements[k * E + e]); };
          const Rest rest = rest_of(reference, curvature, E, e);
          Resistance<double> folded = {};
          if (law.kf != 0) folded = against_folds(law, rest, triangle_of(cell, elements, E, e), place);
#if LOOP
          const auto velocity = [&](long k) { return at(moving, elements[k * E + e]); };
          const Response<double> r =
              loop_response<double>(law, rest, weights + (e < regular ? 0 : 60), place, velocity);
          const double *values = (const double *)&r;
          // Sheets of E values, so that neighbouring threads meet neighbouring places.
          for (int i = 0; i < 12; i++) store[i * E + e] = values[i];
#endif
          if (law.kf != 0) {
            folds[e] = folded.U.x, folds[E + e] = folded.U.y, folds[2 * E + e] = folded.U.z;
            folds[3 * E + e] = folded.y;
          }
        }
#if !LOOP
      if (law.kb != 0)
        THREADS(v, V) {
          const CornerResponse<double> r =
              corner_response(law, curvature[v], corner_of(cell, elements, begins, entries, E, v));
          const double *values = (const double *)&r;
          for (int i = 0; i < 7; i++) store[i * V + v] = values[i];
        }
#endif
      BARRIER();
      for (int half = PARTS_OF_A_CELL / 2; half > 0; half /= 2) {
        THREADS(i, half) {
          volumes[i] += volumes[i + half];
          areas[i] += areas[i + half];
        }
        BARRIER();
      }
      const double p = volume_derivative(law, volumes[0]), s = area_derivative(law, areas[0]);
      THREADS(v, V) {
        Vec<double> f = {};
        for (long i = begins[v]; i < begins[v + 1]; i++) {
          const long e = entries[i] / POINTS, k = entries[i] % POINTS;
          const auto resisted = [&](Triangle<double> t, Gradients<double> g) {
            if (law.kf != 0)
              add_to_gradients(t, {{folds[e], folds[E + e], folds[2 * E + e]}, folds[3 * E + e]}, g);
            return g;
          };
#if LOOP
          Response<double> r;
          double *values = (double *)&r;
          for (int j = 0; j < 12; j++) values[j] = store[j * E + e];
          const Vec<double> g = loop_gradient(r, weights + (e < regular ? 0 : 60) + 5 * k);
          if (k < 3) {
            const Triangle<double> t = triangle_of(cell, elements, E, e);
            f = f - (corner(resisted(t, constraint_gradients(t, p, s)), k) + g);
          } else {
            f = f - g;
          }
#else
          const Triangle<double> t = triangle_of(cell, elements, E, e);
          const auto velocity = [&](long j) { return at(moving, elements[j * E + e]); };
          const auto waiting = [&](long j) {
            CornerResponse<double> r;
            double *values = (double *)&r;
            for (int n = 0; n < 7; n++) values[n] = store[n * V + elements[j * E + e]];
            return r;
          };
          const Gradients<double> g =
              resisted(t, law.kb != 0 ? bending_gradients(t, p, s, waiting(0), waiting(1), waiting(2))
                                      : constraint_gradients(t, p, s));
          const Response<double> r = linear_response(law, rest_of(reference, curvature, E, e), t, velocity);
          f = f - (k == 0 ? g.a - (r.t1 + r.t2) : k == 1 ? g.b + r.t1 : g.c + r.t2);
#endif
        }
        double *to = result + c * V + v;
        to[0] = f.x, to[capacity * V] = f.y, to[2 * capacity * V] = f.z;
      }
      BARRIER();
    }
  }
}
