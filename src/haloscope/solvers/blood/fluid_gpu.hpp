// The step on GPUs: a point of the lattice is a thread. Even and odd steps have kernels of their own:
// the even one needs no neighbours, and so fewer registers and no list.
//
// `points` names the points; without it they are 0 .. count - 1. Where a point's neighbours lie:
//   KINDS   kinds[p] is the row of a table of distances, distances [..][ROW], that p shares with all
//           points whose neighbours lie alike: 4 bytes a point, the table stays in the caches;
//   else    every point has its own row of distances [18][pitch]: 72 bytes a point.
// A distance is the index of the point at x - c_i less that of x, or NONE where there is none.
// Constants: THREADS_A_BLOCK, BLOCKS_A_PROCESSOR, KINDS, TOGETHER (neighbouring points that a thread takes in
// even steps), PASSING (hints that what is read or written is not needed again soon).

#define ROW 20
#define NONE (-2147483647 - 1)

// Numbers side by side that are read and written at once.
template <typename T, int COUNT>
struct alignas(COUNT * sizeof(T)) Run {
  T of[COUNT];
};

INLINE real taken(const real *p) {
#if PASSING
  return __ldcs(p);
#else
  return *p;
#endif
}
INLINE void left(real *p, real value) {
#if PASSING
  __stcs(p, value);
#else
  *p = value;
#endif
}

struct Surroundings {
  const real *body, *force;
  real *velocity;
  const unsigned char *inside;
};

// Collides what point p holds.
INLINE void collide_at(const Physics &k, const Surroundings &around, long stride, long p, real *h) {
  real u[3], g[3] = {around.body[0], around.body[1], around.body[2]}, plus = k.plus, minus = k.minus;
#if CELLS
  UNROLLED for (int a = 0; a < 3; ++a) g[a] += around.force[a * stride + p];
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
advance_here(real *__restrict__ f, long stride, const Physics k, const real *__restrict__ body,
             const int *__restrict__ points, long count, const real *__restrict__ force,
             real *__restrict__ velocity, const unsigned char *__restrict__ inside) {
  const Surroundings around = {body, force, velocity, inside};
#if TOGETHER > 1
  const long whole = points ? 0 : count / TOGETHER;
  FOR_EACH(q, whole) {
    const long p = q * TOGETHER;
    real h[TOGETHER][Q];
    UNROLLED for (int i = 0; i < Q; ++i) {
      const Run<real, TOGETHER> run = *(const Run<real, TOGETHER> *)(f + i * stride + p);
      UNROLLED for (int n = 0; n < TOGETHER; ++n) h[n][i] = run.of[n];
    }
    UNROLLED for (int n = 0; n < TOGETHER; ++n) collide_at(k, around, stride, p + n, h[n]);
    UNROLLED for (int i = 0; i < Q; ++i) {
      Run<real, TOGETHER> run;
      UNROLLED for (int n = 0; n < TOGETHER; ++n) run.of[n] = h[n][i];
      *(Run<real, TOGETHER> *)(f + i * stride + p) = run;
    }
  }
  const long first = whole * TOGETHER;
#else
  const long first = 0;
#endif
  FOR_EACH(q, count - first) {
    const long p = points ? points[q] : first + q;
    real h[Q];
    UNROLLED for (int i = 0; i < Q; ++i) h[i] = taken(f + i * stride + p);
    collide_at(k, around, stride, p, h);
    UNROLLED for (int i = 0; i < Q; ++i) left(f + i * stride + p, h[i]);
  }
}

// Where h_i of point p is found, and where what leaves it against c_i is left.
INLINE real *place(real *f, long stride, int i, long p, int distance) {
  return distance == NONE ? f + i * stride + p : f + opposite(i) * stride + (p + distance);
}

KERNEL __launch_bounds__(THREADS_A_BLOCK, BLOCKS_A_PROCESSOR)
advance_along(real *__restrict__ f, long stride, const Physics k, const real *__restrict__ body,
              const int *__restrict__ points, long count, const int *__restrict__ kinds,
              const int *__restrict__ distances, long pitch, const real *__restrict__ force,
              real *__restrict__ velocity, const unsigned char *__restrict__ inside) {
  const Surroundings around = {body, force, velocity, inside};
  FOR_EACH(q, count) {
    const long p = points ? points[q] : q;
    int d[ROW];
#if KINDS
    const Run<int, 4> *row = (const Run<int, 4> *)(distances + (long)ROW * kinds[p]);
    UNROLLED for (int n = 0; n < ROW / 4; ++n) {
      const Run<int, 4> four = row[n];
      UNROLLED for (int m = 0; m < 4; ++m) d[4 * n + m] = four.of[m];
    }
#else
    UNROLLED for (int i = 1; i < Q; ++i) d[i - 1] = distances[(i - 1) * pitch + p];
#endif
    real h[Q];
    h[0] = taken(f + p);
    UNROLLED for (int i = 1; i < Q; ++i) h[i] = taken(place(f, stride, i, p, d[i - 1]));
    collide_at(k, around, stride, p, h);
    left(f + p, h[0]);
    UNROLLED for (int i = 1; i < Q; ++i) left(place(f, stride, i, p, d[i - 1]), h[i]);
  }
}
