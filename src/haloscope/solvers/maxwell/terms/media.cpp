// Media that conduct and media with memory: what they add to Maxwell's right-hand sides, and the
// steps of their own currents and polarisations.
//
//   eps dE/dt = curl H - sigma E - sum J,      mu dH/dt = -curl E - sigma* H,
//   dX/dt = -a X + c E,                 J = w X (+ a part that goes with E)  : a pole with one state
//   dJ/dt = -a J - b P + c E, dP/dt = J, w = 1                               : a pole with two
//
// Poles: (a, b, c, w / eps) each. States: [element of the list][state][3][NP^3].
// In an absorbing layer the medium answers to E + the layer's own part, see layers.cpp; `beyond`
// holds that part, at `beyond_at` (-1: element without).
//
// N: order; SINGLES and PAIRS: poles of a medium with one state and with two.
CONSTANTS(TYPE(real), INT(N), INT(SINGLES), INT(PAIRS))

#define NP3 ((N + 1) * (N + 1) * (N + 1))
#define VALUES (3 * NP3)
#define STATES (SINGLES + 2 * PAIRS)

KERNEL(media, IN(real, fields), INOUT(real, increments), INOUT(real, states), INOUT(real, steps),
       IN(real, beyond), IN(long, elements), IN(long, beyond_at), LONG(count), IN(real, poles),
       DOUBLE(electric_rate), DOUBLE(magnetic_rate), DOUBLE(dt), DOUBLE(rka), DOUBLE(rkb)) {
  const real real_dt = dt, real_rka = rka, real_rkb = rkb, loss = electric_rate, loss_h = magnetic_rate;
  BLOCKS(b, count) {
    const real *ue = fields + elements[b] * 2 * VALUES;
    real *ke = increments + elements[b] * 2 * VALUES;
    real *s = states + b * STATES * VALUES, *ks = steps + b * STATES * VALUES;
    const real part = beyond_at[b] < 0 ? 0 : 1;
    const real *more = beyond_at[b] < 0 ? ue : beyond + beyond_at[b] * 2 * VALUES;
    THREADS(n, VALUES) {
      const real E = fused(part, more[n], ue[n]), H = fused(part, more[VALUES + n], ue[VALUES + n]);
      real sum = loss * E;
      for (int i = 0; i < SINGLES; i++) {
        const real *pole = poles + 4 * i;
        const long at = i * (long)VALUES + n;
        const real X = s[at];
        const real step = fused(real_rka, ks[at], real_dt * fused(pole[2], E, -pole[0] * X));
        sum = fused(pole[3], X, sum);
        ks[at] = step;
        s[at] = fused(real_rkb, step, X);
      }
      for (int i = 0; i < PAIRS; i++) {
        const real *pole = poles + 4 * (SINGLES + i);
        const long at = (SINGLES + 2 * i) * (long)VALUES + n;
        const real J = s[at], P = s[at + VALUES];
        const real step = fused(real_rka, ks[at], real_dt * fused(pole[2], E, -fused(pole[0], J, pole[1] * P)));
        const real step_p = fused(real_rka, ks[at + VALUES], real_dt * J);
        sum = fused(pole[3], J, sum);
        ks[at] = step;
        ks[at + VALUES] = step_p;
        s[at] = fused(real_rkb, step, J);
        s[at + VALUES] = fused(real_rkb, step_p, P);
      }
      ke[n] = fused(real_rka, ke[n], -real_dt * sum);
      ke[VALUES + n] = fused(real_rka, ke[VALUES + n], -real_dt * loss_h * H);
    }
  }
}
