// The cavity's time step: artificial compressibility on collocated nodes, see README.md.
//
// Legend: p pressure, (u, v, w) velocity along (x, y, z), T temperature; neighbours of a node
// W E along x, S N along y, B F along z, doubled letters two nodes away; beta2 the square of the
// artificial speed of sound; lambda the wave speed; h the distance of nodes. The fields lie one
// after the other in one array, `fs` values apart, in the order p u v [w] T.
//
// Kernels call a row's axis x, that of a plane's rows y and that of planes z, as they lie in memory; which
// axes of the box these are say ROWS_ALONG and PLANES_ALONG, and only star_of and tips_of look at them.
//
// ROWS_ALONG, PLANES_ALONG: 0, 1, 2; GRAVITY_X and so on: whether there is any.
CONSTANTS(TYPE(real), INT(DIMENSIONS), INT(ROWS_ALONG), INT(PLANES_ALONG), INT(LOCAL_STEP),
          INT(RESCALE), INT(GRAVITY_X), INT(GRAVITY_Y), INT(GRAVITY_Z))
#if ON_GPU
// Threads of a block and blocks that must fit on a multiprocessor; of update_tiles; whether there are cuts.
CONSTANTS(INT(BLOCK_THREADS), INT(LEAST_BLOCKS), INT(TILE_X), INT(TILE_Y), INT(NODES_A_THREAD),
          INT(AHEAD), INT(DRIFT), INT(MOST_POLLS), INT(CUT_Y), INT(CUT_Z))
#endif

#define FIELDS (DIMENSIONS + 2)
#define THREE (DIMENSIONS == 3)

#include "cavity_step.hpp"

#if ON_GPU
#include "cavity_gpu.hpp"
#else
#include "cavity_cores.hpp"
#endif

// sides[k] = {first node, inward stride, stride a, stride b, nodes a, nodes b, adiabatic,
//             first thread on a GPU}
#define SIDE_WORDS 8

#if ON_GPU
// Along x the nodes of a wall lie far apart and those next to one side by side: there four lanes a
// node read the four values that it needs and write its results.
INLINE void wall_by_four(const long *side, real *state, long fs, long a, long b) {
  const int lane = threadIdx.x % 4;
  const long n = side[1];
  const bool here = b < side[5];
  real *p = state + side[0] + a * side[2] + b * side[3], *T = p + T_FIELD * fs;
  const real own_p = here ? p[(lane + 1) * n] : (real)0;
  const real own_T = here && lane < 2 ? T[(lane + 1) * n] : (real)0;
  const real p1 = of_four(own_p, 0), p2 = of_four(own_p, 1), p3 = of_four(own_p, 2);
  const real p4 = of_four(own_p, 3), T1 = of_four(own_T, 0), T2 = of_four(own_T, 1);
  if (!here) return;
  const real wall_p = wall_pressure(p1, p2);
  if (lane == 0) p[0] = wall_p;
  if (lane == 1) p[-n] = ghost_pressure(wall_p, p1, p2, p3, p4);
  if (lane == 2 && side[6]) T[0] = adiabatic_temperature(T1, T2);
}
#endif

// threads: of a GPU for all sides, each of which begins with a warp of its own.
KERNEL(walls, INOUT(real, state), IN(long, sides), LONG(count), LONG(fs), LONG(threads)) {
#if ON_GPU
  FOR_EACH(thread, threads) {
    const long *side = sides;
    for (long k = 1; k < count && thread >= sides[k * SIDE_WORDS + 7]; ++k) side += SIDE_WORDS;
    const unsigned lanes = side[1] == 1 || side[1] == -1 ? 4 : 1;
    const unsigned node = (unsigned)(thread - side[7]) / lanes, b = node / (unsigned)side[4];
    const unsigned a = node - b * (unsigned)side[4];
    if (lanes == 4)
      wall_by_four(side, state, fs, a, b);
    else if (b < side[5])
      wall(state, state + T_FIELD * fs, side[0] + a * side[2] + b * side[3], side[1], side[6]);
  }
#else
  for (long k = 0; k < count; ++k) {
    const long *side = sides + k * SIDE_WORDS;
    const long nb = side[5], na = side[4];
    PRAGMA(omp parallel for schedule(static) if (na * nb > 8192))
    for (long b = 0; b < nb; ++b)
      PRAGMA(omp simd) for (long a = 0; a < na; ++a)
        wall(state, state + T_FIELD * fs, side[0] + a * side[2] + b * side[3], side[1], side[6]);
  }
#endif
}

// parts[k] = largest root of rate2() of the nodes of part k, in 1/s.
KERNEL(fastest_wave, IN(real, state), VALUE(Physics, physics), LONG(first), LONG(nx), LONG(ny),
       LONG(nz), LONG(sy), LONG(sz), LONG(fs), OUT(double, parts), LONG(n)) {
  PARTS(j, n) {
    real most = 0;
    CELLS_OF_PART(j, n, x, y, z, nx, ny, nz) {
      const long i = first + x + y * sy + z * sz;
      const real u = state[i + fs], v = state[i + 2 * fs];
      const real w = THREE ? state[i + 3 * fs] : (real)0;
      const real four = 4 * speed2(physics, u, v, w);
      const real sw = THREE ? wave(w, four) : (real)0;
      most = larger(square_root(rate2(physics, wave(u, four), wave(v, four), sw)), most);
    }
    parts[j] = most;
  }
}

// The pressure at the centre node, kept for the rescaling of the next step.
KERNEL(keep_reference, IN(real, state), OUT(real, reference), LONG(centre)) {
  FOR_EACH(i, 1) reference[i] = state[centre];
}
