// Sums over each cell: its energies, and what its volume says of its shape.

// values[q][0] = values[q][0] + ... + values[q][PARTS_OF_A_CELL - 1], in pairs.
#define ADD_IN_PAIRS(values, quantities)                                    \
  for (int half = PARTS_OF_A_CELL / 2; half > 0; half /= 2) {               \
    THREADS(i, half)                                                        \
      for (int q = 0; q < (quantities); q++) values[q][i] += values[q][i + half]; \
    BARRIER();                                                              \
  }

#define ENERGIES 5

// result[q * capacity + c]: elastic and bending energy, those of area and volume, that against folds.
KERNEL(energies, IN(double, positions), IN(int, elements), IN(double, weights),
       IN(double, reference), IN(double, curvature), IN(int, counts), IN(Wedge, wedges),
       VALUE(Law, law), OUT(double, result), LONG(capacity), LONG(count), LONG(V), LONG(E),
       LONG(regular)) {
  BLOCKS(c, count) {
    SHARED(double, sums[ENERGIES], PARTS_OF_A_CELL);
    const OneCell cell = cell_of(positions, capacity, V, c);
    THREADS(i, PARTS_OF_A_CELL) {
      double elastic = 0, bending = 0, area = 0, volume = 0, folds = 0;
      for (long e = i; e < E; e += PARTS_OF_A_CELL) {
        const Triangle<double> t = triangle_of(cell, elements, E, e);
        const Rest rest = rest_of(reference, curvature, E, e);
        area += t.area;
        volume += dot(at(cell, elements[e]), t.S);
        const auto place = [&](long k) { return at(cell, elements[k * E + e]); };
        if (law.kf != 0) folds += fold_energy(law, rest, t, place);
#if LOOP
        const double *w = weights + (e < regular ? 0 : 60);
        Vec<double> d[5];
        derivatives<0, 5>(place, w, d);
        const Vec<double> a1 = d[0], a2 = d[1];
        bending += helfrich_energy(law, rest, a1, a2, d[2], d[3], d[4]);
#else
        const Vec<double> a1 = t.Ec, a2 = Vec<double>{} - t.Eb;
#endif
        elastic += elastic_energy(law, rest, dot(a1, a1), dot(a1, a2), dot(a2, a2));
      }
#if !LOOP
      for (long v = i; v < V; v += PARTS_OF_A_CELL)
        bending += corner_energy(law, curvature[v], corner_of(cell, counts, wedges, V, v));
#endif
      sums[0][i] = elastic, sums[1][i] = bending, sums[2][i] = area, sums[3][i] = volume, sums[4][i] = folds;
    }
    BARRIER();
    ADD_IN_PAIRS(sums, ENERGIES)
    THREADS(i, 1) {
      const double stretched = sums[2][0] - law.A0, swollen = sums[3][0] / 3 - law.V0;
      result[c] = sums[0][0];
      result[capacity + c] = sums[1][0];
      result[2 * capacity + c] = law.kA * stretched * stretched / (2 * law.A0);
      result[3 * capacity + c] = law.kV * swollen * swollen / (2 * law.V0);
      result[4 * capacity + c] = sums[4][0];
    }
    BARRIER();
  }
}

#define MOMENTS 11

// Whether a triangle is folded against its neighbour: by more than 120 degrees, where no fold guard lets
// them come.
INLINE int against(Vec<double> s, Vec<double> beside) {
  const double along = dot(s, beside);
  return along < 0 && 4 * along * along > dot(s, s) * dot(beside, beside);
}

// result[q * capacity + c]: area, volume, its first moments by x, y, z about the cell's first vertex
// and the second ones xx, yy, zz, yz, zx, xy; last the quality of the worst triangle: 4 sqrt(3) times
// its area over the sum of its squared sides, 1 if equilateral, negative if it is folded
// against two or three of those beside it. (Tetrahedra from the first vertex: Tonon, J. Math. Stat. 1 (2005).)
KERNEL(moments, IN(double, positions), IN(int, elements), OUT(double, result), LONG(capacity),
       LONG(count), LONG(V), LONG(E)) {
  BLOCKS(c, count) {
    SHARED(double, sums[MOMENTS], PARTS_OF_A_CELL);
    SHARED(double, least, PARTS_OF_A_CELL);
    const OneCell cell = cell_of(positions, capacity, V, c);
    THREADS(i, PARTS_OF_A_CELL) {
      double m[MOMENTS] = {}, worst = 1;
      for (long e = i; e < E; e += PARTS_OF_A_CELL) {
        const Vec<double> p = at(cell, elements[e]), q = at(cell, elements[E + e]), r = at(cell, elements[2 * E + e]);
        const Triangle<double> t = triangle(p, q, r);
        const Vec<double> o = p + q + r, beyond_c = at(cell, elements[3 * E + e]),
                          beyond_a = at(cell, elements[4 * E + e]), beyond_b = at(cell, elements[5 * E + e]);
        const double v = dot(p, t.S) / 3;
        m[0] += t.area;
        m[1] += v;
        m[2] += v / 4 * o.x, m[3] += v / 4 * o.y, m[4] += v / 4 * o.z;
        m[5] += v / 20 * (o.x * o.x + p.x * p.x + q.x * q.x + r.x * r.x);
        m[6] += v / 20 * (o.y * o.y + p.y * p.y + q.y * q.y + r.y * r.y);
        m[7] += v / 20 * (o.z * o.z + p.z * p.z + q.z * q.z + r.z * r.z);
        m[8] += v / 20 * (o.y * o.z + p.y * p.z + q.y * q.z + r.y * r.z);
        m[9] += v / 20 * (o.z * o.x + p.z * p.x + q.z * q.x + r.z * r.x);
        m[10] += v / 20 * (o.x * o.y + p.x * p.y + q.x * q.y + r.x * r.y);
        const int turned = against(t.S, triangle(q, p, beyond_c).S) + against(t.S, triangle(r, q, beyond_a).S) +
                           against(t.S, triangle(p, r, beyond_b).S);
        const double shape = 4 * 1.7320508075688772 * t.area / (dot(t.Ea, t.Ea) + dot(t.Eb, t.Eb) + dot(t.Ec, t.Ec));
        const double quality = turned < 2 ? shape : -shape;
        worst = smaller(worst, quality >= -1 ? quality : -1.0);  // what is no number counts as -1
      }
      for (int j = 0; j < MOMENTS; j++) sums[j][i] = m[j];
      least[i] = worst;
    }
    BARRIER();
    ADD_IN_PAIRS(sums, MOMENTS)
    THREADS(i, 1) {
      for (int j = 0; j < MOMENTS; j++) result[j * capacity + c] = sums[j][0];
      double worst = least[0];
      for (int j = 1; j < PARTS_OF_A_CELL; j++) worst = smaller(worst, least[j]);
      result[MOMENTS * capacity + c] = worst;
    }
    BARRIER();
  }
}
