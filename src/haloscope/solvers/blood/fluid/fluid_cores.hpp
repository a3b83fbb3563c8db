// The step on processor cores: rows of points whose sources lie at constant distances go through
// vectors as they are; single points are gathered.
//
// Blocks of nearby points are one core's turn, so that what the rows and the single points of a
// block share is fetched once: blocks [count + 1][2] counts the rows and the single points before
// each; rows [..][2] first point and length; row_places [..][OF_ROW]; point_sources holds, block after
// block, [18][single points of the block].
//
// Rows lie along the axis ROWS_ALONG. What comes along it to a row's first or last point may lie anywhere.
// So the vectors with the ends are copied, put right, and taken with single points. All of them go through
// the same code, and there is one copy of it: several do not fit where processors keep what they have
// decoded.

// How far ahead of its use a line is asked for: 19 streams are more than processors follow by
// themselves, and what follows a row is most often the next row.
#define AHEAD (512 / (int)sizeof(Stored))
#define LINE 64

// So many single points are found, and what they need is asked for, before the first is taken: some of
// it belongs to planes that were left long ago or are still to come, and one after the other would wait.
constexpr int TOGETHER = LANES > 8 ? 2 * LANES : 16;
static_assert(TOGETHER % LANES == 0 && TOGETHER >= 2 * LANES, "whole vectors, both ends of a row");
typedef long long PointAddresses[Q][TOGETHER];

// Directions that go up rows, and as many that go down; the number of one among its like.
#define ACROSS 5
INLINE constexpr int along(int i) {
  return direction(i, ROWS_ALONG);
}
INLINE constexpr int across(int i) {
  int before = 0;
  for (int j = 1; j < i - (i + 1) % 2; j += 2) before += along(j) != 0;
  return before;
}

// Addresses of a row: of its first point's populations, from which those of the others follow; of those
// of the first point that come up the row; of those of the last one that come down.
#define OF_ROW (Q + 2 * ACROSS)
#define UP Q
#define DOWN (Q + ACROSS)

// What points share with cells: that of point j is at j, or at j + stride for the next component.
struct Cells {
  const CellReal *force;
  CellReal *velocity;
  const unsigned char *inside;
  long stride;
};

INLINE Cells from_point(Cells cells, long p) {
#if CELLS
  cells.force += p, cells.velocity += p;
#endif
#if CONTRAST
  cells.inside += p;
#endif
  return cells;
}

// What a vector of points collides with.
struct Surroundings {
  Lanes g[3], plus, minus;
};

// Copies of points that do not lie side by side, as if they did.
struct Gathered {
  alignas(VECTOR_BYTES) Stored f[Q * TOGETHER];
  CellReal force[3 * TOGETHER], velocity[3 * TOGETHER];
  unsigned char inside[TOGETHER];
};

// Asks for a list of `count` numbers: short ones far apart are no stream that processors foresee.
template <typename T>
INLINE void ask_for(const T *list, long count) {
  for (long n = 0; n < count; n += LINE / (long)sizeof(T)) __builtin_prefetch(list + n);
}

// Collides points `from` up to `to`, whole vectors: direction i of point j has its place at
// f[places[i] + j]. `ask`: for what follows them.
CALLED void advance_vectors(Stored *f, const long *places, Cells cells, long from, long to, bool ask,
                            const Physics &physics, const Surroundings &around) {
  const Physics k = physics;           // copies that no store can change:
  const Surroundings usual = around;  // else they are read again for each vector
  Stored *at[Q];
  UNROLLED for (int i = 0; i < Q; ++i) at[i] = f + places[i];
  for (long j = from; j < to; j += LANES) {
    // Once a line, which may hold several vectors.
    if (ask && (j - from) % (LINE / (long)sizeof(Stored)) == 0)
      UNROLLED for (int i = 0; i < Q; ++i) __builtin_prefetch(at[i] + j + AHEAD, 1);
    Lanes s[PAIRS], d[PAIRS], u[3];
    const Lanes h_0 = load(at[0] + j);
    UNROLLED for (int n = 0; n < PAIRS; ++n)
      parts(load(at[2 * n + 1] + j), load(at[2 * n + 2] + j), s[n], d[n]);
    Surroundings here = usual;
#if CELLS
    UNROLLED for (int a = 0; a < 3; ++a) here.g[a] += taken_over(cells.force + a * cells.stride + j);
#endif
#if CONTRAST
    for (int l = 0; l < LANES; ++l)
      if (cells.inside[j + l]) here.plus[l] = k.inside_plus, here.minus[l] = k.inside_minus;
#endif
    collide_parts(k, here.plus, here.minus, here.g, h_0, s, d, u,
                  [&](int i, Lanes a) { store(at[i] + j, a); });
#if CELLS
    UNROLLED for (int a = 0; a < 3; ++a) hand_over(cells.velocity + a * cells.stride + j, u[a]);
#endif
  }
}

