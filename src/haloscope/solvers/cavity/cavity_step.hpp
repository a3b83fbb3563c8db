// One explicit step of a node from its neighbourhood, and the values of walls and of ghosts behind them;
// symbols as in cavity.cpp.

struct Physics {
  real ax, ay, az;        // 1 / (2 h)
  real nx, ny, nz, n0;    // nu / h^2, and -2 times their sum
  real tx, ty, tz, t0;    // alpha / h^2, and -2 times their sum
  real dx, dy, dz;        // C4 / (2 h): damping, half because wave() is twice lambda
  real gx, gy, gz;        // 1 / (2 h rho): pressure gradient
  real bx, by, bz, tref;  // -beta_T g, reference temperature
  real floor2;            // least beta2: kappa V_ref^2, or what keeps wave() and rate2() in range
  real rho;
  real cfl, diffusive, cell;  // local step: factor, diffusive limit, cell-Reynolds limit factor
};

struct Star {
  real c, W, E, S, N, B, F;
};
struct Tips {
  real WW, EE, SS, NN, BB, FF;
};
struct Node {
  real p, u, v, w, T;
};

// What neighbours along an axis of the box are: in a row, in the rows beside it, or in the planes.
#define ALONG(axis, in_row, beside, in_planes) \
  (ROWS_ALONG == axis ? in_row : PLANES_ALONG == axis ? in_planes : beside)

// A star from neighbours as they lie in memory.
INLINE Star star_of(real c, real left, real right, real below, real above, real behind, real ahead) {
  return {c,
          ALONG(0, left, below, behind),
          ALONG(0, right, above, ahead),
          ALONG(1, left, below, behind),
          ALONG(1, right, above, ahead),
          ALONG(2, left, below, behind),
          ALONG(2, right, above, ahead)};
}
INLINE Tips tips_of(real left, real right, real below, real above, real behind, real ahead) {
  return {ALONG(0, left, below, behind), ALONG(0, right, above, ahead),
          ALONG(1, left, below, behind), ALONG(1, right, above, ahead),
          ALONG(2, left, below, behind), ALONG(2, right, above, ahead)};
}

// Square of the artificial speed of sound: max(|V|^2, kappa V_ref^2).
INLINE real speed2(const Physics &k, real u, real v, real w) {
  real square = fused(v, v, u * u);
#if THREE
  square = fused(w, w, square);
#endif
  return larger(square, k.floor2);
}

// Twice the wave speed lambda = (|u| + sqrt(u^2 + 4 beta2)) / 2.
INLINE real wave(real u, real four_beta2) {
  return absolute(u) + root_of_normal(fused(u, u, four_beta2));
}

// Undivided fourth difference.
INLINE real fourth(real ll, real l, real c, real r, real rr) {
  return fused((real)6, c, fused((real)-4, l + r, ll + rr));
}

// Sum of (lambda / h)^2 over the directions, in 1/s^2.
INLINE real rate2(const Physics &k, real a, real b, real c) {
  a *= k.ax, b *= k.ay;
  real sum = fused(b, b, a * a);
#if THREE
  c *= k.az;
  sum = fused(c, c, sum);
#endif
  return sum;
}

struct Weights {
  real c, W, E, S, N, B, F;
};

// Weights of a star for diffusion less central convection.
INLINE Weights weights(real nx, real ny, real nz, real n0, real cx, real cy, real cz) {
  return {n0, nx + cx, nx - cx, ny + cy, ny - cy, nz + cz, nz - cz};
}

INLINE real apply(const Weights &m, const Star &f) {
  real sum = fused(m.N, f.N, fused(m.S, f.S, fused(m.E, f.E, fused(m.W, f.W, m.c * f.c))));
#if THREE
  sum = fused(m.F, f.F, fused(m.B, f.B, sum));
#endif
  return sum;
}

