// Media that conduct and media with memory: what they add to Maxwell's right-hand sides, and the
// steps of their own currents and polarisations.
//
//   eps dE/dt = curl H - sigma E - sum J,      mu dH/dt = -curl E - sigma* H,
//   dX/dt = -a X + c E,                 J = w X (+ a part that goes with E)  : a pole with one state
//   dJ/dt = -a J - b P + c E, dP/dt = J, w = 1                               : a pole with two
//
// Constants: real, N, SINGLES and PAIRS (poles of a medium with one state and with two).
// Poles: (a, b, c, w / eps) each. States: [element of the list][state][3][NP^3].
// In an absorbing layer the medium answers to E + the layer's own part, see layers.cpp; `beyond`
// holds that part, at `beyond_at` (-1: element without).

#define NP3 ((N + 1) * (N + 1) * (N + 1))
#define VALUES (3 * NP3)
#define STATES (SINGLES + 2 * PAIRS)

KERNEL(media, IN(real, u), INOUT(real, k), INOUT(real, states), INOUT(real, steps),
       IN(real, beyond), IN(long, elements), IN(long, beyond_at), LONG(count), IN(real, poles),
       DOUBLE(electric), DOUBLE(magnetic), DOUBLE(dt_), DOUBLE(rka_), DOUBLE(rkb_)) {
  const real dt = dt_, rka = rka_, rkb = rkb_, loss = electric, loss_h = magnetic;
  BLOCKS(b, count) {
    const real *ue = u + elements[b] * 2 * VALUES;
    real *ke = k + elements[b] * 2 * VALUES;
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
        const real step = fused(rka, ks[at], dt * fused(pole[2], E, -pole[0] * X));
        sum = fused(pole[3], X, sum);
        ks[at] = step;
        s[at] = fused(rkb, step, X);
      }
      for (int i = 0; i < PAIRS; i++) {
        const real *pole = poles + 4 * (SINGLES + i);
        const long at = (SINGLES + 2 * i) * (long)VALUES + n;
        const real J = s[at], P = s[at + VALUES];
        const real step = fused(rka, ks[at], dt * fused(pole[2], E, -fused(pole[0], J, pole[1] * P)));
        const real step_p = fused(rka, ks[at + VALUES], dt * J);
        sum = fused(pole[3], J, sum);
        ks[at] = step;
        ks[at + VALUES] = step_p;
        s[at] = fused(rkb, step, J);
        s[at + VALUES] = fused(rkb, step_p, P);
      }
      ke[n] = fused(rka, ke[n], -dt * sum);
      ke[VALUES + n] = fused(rka, ke[VALUES + n], -dt * loss_h * H);
    }
  }
}
