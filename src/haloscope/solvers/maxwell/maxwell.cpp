// One Runge-Kutta stage of Maxwell's equations on curved hexahedra: curl, upwind or central flux, lift,
// update, and the traces that the next stage's neighbours read, in one pass.
//
// In an element with coordinates x(r, s, t): a_1, a_2, a_3 are the derivatives of x along r, s, t,
// J = a_1 . (a_2 x a_3), covariant components u_k = a_k . u. Then
//   curl u = (1/J) sum_i a_i (D_j u_k - D_k u_j),  (i, j, k) cyclic
// (the covariant curl; stage_chain_rule.hpp has another), and a face whose own two directions are p and q
// has the area vector S = s a_p x a_q, s = +-1, so that
//   S x v = s (a_q v_p - a_p v_q),
//   S x (S x v) / |S| = (a_q (g_pq v_p - g_pp v_q) + a_p (g_pq v_q - g_qq v_p)) / |S|,  g = a . a:
// all that a face adds has components along a_p and a_q alone, and needs the neighbour's tangential
// covariant components only. Numbers of faces, their directions and orientations are those of
// mesh/hexes/hexes.py. Fluxes: Hesthaven and Warburton, J. Comput. Phys. 181 (2002) 186;
// weights at the ends of an edge: 2 / (N (N + 1)).
//
// Arrays, an element after the other: fields and increments [6][NP^3] (Ex, Ey, Ez, Hx, Hy, Hz),
// geometry [10][NP^3] (a_1, a_2, a_3, 1/J), material [4] (1/eps, 1/mu, Z, Y),
// traces [face][4][NP^2]: E along the face's first and second direction, then H.
// A launch goes through `elements` of them from `first` on; its geometry begins with the first's.
//
// N: order; UPWIND: 1 for the upwind flux, 0 for the central one; CHAIN_RULE: 1 for that curl, 0 for the
// covariant one; GEOMETRY: 0 where geometry is stored as above (always with the chain rule), others in
// shape_cores.hpp for cores and gpu_pairs.hpp for GPUs. Both list more constants.
CONSTANTS(TYPE(real), INT(N), INT(UPWIND), INT(CHAIN_RULE), INT(GEOMETRY))
#if ON_GPU
// Threads of a block, and blocks that must fit on a multiprocessor.
CONSTANTS(INT(THREADS_A_BLOCK), INT(BLOCKS_A_PROCESSOR))
#endif

#include "faces.hpp"

// The last arguments of first_traces. The derivatives give the geometry where it is not stored. Where it is
// stored they are not used, and stand last so that they move no other argument.
#if GEOMETRY == 0
#define ELEMENTS_AND_DERIVATIVES LONG(first), LONG(elements), IN(real, D), IN(real, DT)
#else
#define ELEMENTS_AND_DERIVATIVES IN(real, D), IN(real, DT), LONG(first), LONG(elements)
#endif

#if CHAIN_RULE
#include "stage_chain_rule.hpp"
#elif ON_GPU
#include "stage_gpu.hpp"
#else
#include "stage_cores.hpp"
#endif
