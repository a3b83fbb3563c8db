// Products with the rows of the flow equations that are not stored: elements' derivatives are taken
// again in each, along the vector. Of the matrix the nodes' own blocks alone are there.
//
// X, q, past, elements, zones, node_starts, places: places.hpp; q and past those of the linearisation.
// own: a block a node, [unknown][equation]; it holds more than elements add where boundaries do.
// prescribed [n][4]: 1 where a row is that of the identity or of zeros, which its own block says.
//
// y_i = own_i x_i + sum over i's elements, in their order, of (sum over b != a of K_ab x_b). The inner
// sum is the derivative of the element's residual along x: that of the gradients is taken first, so
// that no K is made.

// As in flow.cpp.
CONSTANTS(INT(CARREAU), INT(TAU_SLOPE))

#include "strips.hpp"

#define BLOCK (UNKNOWNS * UNKNOWNS)

// The first node's equations: their derivatives along x, of which x[0] counts for nothing.
template <typename T>
INLINE void derivative_along(const Strip<T> &s, const T x[NODES][UNKNOWNS], T y[UNKNOWNS]) {
  const Medium<T> &m = s.medium;
  const Inside<T> &in = s.inside;
  const T(*B)[3] = s.tet.B, *A = B[0];
  const Row<T> w = row_of(m, s.tet, in, s.streamline);
  T H[UNKNOWNS][3];  // gradients of what x is at the nodes: H[i][j] = dx_i/dx_j
  T weighed[3], sums[UNKNOWNS], across[NODES];
  for (int i = 0; i < UNKNOWNS; i++) {
    for (int j = 0; j < 3; j++)
      H[i][j] = fused(B[3][j], x[3][i], fused(B[2][j], x[2][i], B[1][j] * x[1][i]));
    sums[i] = (x[1][i] + x[2][i]) + x[3][i];
  }
  for (int i = 0; i < 3; i++)
    weighed[i] = fused(w.weight[3], x[3][i], fused(w.weight[2], x[2][i], w.weight[1] * x[1][i]));
  for (int b = 1; b < NODES; b++) across[b] = dot3(A, x[b]);
  const T div = H[0][0] + H[1][1] + H[2][2], passing = dot3(A, sums);
  for (int i = 0; i < 3; i++) {
    T pulled = in.sums[i] * passing;
    for (int b = 1; b < NODES; b++) pulled = fused(in.r[b][i], across[b], pulled);
    const T strain[3] = {H[i][0] + H[0][i], H[i][1] + H[1][i], H[i][2] + H[2][i]};
    const T inertia = fused(m.alpha, weighed[i], dot3(in.L[i], weighed)) + dot3(H[i], w.convecting);
    const T pressure = fused(w.advect, H[3][i], w.back[i] * sums[3]);
    y[i] = fused(w.stiff, dot3(strain, A), fused(w.share, pulled, fused(w.squeezed[i], div, inertia))) +
           pressure;
  }
  const T turned[3] = {dot3(H[0], in.mean), dot3(H[1], in.mean), dot3(H[2], in.mean)};
  y[3] = fused(s.tet.V * 0.25, div, fused(w.pull, dot3(turned, A), dot3(w.along, sums))) +
         w.leak * dot3(A, H[3]);
#if TAU_SLOPE
  T slope = dot3(in.tau_by_u, sums);
#endif
#if CARREAU
  T strains[3][3], rate = T{};
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++) {
      strains[i][j] = in.G[i][j] + in.G[j][i];
      rate = fused(strains[i][j], H[i][j], rate);
    }
  const T thinner = 2 * s.tet.V * in.mu_slope * rate;
  for (int i = 0; i < 3; i++) y[i] = fused(thinner, dot3(strains[i], A), y[i]);
#if TAU_SLOPE
  slope = fused(in.tau_by_rate2 + in.tau_by_rate2, rate, slope);
#endif
#endif
#if TAU_SLOPE
  for (int i = 0; i < UNKNOWNS; i++) y[i] = fused(w.by_tau[i], slope, y[i]);
