// The stabilised flow equations on a tetrahedron times a slab of time: the residual at the first node,
// and its derivatives by the unknowns of all four. T is a number, or a vector of those of several elements.
//
// Legend: as in elements.hpp. T_0 = 1 - theta and T_1 = theta are the shape functions of time, theta from
// 0 to 1 in a slab; level 0 is the slab's start, seen from above, and level 1 its end: u is the sum of
// T_j N_b u_bj. J: u at level 0 less u at the end of the slab before. n counts the T_1 in a product.
//
// (,) are means over the slab of integrals over the tetrahedron. With w = T_k N_a for node a and level k:
//
//   r_i = rho (du_i/dt + c.grad u_i + (omega x u)_i - f_i) + dp/dx_i + rho J_i delta(theta)/dt
//   momentum along i: (w, r_i - dp/dx_i) + (2 mu eps(u)_ij, dw/dx_j) - (dw/dx_i, p)
//                     + (tau c.grad w, r_i) + (rho tau_C div u, dw/dx_i)
//   continuity:       (w, div u) + (tau/rho grad w, r)
//
// T. E. Tezduyar, M. Behr, J. Liou, Comput. Methods Appl. Mech. Eng. 94 (1992) 339, with two changes.
// - The jump is a part of r also where r stabilises. What Galerkin's method brings to zero in time are
//   means of T_k r with its jump; only if those of the stabilising terms are the same is the velocity of
//   third order at the ends of slabs. Without the jump there it is of second order at best.
// - There is no tau dw/dt beside tau c.grad w. The viscous part of r is missing in linear elements and
//   the term of tau_C is not in r at all: weighed with -+ tau/dt, up to 1/2, they shift forces from one
//   level to the other (Ethier and Steinman's flow: half as much error again in the pressure).
// The 4/dt^2 in tau is the metric of time itself, -1 to 1 in a slab; so tau is no longer than dt/2, which
// bounds what the jump does there. All is polynomial in time but Carreau's viscosity, which is taken at
// three Gauss points. tau is that of the mean velocity in the middle of the slab; its derivative is there
// where the constant TAU_SLOPE is 1.

#include "elements.hpp"

#define LEVELS 2
#define SLAB_UNKNOWNS 8
#define POINTS 3

// Means over the slab of products of two, three or four T, n of which are T_1: m! n!/(m + n + 1)!.
INLINE double two(int n) { return n == 1 ? 1.0 / 6 : 1.0 / 3; }
INLINE double three(int n) { return n == 0 || n == 3 ? 1.0 / 4 : 1.0 / 12; }
INLINE double four(int n) { return n == 0 || n == 4 ? 1.0 / 5 : n == 2 ? 1.0 / 30 : 1.0 / 20; }

// Gauss's points of time, and their weights.
INLINE double point(int g) { return g == 0 ? 0.1127016653792583 : g == 1 ? 0.5 : 0.8872983346207417; }
INLINE double weight(int g) { return g == 1 ? 8.0 / 18 : 5.0 / 18; }
INLINE double shape(int level, int g) { return level == 0 ? 1 - point(g) : point(g); }

template <typename T>
struct SlabFields {
  T x[NODES][3], u[LEVELS][NODES][3], p[LEVELS][NODES];
  T before[NODES][3];  // u at the end of the slab before
};

// Unknowns inside an element and a slab, all that its rows share.
template <typename T>
struct Slab {
  T c[LEVELS][NODES][3];    // convecting velocity
  T L[LEVELS][3][3];        // du_i/dx_j and what turns with the frame
  T r[3][NODES][3];         // means of T_k T_j r, by n
  T sums[3][3];             // of r over the nodes
  T grad_p[LEVELS][3], p[LEVELS], div[LEVELS], mean[LEVELS][3];  // mean: of c
  T mu[3];                  // means of T_k T_j mu, by n
  T slope[POINTS];          // of mu by the squared shear rate, twice, with the point's weight
  T tau, tau_C;
  T tau_by_u[3];            // derivative of tau by the velocity of a node at a level, the same for all
  T tau_by_strain[3][3];    // and by the velocity's gradient at a level
};

