// The step on processor cores: rows of points whose sources lie at constant distances go through
// vectors as they are; single points are gathered into one.
//
// Blocks of nearby points are one core's turn, so that what the rows and the single points of a
// block share is fetched once: blocks [count + 1][2] counts the rows and the single points before
// each; rows [..][2] first point and length; row_sources [..][18], point_sources [18][pitch].

// How far ahead of its use a line is asked for: 19 streams are more than processors follow by
// themselves, and what follows a row is most often the next row.
#define AHEAD (512 / (int)sizeof(Stored))

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

// Points p + j and those after it: a whole vector, or the `count` points that a row ends with. `at` are
// the addresses of point p's populations.
template <bool WHOLE>
INLINE void advance_lanes(Stored *const *at, long j, int count, long p, long stride, const Physics &k,
                          const Cells &cells) {
  Lanes h[Q], u[3];
  Surroundings here = uniform(k, cells);
  UNROLLED for (int i = 0; i < Q; ++i) __builtin_prefetch(at[i] + j + AHEAD, 1);
  UNROLLED for (int i = 0; i < Q; ++i) h[i] = WHOLE ? load(at[i] + j) : load(at[i] + j, count);
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

INLINE void advance_row(Stored *f, long stride, long p, long length, const int *sources,
                        const Physics &k, const Cells &cells) {
  Stored *at[Q];
  UNROLLED for (int i = 0; i < Q; ++i)
    at[i] = f + address(i, p, i && sources ? sources[i - 1] : -1, stride);
  long j = 0;
  for (; j + LANES <= length; j += LANES)
    advance_lanes<true>(at, j, LANES, p, stride, k, cells);
  if (j < length) advance_lanes<false>(at, j, (int)(length - j), p, stride, k, cells);
}

// At most LANES single points; sources [18][pitch]. Both are read as whole vectors.
INLINE void advance_points(Stored *f, long stride, const int *points, const int *sources, long pitch,
                           int count, const Physics &k, const Cells &cells) {
  Addresses at[Q];
  const Addresses p = indices(points), none = Addresses{} - 1;
  UNROLLED for (int i = 0; i < Q; ++i) {
    const Addresses source = i && sources ? indices(sources + (i - 1) * pitch) : none;
    at[i] = source < 0 ? p + i * stride : source + opposite(i) * stride;
  }
  Lanes h[Q], u[3];
  UNROLLED for (int i = 0; i < Q; ++i) h[i] = gathered(f, (const Places *)&at[i], count);
  Surroundings here = uniform(k, cells);
#if CELLS
  for (int l = 0; l < LANES; ++l)
    for (int a = 0; a < 3; ++a) here.g[a][l] += (real)cells.force[a * stride + p[l]];
#endif
#if CONTRAST
  for (int l = 0; l < LANES; ++l)
    if (cells.inside[p[l]]) here.plus[l] = k.inside_plus, here.minus[l] = k.inside_minus;
#endif
  collide(k, here.plus, here.minus, here.g, h, u);
  UNROLLED for (int i = 0; i < Q; ++i) scatter(f, (const Places *)&at[i], h[i], count);
#if CELLS
  for (int l = 0; l < count; ++l)
    for (int a = 0; a < 3; ++a) cells.velocity[a * stride + p[l]] = u[a][l];
#endif
}

KERNEL advance(Stored *f, long stride, const Physics k, const real *body, const int *blocks, long count,
               const int *rows, const int *row_sources, const int *points,
               const int *point_sources, long pitch, long streamed, const CellReal *force,
               CellReal *velocity, const unsigned char *inside) {
  const Cells cells = {{body[0], body[1], body[2]}, force, velocity, inside};
  BLOCKS(b, count) {
    const int *from = blocks + 2 * b, *to = from + 2;
    for (long r = from[0]; r < to[0]; ++r)
      advance_row(f, stride, rows[2 * r], rows[2 * r + 1],
                  streamed ? row_sources + r * (Q - 1) : nullptr, k, cells);
    for (long q = from[1]; q < to[1]; q += LANES)
      advance_points(f, stride, points + q, streamed ? point_sources + q : nullptr, pitch,
                     (int)smaller((long)LANES, to[1] - q), k, cells);
  }
}
