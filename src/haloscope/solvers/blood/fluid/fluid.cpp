// One step of the lattice-Boltzmann fluid: in place, the AA pattern (Bailey et al., Int. Conf. on
// Parallel Processing 2009, 550), or on GPUs from one buffer into another.
//
// Legend: slot i of point p is f[i * stride + p]. Before an even step slot i of x holds h_i(x), what
// has arrived. The even step leaves what goes along c_i in slot opposite(i) of x. The odd step finds
// h_i(x) at the address L_i(x) = slot opposite(i) of x - c_i, or slot i of x itself where a wall or an
// opening lies there, and leaves what goes against c_i in that very place: again what has arrived.
// Each address belongs to one point, so points may be taken in any order. With two buffers every step
// but the first reads one as an odd step does and writes the other as an even one; or, where it pushes,
// the other way round.
//
// `streamed` is 1 for a step that reads as odd ones do, `pushed` for one that writes so. Sources: index
// of the point at x - c_i, in row i - 1; negative where there is none. body: force density everywhere;
// g, u: force density and velocity [3][stride], `inside` one flag a point: read and written where the
// constants CELLS and CONTRAST say so, in double precision (`CellReal`), as cells have theirs. `Stored` is
// the type in which populations are kept. In place `old` and `fresh` are the same array.

// CELLS: there are cells; CONTRAST: two fluids; CARREAU: shear-thinning, with Yasuda's exponent YASUDA; SINGLE: real is float;
// HALF: populations are kept in half precision, times SCALE; ROWS_ALONG: axis along which rows of points lie;
// TILTED: there are openings askew to the axes; REACTING: the pressure of openings follows the flow through them.
CONSTANTS(TYPE(real), INT(CELLS), INT(CONTRAST), INT(CARREAU), REAL(YASUDA), INT(SINGLE), INT(HALF), INT(SCALE),
          INT(ROWS_ALONG), INT(TILTED), INT(REACTING))

typedef double CellReal;
#if HALF
#include "half.hpp"
#endif
#if ON_GPU
#include "fluid_threads.hpp"
#else
#include "fluid_lanes.hpp"
#endif
#include "lattice.hpp"

INLINE long address(int i, long p, int source, long stride) {
  return source < 0 ? i * stride + p : opposite(i) * stride + source;
}

#if ON_GPU
#include "fluid_gpu.hpp"
#else
#include "fluid_cores.hpp"
#endif

// Points of openings: completes the incoming populations, then as above. sources [18][count]; kinds: axis, + 4 where
// the inward normal points down it, + 8 where a density is prescribed; numbers: of the opening, whose drive is that
// density or a factor of the velocities prescribed [3][count]. Kind 16: a point at an opening askew to the axes; of
// what comes in along direction i, links [18][count] has the opening and 1 more, 0 elsewhere, and thrown [18][count]
// what is added to what left, times the drive; ends [4][openings]: normals and whether a density is prescribed. What
// leaves a link less what comes in goes to passed [18][count]; with REACTING the volume that leaves a point of kind 8
// to its place in the first row.
KERNEL_BOUNDS(OPENINGS_BOUNDS, openings, IN(Stored, old), OUT(Stored, fresh), LONG(stride),
              VALUE(Physics, physics), IN(real, body), LONG(first), LONG(count), IN(int, sources),
              IN(unsigned char, kinds), IN(unsigned char, numbers), IN(real, prescribed),
              IN(real, drive), LONG(streamed), LONG(pushed), IN(CellReal, force),
              OUT(CellReal, velocity), IN(unsigned char, inside), IN(unsigned char, links),
              IN(real, thrown), IN(real, ends), LONG(openings), OUT(double, passed)) {
  PARTS(q, count) {
    const long p = first + q;
    real h[Q], u[3], g[3] = {body[0], body[1], body[2]}, plus = physics.plus, minus = physics.minus;
    UNROLLED for (int i = 0; i < Q; ++i)
      h[i] = number(old[address(i, p, streamed && i ? sources[(i - 1) * count + q] : -1, stride)]);
#if CELLS
    UNROLLED for (int a = 0; a < 3; ++a) g[a] += (real)force[a * stride + p];
#endif
#if CONTRAST
    if (inside[p]) plus = physics.inside_plus, minus = physics.inside_minus;
#endif
    const int kind = kinds[q];
    const real now = drive[numbers[q]];
    const real wanted[3] = {now * prescribed[q], now * prescribed[count + q], now * prescribed[2 * count + q]};
#if TILTED
    if (kind & 16) {
      real arrived[Q];
      UNROLLED for (int i = 0; i < Q; ++i) arrived[i] = h[i];
      collide(physics, plus, minus, g, h, u);
      Developed flow;
      develop(flow, physics, plus, minus, g, arrived, u);
      ROLLED for (int i = 1; i < Q; ++i) {
        const int link = links[(i - 1) * count + q];
        if (!link) continue;
        const int k = link - 1;
        const real n[3] = {ends[k], ends[openings + k], ends[2 * openings + k]};
        const real left = h[i];
        h[i] = ends[3 * openings + k] != 0 ? from_beyond(flow, i, n, drive[k], g)
                                           : fused(drive[k], thrown[(i - 1) * count + q], left);
        passed[(i - 1) * count + q] = (double)left - (double)h[i];
      }
    } else {
      complete(kind & 3, kind & 4 ? -1 : 1, kind & 8, wanted, now, g, h);
      collide(physics, plus, minus, g, h, u);
    }
#else
    complete(kind & 3, kind & 4 ? -1 : 1, kind & 8, wanted, now, g, h);
    collide(physics, plus, minus, g, h, u);
#endif
#if REACTING
    if (kind & 8) {
      const real along = (kind & 3) == 0 ? u[0] : (kind & 3) == 1 ? u[1] : u[2];
      passed[q] = kind & 4 ? (double)along : -(double)along;
    }
#endif
    UNROLLED for (int i = 0; i < Q; ++i)
      fresh[address(i, p, pushed && i ? sources[(i - 1) * count + q] : -1, stride)] = kept(h[i]);
#if CELLS
    UNROLLED for (int a = 0; a < 3; ++a) velocity[a * stride + p] = u[a];
#endif
  }
}

// Links to walls that move or do not lie halfway: what the wall sends back to `place` becomes
// a times that, plus 1 - a times what is at `other`, plus c; coefficients [2][count]: a, c. After each step, but
// where steps between two buffers do it (WALLS of fluid_gpu.hpp), which leave points in openings to this.
KERNEL(correct_walls, INOUT(Stored, f), IN(long, place), IN(long, other), IN(real, coefficients),
       LONG(count)) {
  FOR_EACH(q, count) {
    const real a = coefficients[q], b = 1 - a, c = coefficients[count + q];
    f[place[q]] = kept(fused(a, number(f[place[q]]), fused(b, number(f[other[q]]), c)));
  }
}

// The same, given to `sent` [count], where the next step is to work it out itself.
KERNEL(send_back_to, IN(Stored, f), IN(long, place), IN(long, other), IN(real, coefficients),
       LONG(count), OUT(real, sent)) {
  FOR_EACH(q, count) {
    const real a = coefficients[q], b = 1 - a, c = coefficients[count + q];
    sent[q] = number(kept(fused(a, number(f[place[q]]), fused(b, number(f[other[q]]), c))));
  }
}
