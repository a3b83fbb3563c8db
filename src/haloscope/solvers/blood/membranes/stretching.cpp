// Two ends of cells that are pulled apart, each held like a stiff bead.
//
//   positions, forces   component d of vertex v of cell c at (d * capacity + c) * V + v
//   rows, span          cells rows[span[0]] up to rows[span[1] - 1] are worked on
//   vertices, begins    the ends' vertices, those of end k from begins[k] up to begins[k + 1]
//   rest                component d of the i-th of these at d * begins[2] + i: its position at rest about the
//                       mean of its end
//   pull                whole force on an end of cell c at c * apart
//
// An end of n vertices at r about their mean, with the forces f of the membrane, is to move like a rigid body. It
// feels F = sum f and T = sum r x f, which its vertices take as F/n + w x r with T = sum r x (w x r). Springs of
// the stiffness k hold its shape: -k (r - R q), q at rest and R the rotation that brings q nearest to r (B. K. P.
// Horn, J. Opt. Soc. Am. A 4 (1987) 629). These add up to no force and no torque. The pull on each end points away
// from the other one, along the line between their means.

CONSTANTS(TYPE(real))

#define LANES 32
#define SWEEPS 10

// Sums over the vertices of an end: of positions and forces; then about the mean.
#define MEANS 6
#define ABOUT 18  // torque; xx, yy, zz, xy, xz, yz of the positions; q_a r_b, a the slower index

struct End {
  real mean[3], force[3], turn[3], R[9];
};

// The rotation from the sums S[3 a + b] of q_a r_b: the quaternion is the eigenvector of the largest eigenvalue of
// a symmetric matrix, found by Jacobi's rotations.
INLINE void nearest_rotation(const real *S, real *R) {
  real a[4][4] = {{S[0] + S[4] + S[8], S[5] - S[7], S[6] - S[2], S[1] - S[3]},
                  {S[5] - S[7], S[0] - S[4] - S[8], S[1] + S[3], S[6] + S[2]},
                  {S[6] - S[2], S[1] + S[3], S[4] - S[0] - S[8], S[5] + S[7]},
                  {S[1] - S[3], S[6] + S[2], S[5] + S[7], S[8] - S[0] - S[4]}};
  real e[4][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}};
  real size = 0;
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) size = larger(size, absolute(a[i][j]));
  for (int sweep = 0; sweep < SWEEPS; sweep++)
    for (int p = 0; p < 3; p++)
      for (int q = p + 1; q < 4; q++) {
        if (absolute(a[p][q]) <= 1e-20 * size) continue;
        const real ratio = (a[q][q] - a[p][p]) / (2 * a[p][q]);
        const real t = (ratio < 0 ? -1 : 1) / (absolute(ratio) + square_root(ratio * ratio + 1));
        const real c = 1 / square_root(t * t + 1), s = t * c;
        for (int k = 0; k < 4; k++) {
          const real left = a[k][p], right = a[k][q];
          a[k][p] = c * left - s * right, a[k][q] = s * left + c * right;
        }
        for (int k = 0; k < 4; k++) {
          const real left = a[p][k], right = a[q][k];
          a[p][k] = c * left - s * right, a[q][k] = s * left + c * right;
        }
        for (int k = 0; k < 4; k++) {
          const real left = e[k][p], right = e[k][q];
          e[k][p] = c * left - s * right, e[k][q] = s * left + c * right;
        }
      }
  int most = 0;
  for (int k = 1; k < 4; k++) most = a[k][k] > a[most][most] ? k : most;
  const real w = e[0][most], x = e[1][most], y = e[2][most], z = e[3][most];
  R[0] = 1 - 2 * (y * y + z * z), R[1] = 2 * (x * y - w * z), R[2] = 2 * (x * z + w * y);
  R[3] = 2 * (x * y + w * z), R[4] = 1 - 2 * (x * x + z * z), R[5] = 2 * (y * z - w * x);
  R[6] = 2 * (x * z - w * y), R[7] = 2 * (y * z + w * x), R[8] = 1 - 2 * (x * x + y * y);
}

// w of T = sum r x (w x r) = J w, with J from the second moments of r.
INLINE void turn_of(const real *T, const real *m, real *w) {
  const real xx = m[1] + m[2], yy = m[0] + m[2], zz = m[0] + m[1], xy = -m[3], xz = -m[4], yz = -m[5];
  const real a = yy * zz - yz * yz, b = xz * yz - xy * zz, c = xy * yz - xz * yy;
  const real d = xx * zz - xz * xz, e = xy * xz - xx * yz, f = xx * yy - xy * xy;
  const real by = 1 / (xx * a + xy * b + xz * c);
  w[0] = (a * T[0] + b * T[1] + c * T[2]) * by;
  w[1] = (b * T[0] + d * T[1] + e * T[2]) * by;
  w[2] = (c * T[0] + e * T[1] + f * T[2]) * by;
}

