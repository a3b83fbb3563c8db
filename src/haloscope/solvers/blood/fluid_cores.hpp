// The step on processor cores: rows of points whose sources lie at constant distances go through
// vectors as they are; single points are gathered into one.
//
// Blocks of nearby points are one core's turn, so that what the rows and the single points of a
// block share is fetched once: blocks [count + 1][2] counts the rows and the single points before
// each; rows [..][2] first point and length; row_sources [..][18]; point_sources holds, block after
// block, [18][single points of the block].

// How far ahead of its use a line is asked for: 19 streams are more than processors follow by
// themselves, and what follows a row is most often the next row.
#define AHEAD (512 / (int)sizeof(Stored))
#define LINE 64

// So many single points are found, and what they need is asked for, before the first is taken: some of
// it belongs to planes that were left long ago or are still to come, and one after the other would wait.
constexpr int TOGETHER = 16;
static_assert(TOGETHER % LANES == 0, "whole vectors");
typedef long long Found[Q][LANES];

struct Cells {
  real body[3];
  const CellReal *force;
  CellReal *velocity;
  const unsigned char *inside;
};

// What a vector of points collides with.
struct Surroundings {
  Lanes g[3], plus, minus;
};

INLINE Surroundings uniform(const Physics &k, const Cells &cells) {
  return {{all<Lanes>(cells.body[0]), all<Lanes>(cells.body[1]), all<Lanes>(cells.body[2])},
          all<Lanes>(k.plus), all<Lanes>(k.minus)};
}

// Asks for a list of `count` numbers: short ones far apart are no stream that processors foresee.
INLINE void ask_for(const int *list, long count) {
  for (long n = 0; n < count; n += LINE / (long)sizeof(int)) __builtin_prefetch(list + n);
}

// What has arrived at points p + j and after: a whole vector, or the `count` points that a row ends
// with. `at` are the addresses of point p's populations.
template <bool WHOLE>
INLINE void take(Stored *const *at, long j, int count, Lanes *h) {
  // Once a line, which may hold several vectors.
  if (j % (LINE / (long)sizeof(Stored)) == 0)
    UNROLLED for (int i = 0; i < Q; ++i) __builtin_prefetch(at[i] + j + AHEAD, 1);
  UNROLLED for (int i = 0; i < Q; ++i) h[i] = WHOLE ? load(at[i] + j) : load(at[i] + j, count);
}

// Collides what was taken and leaves it there.
template <bool WHOLE>
INLINE void leave(Stored *const *at, long j, int count, Lanes *h, long p, long stride,
                  const Physics &k, const Cells &cells) {
  Lanes u[3];
  Surroundings here = uniform(k, cells);
#if CELLS
  UNROLLED for (int a = 0; a < 3; ++a) {
    here.g[a] += taken_over(cells.force + a * stride + p + j, count);
  }
#endif
#if CONTRAST
  for (int l = 0; l < count; ++l)
    if (cells.inside[p + j + l]) here.plus[l] = k.inside_plus, here.minus[l] = k.inside_minus;
#endif
  collide(k, here.plus, here.minus, here.g, h, u);
  UNROLLED for (int i = 0; i < Q; ++i)
    WHOLE ? store(at[i] + j, h[i]) : store(at[i] + j, h[i], count);
#if CELLS
  UNROLLED for (int a = 0; a < 3; ++a) {
    hand_over(cells.velocity + a * stride + p + j, u[a], count);
  }
#endif
}

// Where parts of vectors are dear the last vector ends with the row. It is taken before the one that it
// overlaps is left, so that both leave the same values where they do.
INLINE void advance_row(Stored *f, long stride, long p, long length, const int *sources,
                        const Physics &k, const Cells &cells) {
  Stored *at[Q];
  UNROLLED for (int i = 0; i < Q; ++i)
    at[i] = f + address(i, p, i && sources ? sources[i - 1] : -1, stride);
  const int rest = (int)(length % LANES);
  const bool overlapping = !CHEAP_PARTS && rest && length > LANES;
  const long last = length - LANES, apart = length - rest - (overlapping ? LANES : 0);
  Lanes h[Q], h_last[Q];
  for (long j = 0; j < apart; j += LANES) {
    take<true>(at, j, LANES, h);
    leave<true>(at, j, LANES, h, p, stride, k, cells);
  }
  if (overlapping) {
    take<true>(at, apart, LANES, h), take<true>(at, last, LANES, h_last);
    leave<true>(at, apart, LANES, h, p, stride, k, cells);
    leave<true>(at, last, LANES, h_last, p, stride, k, cells);
  } else if (rest) {
    take<false>(at, apart, rest, h);
    leave<false>(at, apart, rest, h, p, stride, k, cells);
  }
}