// 2 eps(u) . B along i; what turns falls out.
template <typename T>
INLINE T stretch(const T L[3][3], int i, const T *B) {
  return fused(L[i][2] + L[2][i], B[2], fused(L[i][1] + L[1][i], B[1], (L[i][0] + L[0][i]) * B[0]));
}

template <typename T>
INLINE Slab<T> slab_of(const Medium<T> &m, const Tet<T> &t, const SlabFields<T> &q) {
  Slab<T> in;
  T G[LEVELS][3][3];
  const T *o = m.omega;
  for (int l = 0; l < LEVELS; l++) {
    for (int i = 0; i < 3; i++) {
      in.grad_p[l][i] = t.B[0][i] * q.p[l][0];
      for (int b = 1; b < NODES; b++) in.grad_p[l][i] = fused(t.B[b][i], q.p[l][b], in.grad_p[l][i]);
      for (int j = 0; j < 3; j++) {
        T sum = t.B[0][j] * q.u[l][0][i];
        for (int b = 1; b < NODES; b++) sum = fused(t.B[b][j], q.u[l][b][i], sum);
        G[l][i][j] = in.L[l][i][j] = sum;
      }
    }
    in.L[l][0][1] -= o[2], in.L[l][0][2] += o[1], in.L[l][1][0] += o[2];
    in.L[l][1][2] -= o[0], in.L[l][2][0] -= o[1], in.L[l][2][1] += o[0];
    in.div[l] = G[l][0][0] + G[l][1][1] + G[l][2][2];
    in.p[l] = sum_of_nodes(q.p[l][0], q.p[l][1], q.p[l][2], q.p[l][3]) * 0.25;
  }
  for (int b = 0; b < NODES; b++) {
    const T s[3] = {q.x[b][0] - m.centre[0], q.x[b][1] - m.centre[1], q.x[b][2] - m.centre[2]};
    const T w[3] = {o[1] * s[2] - o[2] * s[1], o[2] * s[0] - o[0] * s[2], o[0] * s[1] - o[1] * s[0]};
    T turn[LEVELS][3];
    for (int l = 0; l < LEVELS; l++) {
      const T *u = q.u[l][b];
      for (int i = 0; i < 3; i++) in.c[l][b][i] = u[i] - w[i];
      turn[l][0] = o[1] * u[2] - o[2] * u[1];
      turn[l][1] = o[2] * u[0] - o[0] * u[2];
      turn[l][2] = o[0] * u[1] - o[1] * u[0];
    }
    for (int i = 0; i < 3; i++) {
      const T steady = fused(m.by_dt, q.u[1][b][i] - q.u[0][b][i], -m.f[i]);
      const T first = dot3(in.c[0][b], G[0][i]), last = dot3(in.c[1][b], G[1][i]);
      const T mixed = dot3(in.c[0][b], G[1][i]) + dot3(in.c[1][b], G[0][i]);
      for (int n = 0; n < 3; n++) {
        const T later = fused(all<T>(four(n + 1)), mixed, four(n + 2) * last);
        const T convected = fused(all<T>(four(n)), first, later);
        const T turned = three(n) * turn[0][i] + three(n + 1) * turn[1][i];
        const T pressed = three(n) * in.grad_p[0][i] + three(n + 1) * in.grad_p[1][i];
        in.r[n][b][i] = fused(m.rho, two(n) * steady + convected + turned, pressed);
      }
      in.r[0][b][i] = fused(m.rho * m.by_dt, q.u[0][b][i] - q.before[b][i], in.r[0][b][i]);
    }
  }
  for (int n = 0; n < 3; n++)
    for (int i = 0; i < 3; i++)
      in.sums[n][i] = sum_of_nodes(in.r[n][0][i], in.r[n][1][i], in.r[n][2][i], in.r[n][3][i]);
  T middle = m.mu, thinning = T{};
#if CARREAU
  for (int n = 0; n < 3; n++) in.mu[n] = T{};
  for (int g = 0; g < POINTS; g++) {
    T rate2 = T{}, mu, slope;
    for (int i = 0; i < 3; i++)
      for (int j = 0; j < 3; j++) {
        const T start = in.L[0][i][j] + in.L[0][j][i], end = in.L[1][i][j] + in.L[1][j][i];
        const T e = shape(0, g) * start + shape(1, g) * end;
        rate2 += e * e * 0.5;
      }
    viscosity(m, rate2, &mu, &slope);
    in.slope[g] = 2 * weight(g) * slope;
    for (int n = 0; n < 3; n++) in.mu[n] += weight(g) * shape(n == 2, g) * shape(n > 0, g) * mu;
    if (g == 1) middle = mu, thinning = slope;
  }
#else
  for (int n = 0; n < 3; n++) in.mu[n] = two(n) * m.mu;
#endif
  T mean[3], M[3][3], GG = T{};
  for (int i = 0; i < 3; i++) {
    for (int l = 0; l < LEVELS; l++)
      in.mean[l][i] = sum_of_nodes(in.c[l][0][i], in.c[l][1][i], in.c[l][2][i], in.c[l][3][i]) * 0.25;
    mean[i] = (in.mean[0][i] + in.mean[1][i]) * 0.5;
  }
  for (int i = 0; i < 3; i++)
    for (int j = i; j < 3; j++) {
      M[i][j] = t.B[0][i] * t.B[0][j];
      for (int b = 1; b < NODES; b++) M[i][j] = fused(t.B[b][i], t.B[b][j], M[i][j]);
      M[j][i] = M[i][j];
      GG = fused(i == j ? M[i][j] : M[i][j] + M[i][j], M[i][j], GG);
    }
  const T Mc[3] = {dot3(M[0], mean), dot3(M[1], mean), dot3(M[2], mean)};
  const T nu = middle / m.rho;
  in.tau = 1 / square_root(4 * m.by_dt * m.by_dt + METRIC * dot3(mean, Mc) +
                           m.C_I * nu * nu * ((METRIC * METRIC) * GG));
  in.tau_C = m.lsic / (in.tau * (METRIC * (M[0][0] + M[1][1] + M[2][2])));
#if TAU_SLOPE
  const T falls = in.tau * in.tau * in.tau * -METRIC;
  const T thinned = falls * METRIC * m.C_I * GG * nu * thinning / m.rho * 0.5;
  for (int i = 0; i < 3; i++) {
    in.tau_by_u[i] = falls * Mc[i] * 0.125;
    for (int j = 0; j < 3; j++) {
      const T start = in.L[0][i][j] + in.L[0][j][i], end = in.L[1][i][j] + in.L[1][j][i];
      in.tau_by_strain[i][j] = thinned * (start + end);
    }
  }
#endif
  return in;
}

