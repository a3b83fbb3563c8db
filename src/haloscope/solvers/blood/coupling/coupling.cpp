// The immersed boundary's two couplings: vertices take the fluid's velocity, points their forces.
//
//   V_i = sum_x u(x) delta(x - X_i)    over the lattice points x, u = 0 where there is no fluid
//   g(x) += sum_i F_i delta(x - X_i)   over the vertices i, in their order
//
// positions X, velocities V, forces F of vertices: component c of vertex i at c * vertices + i.
// velocity u, force g of the fluid: component c of point p at c * stride + p.
// points[z][y][x]: the point at a place of the own box extended by the halo, -1 where none is.
// rows: the same where ROW points from there on lie one after the other, -1 elsewhere; on cores.
// box_numbers: of each axis the first own point, own points, and points if it is periodic or 0.
// cells, span, a_cell: where a_cell is not 0 velocities are wanted of some cells of so many vertices,
// those with the numbers cells[span[0]] up to cells[span[1] - 1]; else of the first `count` vertices.

CONSTANTS(TYPE(real))

#include "own_box.hpp"
#include "deltas.hpp"

INLINE long vertices_wanted(const int *span, long a_cell, long count) {
  return a_cell ? (span[1] - span[0]) * a_cell : count;
}

INLINE real along_x(const real *phi, const real *sums) {
  real value = phi[0] * sums[0];
  for (int a = 1; a < SUPPORT; a++) value = fused(phi[a], sums[a], value);
  return value;
}

#if ON_GPU
#include "coupling_gpu.hpp"
#include "bins.hpp"
#include "kept_positions.hpp"
#include "coupling_lists.hpp"
#include "coupling_warps.hpp"
#else
#include "coupling_cores.hpp"
#include "coupling_slabs.hpp"
#endif