// One explicit step of a node from its neighbourhood.
INLINE Node advance(const Physics &k, const Star &p, const Tips &q, const Star &u, const Star &v,
                    const Star &w, const Star &T, real global_dt, real reference) {
  const real beta2 = speed2(k, u.c, v.c, w.c), four = 4 * beta2;
  const real su = wave(u.c, four), sv = wave(v.c, four);
  real divergence = fused(k.ay, v.N - v.S, k.ax * (u.E - u.W));
  real damping = fused(k.dy * sv, fourth(q.SS, p.S, p.c, p.N, q.NN),
                       k.dx * su * fourth(q.WW, p.W, p.c, p.E, q.EE));
#if THREE
  const real sw = wave(w.c, four);
  divergence = fused(k.az, w.F - w.B, divergence);
  damping = fused(k.dz * sw, fourth(q.BB, p.B, p.c, p.F, q.FF), damping);
#else
  const real sw = 0;
#endif
  const real cx = u.c * k.ax, cy = v.c * k.ay, cz = w.c * k.az;
  const Weights viscous = weights(k.nx, k.ny, k.nz, k.n0, cx, cy, cz);
  const Weights thermal = weights(k.tx, k.ty, k.tz, k.t0, cx, cy, cz);
  const real excess = T.c - k.tref;
  (void)excess;
  real du = fused(k.gx, p.W - p.E, apply(viscous, u));
  real dv = fused(k.gy, p.S - p.N, apply(viscous, v));
#if GRAVITY_X
  du = fused(k.bx, excess, du);
#endif
#if GRAVITY_Y
  dv = fused(k.by, excess, dv);
#endif
  const real dT = apply(thermal, T);
  const real dp = -fused(beta2 * k.rho, divergence, damping);
#if LOCAL_STEP
  const real slow = reciprocal_of_normal(root_of_normal(rate2(k, su, sv, sw)));
  const real dt = k.cfl * smaller(slow, smaller(k.diffusive, k.cell * slow * slow));
  (void)global_dt;
#else
  const real dt = global_dt;
  (void)sw;
#endif
  Node next;
  next.p = fused(dt, dp, p.c);
#if RESCALE
  next.p -= reference;
#else
  (void)reference;
#endif
  next.u = fused(dt, du, u.c);
  next.v = fused(dt, dv, v.c);
  next.T = fused(dt, dT, T.c);
#if THREE
  real dw = fused(k.gz, p.B - p.F, apply(viscous, w));
#if GRAVITY_Z
  dw = fused(k.bz, excess, dw);
#endif
  next.w = fused(dt, dw, w.c);
#else
  next.w = 0;
#endif
  return next;
}

// Walls: p extrapolated to the wall and to the ghost node beyond it, T on adiabatic walls; 1, 2, ...
// count nodes from the wall inwards. Callers: kernel walls (wall_by_four on GPUs) and update_twice;
// _extrapolate of walls.py repeats the formulas for outputs.
INLINE real wall_pressure(real p1, real p2) { return fused((real)2, p1, -p2); }

// The ghost that makes the central fourth difference at node 1 the one-sided one.
INLINE real ghost_pressure(real p0, real p1, real p2, real p3, real p4) {
  return fused((real)5, p0, fused((real)-10, p1, fused((real)10, p2, fused((real)-5, p3, p4))));
}

INLINE real adiabatic_temperature(real T1, real T2) { return fused((real)4, T1, -T2) / 3; }

// All is read before anything is written: no value waits for another.
INLINE void wall(real *p, real *T, long i, long n, bool adiabatic) {
  const real p1 = p[i + n], p2 = p[i + 2 * n], p3 = p[i + 3 * n], p4 = p[i + 4 * n];
  const real T1 = adiabatic ? T[i + n] : (real)0, T2 = adiabatic ? T[i + 2 * n] : (real)0;
  const real p0 = wall_pressure(p1, p2);
  p[i] = p0;
  p[i - n] = ghost_pressure(p0, p1, p2, p3, p4);
  if (adiabatic) T[i] = adiabatic_temperature(T1, T2);
}

#define T_FIELD (FIELDS - 1)
