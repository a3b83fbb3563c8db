// Forces on cores, and springs that give way: as many cells as a vector has lanes go side by side, so
// that what the elements share is read once and a vertex is three aligned vectors. Lanes past the last
// cell repeat it.

struct Side {  // of the cells side by side
  const int *rows;
  long capacity, V, first, last;
};

INLINE void bring(const double *values, Side s, Lanes *to) {
  for (long d = 0; d < 3; d++)
    for (long l = 0; l < LANES; l++) {
      const double *from = values + (d * s.capacity + s.rows[smaller(s.first + l, s.last)]) * s.V;
      const double origin = *from;
      double *lane = (double *)(to + d) + l;
      for (long v = 0; v < s.V; v++) lane[v * 3 * LANES] = from[v] - origin;
    }
}
INLINE Metric<Lanes> metrics_of(const double *first, const double *second, Side s, long e) {
  Metric<Lanes> h;
  for (long l = 0; l < LANES; l++) {
    const Metric<double> one = metric_of(first, second, s.capacity, s.V, s.rows[smaller(s.first + l, s.last)], e);
    h.h11[l] = one.h11, h.h12[l] = one.h12, h.h22[l] = one.h22;
  }
  return h;
}
INLINE void take_away(const Lanes *from, Side s, double *values) {
  for (long d = 0; d < 3; d++)
    for (long l = 0; l < LANES && s.first + l <= s.last; l++) {
      double *to = values + (d * s.capacity + s.rows[s.first + l]) * s.V;
      const double *lane = (const double *)(from + d) + l;
      for (long v = 0; v < s.V; v++) to[v] = lane[v * 3 * LANES];
    }
}

// Component by component: a copy of the whole struct would be cut into other pieces than are read.
INLINE Vec<Lanes> load(const Lanes *p) { return {p[0], p[1], p[2]}; }
INLINE void store(Lanes *p, Vec<Lanes> a) { p[0] = a.x, p[1] = a.y, p[2] = a.z; }
INLINE void subtract(Lanes *p, Vec<Lanes> a) { p[0] -= a.x, p[1] -= a.y, p[2] -= a.z; }
INLINE void add_to_corner(Triangle<Lanes> t, Vec<Lanes> edge, Lanes *p) {
  Corner<Lanes> c = {load(p), load(p + 3), p[6]};
  add_corner(t, edge, c);
  store(p, c.M), store(p + 3, c.N), p[6] = c.area;
}
INLINE CornerResponse<Lanes> load_response(const Lanes *p) { return {load(p), load(p + 3), p[6]}; }

INLINE Lanes in_pairs(Lanes *parts) {
  for (int half = PARTS_OF_A_CELL / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) parts[i] += parts[i + half];
  return parts[0];
}