INLINE void advance_gathered(Gathered &points, long count, const Physics &k, const Surroundings &usual) {
  long places[Q];
  UNROLLED for (int i = 0; i < Q; ++i) places[i] = i * TOGETHER;
  const Cells cells = {points.force, points.velocity, points.inside, TOGETHER};
  advance_vectors(points.f, places, cells, 0, count, false, k, usual);
}

// Copies points j and after of a row to where the n-th vector of gathered ones is. FIRST, LAST: which of
// the row's ends are among them.
template <bool FIRST, bool LAST>
INLINE void take(const Stored *f, const long *places, const Cells &cells, long j, Gathered &taken, int n) {
  const long o = n * LANES;
  UNROLLED for (int i = 0; i < Q; ++i) {
    StoredLanes h = *(const StoredLanes *)(f + places[i] + j);
    if (FIRST && along(i) > 0) h[0] = *(const StoredBits *)(f + places[UP + across(i)]);
    if (LAST && along(i) < 0)
      h[LANES - 1] = *(const StoredBits *)(f + places[DOWN + across(i)]);
    *(StoredLanes *)(taken.f + i * TOGETHER + o) = h;
  }
#if CELLS
  UNROLLED for (int a = 0; a < 3; ++a)
    __builtin_memcpy(taken.force + a * TOGETHER + o, cells.force + a * cells.stride + j,
                     LANES * sizeof(CellReal));
#endif
#if CONTRAST
  __builtin_memcpy(taken.inside + o, cells.inside + j, LANES);
#endif
}

// And back.
template <bool FIRST, bool LAST>
INLINE void leave(Stored *f, const long *places, const Cells &cells, long j, const Gathered &taken, int n) {
  const long o = n * LANES;
  UNROLLED for (int i = 0; i < Q; ++i) {
    const bool first = FIRST && along(i) > 0, last = LAST && along(i) < 0;
    const Stored *const h = taken.f + i * TOGETHER + o;
    if (first) f[places[UP + across(i)]] = h[0];
    if (last) f[places[DOWN + across(i)]] = h[LANES - 1];
    if (first || last)
      __builtin_memcpy(f + places[i] + j + first, h + first, (LANES - first - last) * sizeof(Stored));
    else
      *(StoredLanes *)(f + places[i] + j) = *(const StoredLanes *)h;
  }
#if CELLS
  UNROLLED for (int a = 0; a < 3; ++a)
    __builtin_memcpy(cells.velocity + a * cells.stride + j, taken.velocity + a * TOGETHER + o,
                     LANES * sizeof(CellReal));
#endif
}

// A row of at least a vector. The vectors between its first and its last one end where the last one
// begins. The first is taken before the one that it may overlap is left, so that both leave the same
// values where they do.
INLINE void advance_row(Stored *f, const long *places, const Cells &cells, long length, bool streamed,
                        Gathered &taken, const Physics &k, const Surroundings &usual) {
  const long last = length - LANES, rest = length % LANES;
  if (!streamed) {
    if (rest) take<false, false>(f, places, cells, 0, taken, 0);
    advance_vectors(f, places, cells, rest, length, true, k, usual);
    if (!rest) return;
    advance_gathered(taken, LANES, k, usual);
    leave<false, false>(f, places, cells, 0, taken, 0);
  } else if (last == 0) {
    take<true, true>(f, places, cells, 0, taken, 0);
    advance_gathered(taken, LANES, k, usual);
    leave<true, true>(f, places, cells, 0, taken, 0);
  } else {
    take<true, false>(f, places, cells, 0, taken, 0);
    advance_vectors(f, places, cells, rest ? rest : LANES, last, true, k, usual);
    take<false, true>(f, places, cells, last, taken, 1);
    advance_gathered(taken, 2 * LANES, k, usual);
    leave<true, false>(f, places, cells, 0, taken, 0);
    leave<false, true>(f, places, cells, last, taken, 1);
  }
}

// Addresses of a vector of single points, `q` and after of TOGETHER, whose populations are asked for.
// Lists are read as whole vectors; sources [18][pitch].
INLINE void find_points(const Stored *f, long stride, const int *points, const int *sources, long pitch,
                        long q, PointAddresses at) {
  UNROLLED for (int l = 0; l < LANES; l += PLACES) {
    const Places p = indices(points + l), none = Places{} - 1;
    UNROLLED for (int i = 0; i < Q; ++i) {
      const Places source = i && sources ? indices(sources + (i - 1) * pitch + l) : none;
      *(Places *)&at[i][q + l] = source < 0 ? p + i * stride : source + opposite(i) * stride;
      UNROLLED for (int m = l; m < l + PLACES; ++m) __builtin_prefetch(f + at[i][q + m], 1);
    }
  }
}