// parts[q][0] = parts[q][0] + ... + parts[q][LANES - 1], one after the other.
INLINE void add_up(real (*parts)[LANES], int quantities) {
  THREADS(q, quantities) {
    real sum = parts[q][0];
    for (int i = 1; i < LANES; i++) sum += parts[q][i];
    parts[q][0] = sum;
  }
}

KERNEL(pull_ends, IN(real, positions), INOUT(real, forces), IN(int, vertices), IN(int, begins), IN(real, rest),
       IN(real, pull), LONG(apart), DOUBLE(stiffness), IN(int, rows), IN(int, span), LONG(capacity), LONG(V)) {
  BLOCKS(n, span[1] - span[0]) {
    SHARED(real, parts[ABOUT], LANES);
    SHARED(End, ends, 2);
    const long c = rows[span[0] + n];
    const real *x = positions + c * V, *y = x + capacity * V, *z = y + capacity * V;
    real *fx = forces + c * V, *fy = fx + capacity * V, *fz = fy + capacity * V;
    // Relative to the first vertex: nothing is lost far from the origin.
    const real ox = x[0], oy = y[0], oz = z[0];
    for (int k = 0; k < 2; k++) {
      const int first = begins[k], last = begins[k + 1];
      THREADS(i, LANES) {
        real m[MEANS] = {};
        for (int j = first + i; j < last; j += LANES) {
          const int v = vertices[j];
          m[0] += x[v] - ox, m[1] += y[v] - oy, m[2] += z[v] - oz;
          m[3] += fx[v], m[4] += fy[v], m[5] += fz[v];
        }
        for (int q = 0; q < MEANS; q++) parts[q][i] = m[q];
      }
      BARRIER();
      add_up(parts, MEANS);
      BARRIER();
      THREADS(d, 3) {
        ends[k].mean[d] = parts[d][0] / (last - first);
        ends[k].force[d] = parts[3 + d][0] / (last - first);
      }
      BARRIER();
      THREADS(i, LANES) {
        real m[ABOUT] = {};
        for (int j = first + i; j < last; j += LANES) {
          const int v = vertices[j];
          const real r[3] = {x[v] - ox - ends[k].mean[0], y[v] - oy - ends[k].mean[1], z[v] - oz - ends[k].mean[2]};
          m[0] += r[1] * fz[v] - r[2] * fy[v], m[1] += r[2] * fx[v] - r[0] * fz[v];
          m[2] += r[0] * fy[v] - r[1] * fx[v];
          m[3] += r[0] * r[0], m[4] += r[1] * r[1], m[5] += r[2] * r[2];
          m[6] += r[0] * r[1], m[7] += r[0] * r[2], m[8] += r[1] * r[2];
          for (int a = 0; a < 3; a++)
            for (int b = 0; b < 3; b++) m[9 + 3 * a + b] += rest[a * begins[2] + j] * r[b];
        }
        for (int q = 0; q < ABOUT; q++) parts[q][i] = m[q];
      }
      BARRIER();
      add_up(parts, ABOUT);
      BARRIER();
      THREADS(only, 1) {
        real sums[ABOUT];
        for (int q = 0; q < ABOUT; q++) sums[q] = parts[q][0];
        turn_of(sums, sums + 3, ends[k].turn);
        nearest_rotation(sums + 9, ends[k].R);
      }
      BARRIER();
    }
    const real dx = ends[1].mean[0] - ends[0].mean[0], dy = ends[1].mean[1] - ends[0].mean[1],
               dz = ends[1].mean[2] - ends[0].mean[2];
    const real along = pull[c * apart] / square_root(dx * dx + dy * dy + dz * dz);
    THREADS(j, begins[2]) {
      const int k = j < begins[1] ? 0 : 1, v = vertices[j];
      const End *end = ends + k;
      const real share = (k ? along : -along) / (begins[k + 1] - begins[k]);
      const real *F = end->force, *w = end->turn, *R = end->R;
      const real rx = x[v] - ox - end->mean[0], ry = y[v] - oy - end->mean[1], rz = z[v] - oz - end->mean[2];
      const real qx = rest[j], qy = rest[begins[2] + j], qz = rest[2 * begins[2] + j];
      const real sx = rx - (R[0] * qx + R[1] * qy + R[2] * qz), sy = ry - (R[3] * qx + R[4] * qy + R[5] * qz),
                 sz = rz - (R[6] * qx + R[7] * qy + R[8] * qz);
      fx[v] = F[0] + (w[1] * rz - w[2] * ry) + share * dx - stiffness * sx;
      fy[v] = F[1] + (w[2] * rx - w[0] * rz) + share * dy - stiffness * sy;
      fz[v] = F[2] + (w[0] * ry - w[1] * rx) + share * dz - stiffness * sz;
    }
    BARRIER();
  }
}
