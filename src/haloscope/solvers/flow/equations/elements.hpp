// The stabilised flow equations on a tetrahedron: the residual at its first node, and its derivatives
// by the unknowns of all four. T is a number, or a vector of those of several elements.
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
// N_b N_c are V (1 + delta_bc)/20. tau is that of the mean velocity; its derivative is there where the
// constant TAU_SLOPE is 1.

#define NODES 4
#define UNKNOWNS 4
#define METRIC (5.0 / 6)

// What is the same for all elements of a zone; see Python's FlowEquations.
template <typename T>
struct Medium {
  T rho, mu, alpha;
  T by_dt;                   // 1 over the time step; 0 in steady flow
  T f[3], omega[3], centre[3];
  T C_I;                     // of the viscous part of tau
  T lsic;                    // 1 or 0: with or without that term
  T mu_inf, lambda2, power;  // Carreau: viscosity at high shear, squared time, (n - 1)/2
};

template <typename T>
struct Tet {
  T B[NODES][3], V;
};

template <typename T>
struct Fields {
  T x[NODES][3], u[NODES][3], p[NODES], past[NODES][3];
};

// Unknowns inside an element, all that its rows share.
template <typename T>
struct Inside {
  T c[NODES][3], mean[3];  // convecting velocity, and its mean
  T G[3][3];               // G[i][j] = du_i/dx_j
  T L[3][3];               // G and what turns with the frame: du_i/dx_j + (omega x)_ij
  T r[NODES][3], sums[3];  // r at the nodes, between which it is linear; their sums
  T plain[NODES][3];       // r without grad p
  T div, p, tau, tau_by_rho, tau_C, mu, mu_slope;
  T tau_by_u[3];     // derivative of tau by the velocity of a node, the same for all of them
  T tau_by_rate2;    // and by the squared shear rate
};

template <typename T>
INLINE T dot3(const T *a, const T *b) { return fused(a[2], b[2], fused(a[1], b[1], a[0] * b[0])); }

template <typename T>
INLINE T sum_of_nodes(T a, T b, T c, T d) { return (a + b) + (c + d); }

template <typename T>
INLINE Tet<T> tet_of(const T x[NODES][3]) {
  Tet<T> t;
  T e[3][3], n[3][3];
  for (int k = 0; k < 3; k++)
    for (int d = 0; d < 3; d++) e[k][d] = x[k + 1][d] - x[0][d];
  for (int k = 0; k < 3; k++) {
    const T *a = e[(k + 1) % 3], *b = e[(k + 2) % 3];
    n[k][0] = a[1] * b[2] - a[2] * b[1];
    n[k][1] = a[2] * b[0] - a[0] * b[2];
    n[k][2] = a[0] * b[1] - a[1] * b[0];
  }
  const T six = dot3(e[0], n[0]), by_six = 1 / six;
  t.V = six * (1.0 / 6);
  for (int d = 0; d < 3; d++) {
    for (int k = 0; k < 3; k++) t.B[k + 1][d] = n[k][d] * by_six;
    t.B[0][d] = -((n[0][d] + n[1][d]) + n[2][d]) * by_six;
  }
  return t;
}

// Viscosity at a squared shear rate, and its derivative by that (Carreau; lambda 0: Newtonian).
template <typename T>
INLINE void viscosity(const Medium<T> &m, T rate2, T *mu, T *slope) {
  *mu = m.mu, *slope = T{};
#if CARREAU
  const T base = 1 + m.lambda2 * rate2, thin = (m.mu - m.mu_inf) * raised(base, m.power);
  *mu = m.mu_inf + thin;
  *slope = m.power * m.lambda2 * thin / base;
#endif
}

