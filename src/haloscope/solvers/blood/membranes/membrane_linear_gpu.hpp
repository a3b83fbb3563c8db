// Forces of flat triangles on GPUs: a block goes through cells one after the other; its threads take elements, then
// vertices, which gather. What elements say waits in shared memory with the cell's positions, or in the
// block's part of the scratch array where it does not fit: of each element its volume and area and (guard)
// what it says against folds; of each vertex what it bends.

struct OnChip {
  double volumes[PARTS_OF_A_CELL], areas[PARTS_OF_A_CELL];
};

// STAGED: whether everything is in shared memory.
template <bool STAGED>
INLINE void forces_of_cells(const double *positions, const double *first_natural, const double *second_natural,
                            double *result, const int *elements, const double *weights, const double *reference,
                            const double *curvature,
                            const int *counts, const Wedge *wedges, Law law, double *store,
                            OnChip &chip, const int *rows, const int *span, long slot, long slots, long capacity,
                            long V, long E, long regular) {
  double *const volumes = store + 7 * V, *const areas = volumes + E, *const folds = areas + E;
  double *const places = folds + (law.kf != 0 ? 4 * E : 0);
  for (long n = span[0] + slot; n < span[1]; n += slots) {
    const long c = rows[n];
    OneCell cell = cell_of(positions, capacity, V, c);
    THREADS(v, V) {
      const Vec<double> x = at(cell, v);
      if (STAGED) places[v] = x.x, places[V + v] = x.y, places[2 * V + v] = x.z;
    }
    BARRIER();
    if (STAGED) cell = {places, places + V, places + 2 * V, {0, 0, 0}};
    THREADS(e, E) {
      const Triangle<double> t = triangle_of(cell, elements, E, e);
      volumes[e] = dot(at(cell, elements[e]), t.S);
      areas[e] = t.area;
      const auto place = [&](long k) { return at(cell, elements[k * E + e]); };
      const Rest rest = rest_of(reference, curvature, E, e);
      if (law.kf != 0) {
        const Resistance<double> folded = against_folds(law, rest, t, place);
        folds[e] = folded.U.x, folds[E + e] = folded.U.y, folds[2 * E + e] = folded.U.z;
        folds[3 * E + e] = folded.y;
      }
    }
    if (law.kb != 0)
      THREADS(v, V) {
        const CornerResponse<double> r = corner_response(law, curvature[v], corner_of(cell, counts, wedges, V, v));
        const double *values = (const double *)&r;
        for (int i = 0; i < 7; i++) store[i * V + v] = values[i];
      }
    BARRIER();
    THREADS(i, PARTS_OF_A_CELL) {
      double volume = 0, area = 0;
      for (long e = i; e < E; e += PARTS_OF_A_CELL) {
        volume += volumes[e];
        area += areas[e];
      }
      chip.volumes[i] = volume;
      chip.areas[i] = area;
    }
    BARRIER();
    for (int half = PARTS_OF_A_CELL / 2; half > 0; half /= 2) {
      THREADS(i, half) {
        chip.volumes[i] += chip.volumes[i + half];
        chip.areas[i] += chip.areas[i + half];
      }
      BARRIER();
    }
    const double p = volume_derivative(law, chip.volumes[0]), s = area_derivative(law, chip.areas[0]);
    THREADS(v, V) {
      Vec<double> f = {};
      double *to = result + c * V + v;
      const auto resisted = [&](long e, Triangle<double> t, Gradients<double> g) {
        if (law.kf != 0)
          add_to_gradients(t, {{folds[e], folds[E + e], folds[2 * E + e]}, folds[3 * E + e]}, g);
        return g;
      };
      for (long i = 0; i < counts[v]; i++) {
        const Wedge a = wedges[i * V + v];
        const long e = a.at / 3, k = a.at % 3;
        const Triangle<double> t = triangle(at(cell, a.a), at(cell, a.b), at(cell, a.c));
        const auto natural = [&] { return metric_of(first_natural, second_natural, capacity, V, c, e); };
        const auto bent = [&](long n) {
          CornerResponse<double> r;
          double *values = (double *)&r;
          for (int j = 0; j < 7; j++) values[j] = store[j * V + n];
          return r;
        };
        const Gradients<double> g =
            resisted(e, t, law.kb != 0 ? bending_gradients(t, p, s, bent(a.a), bent(a.b), bent(a.c))
                                       : constraint_gradients(t, p, s));
        const Response<double> r = linear_response(law, rest_of(reference, curvature, E, e), t, natural);
        f = f - (k == 0 ? g.a - (r.t1 + r.t2) : k == 1 ? g.b + r.t1 : g.c + r.t2);
      }
      to[0] = f.x, to[capacity * V] = f.y, to[2 * capacity * V] = f.z;
    }
    BARRIER();
  }
}

// room: values of the scratch array for each block.
KERNEL_BOUNDS(__launch_bounds__(THREADS_A_BLOCK), forces, IN(double, positions),
              IN(double, first_natural), IN(double, second_natural), OUT(double, result),
              IN(int, elements), IN(double, weights), IN(double, reference),
              IN(double, curvature), IN(int, counts), IN(Wedge, wedges), VALUE(Law, law),
              INOUT(double, scratch), IN(int, rows), IN(int, span), LONG(slots), LONG(on_chip),
              LONG(room), LONG(capacity), LONG(V), LONG(E), LONG(regular)) {
  DYNAMIC_SHARED(double, staged);
  SHARED(OnChip, chip, 1);
  BLOCKS(slot, slots)
  if (on_chip)
    forces_of_cells<true>(positions, first_natural, second_natural, result, elements, weights, reference, curvature,
                          counts, wedges, law, staged, chip[0], rows, span, slot, slots, capacity, V, E, regular);
  else
    forces_of_cells<false>(positions, first_natural, second_natural, result, elements, weights, reference, curvature,
                           counts, wedges, law, scratch + slot * room, chip[0], rows, span, slot, slots, capacity, V,
                           E, regular);
}