#endif
}

// Equation k of the node's own block.
INLINE double own_product(const double *own, const double *x, int k) {
  double sum = own[k] * x[0];
  for (int c = 1; c < UNKNOWNS; c++) sum = fused(own[c * UNKNOWNS + k], x[c], sum);
  return sum;
}

// The rows of prescribed unknowns = 0, but `ones` on the diagonal.
KERNEL(give, IN(int, unknowns), IN(double, ones), LONG(count), OUT(double, own),
       OUT(unsigned char, prescribed)) {
  PARTS(f, count) {
    const long i = unknowns[f] / UNKNOWNS, r = unknowns[f] % UNKNOWNS;
    for (int c = 0; c < UNKNOWNS; c++) own[i * BLOCK + c * UNKNOWNS + r] = 0;
    own[i * BLOCK + r * UNKNOWNS + r] = ones[f];
    prescribed[unknowns[f]] = 1;
  }
}

#if ON_GPU
// Numbers that a thread leaves for a place: the node's own block, and the residual.
#define PITCH (BLOCK + UNKNOWNS + 1)

KERNEL(linearise_own, IN(double, X), IN(double, q), IN(double, past), IN(int, elements),
       IN(unsigned char, zones), IN(Medium<double>, media), IN(int, node_starts), IN(int, places),
       LONG(nodes), OUT(double, own), OUT(unsigned char, prescribed), OUT(double, R)) {
  const Mesh mesh = {X, q, past, elements, zones, media, node_starts, places};
  BLOCKS(i, nodes) {
    SHARED(double, parts, TEAM * PITCH);
    const long begin = node_starts[i], end = node_starts[i + 1];
    for (long t = begin; t < end; t += TEAM) {
      const int count = (int)smaller((long)TEAM, end - t);
      THREADS(l, count) {
        Strip<double> s;
        take_place(mesh, t + l, s);
        double *to = parts + l * PITCH;
        residual(s.medium, s.tet, s.inside, s.streamline, to + BLOCK);
        const Row<double> shared = row_of(s.medium, s.tet, s.inside, s.streamline);
        derivatives(s.medium, s.tet, s.inside, shared, 0, reinterpret_cast<double(*)[UNKNOWNS]>(to));
      }
      BARRIER();
      THREADS(m, BLOCK) {
        double sum = t == begin ? 0 : own[i * BLOCK + m];
        for (int l = 0; l < count; l++) sum += parts[l * PITCH + m];
        own[i * BLOCK + m] = sum;
      }
      add_residuals<UNKNOWNS>(parts + BLOCK, PITCH, count, t == begin, R + UNKNOWNS * i);
      BARRIER();
    }
    THREADS(k, UNKNOWNS) prescribed[UNKNOWNS * i + k] = 0;
  }
}

