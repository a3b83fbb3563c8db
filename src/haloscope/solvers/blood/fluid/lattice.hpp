// Pointwise physics of the D3Q19 lattice: collision, forcing and what completes an opening.
//
// Legend, in lattice units (spacing, time step and mean density 1, c_s^2 = 1/3): h[i] = f_i - w_i,
// populations less their weights, which keeps the digits that rest would take; c_i directions, w_i
// weights; delta = rho - 1; j momentum, u velocity, g force density; tau relaxation time, `plus` and
// `minus` the relaxation rates of the even and odd parts of a pair of opposite directions.
//
// Pair n holds directions 2 n + 1 and 2 n + 2, which are opposite; lattice.py has the same order.
// PAIR_BY_PAIR: a pair at a time, as fluid_lanes.hpp and fluid_threads.hpp say.

#define Q 19
#define PAIRS 9

struct Physics {
  real plus, minus;                // rates of the fluid outside
  real inside_plus, inside_minus;  // and inside cells
  real magic;                      // (1/plus - 1/2) (1/minus - 1/2), 0: plus = minus
  real nu_0, nu_inf, lambda, n;    // Carreau: viscosities at rest and at high shear, time, exponent
};

INLINE constexpr int opposite(int i) { return i == 0 ? 0 : i % 2 ? i + 1 : i - 1; }

// Component `axis` of c_i. Two bits for each direction hold it and 1: GPUs keep a table that is looked
// up by a number known only as they run in the slow memory of each thread.
INLINE constexpr int direction(int i, int axis) {
  const unsigned long codes = axis == 0 ? 0x1548889549 : axis == 1 ? 0x895609495 : 0x20a0954955;
  return (int)(codes >> 2 * i & 3) - 1;
}
INLINE real weight(int i) {
  return i == 0 ? (real)1 / 3 : i < 7 ? (real)1 / 18 : (real)1 / 36;
}

// A number in all lanes of a vector, or itself.
template <typename V>
INLINE V all(real a) {
  return a - V{};
}

// c . v for the first direction of a pair, and of all of them.
template <typename V>
INLINE V along(const V *v, int n) {
  return n == 0 ? v[0] : n == 1 ? v[1] : n == 2 ? v[2] : n == 3 ? v[0] + v[1] : n == 4 ? v[0] - v[1] :
         n == 5 ? v[0] + v[2] : n == 6 ? v[0] - v[2] : n == 7 ? v[1] + v[2] : v[1] - v[2];
}
template <typename V>
INLINE void along(const V *v, V *c_v) {
  c_v[0] = along(v, 0), c_v[1] = along(v, 1), c_v[2] = along(v, 2);
  c_v[3] = along(v, 3), c_v[4] = along(v, 4), c_v[5] = along(v, 5);
  c_v[6] = along(v, 6), c_v[7] = along(v, 7), c_v[8] = along(v, 8);
}

// The other rate of a pair: (1/plus - 1/2) (1/minus - 1/2) = magic (Ginzburg, Verhaeghe and
// d'Humieres, Commun. Comput. Phys. 3 (2008) 427).
template <typename V>
INLINE V minus_rate(V tau, real magic) {
  const V excess = tau - (real)0.5;
  return excess / fused(all<V>((real)0.5), excess, all<V>(magic));
}

// The even and the odd part (twice) of a pair.
template <typename V>
INLINE void parts(V a, V b, V &s, V &d) {
  s = a + b;
  d = a - b;
}

// delta and j.
template <typename V>
INLINE V moments(V h_0, const V *s, const V *d, V *j) {
  j[0] = d[0] + ((d[3] + d[4]) + (d[5] + d[6]));
  j[1] = d[1] + ((d[3] - d[4]) + (d[7] + d[8]));
  j[2] = d[2] + ((d[5] - d[6]) + (d[7] - d[8]));
  return ((h_0 + s[0]) + (s[1] + s[2])) + (((s[3] + s[4]) + (s[5] + s[6])) + (s[7] + s[8]));
}

#if CARREAU
// The square of lambda times the rate, to the power a/2.
template <typename V>
INLINE V to_half_of(V square) {
  if constexpr (YASUDA == 2) return square;
  return raised(square, (real)YASUDA / 2);
}