// tau c.grad N_0 at the nodes times V/20, and its sum, at both levels.
template <typename T>
struct SlabStreamline {
  T at[LEVELS][NODES], sum[LEVELS];
};

template <typename T>
INLINE SlabStreamline<T> slab_streamline_of(const Tet<T> &t, const Slab<T> &in) {
  SlabStreamline<T> s;
  const T share = in.tau * (t.V * 0.05);
  for (int l = 0; l < LEVELS; l++) {
    for (int b = 0; b < NODES; b++) s.at[l][b] = share * dot3(in.c[l][b], t.B[0]);
    s.sum[l] = sum_of_nodes(s.at[l][0], s.at[l][1], s.at[l][2], s.at[l][3]);
  }
  return s;
}

// The eight equations of the first node.
template <typename T>
INLINE void slab_residual(const Medium<T> &m, const Tet<T> &t, const Slab<T> &in, const SlabStreamline<T> &s,
                          T R[SLAB_UNKNOWNS]) {
  const T *A = t.B[0], share = t.V * 0.05, quarter = t.V * 0.25;
  for (int k = 0; k < LEVELS; k++) {
    const T div = two(k) * in.div[0] + two(k + 1) * in.div[1];
    const T push = t.V * (m.rho * in.tau_C * div - (two(k) * in.p[0] + two(k + 1) * in.p[1]));
    T sums[3];
    for (int i = 0; i < 3; i++) {
      T along = push * A[i];
      for (int l = 0; l < LEVELS; l++) {
        const int n = k + l;
        along = fused(t.V * in.mu[n], stretch(in.L[l], i, A), fused(s.sum[l], in.sums[n][i], along));
        for (int b = 0; b < NODES; b++) along = fused(s.at[l][b], in.r[n][b][i], along);
        along = fused(quarter * -two(n), in.grad_p[l][i], along);
      }
      sums[i] = in.sums[k][i] + in.sums[k + 1][i];
      R[UNKNOWNS * k + i] = fused(share, sums[i] + (in.r[k][0][i] + in.r[k + 1][0][i]), along);
    }
    R[UNKNOWNS * k + 3] = quarter * (div + in.tau / m.rho * dot3(A, sums));
  }
}