// Addresses of LANES single points' populations, which are asked for. Lists are read as whole vectors;
// sources [18][pitch].
INLINE void find_points(const Stored *f, long stride, const int *points, const int *sources, long pitch,
                        Found at) {
  UNROLLED for (int l = 0; l < LANES; l += PLACES) {
    const Places p = indices(points + l), none = Places{} - 1;
    UNROLLED for (int i = 0; i < Q; ++i) {
      const Places source = i && sources ? indices(sources + (i - 1) * pitch + l) : none;
      *(Places *)&at[i][l] = source < 0 ? p + i * stride : source + opposite(i) * stride;
      UNROLLED for (int m = l; m < l + PLACES; ++m) __builtin_prefetch(f + at[i][m], 1);
    }
  }
}

// At most LANES single points, at the addresses that were found.
INLINE void advance_points(Stored *f, long stride, const int *points, const Found at, int count,
                           const Physics &k, const Cells &cells) {
  Lanes h[Q], u[3];
  UNROLLED for (int i = 0; i < Q; ++i) h[i] = gathered(f, at[i], count);
  Surroundings here = uniform(k, cells);
#if CELLS
  for (int l = 0; l < LANES; ++l)
    for (int a = 0; a < 3; ++a) here.g[a][l] += (real)cells.force[a * stride + points[l]];
#endif
#if CONTRAST
  for (int l = 0; l < LANES; ++l)
    if (cells.inside[points[l]]) here.plus[l] = k.inside_plus, here.minus[l] = k.inside_minus;
#endif
  collide(k, here.plus, here.minus, here.g, h, u);
  UNROLLED for (int i = 0; i < Q; ++i) scatter(f, at[i], h[i], count);
#if CELLS
  for (int l = 0; l < count; ++l)
    for (int a = 0; a < 3; ++a) cells.velocity[a * stride + points[l]] = u[a][l];
#endif
}

KERNEL advance(Stored *f, long stride, const Physics k, const real *body, const int *blocks, long count,
               const int *rows, const int *row_sources, const int *points,
               const int *point_sources, long streamed, const CellReal *force, CellReal *velocity,
               const unsigned char *inside) {
  const Cells cells = {{body[0], body[1], body[2]}, force, velocity, inside};
  BLOCKS(b, count) {
    const int *from = blocks + 2 * b, *to = from + 2, *here = points + from[1];
    const int *of_rows = streamed ? row_sources + from[0] * (Q - 1L) : nullptr;
    const int *of_points = streamed ? point_sources + from[1] * (Q - 1L) : nullptr;
    const long lines = to[0] - from[0], single = to[1] - from[1];
    if (streamed) ask_for(of_rows, lines * (Q - 1)), ask_for(of_points, single * (Q - 1));
    for (long r = 0; r < lines; ++r) {
      const int *row = rows + 2 * (from[0] + r);
      advance_row(f, stride, row[0], row[1], streamed ? of_rows + r * (Q - 1) : nullptr, k, cells);
    }
    alignas(VECTOR_BYTES) Found at[TOGETHER / LANES];
    for (long first = 0; first < single; first += TOGETHER) {
      const long end = smaller(first + TOGETHER, single);
      ROLLED for (long q = first; q < end; q += LANES)
        find_points(f, stride, here + q, streamed ? of_points + q : nullptr, single,
                    at[(q - first) / LANES]);
      ROLLED for (long q = first; q < end; q += LANES)
        advance_points(f, stride, here + q, at[(q - first) / LANES],
                       (int)smaller((long)LANES, end - q), k, cells);
    }
  }
}