template <typename T>
INLINE Inside<T> inside_of(const Medium<T> &m, const Tet<T> &t, const Fields<T> &q) {
  Inside<T> in;
  T grad_p[3];
  // Gradients of all four shape functions add to zero.
  for (int i = 0; i < 3; i++) {
    const T d[3] = {q.u[1][i] - q.u[0][i], q.u[2][i] - q.u[0][i], q.u[3][i] - q.u[0][i]};
    for (int j = 0; j < 3; j++)
      in.G[i][j] = in.L[i][j] = fused(t.B[3][j], d[2], fused(t.B[2][j], d[1], t.B[1][j] * d[0]));
  }
  const T d[3] = {q.p[1] - q.p[0], q.p[2] - q.p[0], q.p[3] - q.p[0]};
  for (int j = 0; j < 3; j++) grad_p[j] = fused(t.B[3][j], d[2], fused(t.B[2][j], d[1], t.B[1][j] * d[0]));
  const T *o = m.omega;
  in.L[0][1] -= o[2], in.L[0][2] += o[1], in.L[1][0] += o[2];
  in.L[1][2] -= o[0], in.L[2][0] -= o[1], in.L[2][1] += o[0];
  for (int b = 0; b < NODES; b++) {
    const T s[3] = {q.x[b][0] - m.centre[0], q.x[b][1] - m.centre[1], q.x[b][2] - m.centre[2]};
    const T *u = q.u[b];
    in.c[b][0] = u[0] - (o[1] * s[2] - o[2] * s[1]);
    in.c[b][1] = u[1] - (o[2] * s[0] - o[0] * s[2]);
    in.c[b][2] = u[2] - (o[0] * s[1] - o[1] * s[0]);
    const T turn[3] = {o[1] * u[2] - o[2] * u[1], o[2] * u[0] - o[0] * u[2], o[0] * u[1] - o[1] * u[0]};
    for (int i = 0; i < 3; i++) {
      const T udot = fused(m.alpha, u[i], q.past[b][i]);
      in.plain[b][i] = m.rho * (udot + dot3(in.c[b], in.G[i]) + (turn[i] - m.f[i]));
      in.r[b][i] = in.plain[b][i] + grad_p[i];
    }
  }
  in.p = sum_of_nodes(q.p[0], q.p[1], q.p[2], q.p[3]) * 0.25;
  in.div = in.G[0][0] + in.G[1][1] + in.G[2][2];
  for (int i = 0; i < 3; i++) {
    in.mean[i] = sum_of_nodes(in.c[0][i], in.c[1][i], in.c[2][i], in.c[3][i]) * 0.25;
    in.sums[i] = sum_of_nodes(in.r[0][i], in.r[1][i], in.r[2][i], in.r[3][i]);
  }
  T rate2 = T{};  // 2 eps : eps
#if CARREAU
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++) rate2 += (in.G[i][j] + in.G[j][i]) * (in.G[i][j] + in.G[j][i]) * 0.5;
#endif
  viscosity(m, rate2, &in.mu, &in.mu_slope);
  // The metric of the map from a unit tetrahedron depends on which corner comes first. The sum of all
  // B_k B_k does not; with 5/6 of it errors are those of the former (Ethier and Steinman's flow).
  T M[3][3], GG = T{};
  for (int i = 0; i < 3; i++)
    for (int j = i; j < 3; j++) {
      M[i][j] = t.B[0][i] * t.B[0][j];
      for (int b = 1; b < NODES; b++) M[i][j] = fused(t.B[b][i], t.B[b][j], M[i][j]);
      M[j][i] = M[i][j];
      GG = fused(i == j ? M[i][j] : M[i][j] + M[i][j], M[i][j], GG);
    }
  const T Mc[3] = {dot3(M[0], in.mean), dot3(M[1], in.mean), dot3(M[2], in.mean)};
  const T nu = in.mu / m.rho;
  in.tau = 1 / square_root(4 * m.by_dt * m.by_dt + METRIC * dot3(in.mean, Mc) +
                           m.C_I * nu * nu * ((METRIC * METRIC) * GG));
  in.tau_by_rho = in.tau / m.rho;
  in.tau_C = m.lsic / (in.tau * (METRIC * (M[0][0] + M[1][1] + M[2][2])));
#if TAU_SLOPE
  const T falls = in.tau * in.tau * in.tau * -METRIC;
  for (int i = 0; i < 3; i++) in.tau_by_u[i] = falls * Mc[i] * 0.25;
  in.tau_by_rate2 = falls * METRIC * m.C_I * GG * nu * in.mu_slope / m.rho;
#endif
  return in;
}

// The streamline test function of the first node, at the nodes: tau c.grad N_0 times V/20, and its sum.
template <typename T>
struct Streamline {
  T at[NODES], sum;
};

template <typename T>
INLINE Streamline<T> streamline_of(const Tet<T> &t, const Inside<T> &in) {
  Streamline<T> s;
  const T share = in.tau * (t.V * 0.05);
  for (int b = 0; b < NODES; b++) s.at[b] = share * dot3(in.c[b], t.B[0]);
  s.sum = sum_of_nodes(s.at[0], s.at[1], s.at[2], s.at[3]);
  return s;
}

// The four equations of the first node.
template <typename T>
INLINE void residual(const Medium<T> &m, const Tet<T> &t, const Inside<T> &in, const Streamline<T> &s,
                     T R[UNKNOWNS]) {
  const T *A = t.B[0], share = t.V * 0.05, stiff = t.V * in.mu;
  const T push = t.V * (m.rho * in.tau_C * in.div - in.p);
  for (int i = 0; i < 3; i++) {
    const T plain = sum_of_nodes(in.plain[0][i], in.plain[1][i], in.plain[2][i], in.plain[3][i]);
    T along = s.sum * in.sums[i], stress = (in.G[i][0] + in.G[0][i]) * A[0];
    for (int b = 0; b < NODES; b++) along = fused(s.at[b], in.r[b][i], along);
    for (int j = 1; j < 3; j++) stress = fused(in.G[i][j] + in.G[j][i], A[j], stress);
    R[i] = fused(share, plain + in.plain[0][i], fused(stiff, stress, fused(push, A[i], along)));
  }
  R[3] = t.V * 0.25 * (in.div + in.tau_by_rho * dot3(A, in.sums));
}

