// The stabilised flow equations on one tetrahedron: residual, and its derivatives by the unknowns.
//
// Legend: N_a linear shape function of node a, B_a its gradient, V volume; u velocity, w velocity of
// the frame, c = u - w what convects, p pressure, rho density, mu viscosity, f body force per mass,
// omega angular velocity of the frame; udot = alpha u + past is the time derivative.
//
//   r_i   = rho (udot_i + c.grad u_i + (omega x u)_i - f_i) + dp/dx_i
//   R_ai  = (N_a, r_i - dp/dx_i) + (2 mu eps(u)_ij, dN_a/dx_j) - (dN_a/dx_i, p)
//           + (tau c.grad N_a, r_i) + (rho tau_C div u, dN_a/dx_i)
//   R_a3  = (N_a, div u) + (tau/rho grad N_a, r)
//
// SUPG and PSPG: T. E. Tezduyar, Adv. Appl. Mech. 28 (1992) 1; tau from the metric of the element
// and LSIC: Y. Bazilevs and others, Comput. Methods Appl. Mech. Eng. 197 (2007) 173, eqs. 63 to 65.
// All fields are linear, so that r is linear, too, and integrals need no quadrature: those of
// N_b N_c are V (1 + delta_bc)/20. tau is that of the mean velocity, and its derivative is left out.

#define NODES 4
#define UNKNOWNS 4
#define METRIC (5.0 / 6)

// What is the same for all elements of a zone; see Python's ELEMENT_VALUES.
struct Medium {
  double rho, mu, alpha;
  double by_dt;                   // 1 over the time step; 0 in steady flow
  double f[3], omega[3], centre[3];
  double C_I;                     // of the viscous part of tau
  double lsic;                    // 1 or 0: with or without that term
  double mu_inf, lambda2, power;  // Carreau: viscosity at high shear, squared time, (n - 1)/2
};

struct Tet {
  double B[NODES][3], V;
};

struct Fields {
  double u[NODES][3], p[NODES], past[NODES][3];
};

// Unknowns inside an element, all that its rows share.
struct Inside {
  double c[NODES][3], mean[3];  // convecting velocity, and its mean
  double G[3][3];               // G[i][j] = du_i/dx_j
  double r[NODES][3];           // r at the nodes, between which it is linear
  double plain[NODES][3];       // r without grad p
  double div, p, tau, tau_C, mu, mu_slope;
  double advect[NODES];         // mean . B_b
};

INLINE Tet tet_of(const double x[NODES][3]) {
  Tet t;
  double e[3][3];
  for (int k = 0; k < 3; k++)
    for (int d = 0; d < 3; d++) e[k][d] = x[k + 1][d] - x[0][d];
  double n[3][3];
  for (int k = 0; k < 3; k++) {
    const double *a = e[(k + 1) % 3], *b = e[(k + 2) % 3];
    n[k][0] = a[1] * b[2] - a[2] * b[1];
    n[k][1] = a[2] * b[0] - a[0] * b[2];
    n[k][2] = a[0] * b[1] - a[1] * b[0];
  }
  const double six = e[0][0] * n[0][0] + e[0][1] * n[0][1] + e[0][2] * n[0][2];
  t.V = six / 6;
  for (int d = 0; d < 3; d++) {
    for (int k = 0; k < 3; k++) t.B[k + 1][d] = n[k][d] / six;
    t.B[0][d] = -((n[0][d] + n[1][d]) + n[2][d]) / six;
  }
  return t;
}

INLINE double dot3(const double *a, const double *b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

// sum over c of the integral of N_a N_c, times q at c.
INLINE double weighed(double V, const double q[NODES][3], int a, int i) {
  return V / 20 * (((q[0][i] + q[1][i]) + (q[2][i] + q[3][i])) + q[a][i]);
}

#if ON_GPU
INLINE double raised(double a, double power) { return pow(a, power); }
#else
INLINE double raised(double a, double power) { return __builtin_pow(a, power); }
#endif

// Viscosity at a squared shear rate, and its derivative by that (Carreau; lambda 0: Newtonian).
INLINE void viscosity(const Medium &m, double rate2, double *mu, double *slope) {
  *mu = m.mu, *slope = 0;
#if CARREAU
  const double base = 1 + m.lambda2 * rate2, thin = (m.mu - m.mu_inf) * raised(base, m.power);
  *mu = m.mu_inf + thin;
  *slope = m.power * m.lambda2 * thin / base;
#endif
}

INLINE Inside inside_of(const Medium &m, const Tet &t, const double x[NODES][3], const Fields &q) {
  Inside in;
  double grad_p[3] = {0, 0, 0};
  for (int i = 0; i < 3; i++) {
    for (int j = 0; j < 3; j++) {
      in.G[i][j] = 0;
      for (int b = 0; b < NODES; b++) in.G[i][j] += t.B[b][j] * q.u[b][i];
    }
    for (int b = 0; b < NODES; b++) grad_p[i] += t.B[b][i] * q.p[b];
  }
  const double *o = m.omega;
  for (int b = 0; b < NODES; b++) {
    const double s[3] = {x[b][0] - m.centre[0], x[b][1] - m.centre[1], x[b][2] - m.centre[2]};
    const double *u = q.u[b];
    in.c[b][0] = u[0] - (o[1] * s[2] - o[2] * s[1]);
    in.c[b][1] = u[1] - (o[2] * s[0] - o[0] * s[2]);
    in.c[b][2] = u[2] - (o[0] * s[1] - o[1] * s[0]);
    const double turn[3] = {o[1] * u[2] - o[2] * u[1], o[2] * u[0] - o[0] * u[2], o[0] * u[1] - o[1] * u[0]};
    for (int i = 0; i < 3; i++) {
      in.plain[b][i] = m.rho * (m.alpha * u[i] + q.past[b][i] + dot3(in.c[b], in.G[i]) + turn[i] - m.f[i]);
      in.r[b][i] = in.plain[b][i] + grad_p[i];
    }
  }
  in.p = ((q.p[0] + q.p[1]) + (q.p[2] + q.p[3])) / 4;
  in.div = in.G[0][0] + in.G[1][1] + in.G[2][2];
  for (int i = 0; i < 3; i++) in.mean[i] = ((in.c[0][i] + in.c[1][i]) + (in.c[2][i] + in.c[3][i])) / 4;
  double rate2 = 0;  // 2 eps : eps
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++) rate2 += (in.G[i][j] + in.G[j][i]) * (in.G[i][j] + in.G[j][i]) / 2;
  viscosity(m, rate2, &in.mu, &in.mu_slope);
  // The metric of the map from a unit tetrahedron depends on which corner comes first. The sum of all
  // B_k B_k does not; with 5/6 of it errors are those of the former (Ethier and Steinman's flow).
  double cGc = 0, GG = 0, trace = 0;
  for (int b = 0; b < NODES; b++) in.advect[b] = dot3(in.mean, t.B[b]);
  for (int a = 0; a < NODES; a++) {
    cGc += in.advect[a] * in.advect[a];
    trace += dot3(t.B[a], t.B[a]);
    for (int b = 0; b < NODES; b++) {
      const double g = dot3(t.B[a], t.B[b]);
      GG += g * g;
    }
  }
  const double nu = in.mu / m.rho;
  in.tau = 1 / square_root(4 * m.by_dt * m.by_dt + METRIC * cGc + m.C_I * nu * nu * (METRIC * METRIC * GG));
  in.tau_C = m.lsic / (in.tau * (METRIC * trace));
  return in;
}

