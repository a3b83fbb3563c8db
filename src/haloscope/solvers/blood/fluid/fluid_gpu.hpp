// The step on GPUs: a point of the lattice is a thread. Even and odd steps have kernels of their own:
// the even one needs no neighbours, and so fewer registers and no list. A third one reads as odd steps do
// and writes another buffer as even ones do: in full lines, where the odd one scatters. A fourth one, for
// studies, reads as even steps do and writes another buffer as odd ones do, the push of Ames and others
// (J. Comput. Sci. 44 (2020) 101153).
//
// `points` names the points; without it they are 0 .. count - 1. Where a point's neighbours lie, by KINDS:
//   1       kinds[p] is the row of a table of distances, distances [..][ROW], that p shares with all
//           points whose neighbours lie alike: 4 bytes a point, the table stays in the caches; below 0
//           where p is to be left out (-1), with all others on its lines of memory;
//   2       the row has the distances of the eight rows of points beside p's own, and the lowest `mask_bits`
//           bits of kinds[p] name a mask of the neighbours that are there; or kinds[p] is below -1 and names a
//           row as above. Masks come first in `distances`, then rows of eight, from `pitch` on whole rows.
// A distance is the index of the point at x - c_i less that of x, or NONE where there is none.
// `backward`: points are taken from the last to the first. Blocks start in the order of their numbers, and
// what the step before has left last is still in the second-level cache.

// WALLS: 1, 2: what some walls send back is worked out within steps, sent_back_gpu.hpp; LINES: what is read comes
// into the second-level cache by whole lines; EARLY: launches may begin before the one before has ended, and
// look up until then where neighbours lie.
CONSTANTS(INT(THREADS_A_BLOCK), INT(BLOCKS_A_PROCESSOR), INT(KINDS), INT(WALLS), INT(LINES), INT(EARLY))

#define ROW 20
#define NONE (-2147483647 - 1)

// Loads by such pointers could be taken across the wait.
#if EARLY
#define IN_CHANGING IN
#define OUT_CHANGING OUT
#define INOUT_CHANGING INOUT
INLINE void wait_for_step_before() { wait_for_launches_before(); }
INLINE void let_step_after_begin() { let_next_launch_begin(); }
#else
#define IN_CHANGING IN_RESTRICT
#define OUT_CHANGING OUT_RESTRICT
#define INOUT_CHANGING INOUT_RESTRICT
INLINE void wait_for_step_before() {}
INLINE void let_step_after_begin() {}
#endif

#define SURROUNDINGS \
  IN_CHANGING(CellReal, force), OUT_CHANGING(CellReal, velocity), IN_CHANGING(unsigned char, inside)

// Numbers that are read at once.
struct alignas(16) Four {
  int of[4];
};

// A pointer, which the compiler is not to tell from what it was made of: to go on from one row of slots to the
// next takes less than to multiply for each.
template <typename T>
INLINE T *as_it_is(T *p) {
  asm("" : "+l"(p));
  return p;
}

INLINE real taken(const Stored *p) {
#if LINES
  return number(load_with_line(p));
#else
  return number(*p);
#endif
}

INLINE bool left_out(int kind) { return KINDS == 2 ? kind == -1 : kind < 0; }

struct Surroundings {
  const CellReal *force;
  CellReal *velocity;
  const unsigned char *inside;
};

struct Force {
  real along[3];
};

// Asked for with what arrives: when points are collided it is to be there.
INLINE Force force_everywhere(const real *body) { return {body[0], body[1], body[2]}; }