// What the blocks of the first node's row share.
template <typename T>
struct SlabRow {
  T weight[4][NODES];                // means of integrals of rho (w + tau c.grad w) times T_j T_l N_b, by n
  T inertia[LEVELS][LEVELS][NODES];  // and with what du/dt and the jump have of N_b at level j
  T convecting[3][3];                // and with c: times grad N_b it is that with c.grad N_b
  T along[3][3];                     // of the continuity equation
  T advect[3];                       // of the pressure
  T squeezed[3], share, pull;
  T by_tau[SLAB_UNKNOWNS];           // derivatives of the equations by tau
};

template <typename T>
INLINE SlabRow<T> slab_row_of(const Medium<T> &m, const Tet<T> &t, const Slab<T> &in,
                              const SlabStreamline<T> &s) {
  SlabRow<T> w;
  const T *A = t.B[0], share = t.V * 0.05;
  w.pull = t.V * in.tau;
  w.share = in.tau * share;
  for (int b = 0; b < NODES; b++) {
    const T own = m.rho * (b == 0 ? share + share : share);
    const T first = m.rho * (s.sum[0] + s.at[0][b]), last = m.rho * (s.sum[1] + s.at[1][b]);
    for (int n = 0; n < 4; n++)
      w.weight[n][b] = fused(all<T>(three(n)), own, four(n) * first + four(n + 1) * last);
    for (int k = 0; k < LEVELS; k++) {
      const T whole = m.by_dt * ((w.weight[k][b] + w.weight[k + 2][b]) + 2 * w.weight[k + 1][b]);
      w.inertia[k][1][b] = whole;
      w.inertia[k][0][b] = k == 0 ? fused(m.by_dt, own + first, -whole) : -whole;
    }
  }
  for (int n = 0; n < 3; n++) {
    for (int d = 0; d < 3; d++) {
      T sum = w.weight[n][0] * in.c[0][0][d];
      for (int b = 1; b < NODES; b++) sum = fused(w.weight[n][b], in.c[0][b][d], sum);
      for (int b = 0; b < NODES; b++) sum = fused(w.weight[n + 1][b], in.c[1][b][d], sum);
      w.convecting[n][d] = sum;
    }
    // 5 times that sum is V/4 tau times the sum of c . A over the nodes.
    w.advect[n] = (5 * three(n)) * s.sum[0] + (5 * three(n + 1)) * s.sum[1];
  }
  for (int d = 0; d < 3; d++) {
    w.squeezed[d] = t.V * m.rho * in.tau_C * A[d];
    T by_level[LEVELS];
    for (int l = 0; l < LEVELS; l++) {
      const T down[3] = {in.L[l][0][d], in.L[l][1][d], in.L[l][2][d]};
      by_level[l] = w.pull * 0.25 * dot3(A, down);
    }
    for (int n = 0; n < 3; n++) w.along[n][d] = three(n) * by_level[0] + three(n + 1) * by_level[1];
  }
#if TAU_SLOPE
  for (int k = 0; k < LEVELS; k++) {
    const T push = t.V * m.rho * in.tau_C * (two(k) * in.div[0] + two(k + 1) * in.div[1]);
    T sums[3];
    for (int i = 0; i < 3; i++) {
      T along = -push * A[i];
      for (int l = 0; l < LEVELS; l++) {
        along = fused(s.sum[l], in.sums[k + l][i], along);
        for (int b = 0; b < NODES; b++) along = fused(s.at[l][b], in.r[k + l][b][i], along);
      }
      w.by_tau[UNKNOWNS * k + i] = along / in.tau;
      sums[i] = in.sums[k][i] + in.sums[k + 1][i];
    }
    w.by_tau[UNKNOWNS * k + 3] = t.V * 0.25 * dot3(A, sums) / m.rho;
  }
#endif
  return w;
}

