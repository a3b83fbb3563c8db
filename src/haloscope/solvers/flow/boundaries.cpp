// What boundaries add to the rows of the flow equations: backflow at outlets, slip on walls.
//
// Legend: q unknowns u, v, w, p [n][4]; R residual [n][4]; A blocks [block][unknown][equation];
// diagonal: each row's own block; starts: where rows begin; nodes: those at hand, each once.
// push[f]: b rho times the node's share of the outward area; n outward normal.
// pushes[e]: integral of N_i N_j n over walls, of a node f that slips (push_starts[f] on) and a node j
// whose block in row i is push_blocks[e].
// P[f]: projector on the directions in which a node may slip; ones: 1 on the rank that owns it.

#define U 4

INLINE double through(const double *push, const double *u) {
  const double q = push[0] * u[0] + push[1] * u[1] + push[2] * u[2];
  return q < 0 ? q : 0.0;
}

// R -= b rho (u.n)_- u.
KERNEL(add_backflow, IN(int, nodes), IN(double, pushes), LONG(count), IN(double, q),
       INOUT(double, R)) {
  PARTS(f, count) {
    const long i = nodes[f];
    const double inward = through(pushes + 3 * f, q + U * i);
    for (int r = 0; r < 3; r++) R[U * i + r] -= inward * q[U * i + r];
  }
}

KERNEL(add_backflow_derivatives, IN(int, nodes), IN(double, pushes), LONG(count), IN(double, q),
       IN(int, diagonal), INOUT(double, A)) {
  PARTS(f, count) {
    const long i = nodes[f];
    const double *push = pushes + 3 * f, *u = q + U * i;
    const double inward = through(push, u);
    double *block = A + (long)diagonal[i] * U * U;
    if (inward < 0)
      for (int c = 0; c < 3; c++) {
        for (int r = 0; r < 3; r++) block[U * c + r] -= u[r] * push[c];
        block[U * c + c] -= inward;
      }
  }
}

INLINE void project(const double *P, double *a) {
  double b[3];
  for (int r = 0; r < 3; r++) b[r] = P[3 * r] * a[0] + P[3 * r + 1] * a[1] + P[3 * r + 2] * a[2];
  for (int r = 0; r < 3; r++) a[r] = b[r];
}

// R = P (R + p n) + (1 - P) u: across a wall the equation is u = 0.
KERNEL(slip_residual, IN(int, nodes), IN(double, projectors), IN(double, ones), LONG(count),
       IN(int, push_starts), IN(int, push_blocks), IN(double, pushes), IN(int, columns),
       IN(double, q), INOUT(double, R)) {
  PARTS(f, count) {
    const long i = nodes[f];
    const double *P = projectors + 9 * f;
    double along[3];
    for (long e = push_starts[f]; e < push_starts[f + 1]; e++) {
      const double p = q[U * (long)columns[push_blocks[e]] + 3];
      for (int r = 0; r < 3; r++) R[U * i + r] += p * pushes[3 * e + r];
    }
    for (int r = 0; r < 3; r++) along[r] = q[U * i + r];
    project(P, along);
    project(P, R + U * i);
    for (int r = 0; r < 3; r++) R[U * i + r] += ones[f] * (q[U * i + r] - along[r]);
  }
}

KERNEL(slip_rows, IN(int, nodes), IN(double, projectors), IN(double, ones), LONG(count),
       IN(int, push_starts), IN(int, push_blocks), IN(double, pushes), IN(int, starts),
       IN(int, diagonal), INOUT(double, A)) {
  PARTS(f, count) {
    const long i = nodes[f];
    const double *P = projectors + 9 * f;
    for (long e = push_starts[f]; e < push_starts[f + 1]; e++)
      for (int r = 0; r < 3; r++) A[((long)push_blocks[e] * U + 3) * U + r] += pushes[3 * e + r];
    for (long k = starts[i]; k < starts[i + 1]; k++)
      for (int c = 0; c < U; c++) project(P, A + (U * k + c) * U);
    double *block = A + (long)diagonal[i] * U * U;
    for (int c = 0; c < 3; c++)
      for (int r = 0; r < 3; r++) block[U * c + r] += ones[f] * ((r == c) - P[3 * r + c]);
  }
}

// u = P u.
KERNEL(slip_velocities, IN(int, nodes), IN(double, projectors), LONG(count), INOUT(double, q)) {
  PARTS(f, count) project(projectors + 9 * f, q + U * (long)nodes[f]);
}
