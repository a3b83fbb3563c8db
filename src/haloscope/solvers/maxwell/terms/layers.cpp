// Absorbing layers: perfectly matched, aligned with the axes, pointwise.
//
// With stretching s_i = 1 + r_i / (i w), exp(i w t), a component E_x of the layer obeys
//   (curl H)_x / eps = dE_x/dt + (r_y + r_z - r_x) E_x + Q_x,  dQ_x/dt = -r_x Q_x + (r_x - r_y)(r_x - r_z) E_x,
// y and z in turn, and H alike. That is the uniaxial layer in D and E of Gedney (IEEE Trans. Antennas
// Propag. 44 (1996) 1630) with D taken out: no curl is needed. Where the layer is one of a single
// direction x, only Q_x is not 0.
//
// A medium in the layer answers to F = s_y s_z / s_x E, not to E:
//   F = E + P,  dP/dt = (r_y + r_z - r_x) E + Q.
//
// `states` holds Q, `beyond` P, with their increments `steps` and `beyond_steps`. Rates r at the nodes:
// [element of the list][1 or 3][NP^3].
CONSTANTS(TYPE(real), INT(N))  // N: order

#define NP3 ((N + 1) * (N + 1) * (N + 1))

// Of one direction: Q of E and of H along the axis, [element of the list][2][NP^3].
KERNEL(side_layer, IN(real, fields), INOUT(real, increments), INOUT(real, states), INOUT(real, steps),
       IN(real, rates), IN(long, elements), LONG(count), LONG(axis), DOUBLE(dt), DOUBLE(rka),
       DOUBLE(rkb)) {
  const real real_dt = dt, real_rka = rka, real_rkb = rkb;
  const int c0 = (int)axis, c1 = (int)((axis + 1) % 3), c2 = (int)((axis + 2) % 3);
  BLOCKS(b, count) {
    const real *rate = rates + b * NP3;
    for (int half = 0; half < 2; half++) {
      const real *ue = fields + (elements[b] * 6 + 3 * half) * NP3;
      real *ke = increments + (elements[b] * 6 + 3 * half) * NP3;
      real *qe = states + (2 * b + half) * NP3, *kq = steps + (2 * b + half) * NP3;
      THREADS(n, NP3) {
        const real r = rate[n], E = ue[c0 * NP3 + n], Q = qe[n];
        const real step = fused(real_rka, kq[n], real_dt * r * fused(r, E, -Q));
        ke[c0 * NP3 + n] = fused(real_rka, ke[c0 * NP3 + n], real_dt * fused(r, E, -Q));
        ke[c1 * NP3 + n] = fused(real_rka, ke[c1 * NP3 + n], -real_dt * r * ue[c1 * NP3 + n]);
        ke[c2 * NP3 + n] = fused(real_rka, ke[c2 * NP3 + n], -real_dt * r * ue[c2 * NP3 + n]);
        kq[n] = step;
        qe[n] = fused(real_rkb, step, Q);
      }
    }
  }
}

// Of any directions: Q [element of the list][6][NP^3]; with `lossy` also P, and the medium has scaled the
// increments before.
KERNEL(corner_layer, IN(real, fields), INOUT(real, increments), INOUT(real, states), INOUT(real, steps),
       INOUT(real, beyond), INOUT(real, beyond_steps), IN(real, rates), IN(long, elements), LONG(count),
       LONG(lossy), DOUBLE(dt), DOUBLE(rka), DOUBLE(rkb)) {
  const real real_dt = dt, real_rka = rka, real_rkb = rkb;
  const real scale = lossy ? 1 : real_rka;
  BLOCKS(b, count) {
    for (int c = 0; c < 6; c++) {
      const real *r0 = rates + (3 * b + c % 3) * NP3, *r1 = rates + (3 * b + (c + 1) % 3) * NP3;
      const real *r2 = rates + (3 * b + (c + 2) % 3) * NP3;
      const real *ue = fields + (elements[b] * 6 + c) * NP3;
      real *ke = increments + (elements[b] * 6 + c) * NP3;
      const long own = (6 * b + c) * NP3;
      THREADS(n, NP3) {
        const real E = ue[n], Q = states[own + n];
        const real gain = fused(r1[n] + r2[n] - r0[n], E, Q);
        const real coupling = (r0[n] - r1[n]) * (r0[n] - r2[n]);
        const real step = fused(real_rka, steps[own + n], real_dt * fused(coupling, E, -r0[n] * Q));
        ke[n] = fused(scale, ke[n], -real_dt * gain);
        steps[own + n] = step;
        states[own + n] = fused(real_rkb, step, Q);
        if (lossy) {
          const real step_p = fused(real_rka, beyond_steps[own + n], real_dt * gain);
          beyond_steps[own + n] = step_p;
          beyond[own + n] = fused(real_rkb, step_p, beyond[own + n]);
        }
      }
    }
  }
}