// tau of the law nu = nu_inf + (nu_0 - nu_inf) (1 + (lambda rate)^a)^((n - 1)/a), a = YASUDA, where the
// shear rate is itself K / tau: Newton's method on tau, which starts at the largest value.
// K = 3/(2 rho) sqrt(2 Pi : Pi) with Pi the second moment of what deviates from equilibrium.
template <typename V>
INLINE V carreau_tau(const Physics &k, const V *s, V delta, const V *u, const V *g) {
  const V rho = delta + (real)1;
  V pi[6];  // xx yy zz xy xz yz, less that of equilibrium and of half the force's work
  const V edge_x = (s[3] + s[4]) + (s[5] + s[6]), edge_y = (s[3] + s[4]) + (s[7] + s[8]);
  const V edge_z = (s[5] + s[6]) + (s[7] + s[8]), third = delta / (real)3;
  pi[0] = (s[0] + edge_x) - third - rho * u[0] * u[0] + g[0] * u[0];
  pi[1] = (s[1] + edge_y) - third - rho * u[1] * u[1] + g[1] * u[1];
  pi[2] = (s[2] + edge_z) - third - rho * u[2] * u[2] + g[2] * u[2];
  const V half = all<V>((real)0.5);
  pi[3] = (s[3] - s[4]) - rho * u[0] * u[1] + half * (g[0] * u[1] + g[1] * u[0]);
  pi[4] = (s[5] - s[6]) - rho * u[0] * u[2] + half * (g[0] * u[2] + g[2] * u[0]);
  pi[5] = (s[7] - s[8]) - rho * u[1] * u[2] + half * (g[1] * u[2] + g[2] * u[1]);
  const V square = (pi[0] * pi[0] + pi[1] * pi[1] + pi[2] * pi[2]) +
                   (real)2 * (pi[3] * pi[3] + pi[4] * pi[4] + pi[5] * pi[5]);
  const V K2 = (real)4.5 * square / (rho * rho) * (k.lambda * k.lambda);
  V tau = all<V>((real)3 * k.nu_0 + (real)0.5);
  const real a = YASUDA, power = (k.n - 1) / a, range = 3 * (k.nu_0 - k.nu_inf), low = 3 * k.nu_inf + (real)0.5;
  for (int turn = 0; turn < 6; ++turn) {
    const V x = to_half_of<V>(K2 / (tau * tau)), base = x + (real)1;
    const V thin = range * raised(base, power);
    const V slope = (real)1 + a * power * thin * x / (base * tau);
    tau = tau - (tau - low - thin) / slope;
  }
  return tau;
}
#endif

// Collides with two relaxation times and Guo's force (Phys. Rev. E 65 (2002) 046308), from h_0 and all
// pairs' parts. `leave(i, value)` is given what leaves, in the place of the opposite direction; u is
// given back.
template <typename V, typename F>
INLINE void collide_parts(const Physics &k, V plus, V minus, const V *g, V h_0, const V *s, const V *d,
                          V *u, const F &leave) {
  V j[3];
  const V delta = moments(h_0, s, d, j);
  const V rho = delta + (real)1, by_rho = (real)1 / rho, half = all<V>((real)0.5);
  UNROLLED for (int a = 0; a < 3; ++a) u[a] = fused(half, g[a], j[a]) * by_rho;
#if CARREAU
  const V tau = carreau_tau(k, s, delta, u, g);
  plus = (real)1 / tau;
  minus = k.magic == 0 ? plus : minus_rate(tau, k.magic);
#endif
  const V force_plus = fused(-half, plus, all<V>((real)1));
  const V force_minus = fused(-half, minus, all<V>((real)1));
  const V u_u = fused(u[2], u[2], fused(u[1], u[1], u[0] * u[0]));
  const V u_g = fused(u[2], g[2], fused(u[1], g[1], u[0] * g[0]));
  const V rest = fused(plus, fused(rho * (real)-1.5, u_u, delta), (real)-3 * force_plus * u_g);
  // Of diagonal directions, whose weight is 1/36; that of the others is twice as much.
  const V rest_36 = rest * ((real)1 / 36);
  V even[3], odd[3];  // with c . u times c . even, and c . odd
  const V even_u = ((real)4.5 / 36 * plus) * rho, even_g = (real)9 / 36 * force_plus;
  const V odd_u = ((real)3 / 36 * minus) * rho, odd_g = (real)3 / 36 * force_minus;
  UNROLLED for (int a = 0; a < 3; ++a) {
    even[a] = fused(even_u, u[a], even_g * g[a]);
    odd[a] = fused(odd_u, u[a], odd_g * g[a]);
  }
  // Processors of few registers would have to put all of it aside.
  V c_u[PAIRS], c_even[PAIRS], c_odd[PAIRS];
  if (!PAIR_BY_PAIR) {
    along(u, c_u), along(even, c_even), along(odd, c_odd);
  }
  const V keep_even = fused(-half, plus, half), keep_odd = fused(-half, minus, half);
  UNROLLED for (int n = 0; n < PAIRS; ++n) {
    if (PAIR_BY_PAIR) c_u[n] = along(u, n), c_even[n] = along(even, n), c_odd[n] = along(odd, n);
    const V toward = fused(c_u[n], c_even[n], rest_36);
    const V sum = fused(keep_even, s[n], n < 3 ? toward + toward : toward);
    const V difference = fused(keep_odd, d[n], n < 3 ? c_odd[n] + c_odd[n] : c_odd[n]);
    leave(2 * n + 1, sum - difference);
    leave(2 * n + 2, sum + difference);
  }
  leave(0, fused((real)1 - plus, h_0, (real)12 * rest_36));
}

