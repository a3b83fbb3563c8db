// The step on GPUs: a point of the lattice is a thread. Even and odd steps have kernels of their own:
// the even one needs no neighbours, and so fewer registers and no list. A third one reads as odd steps do
// and writes another buffer as even ones do: in full lines, where the odd one scatters. A fourth one, for
// studies, reads as even steps do and writes another buffer as odd ones do, the push of Ames and others
// (J. Comput. Sci. 44 (2020) 101153).
//
// `points` names the points; without it they are 0 .. count - 1. Where a point's neighbours lie:
//   KINDS   kinds[p] is the row of a table of distances, distances [..][ROW], that p shares with all
//           points whose neighbours lie alike: 4 bytes a point, the table stays in the caches; below 0
//           where p is to be left out (-1), with all others on its lines of memory;
//   2       the row has the distances of the eight rows of points beside p's own, and the lowest `mask_bits`
//           bits of kinds[p] name a mask of the neighbours that are there; or kinds[p] is below -1 and names a
//           row as above. Masks come first in `distances`, then rows of eight, from `pitch` on whole rows;
//   else    every point has its own row of distances [18][pitch]: 72 bytes a point.
// A distance is the index of the point at x - c_i less that of x, or NONE where there is none.
// `backward`: points are taken from the last to the first. Blocks start in the order of their numbers, and
// what the step before has left last is still in the second-level cache.
// WALLS (1: there are links to walls that move or do not lie halfway): steps between two buffers work out what
// such walls send back as they fetch what arrives: `wall[p]` is the number of p among points with such links,
// or -1; `walls` has for each of them a mask of its links by direction, one of those that are near, and the
// number of the first in `shares`, which has their coefficients [3][links], see correct_walls.
// Constants: WALLS, THREADS_A_BLOCK, BLOCKS_A_PROCESSOR, KINDS, LINES (what is read comes into the second-level
// cache by whole lines), EARLY (launches may begin before the one before has ended, and look up until then
// where neighbours lie).

#define ROW 20
#define NONE (-2147483647 - 1)

// Loads by such pointers could be taken across the wait.
#if EARLY
#define CHANGING
INLINE void wait_for_step_before() { wait_for_launches_before(); }
INLINE void let_step_after_begin() { let_next_launch_begin(); }
#else
#define CHANGING __restrict__
INLINE void wait_for_step_before() {}
INLINE void let_step_after_begin() {}
#endif

#define SURROUNDINGS                                                                          \
  const CellReal *CHANGING force, CellReal *CHANGING velocity, const unsigned char *CHANGING inside

// Numbers that are read at once.
struct alignas(16) Four {
  int of[4];
};

#if WALLS
#define SENT_BACK                                                                             \
  , const int *__restrict__ wall, const Four *__restrict__ walls, const real *__restrict__ shares, \
      long links, long moving
#else
#define SENT_BACK
#endif

INLINE real taken(const Stored *p) {
#if LINES
  return number(load_with_line(p));
#else
  return number(*p);
#endif
}

INLINE bool left_out(const int *kinds, long p) {
#if KINDS == 2
  return kinds[p] == -1;
#elif KINDS
  return kinds[p] < 0;
#else
  return false;
#endif
}

struct Surroundings {
  const real *body;
  const CellReal *force;
  CellReal *velocity;
  const unsigned char *inside;
};

// Collides what point p holds.
INLINE void collide_at(const Physics &k, const Surroundings &around, long stride, long p, real *h) {
  real u[3], g[3] = {around.body[0], around.body[1], around.body[2]}, plus = k.plus, minus = k.minus;
#if CELLS
  UNROLLED for (int a = 0; a < 3; ++a) g[a] += (real)around.force[a * stride + p];
#endif
#if CONTRAST
  if (around.inside[p]) plus = k.inside_plus, minus = k.inside_minus;
#endif
  collide(k, plus, minus, g, h, u);
#if CELLS
  UNROLLED for (int a = 0; a < 3; ++a) around.velocity[a * stride + p] = u[a];
#endif
}

KERNEL __launch_bounds__(THREADS_A_BLOCK, BLOCKS_A_PROCESSOR)
advance_here(Stored *CHANGING f, long stride, const Physics k, const real *CHANGING body,
             const int *__restrict__ points, long count, SURROUNDINGS, long backward) {
  let_step_after_begin();
  const Surroundings around = {body, force, velocity, inside};
  FOR_EACH_FROM(q, count, backward) {
    const long p = points ? points[q] : q;
    wait_for_step_before();
    real h[Q];
    UNROLLED for (int i = 0; i < Q; ++i) h[i] = taken(f + i * stride + p);
    collide_at(k, around, stride, p, h);
    UNROLLED for (int i = 0; i < Q; ++i) f[i * stride + p] = kept(h[i]);
  }
}

// Which of the eight rows of points beside a point's own x - c_i lies in; -1: its own.
INLINE constexpr int row_beside(int i) {
  const int place = 3 * direction(i, ROWS_ALONG == 0) + direction(i, 2 - (ROWS_ALONG == 2)) + 4;
  return place == 4 ? -1 : place - (place > 4);
}