// Numbers and addresses of the points of a row that fills no vector.
INLINE void find_row(const long *places, long p, long length, bool streamed, int *points, PointAddresses at) {
  for (int l = 0; l < length; ++l) {
    points[l] = (int)p + l;
    ROLLED for (int i = 0; i < Q; ++i) at[i][l] = places[i] + l;
  }
  if (!streamed) return;
  UNROLLED for (int i = 1; i < Q; ++i) {
    if (along(i) > 0) at[i][0] = places[UP + across(i)];
    if (along(i) < 0) at[i][length - 1] = places[DOWN + across(i)];
  }
}

// At most TOGETHER points, at their addresses.
INLINE void advance_points(Stored *f, const int *points, const PointAddresses at, long count, Gathered &taken,
                           const Cells &cells, const Physics &k, const Surroundings &usual) {
  ROLLED for (int i = 0; i < Q; ++i)
    for (int l = 0; l < count; ++l) taken.f[i * TOGETHER + l] = f[at[i][l]];
#if CELLS
  for (int a = 0; a < 3; ++a)
    for (int l = 0; l < count; ++l)
      taken.force[a * TOGETHER + l] = cells.force[a * cells.stride + points[l]];
#endif
#if CONTRAST
  for (int l = 0; l < count; ++l) taken.inside[l] = cells.inside[points[l]];
#endif
  advance_gathered(taken, count, k, usual);
  ROLLED for (int i = 0; i < Q; ++i)
    for (int l = 0; l < count; ++l) f[at[i][l]] = taken.f[i * TOGETHER + l];
#if CELLS
  for (int a = 0; a < 3; ++a)
    for (int l = 0; l < count; ++l)
      cells.velocity[a * cells.stride + points[l]] = taken.velocity[a * TOGETHER + l];
#endif
}

KERNEL(advance, INOUT(Stored, f), LONG(stride), VALUE(Physics, physics), IN(real, body),
       IN(int, blocks), LONG(count), IN(int, rows), IN(long, row_places), IN(int, points),
       IN(int, point_sources), LONG(streamed), IN(CellReal, force), OUT(CellReal, velocity),
       IN(unsigned char, inside)) {
  const Cells cells = {force, velocity, inside, stride};
  BLOCKS(b, count) {
    const int *from = blocks + 2 * b, *to = from + 2, *here = points + from[1];
    const long *of_rows = row_places + from[0] * OF_ROW;
    const int *of_points = streamed ? point_sources + from[1] * (Q - 1L) : nullptr;
    const long lines = to[0] - from[0], single = to[1] - from[1];
    const Surroundings usual = {{all<Lanes>(body[0]), all<Lanes>(body[1]), all<Lanes>(body[2])},
                                all<Lanes>(physics.plus), all<Lanes>(physics.minus)};
    if (streamed) ask_for(of_rows, lines * OF_ROW), ask_for(of_points, single * (Q - 1));
    Gathered taken = {};
    alignas(VECTOR_BYTES) PointAddresses at;
    for (long r = 0; r < lines; ++r) {
      const int *const row = rows + 2 * (from[0] + r);
      const long p = row[0], length = row[1], *places = of_rows + r * OF_ROW;
      long own[Q];
      if (!streamed) {
        UNROLLED for (int i = 0; i < Q; ++i) own[i] = i * stride + p;
        places = own;
      } else if (r + 1 < lines) {
        UNROLLED for (int n = Q; n < OF_ROW; ++n) __builtin_prefetch(f + places[OF_ROW + n], 1);
      }
      if (length >= LANES) {
        advance_row(f, places, from_point(cells, p), length, streamed, taken, physics, usual);
      } else {
        int of_lanes[LANES];
        find_row(places, p, length, streamed, of_lanes, at);
        advance_points(f, of_lanes, at, length, taken, cells, physics, usual);
      }
    }
    for (long first = 0; first < single; first += TOGETHER) {
      const long end = smaller(first + TOGETHER, single);
      ROLLED for (long q = first; q < end; q += LANES)
        find_points(f, stride, here + q, streamed ? of_points + q : nullptr, single, q - first, at);
      advance_points(f, here + first, at, end - first, taken, cells, physics, usual);
    }
  }
}