// What the blocks of the first node's row share.
template <typename T>
struct Row {
  T weight[NODES];   // integral of the test function, streamline part included, with N_b
  T convecting[3];   // and with c: times grad N_b it is that with c.grad N_b
  T squeezed[3];     // of the divergence
  T along[3];        // of the continuity equation
  T back[3];         // of the pressure
  T by_tau[UNKNOWNS];  // derivatives of the equations by tau
  T share, stiff, pull, advect, leak;
};

template <typename T>
INLINE Row<T> row_of(const Medium<T> &m, const Tet<T> &t, const Inside<T> &in, const Streamline<T> &s) {
  Row<T> w;
  const T *A = t.B[0], share = t.V * 0.05, pull = t.V * in.tau;
  for (int b = 0; b < NODES; b++)
    w.weight[b] = m.rho * ((b == 0 ? share + share : share) + (s.sum + s.at[b]));
  for (int d = 0; d < 3; d++) {
    w.convecting[d] = w.weight[0] * in.c[0][d];
    for (int b = 1; b < NODES; b++) w.convecting[d] = fused(w.weight[b], in.c[b][d], w.convecting[d]);
    w.squeezed[d] = t.V * m.rho * in.tau_C * A[d];
    w.back[d] = t.V * -0.25 * A[d];
    T along = m.alpha * A[d];
    for (int i = 0; i < 3; i++) along = fused(A[i], in.L[i][d], along);
    w.along[d] = pull * 0.25 * along;
  }
  w.stiff = t.V * in.mu;
  w.pull = pull;
  w.share = in.tau * share;
  w.advect = pull * dot3(in.mean, A);
  w.leak = t.V * in.tau_by_rho;
#if TAU_SLOPE
  const T push = t.V * m.rho * in.tau_C * in.div;
  for (int i = 0; i < 3; i++) {
    T along = fused(s.sum, in.sums[i], -push * A[i]);
    for (int b = 0; b < NODES; b++) along = fused(s.at[b], in.r[b][i], along);
    w.by_tau[i] = along / in.tau;
  }
  w.by_tau[3] = t.V * 0.25 * dot3(A, in.sums) / m.rho;
#endif
  return w;
}

// Its derivatives by the unknowns of node b: K[unknown][equation].
template <typename T>
INLINE void derivatives(const Medium<T> &m, const Tet<T> &t, const Inside<T> &in, const Row<T> &w, int b,
                        T K[UNKNOWNS][UNKNOWNS]) {
  const T *A = t.B[0], *B = t.B[b];
  const T near = dot3(A, B), weight = w.weight[b];
  const T own = fused(weight, m.alpha, fused(w.stiff, near, dot3(w.convecting, B)));
  const T convected = w.pull * dot3(in.mean, B);
  for (int i = 0; i < 3; i++) {
    const T pulled = fused(w.stiff, B[i], w.share * (in.sums[i] + in.r[b][i]));
    for (int j = 0; j < 3; j++) {
      K[j][i] = fused(weight, in.L[i][j], fused(A[j], pulled, w.squeezed[i] * B[j]));
      if (i == j) K[j][i] += own;
    }
    K[3][i] = fused(w.advect, B[i], w.back[i]);
    K[i][3] = fused(t.V * 0.25, B[i], fused(convected, A[i], w.along[i]));
  }
  K[3][3] = w.leak * near;
#if CARREAU
  T by_a[3], by_b[3];
  for (int i = 0; i < 3; i++) {
    const T strain[3] = {in.G[i][0] + in.G[0][i], in.G[i][1] + in.G[1][i], in.G[i][2] + in.G[2][i]};
    by_a[i] = 2 * t.V * in.mu_slope * dot3(strain, A);
    by_b[i] = dot3(strain, B);
  }
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++) K[j][i] = fused(by_a[i], by_b[j], K[j][i]);
#endif
#if TAU_SLOPE
  for (int j = 0; j < 3; j++) {
    T slope = in.tau_by_u[j];
#if CARREAU
    slope = fused(in.tau_by_rate2 + in.tau_by_rate2, by_b[j], slope);
#endif
    for (int i = 0; i < UNKNOWNS; i++) K[j][i] = fused(w.by_tau[i], slope, K[j][i]);
  }
#endif
}