// How far away each of a point's neighbours lies.
INLINE void find_neighbours(const int *kinds, const int *distances, long pitch, long mask_bits, long p,
                            int *d) {
#if KINDS
#if KINDS == 2
  const int kind = kinds[p];
  if (kind >= 0) {
    const int *const eight = distances + (1 << mask_bits) + 8L * (kind >> mask_bits);
    const Four low = *(const Four *)eight, high = *(const Four *)(eight + 4);
    const int there = distances[kind & ((1 << mask_bits) - 1)];
    UNROLLED for (int i = 1; i < Q; ++i) {
      const int g = row_beside(i), base = g < 0 ? 0 : g < 4 ? low.of[g] : high.of[g - 4];
      d[i - 1] = there >> (i - 1) & 1 ? base - direction(i, ROWS_ALONG) : NONE;
    }
    return;
  }
  const Four *row = (const Four *)(distances + pitch + (long)ROW * (-2 - kind));
#else
  const Four *row = (const Four *)(distances + (long)ROW * kinds[p]);
#endif
  UNROLLED for (int n = 0; n < ROW / 4; ++n) {
    const Four four = row[n];
    UNROLLED for (int m = 0; m < 4; ++m) d[4 * n + m] = four.of[m];
  }
#else
  UNROLLED for (int i = 1; i < Q; ++i) d[i - 1] = distances[(i - 1) * pitch + p];
#endif
}

// Where h_i of point p is found, and in place where what leaves it against c_i is left.
INLINE long place(long stride, int i, long p, int distance) {
  return distance == NONE ? i * stride + p : opposite(i) * stride + (p + distance);
}

// What has arrived at point p, whose neighbours are d away.
INLINE void arrive(const Stored *f, long stride, long p, const int *d, real *h) {
  h[0] = taken(f + p);
  UNROLLED for (int i = 1; i < Q; ++i) h[i] = taken(f + place(stride, i, p, d[i - 1]));
}

#if WALLS
// What walls send back to point p, in place of what would come from halfway. Of a near link the other share
// is what arrives against it, which has come; of a far one what left along it, which is in an own slot.
INLINE void send_back(const Stored *f, long stride, long p, const Four &links, const real *shares,
                      long count, bool moving, real *h) {
  long n = links.of[2];
  UNROLLED for (int i = 1; i < Q; ++i) {
    if (!(links.of[0] >> (i - 1) & 1)) continue;
    const bool near = links.of[1] >> (i - 1) & 1;
    const real other = near ? h[opposite(i)] : taken(f + opposite(i) * stride + p);
    const real pushed = moving ? shares[2 * count + n] : (real)0;
    h[i] = as_kept(fused(shares[n], h[i], fused(shares[count + n], other, pushed)));
    ++n;
  }
}
#endif

KERNEL __launch_bounds__(THREADS_A_BLOCK, BLOCKS_A_PROCESSOR)
advance_along(Stored *CHANGING f, long stride, const Physics k, const real *CHANGING body,
              const int *__restrict__ points, long count, const int *__restrict__ kinds,
              const int *__restrict__ distances, long pitch, long mask_bits, SURROUNDINGS, long backward) {
  let_step_after_begin();
  const Surroundings around = {body, force, velocity, inside};
  FOR_EACH_FROM(q, count, backward) {
    const long p = points ? points[q] : q;
    if (left_out(kinds, p)) continue;
    int d[ROW];
    real h[Q];
    find_neighbours(kinds, distances, pitch, mask_bits, p, d);
    wait_for_step_before();
    arrive(f, stride, p, d, h);
    collide_at(k, around, stride, p, h);
    f[p] = kept(h[0]);
    UNROLLED for (int i = 1; i < Q; ++i) f[place(stride, i, p, d[i - 1])] = kept(h[i]);
  }
}

KERNEL __launch_bounds__(THREADS_A_BLOCK, BLOCKS_A_PROCESSOR)
advance_across(const Stored *CHANGING from, Stored *CHANGING to, long stride,
               const Physics k, const real *CHANGING body, const int *__restrict__ points,
               long count, const int *__restrict__ kinds, const int *__restrict__ distances,
               long pitch, long mask_bits, SURROUNDINGS, long backward SENT_BACK) {
  let_step_after_begin();
  const Surroundings around = {body, force, velocity, inside};
  FOR_EACH_FROM(q, count, backward) {
    const long p = points ? points[q] : q;
    if (left_out(kinds, p)) continue;
    int d[ROW];
    real h[Q];
    find_neighbours(kinds, distances, pitch, mask_bits, p, d);
#if WALLS
    bool bounded = false;
    UNROLLED for (int i = 1; i < Q; ++i) bounded |= d[i - 1] == NONE;
    const int of_walls = bounded ? wall[p] : -1;
    const Four its_links = walls[of_walls < 0 ? 0 : of_walls];
#endif
    wait_for_step_before();
    arrive(from, stride, p, d, h);
#if WALLS
    if (of_walls >= 0) send_back(from, stride, p, its_links, shares, links, moving, h);
#endif
    collide_at(k, around, stride, p, h);
    UNROLLED for (int i = 0; i < Q; ++i) to[i * stride + p] = kept(h[i]);
  }
}

KERNEL __launch_bounds__(THREADS_A_BLOCK, BLOCKS_A_PROCESSOR)
advance_pushing(const Stored *CHANGING from, Stored *CHANGING to, long stride,
                const Physics k, const real *CHANGING body, const int *__restrict__ points,
                long count, const int *__restrict__ kinds, const int *__restrict__ distances,
                long pitch, long mask_bits, SURROUNDINGS, long backward) {
  let_step_after_begin();
  const Surroundings around = {body, force, velocity, inside};
  FOR_EACH_FROM(q, count, backward) {
    const long p = points ? points[q] : q;
    if (left_out(kinds, p)) continue;
    int d[ROW];
    real h[Q];
    find_neighbours(kinds, distances, pitch, mask_bits, p, d);
    wait_for_step_before();
    UNROLLED for (int i = 0; i < Q; ++i) h[i] = taken(from + i * stride + p);
    collide_at(k, around, stride, p, h);
    to[p] = kept(h[0]);
    UNROLLED for (int i = 1; i < Q; ++i) to[place(stride, i, p, d[i - 1])] = kept(h[i]);
  }
}