// Collides what point p holds.
INLINE void collide_at(const Physics &k, const Surroundings &around, long stride, int p, const Force &body,
                       real *h) {
  real u[3], g[3] = {body.along[0], body.along[1], body.along[2]}, plus = k.plus, minus = k.minus;
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

// All that a point's own slots hold.
INLINE void take(const Stored *f, long stride, int p, real *h) {
  const Stored *slot = f + p;
  h[0] = taken(slot);
  UNROLLED for (int i = 1; i < Q; ++i) {
    slot = as_it_is(slot + stride);
    h[i] = taken(slot);
  }
}

// Leaves all that a point holds in its own slots.
INLINE void leave(Stored *f, long stride, int p, const real *h) {
  Stored *slot = f + p;
  *slot = kept(h[0]);
  UNROLLED for (int i = 1; i < Q; ++i) {
    slot = as_it_is(slot + stride);
    *slot = kept(h[i]);
  }
}

KERNEL_BOUNDS(__launch_bounds__(THREADS_A_BLOCK, BLOCKS_A_PROCESSOR), advance_here,
              INOUT_CHANGING(Stored, f), LONG(stride), VALUE(Physics, physics), IN_CHANGING(real, body),
              IN_RESTRICT(int, points), LONG(count), SURROUNDINGS, LONG(backward)) {
  let_step_after_begin();
  const Surroundings around = {force, velocity, inside};
  FOR_EACH_FROM(q, count, backward) {
    const int p = points ? points[q] : (int)q;
    wait_for_step_before();
    const Force g = force_everywhere(body);
    real h[Q];
    take(f, stride, p, h);
    collide_at(physics, around, stride, p, g, h);
    leave(f, stride, p, h);
  }
}

// Which of the eight rows of points beside a point's own x - c_i lies in; -1: its own.
INLINE constexpr int row_beside(int i) {
  const int place = 3 * direction(i, ROWS_ALONG == 0) + direction(i, 2 - (ROWS_ALONG == 2)) + 4;
  return place == 4 ? -1 : place - (place > 4);
}

// Where h_i of point p is found, and in place where what leaves it against c_i is left: as far behind its place
// in row opposite(i) of slots. Where there is no neighbour that is slot i of p itself: rows i and opposite(i)
// lie side by side.
INLINE int behind(int i, int distance, int stride) {
  static_assert(opposite(1) == 2 && opposite(2) == 1, "opposite directions follow each other");
  return distance == NONE ? (i - opposite(i)) * stride : distance;
}

// How far behind each of a point's populations is found, and whether all come from neighbours.
INLINE bool find_neighbours(int kind, const int *distances, long pitch, int mask_bits, int stride, int *d) {
#if KINDS == 2
  if (kind >= 0) {
    const int *const eight = distances + (1 << mask_bits) + 8L * (kind >> mask_bits);
    const Four low = *(const Four *)eight, high = *(const Four *)(eight + 4);
    const int there = distances[kind & ((1 << mask_bits) - 1)];
    UNROLLED for (int i = 1; i < Q; ++i) {
      const int g = row_beside(i), base = g < 0 ? 0 : g < 4 ? low.of[g] : high.of[g - 4];
      d[i - 1] = there >> (i - 1) & 1 ? base - direction(i, ROWS_ALONG) : behind(i, NONE, stride);
    }
    return there == (1 << (Q - 1)) - 1;
  }
  const Four *row = (const Four *)(distances + pitch + (long)ROW * (-2 - kind));
#else
  const Four *row = (const Four *)(distances + (long)ROW * kind);
#endif
  UNROLLED for (int n = 0; n < ROW / 4; ++n) {
    const Four four = row[n];
    UNROLLED for (int m = 0; m < 4; ++m) d[4 * n + m] = four.of[m];
  }
  bool all = true;
  UNROLLED for (int i = 1; i < Q; ++i) {
    all &= d[i - 1] != NONE;
    d[i - 1] = behind(i, d[i - 1], stride);
  }
  return all;
}

// What has arrived at point p.
INLINE void arrive(const Stored *f, long stride, int p, const int *d, real *h) {
  const Stored *slot = f + p;
  h[0] = taken(slot);
  UNROLLED for (int i = 1; i < Q; ++i) {
    slot = as_it_is(slot + stride);
    h[opposite(i)] = taken(slot + d[opposite(i) - 1]);
  }
}

// Leaves what goes against each direction where what arrives along it was found.
INLINE void send(Stored *f, long stride, int p, const int *d, const real *h) {
  Stored *slot = f + p;
  *slot = kept(h[0]);
  UNROLLED for (int i = 1; i < Q; ++i) {
    slot = as_it_is(slot + stride);
    slot[d[opposite(i) - 1]] = kept(h[opposite(i)]);
  }
}

KERNEL_BOUNDS(__launch_bounds__(THREADS_A_BLOCK, BLOCKS_A_PROCESSOR), advance_along,
              INOUT_CHANGING(Stored, f), LONG(stride), VALUE(Physics, physics), IN_CHANGING(real, body),
              IN_RESTRICT(int, points), LONG(count), IN_RESTRICT(int, kinds), IN_RESTRICT(int, distances),
              LONG(pitch), LONG(mask_bits), SURROUNDINGS, LONG(backward)) {
  let_step_after_begin();
  const Surroundings around = {force, velocity, inside};
  FOR_EACH_FROM(q, count, backward) {
    const int p = points ? points[q] : (int)q;
    const int kind = kinds[p];
    if (left_out(kind)) continue;
    int d[ROW];
    real h[Q];
    find_neighbours(kind, distances, pitch, mask_bits, stride, d);
    wait_for_step_before();
    const Force g = force_everywhere(body);
    arrive(f, stride, p, d, h);
    collide_at(physics, around, stride, p, g, h);
    send(f, stride, p, d, h);
  }
}

#if WALLS
#include "sent_back_gpu.hpp"
#else
KERNEL_BOUNDS(__launch_bounds__(THREADS_A_BLOCK, BLOCKS_A_PROCESSOR), advance_across,
              IN_CHANGING(Stored, old), OUT_CHANGING(Stored, fresh), LONG(stride),
              VALUE(Physics, physics), IN_CHANGING(real, body), IN_RESTRICT(int, points), LONG(count),
              IN_RESTRICT(int, kinds), IN_RESTRICT(int, distances), LONG(pitch), LONG(mask_bits),
              SURROUNDINGS, LONG(backward)) {
  let_step_after_begin();
  const Surroundings around = {force, velocity, inside};
  FOR_EACH_FROM(q, count, backward) {
    const int p = points ? points[q] : (int)q;
    const int kind = kinds[p];
    if (left_out(kind)) continue;
    int d[ROW];
    real h[Q];
    find_neighbours(kind, distances, pitch, mask_bits, stride, d);
    wait_for_step_before();
    const Force g = force_everywhere(body);
    arrive(old, stride, p, d, h);
    collide_at(physics, around, stride, p, g, h);
    leave(fresh, stride, p, h);
  }
}
#endif

KERNEL_BOUNDS(__launch_bounds__(THREADS_A_BLOCK, BLOCKS_A_PROCESSOR), advance_pushing,
              IN_CHANGING(Stored, old), OUT_CHANGING(Stored, fresh), LONG(stride),
              VALUE(Physics, physics), IN_CHANGING(real, body), IN_RESTRICT(int, points), LONG(count),
              IN_RESTRICT(int, kinds), IN_RESTRICT(int, distances), LONG(pitch), LONG(mask_bits),
              SURROUNDINGS, LONG(backward)) {
  let_step_after_begin();
  const Surroundings around = {force, velocity, inside};
  FOR_EACH_FROM(q, count, backward) {
    const int p = points ? points[q] : (int)q;
    const int kind = kinds[p];
    if (left_out(kind)) continue;
    int d[ROW];
    real h[Q];
    find_neighbours(kind, distances, pitch, mask_bits, stride, d);
    wait_for_step_before();
    const Force g = force_everywhere(body);
    take(old, stride, p, h);
    collide_at(physics, around, stride, p, g, h);
    send(fresh, stride, p, d, h);
  }
}