// The four equations of node a.
INLINE void residual(const Medium &m, const Tet &t, const Inside &in, int a, double R[UNKNOWNS]) {
  const double *B = t.B[a];
  double s[NODES];
  for (int b = 0; b < NODES; b++) s[b] = dot3(in.c[b], B);
  const double S = (s[0] + s[1]) + (s[2] + s[3]), push = t.V * (m.rho * in.tau_C * in.div - in.p);
  double sums[3];
  for (int i = 0; i < 3; i++) {
    sums[i] = (in.r[0][i] + in.r[1][i]) + (in.r[2][i] + in.r[3][i]);
    double along = S * sums[i], stress = 0;
    for (int b = 0; b < NODES; b++) along += s[b] * in.r[b][i];
    for (int j = 0; j < 3; j++) stress += (in.G[i][j] + in.G[j][i]) * B[j];
    R[i] = weighed(t.V, in.plain, a, i) + t.V * in.mu * stress + push * B[i] + in.tau * (t.V / 20) * along;
  }
  R[3] = t.V / 4 * (in.div + in.tau / m.rho * dot3(B, sums));
}

// Its derivatives by the unknowns of node b, all but tau's.
INLINE void derivatives(const Medium &m, const Tet &t, const Inside &in, int a, int b,
                        double K[UNKNOWNS][UNKNOWNS]) {
  const double *A = t.B[a], *B = t.B[b], V = t.V, share = V / 20;
  const double *o = m.omega;
  const double turn[3][3] = {{0, -o[2], o[1]}, {o[2], 0, -o[0]}, {-o[1], o[0], 0}};
  // Integrals of the test function, streamline part included, with N_b and with c . B_b.
  double s[NODES], test = 0, convected = 0;
  for (int d = 0; d < NODES; d++) s[d] = dot3(in.c[d], A);
  const double sum_s = (s[0] + s[1]) + (s[2] + s[3]);
  for (int d = 0; d < NODES; d++) {
    const double weight = (d == a ? 2 * share : share) + in.tau * share * (sum_s + s[d]);
    test += d == b ? weight : 0.0;
    convected += weight * dot3(in.c[d], B);
  }
  const double near = dot3(A, B), stiff = V * in.mu, squeeze = V * m.rho * in.tau_C;
  for (int i = 0; i < 3; i++) {
    const double pulled = share * (((in.r[0][i] + in.r[1][i]) + (in.r[2][i] + in.r[3][i])) + in.r[b][i]);
    for (int j = 0; j < 3; j++) {
      double k = m.rho * test * (in.G[i][j] + turn[i][j]) + in.tau * A[j] * pulled + stiff * A[j] * B[i] +
                 squeeze * A[i] * B[j];
      if (i == j) k += m.rho * (test * m.alpha + convected) + stiff * near;
#if CARREAU
      double by_a = 0, by_b = 0;
      for (int n = 0; n < 3; n++) {
        by_a += (in.G[i][n] + in.G[n][i]) * A[n];
        by_b += (in.G[j][n] + in.G[n][j]) * B[n];
      }
      k += 2 * V * in.mu_slope * by_a * by_b;
#endif
      K[i][j] = k;
    }
    K[i][3] = V * (in.tau * in.advect[a] * B[i] - A[i] / 4);
  }
  for (int j = 0; j < 3; j++) {
    double along = m.alpha * A[j];
    for (int i = 0; i < 3; i++) along += A[i] * (in.G[i][j] + turn[i][j]);
    K[3][j] = V * (B[j] / 4 + in.tau * (along / 4 + in.advect[b] * A[j]));
  }
  K[3][3] = in.tau / m.rho * V * near;
}