// The same, where h is replaced by what leaves.
template <typename V>
INLINE void collide(const Physics &k, V plus, V minus, const V *g, V *h, V *u) {
  V s[PAIRS], d[PAIRS];
  UNROLLED for (int n = 0; n < PAIRS; ++n) parts(h[2 * n + 1], h[2 * n + 2], s[n], d[n]);
  collide_parts(k, plus, minus, g, h[0], s, d, u, [&](int i, V a) { h[i] = a; });
}

// Equilibrium less the weight.
INLINE real equilibrium(int i, real rho, const real *u) {
  const real c_u = direction(i, 0) * u[0] + direction(i, 1) * u[1] + direction(i, 2) * u[2];
  const real u_u = fused(u[2], u[2], fused(u[1], u[1], u[0] * u[0]));
  const real change = fused((real)4.5 * c_u, c_u, fused((real)-1.5, u_u, (real)3 * c_u));
  return weight(i) * fused(rho, change, rho - (real)1);
}

// Completes the populations of a point in the plane of an opening whose inward normal is `sign` along
// `axis`: prescribed is a velocity, or a density (is_density) with flow along the normal alone. What deviates from
// equilibrium is taken from the opposite directions and then all of it from its second moment alone
// (Latt et al., Phys. Rev. E 77 (2008) 056703); g enters the momentum by half.
INLINE void complete(int axis, int sign, bool is_density, const real *velocity, real rho,
                     const real *g, real *h) {
  real known = 0;  // sum over the plane and twice over what leaves
  UNROLLED for (int i = 0; i < Q; ++i) {
    const int inward = sign * direction(i, axis);
    known += inward == 0 ? h[i] : inward < 0 ? 2 * h[i] : (real)0;
  }
  // The sum of the weights counted so is 1. u_n and g_n along the inward normal.
  const real g_n = axis == 0 ? g[0] : axis == 1 ? g[1] : g[2];
  const real mass = (real)1 + known - (real)0.5 * sign * g_n;
  real u[3] = {0, 0, 0};
  if (is_density) {
    UNROLLED for (int a = 0; a < 3; ++a) u[a] = a == axis ? sign * ((real)1 - mass / rho) : (real)0;
  } else {
    UNROLLED for (int a = 0; a < 3; ++a) u[a] = velocity[a];
    rho = mass / ((real)1 - sign * (axis == 0 ? u[0] : axis == 1 ? u[1] : u[2]));
  }
  real pi[3][3] = {};
  real far_off[Q];
  UNROLLED for (int i = 0; i < Q; ++i) {
    const real c_g = direction(i, 0) * g[0] + direction(i, 1) * g[1] + direction(i, 2) * g[2];
    far_off[i] = h[i] - equilibrium(i, rho, u) + weight(i) * (real)1.5 * c_g;
  }
  UNROLLED for (int i = 1; i < Q; ++i) {
    const real part = sign * direction(i, axis) > 0 ? far_off[opposite(i)] : far_off[i];
    UNROLLED for (int a = 0; a < 3; ++a)
      UNROLLED for (int b = 0; b < 3; ++b) pi[a][b] += direction(i, a) * direction(i, b) * part;
  }
  const real trace = pi[0][0] + pi[1][1] + pi[2][2];
  UNROLLED for (int i = 0; i < Q; ++i) {
    real c_pi_c = 0, c_g = 0;
    UNROLLED for (int a = 0; a < 3; ++a) {
      c_g += direction(i, a) * g[a];
      UNROLLED for (int b = 0; b < 3; ++b) c_pi_c += direction(i, a) * direction(i, b) * pi[a][b];
    }
    h[i] = equilibrium(i, rho, u) +
           weight(i) * ((real)4.5 * (c_pi_c - trace / 3) - (real)1.5 * c_g);
  }
}