// scratch: for each of `slots` threads `room` values: of each vertex 3 vectors of positions and of
// forces, and 7 of what bends a corner.
KERNEL(forces, IN(double, positions), IN(double, first_natural), IN(double, second_natural),
       OUT(double, result), IN(int, elements), IN(double, weights), IN(double, reference),
       IN(double, curvature), IN(int, counts), IN(Wedge, wedges), VALUE(Law, law),
       INOUT(double, scratch), IN(int, rows), IN(int, span), LONG(slots), LONG(on_chip),
       LONG(room), LONG(capacity), LONG(V), LONG(E), LONG(regular)) {
  BLOCKS(slot, slots) {
    Lanes *x = (Lanes *)(scratch + slot * room), *f = x + 3 * V, *corners = f + 3 * V;
    Lanes volumes[PARTS_OF_A_CELL], areas[PARTS_OF_A_CELL];
    const bool bent = !LOOP && law.kb != 0;
    for (long first = span[0] + slot * LANES; first < span[1]; first += slots * LANES) {
      const Side side = {rows, capacity, V, first, span[1] - 1};
      bring(positions, side, x);
      for (long i = 0; i < PARTS_OF_A_CELL; i++) volumes[i] = areas[i] = Lanes{};
      for (long i = 0; i < 3 * V; i++) f[i] = Lanes{};
      if (bent)
        for (long i = 0; i < 7 * V; i++) corners[i] = Lanes{};
      for (long e = 0; e < E; e++) {
        const long a = elements[e], b = elements[E + e], c = elements[2 * E + e], part = e % PARTS_OF_A_CELL;
        const Triangle<Lanes> t = triangle(load(x + 3 * a), load(x + 3 * b), load(x + 3 * c));
        volumes[part] += dot(load(x + 3 * a), t.S);
        areas[part] += t.area;
        if (bent) {
          add_to_corner(t, t.Ea, corners + 7 * a);
          add_to_corner(t, t.Eb, corners + 7 * b);
          add_to_corner(t, t.Ec, corners + 7 * c);
        }
      }
      const Lanes p = volume_derivative(law, in_pairs(volumes)), s = area_derivative(law, in_pairs(areas));
      if (bent)
        for (long v = 0; v < V; v++) {
          Lanes *here = corners + 7 * v;
          const Corner<Lanes> corner = {load(here), load(here + 3), here[6]};
          const CornerResponse<Lanes> r = corner_response(law, curvature[v], corner);
          store(here, r.g), store(here + 3, r.q), here[6] = r.s;
        }
      for (long e = 0; e < E; e++) {
        const long a = elements[e], b = elements[E + e], c = elements[2 * E + e];
        const Rest rest = rest_of(reference, curvature, E, e);
        const Triangle<Lanes> t = triangle(load(x + 3 * a), load(x + 3 * b), load(x + 3 * c));
        const auto place = [&](long k) { return load(x + 3 * (long)elements[k * E + e]); };
        const auto natural = [&] { return metrics_of(first_natural, second_natural, side, e); };
#if LOOP
        const double *w = weights + (e < regular ? 0 : 60);
        Gradients<Lanes> g = constraint_gradients(t, p, s);
        if (law.kf != 0) add_to_gradients(t, against_folds(law, rest, t, place), g);
        const Response<Lanes> r = loop_response<Lanes>(law, rest, w, place, natural);
        subtract(f + 3 * a, g.a + loop_gradient(r, w));
        subtract(f + 3 * b, g.b + loop_gradient(r, w + 5));
        subtract(f + 3 * c, g.c + loop_gradient(r, w + 10));
        for (long k = 3; k < 12; k++) subtract(f + 3 * (long)elements[k * E + e], loop_gradient(r, w + 5 * k));
#else
        Gradients<Lanes> g =
            bent ? bending_gradients(t, p, s, load_response(corners + 7 * a), load_response(corners + 7 * b),
                                     load_response(corners + 7 * c))
                 : constraint_gradients(t, p, s);
        if (law.kf != 0) add_to_gradients(t, against_folds(law, rest, t, place), g);
        const Response<Lanes> r = linear_response(law, rest, t, natural);
        subtract(f + 3 * a, g.a - (r.t1 + r.t2));
        subtract(f + 3 * b, g.b + r.t1);
        subtract(f + 3 * c, g.c + r.t2);
#endif
      }
      take_away(f, side, result);
    }
  }
}

// scratch: as that of forces. A cell that several lanes repeat is read by all of them before they write.
KERNEL(relax, IN(double, positions), INOUT(double, first_natural), INOUT(double, second_natural),
       IN(int, elements), IN(double, weights), VALUE(Law, law), IN(int, rows), IN(int, span),
       LONG(capacity), LONG(V), LONG(E), LONG(regular), INOUT(double, scratch), LONG(slots),
       LONG(room)) {
  BLOCKS(slot, slots) {
    Lanes *x = (Lanes *)(scratch + slot * room);
    for (long first = span[0] + slot * LANES; first < span[1]; first += slots * LANES) {
      const Side side = {rows, capacity, V, first, span[1] - 1};
      bring(positions, side, x);
      for (long e = 0; e < E; e++) {
        const auto place = [&](long k) { return load(x + 3 * (long)elements[k * E + e]); };
        const Metric<Lanes> now = metric_now<Lanes>(weights + (e < regular ? 0 : 60), place);
        const Metric<Lanes> h = relaxed(law, metrics_of(first_natural, second_natural, side, e), now);
        double *to = e < V ? first_natural + e : second_natural + (e - V);
        for (long l = 0; l < LANES; l++) {
          double *one = to + rows[smaller(first + l, side.last)] * V;
          one[0] = h.h11[l], one[capacity * V] = h.h12[l], one[2 * capacity * V] = h.h22[l];
        }
      }
    }
  }
}