KERNEL(multiply_unstored, IN(double, X), IN(double, q), IN(double, past), IN(int, elements),
       IN(unsigned char, zones), IN(Medium<double>, media), IN(int, node_starts), IN(int, places),
       IN(double, own), IN(unsigned char, prescribed), LONG(first), LONG(count), IN(double, x),
       OUT(double, y)) {
  const Mesh mesh = {X, q, past, elements, zones, media, node_starts, places};
  BLOCKS(row, count) {
    SHARED(double, parts, TEAM * UNKNOWNS);
    const long i = first + row, begin = node_starts[i], end = node_starts[i + 1];
    for (long t = begin; t < end; t += TEAM) {
      const int there = (int)smaller((long)TEAM, end - t);
      THREADS(l, there) {
        const Place at = place_at(mesh, t + l);
        double along[NODES][UNKNOWNS];
        for (int b = 1; b < NODES; b++)
          for (int k = 0; k < UNKNOWNS; k++) along[b][k] = x[UNKNOWNS * node_of(mesh, at, b) + k];
        Strip<double> s;
        take_place(mesh, t + l, s);
        derivative_along(s, along, parts + l * UNKNOWNS);
      }
      BARRIER();
      add_residuals<UNKNOWNS>(parts, UNKNOWNS, there, t == begin, y + UNKNOWNS * i);
      BARRIER();
    }
    THREADS(k, UNKNOWNS) {
      const long u = UNKNOWNS * i + k;
      const double diagonal = own_product(own + i * BLOCK, x + UNKNOWNS * i, k);
      y[u] = prescribed[u] ? diagonal : y[u] + diagonal;
    }
  }
}
#else
KERNEL(linearise_own, IN(double, X), IN(double, q), IN(double, past), IN(int, elements),
       IN(unsigned char, zones), IN(Medium<double>, media), IN(int, node_starts), IN(int, places),
       LONG(nodes), OUT(double, own), OUT(unsigned char, prescribed), OUT(double, R)) {
  const Mesh mesh = {X, q, past, elements, zones, media, node_starts, places};
  PARTS(i, nodes) {
    double sum[UNKNOWNS] = {0, 0, 0, 0}, block[BLOCK] = {};
    for (long t = node_starts[i]; t < node_starts[i + 1]; t += LANES) {
      const int count = (int)smaller((long)LANES, node_starts[i + 1] - t);
      Strip<Lanes> s;
      take_places(mesh, t, count, s);
      add_residual(s, count, sum);
      const Row<Lanes> shared = row_of(s.medium, s.tet, s.inside, s.streamline);
      Lanes K[UNKNOWNS][UNKNOWNS];
      derivatives(s.medium, s.tet, s.inside, shared, 0, K);
      for (int lane = 0; lane < count; lane++)
        for (int m = 0; m < BLOCK; m++) block[m] += K[m / UNKNOWNS][m % UNKNOWNS][lane];
    }
    for (int m = 0; m < BLOCK; m++) own[i * BLOCK + m] = block[m];
    for (int k = 0; k < UNKNOWNS; k++) R[UNKNOWNS * i + k] = sum[k], prescribed[UNKNOWNS * i + k] = 0;
  }
}

// x of all but the first nodes of the places from t on.
INLINE void take_along(const Mesh &mesh, const double *x, long t, int count, Lanes along[NODES][UNKNOWNS]) {
  for (int b = 1; b < NODES; b++) {
    const double *from[LANES];
    for (int lane = 0; lane < LANES; lane++)
      from[lane] = x + UNKNOWNS * node_of(mesh, place_at(mesh, t + (lane < count ? lane : count - 1)), b);
    gather_four(from, along[b]);
  }
}

KERNEL(multiply_unstored, IN(double, X), IN(double, q), IN(double, past), IN(int, elements),
       IN(unsigned char, zones), IN(Medium<double>, media), IN(int, node_starts), IN(int, places),
       IN(double, own), IN(unsigned char, prescribed), LONG(first), LONG(count), IN(double, x),
       OUT(double, y)) {
  const Mesh mesh = {X, q, past, elements, zones, media, node_starts, places};
  PARTS(row, count) {
    const long i = first + row;
    double sum[UNKNOWNS] = {0, 0, 0, 0};
    for (long t = node_starts[i]; t < node_starts[i + 1]; t += LANES) {
      const int there = (int)smaller((long)LANES, node_starts[i + 1] - t);
      Strip<Lanes> s;
      take_places(mesh, t, there, s);
      Lanes along[NODES][UNKNOWNS], part[UNKNOWNS];
      take_along(mesh, x, t, there, along);
      derivative_along(s, along, part);
      for (int lane = 0; lane < there; lane++)
        for (int k = 0; k < UNKNOWNS; k++) sum[k] += part[k][lane];
    }
    for (int k = 0; k < UNKNOWNS; k++) {
      const long u = UNKNOWNS * i + k;
      const double diagonal = own_product(own + i * BLOCK, x + UNKNOWNS * i, k);
      y[u] = prescribed[u] ? diagonal : sum[k] + diagonal;
    }
  }
}
#endif