// Its derivatives by the unknowns of node b. Those of level k's equations by level j's unknowns are
// K[k + j][unknown][equation], and what inertia and tau add below.
template <typename T>
INLINE void slab_derivatives(const Medium<T> &m, const Tet<T> &t, const Slab<T> &in, const SlabRow<T> &w,
                             int b, T K[3][UNKNOWNS][UNKNOWNS]) {
  const T *A = t.B[0], *B = t.B[b], quarter = t.V * 0.25, near = dot3(A, B);
  T through[LEVELS];  // mean of c . B_b, times tau V
  for (int l = 0; l < LEVELS; l++) through[l] = w.pull * dot3(in.mean[l], B);
  for (int n = 0; n < 3; n++) {
    const T stiff = t.V * in.mu[n], own = fused(stiff, near, dot3(w.convecting[n], B));
    const T moved = three(n) * through[0] + three(n + 1) * through[1];
    for (int i = 0; i < 3; i++) {
      const T pulled = fused(stiff, B[i], w.share * (in.sums[n][i] + in.r[n][b][i]));
      const T squeezed = two(n) * w.squeezed[i];
      for (int q = 0; q < 3; q++) {
        T entry = fused(w.weight[n][b], in.L[0][i][q], w.weight[n + 1][b] * in.L[1][i][q]);
        entry = fused(A[q], pulled, fused(squeezed, B[q], entry));
        K[n][q][i] = i == q ? entry + own : entry;
      }
      K[n][3][i] = fused(w.advect[n], B[i], quarter * -two(n) * A[i]);
      K[n][i][3] = fused(quarter * two(n), B[i], fused(moved, A[i], w.along[n][i]));
    }
    K[n][3][3] = w.pull / m.rho * two(n) * near;
  }
#if CARREAU
  for (int g = 0; g < POINTS; g++) {
    T by_a[3], by_b[3];
    for (int i = 0; i < 3; i++) {
      const T along_a = shape(0, g) * stretch(in.L[0], i, A) + shape(1, g) * stretch(in.L[1], i, A);
      by_a[i] = t.V * in.slope[g] * along_a;
      by_b[i] = shape(0, g) * stretch(in.L[0], i, B) + shape(1, g) * stretch(in.L[1], i, B);
    }
    for (int n = 0; n < 3; n++)
      for (int i = 0; i < 3; i++)
        for (int q = 0; q < 3; q++)
          K[n][q][i] = fused((shape(n == 2, g) * shape(n > 0, g)) * by_a[i], by_b[q], K[n][q][i]);
  }
#endif
}

// What du/dt and the jump add to derivatives by velocity q of node b at level j: to equation i of level k.
template <typename T>
INLINE T inertia(const Medium<T> &m, const Tet<T> &t, const SlabRow<T> &w, int b, int j, int q, int k,
                 int i) {
  if (i == q) return w.inertia[k][j][b];
  if (i < 3) return T{};
  const T pulled = w.pull * m.by_dt * 0.125 * t.B[0][q];
  // Half of 1/dt and, where both levels are 0, the whole of the jump.
  return j == 0 && k == 1 ? -pulled : pulled;
}

// The derivative of tau by velocity q of node b, at either level.
template <typename T>
INLINE T tau_slope(const Tet<T> &t, const Slab<T> &in, int b, int q) {
#if CARREAU
  return in.tau_by_u[q] + dot3(in.tau_by_strain[q], t.B[b]);
#else
  return in.tau_by_u[q];
#endif
}