#if TILTED
// A point from which developed flow goes on through an end of any direction: normal to the end alone, with the
// profile that the point's stress gives, and the density of the end (where the flow comes in, its total pressure).
// What would come from beyond is equilibrium there and the point's own deviation after collision.
struct Developed {
  real rho, u[3], plus, minus;
  real far_off[Q];  // what deviates from equilibrium, without half of the force
};

INLINE real c_dot(int i, const real *v) {
  return direction(i, 0) * v[0] + direction(i, 1) * v[1] + direction(i, 2) * v[2];
}

// Of a point whose populations h have arrived, and whose velocity is u.
INLINE void develop(Developed &flow, const Physics &k, real plus, real minus, const real *g, const real *h,
                    const real *u) {
  real delta = h[0];
  UNROLLED for (int i = 1; i < Q; ++i) delta += h[i];
  flow.rho = delta + (real)1;
  UNROLLED for (int a = 0; a < 3; ++a) flow.u[a] = u[a];
#if CARREAU
  real s[PAIRS];
  UNROLLED for (int n = 0; n < PAIRS; ++n) s[n] = h[2 * n + 1] + h[2 * n + 2];
  const real tau = carreau_tau(k, s, delta, u, g);
  plus = (real)1 / tau;
  minus = k.magic == 0 ? plus : minus_rate(tau, k.magic);
#endif
  flow.plus = plus, flow.minus = minus;
  UNROLLED for (int i = 0; i < Q; ++i)
    flow.far_off[i] = h[i] - equilibrium(i, flow.rho, u) + weight(i) * (real)1.5 * c_dot(i, g);
}

// What comes in along direction i, which points into the vessel, through an end with the outward normal n.
INLINE real from_beyond(const Developed &flow, int i, const real *n, real rho_end, const real *g) {
  real pi_n[3] = {0, 0, 0};  // second moment of what deviates, times n
  UNROLLED for (int j = 1; j < Q; ++j) {
    const real part = c_dot(j, n) * flow.far_off[j];
    UNROLLED for (int a = 0; a < 3; ++a) pi_n[a] += direction(j, a) * part;
  }
  const real c_n = -c_dot(i, n);  // of the way out
  real across = 0;                // c_t . Pi n, with c_t the way out less its part along n
  UNROLLED for (int a = 0; a < 3; ++a) across += (-direction(i, a) - c_n * n[a]) * pi_n[a];
  const real u_n = flow.u[0] * n[0] + flow.u[1] * n[1] + flow.u[2] * n[2];
  // The rate of strain is -3 plus Pi/(2 rho); the profile goes on across n.
  const real speed = u_n - 3 * flow.plus * across / flow.rho;
  const real there[3] = {speed * n[0], speed * n[1], speed * n[2]};
  const real density = u_n < 0 ? rho_end - (real)1.5 * flow.rho * u_n * u_n : rho_end;
  const real out = flow.far_off[opposite(i)], in = flow.far_off[i], half = (real)0.5;
  const real even = ((real)1 - flow.plus) * half * (out + in);
  const real odd = ((real)1 - flow.minus) * half * (out - in);
  return equilibrium(i, density, there) + even - odd + weight(i) * (real)1.5 * c_dot(i, g);
}
#endif
