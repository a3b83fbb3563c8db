// Forces of subdivision surfaces on GPUs. A block goes through cells one after the other: first through all
// triangles, for the cell's volume and area, then through CHUNK elements at a time. An element leaves the
// gradients of its energy by its twelve vertices in shared memory, and vertices take what is left for them.
// Chunks follow each other in the order of elements, so a vertex adds as it does on cores.

// CHUNK: elements of one; BLOCKS_A_PROCESSOR: that it must hold at once; MOST_FOURS: of a vertex in one chunk;
// STAGED: whether positions lie in shared memory, too.
CONSTANTS(INT(CHUNK), INT(BLOCKS_A_PROCESSOR), INT(MOST_FOURS), INT(STAGED))

#define GRADIENTS 36          // components of an element's gradients
#define SHEET (CHUNK + 1)     // of one component; the last place is that of no element
#define NOWHERE CHUNK         // whose first three sheets are zero there

// What a chunk has for a vertex: `fours` times four of its gradients; whether no chunk before had any.
struct alignas(8) Share {
  int vertex;
  unsigned short fours, first;
};
// Four vertices of an element; or where the first components of four gradients lie, NOWHERE in what is left over.
struct alignas(8) Four {
  unsigned short at[4];
};
// Of regular and irregular elements, as weights of membrane.cpp are.
struct Weights {
  double regular[60], irregular[60];
};

INLINE void put(double *left, int k, Vec<double> gradient) {
  left[(3 * k) * SHEET] = gradient.x, left[(3 * k + 1) * SHEET] = gradient.y, left[(3 * k + 2) * SHEET] = gradient.z;
}
INLINE Vec<double> get(const double *left, int k) {
  return {left[(3 * k) * SHEET], left[(3 * k + 1) * SHEET], left[(3 * k + 2) * SHEET]};
}

template <typename Positions, typename Natural>
INLINE void leave_gradients(Law law, Rest rest, const double *weights, Positions place, Natural natural,
                            double *left) {
  const Response<double> r = loop_response<double>(law, rest, weights, place, natural);
  for (int k = 0; k < 3; k++) put(left, k, get(left, k) + loop_gradient(r, weights + 5 * k));
  for (int k = 3; k < 12; k++) put(left, k, loop_gradient(r, weights + 5 * k));
}

// What an element knows beforehand; elements[n * E + e] has four of its vertices, from 4 n on.
struct Element {
  Four nodes[3];
  Rest rest;
};
INLINE Element element_of(const Four *elements, const double *reference, const double *curvature, int E, int e) {
  if (e >= E) return {};
  return {{elements[e], elements[E + e], elements[2 * E + e]}, rest_of(reference, curvature, E, e)};
}

// A thread has an element of each chunk (CHUNK is not more than they are), and then a share or two.
KERNEL_BOUNDS(__launch_bounds__(THREADS_A_BLOCK, BLOCKS_A_PROCESSOR), forces,
              IN(double, positions), IN(double, first_natural), IN(double, second_natural),
              OUT(double, result), IN(Four, elements), VALUE(Weights, weights),
              IN(double, reference), IN(double, curvature), IN(int, chunks), IN(Share, shares),
              IN(Four, taken), VALUE(Law, law), IN(int, rows), IN(int, span), LONG(capacity),
              LONG(V), LONG(E), LONG(regular)) {
  DYNAMIC_SHARED(double, left);
  SHARED(double, volumes, PARTS_OF_A_CELL);
  SHARED(double, areas, PARTS_OF_A_CELL);
  const int vertices = V, count = E;
  double *const places = left + GRADIENTS * SHEET;
  const int all_shares = chunks[(count + CHUNK - 1) / CHUNK];
  THREADS(i, 3) left[i * SHEET + NOWHERE] = 0;
  for (long n = span[0] + blockIdx.x; n < span[1]; n += gridDim.x) {
    const long c = rows[n];
    OneCell cell = cell_of(positions, capacity, vertices, c);
    if (STAGED) {
      THREADS(v, vertices) {
        const Vec<double> x = at(cell, v);
        places[v] = x.x, places[vertices + v] = x.y, places[2 * vertices + v] = x.z;
      }
      cell = {places, places + vertices, places + 2 * vertices, {0, 0, 0}};
    }
    BARRIER();
    THREADS(i, PARTS_OF_A_CELL) {
      double volume = 0, area = 0;
      for (int e = i; e < count; e += PARTS_OF_A_CELL) {
        const Four corners = elements[e];
        const Vec<double> a = at(cell, corners.at[0]);
        const Triangle<double> t = triangle(a, at(cell, corners.at[1]), at(cell, corners.at[2]));
        volume += dot(a, t.S);
        area += t.area;
      }
      volumes[i] = volume;
      areas[i] = area;
    }
    BARRIER();
    for (int half = PARTS_OF_A_CELL / 2; half > 0; half /= 2) {
      THREADS(i, half) {
        volumes[i] += volumes[i + half];
        areas[i] += areas[i + half];
      }
      BARRIER();
    }
    const double p = volume_derivative(law, volumes[0]), s = area_derivative(law, areas[0]);
    Element own = element_of(elements, reference, curvature, count, threadIdx.x);
    for (int chunk = 0, begin = 0; begin < count; chunk++, begin += CHUNK) {
      const int e = begin + (int)threadIdx.x;
      double *const mine = left + threadIdx.x;
      if (threadIdx.x < CHUNK && e < count) {
        const auto place = [&](int k) { return at(cell, own.nodes[k / 4].at[k % 4]); };
        const auto natural = [&] { return metric_of(first_natural, second_natural, capacity, vertices, c, e); };
        const Triangle<double> t = triangle(place(0), place(1), place(2));
        Gradients<double> g = constraint_gradients(t, p, s);
        if (law.kf != 0) add_to_gradients(t, against_folds(law, own.rest, t, place), g);
        // They wait where they go: there are no registers for them beside what comes.
        put(mine, 0, g.a), put(mine, 1, g.b), put(mine, 2, g.c);
        // Each has places of weights that are known beforehand, so that they are operands in constant memory.
        if (e < regular)
          leave_gradients(law, own.rest, weights.regular, place, natural, mine);
        else
          leave_gradients(law, own.rest, weights.irregular, place, natural, mine);
      }
      BARRIER();
      const int first = chunks[chunk], last = chunks[chunk + 1];
      for (int i = first + (int)threadIdx.x; i < last; i += blockDim.x) {
        const Share share = shares[i];
        Four from[MOST_FOURS];
        for (int n = 0; n < MOST_FOURS; n++)
          if (n < share.fours) from[n] = taken[n * all_shares + i];
        double *to = result + c * vertices + share.vertex;
        Vec<double> f = {};
        if (!share.first) f = {to[0], to[capacity * vertices], to[2 * capacity * vertices]};
        for (int n = 0; n < MOST_FOURS; n++)
          if (n < share.fours)
            for (int j = 0; j < 4; j++) {
              const double *g = left + from[n].at[j];
              f = f - Vec<double>{g[0], g[SHEET], g[2 * SHEET]};
            }
        to[0] = f.x, to[capacity * vertices] = f.y, to[2 * capacity * vertices] = f.z;
      }
      own = element_of(elements, reference, curvature, count, e + CHUNK);
      BARRIER();
    }
  }
}
