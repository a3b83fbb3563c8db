// Overlaps of rigid cells with each other and with walls, as forces that push them apart.
//
// Lengths are scaled so that cells have their full size.
//   x, R        centre (world) and rotation (row-major 3x3, cell's frame to world) of a cell
//   p, w        point of a surface in its cell's frame, and the part of the surface it stands for
//   d           signed distance from a surface, negative inside the cell, or inside the vessel
//   depth       gap - d for cells, gap + d for walls: how far a point is where it should not be
// The energy is the sum of w depth^2 / 2 over points. Points lie in groups of LANES, all x of a
// group before all y, z and w, so that cores take a group at once.

// NR, NZ: nodes of a table of distances; LANES: points of a group.
CONSTANTS(INT(NR), INT(NZ), INT(LANES))

#define VALUES 10 // force on the first cell, torque on it, torque on the second, greatest depth
#define WALL_VALUES 7 // force, torque, greatest depth

// Value and slopes between four nodes of a table of distances, (z, r).
INLINE double in_table(const double *d, double r, double z, double *by_r, double *by_z) {
  const int i = (int)r, k = (int)z;
  const double a = r - i, c = z - k;
  const double *low = d + k * NR + i, *high = low + NR;
  const double bottom = fused(a, low[1] - low[0], low[0]);
  const double top = fused(a, high[1] - high[0], high[0]);
  *by_r = fused(c, (high[1] - high[0]) - (low[1] - low[0]), low[1] - low[0]);
  *by_z = top - bottom;
  return fused(c, top - bottom, bottom);
}

INLINE void cross(const double *a, const double *b, double *sum) {
  sum[0] += fused(a[1], b[2], -(a[2] * b[1]));
  sum[1] += fused(a[2], b[0], -(a[0] * b[2]));
  sum[2] += fused(a[0], b[1], -(a[1] * b[0]));
}

// Points of cell `first` against the body of cell `second`, which is shifted by whole periods.
KERNEL(contacts, IN(long, first), IN(long, second), IN(double, shifts), LONG(pairs),
       IN(double, x), IN(double, R), IN(long, kinds), IN(double, points), IN(long, starts),
       IN(double, tables), IN(double, scales), DOUBLE(inverse_size), DOUBLE(gap),
       OUT(double, values)) {
  PARTS(pair, pairs) {
    const long A = first[pair], B = second[pair];
    const double *RA = R + 9 * A, *RB = R + 9 * B;
    const double *scale = scales + 3 * kinds[B];
    double *out = values + VALUES * pair;
    double sum[VALUES] = {0}, M[9], away[3], at[3];
    double square = 0;
    for (int i = 0; i < 3; i++) {
      away[i] = (x[3 * A + i] - x[3 * B + i] - shifts[3 * pair + i]) * inverse_size;
      square = fused(away[i], away[i], square);
    }
    const double reach = scale[2] + scales[3 * kinds[A] + 2] + gap;
    if (square < reach * reach) {
      const double *table = tables + kinds[B] * (NR * NZ);
      // Into the second cell's frame: M = RB^T RA, at = RB^T away.
      for (int i = 0; i < 3; i++) {
        at[i] = fused(RB[i], away[0], fused(RB[3 + i], away[1], RB[6 + i] * away[2]));
        for (int j = 0; j < 3; j++)
          M[3 * i + j] = fused(RB[i], RA[j], fused(RB[3 + i], RA[3 + j], RB[6 + i] * RA[6 + j]));
      }
      const double last_r = NR - 1 - 1e-9, last_z = NZ - 1 - 1e-9;
      const double far_z = last_z / scale[1], far_square = last_r * last_r / (scale[0] * scale[0]);
      for (long c = starts[kinds[A]]; c < starts[kinds[A] + 1]; c++) {
        const double *px = points + 4 * LANES * c, *py = px + LANES, *pz = py + LANES;
        double lane_x[LANES], lane_y[LANES], lane_z[LANES], squares[LANES];
        int near = 0;
        for (int k = 0; k < LANES; k++) {
          lane_x[k] = fused(M[0], px[k], fused(M[1], py[k], fused(M[2], pz[k], at[0])));
          lane_y[k] = fused(M[3], px[k], fused(M[4], py[k], fused(M[5], pz[k], at[1])));
          lane_z[k] = fused(M[6], px[k], fused(M[7], py[k], fused(M[8], pz[k], at[2])));
          squares[k] = fused(lane_x[k], lane_x[k], lane_y[k] * lane_y[k]);
          near |= (absolute(lane_z[k]) < far_z) & (squares[k] < far_square);
        }
        if (!near) continue;
        for (int k = 0; k < LANES; k++) {
          const double ux = lane_x[k], uy = lane_y[k], uz = lane_z[k], rr = squares[k];
          if (absolute(uz) >= far_z || rr >= far_square) continue;
          const double p[4] = {px[k], py[k], pz[k], pz[LANES + k]};
          const double r = square_root(rr);
          double by_r, by_z;
          const double d = in_table(table, r * scale[0], absolute(uz) * scale[1], &by_r, &by_z);
          const double depth = gap - d;
          if (depth <= 0) continue;
          sum[9] = larger(sum[9], depth);
          by_r *= scale[0];
          by_z *= uz < 0 ? -scale[1] : scale[1];
          const double length = square_root(fused(by_r, by_r, by_z * by_z));
          const double push = p[3] * depth / larger(length, 1e-12);
          const double outward = r > 0 ? push * by_r / r : 0;
          const double u[3] = {ux, uy, uz}, f[3] = {outward * ux, outward * uy, push * by_z};
          double F[3], armA[3], armB[3];
          for (int i = 0; i < 3; i++) {
            F[i] = fused(RB[3 * i], f[0], fused(RB[3 * i + 1], f[1], RB[3 * i + 2] * f[2]));
            armA[i] = fused(RA[3 * i], p[0], fused(RA[3 * i + 1], p[1], RA[3 * i + 2] * p[2]));
            armB[i] = -fused(RB[3 * i], u[0], fused(RB[3 * i + 1], u[1], RB[3 * i + 2] * u[2]));
            sum[i] += F[i];
          }
          cross(armA, F, sum + 3);
          cross(armB, F, sum + 6);
        }
      }
    }
    for (int i = 0; i < VALUES; i++) out[i] = sum[i];
  }
}

// Distance from walls at a place in units of the grid's, and its slopes a node. A direction that
// closes on itself has as many nodes as intervals; beyond the others' ends the distance grows.
INLINE double in_grid(const float *grid, const double *place, const double *per_length,
                      const long *counts, const long *closed, double *slope) {
  long node[3][2];
  double part[3], beyond[3] = {0};
  for (int i = 0; i < 3; i++) {
    double t = place[i];
    const long n = counts[i];
    if (closed[i]) {
      t -= n * (double)(long)(t / n);
      if (t < 0) t += n;
      node[i][0] = smaller((long)t, n - 1);
      node[i][1] = node[i][0] + 1 < n ? node[i][0] + 1 : 0;
    } else {
      t = smaller(larger(t, 0.0), (double)(n - 1));
      beyond[i] = (place[i] - t) / per_length[i];
      node[i][0] = smaller((long)t, n - 2);
      node[i][1] = node[i][0] + 1;
    }
    part[i] = t - node[i][0];
  }
  double value[2][2], by_x[2][2];
  for (int k = 0; k < 2; k++)
    for (int j = 0; j < 2; j++) {
      const float *row = grid + (node[2][k] * counts[1] + node[1][j]) * counts[0];
      const double low = row[node[0][0]], high = row[node[0][1]];
      by_x[k][j] = high - low;
      value[k][j] = fused(part[0], high - low, low);
    }
  double plane[2], by_y[2], across[2];
  for (int k = 0; k < 2; k++) {
    by_y[k] = value[k][1] - value[k][0];
    plane[k] = fused(part[1], by_y[k], value[k][0]);
    across[k] = fused(part[1], by_x[k][1] - by_x[k][0], by_x[k][0]);
  }
  slope[0] = fused(part[2], across[1] - across[0], across[0]);
  slope[1] = fused(part[2], by_y[1] - by_y[0], by_y[0]);
  slope[2] = plane[1] - plane[0];
  double distance = fused(part[2], plane[1] - plane[0], plane[0]);
  for (int i = 0; i < 3; i++) {
    distance += absolute(beyond[i]);
    if (beyond[i] != 0) slope[i] = (beyond[i] > 0 ? 1 : -1) / per_length[i];
  }
  return distance;
}

// Points of cells against walls, whose distance is given on a grid (z, y, x).
KERNEL(walls, LONG(cells), IN(double, x), IN(double, R), IN(long, kinds), IN(double, points),
       IN(long, starts), IN(double, scales), IN(float, grid), IN(double, frame), IN(long, counts),
       IN(long, closed), DOUBLE(size), DOUBLE(gap), OUT(double, values)) {
  PARTS(A, cells) {
    const double *RA = R + 9 * A, *origin = frame, *per_length = frame + 3;
    double sum[WALL_VALUES] = {0}, place[3], slope[3];
    for (int i = 0; i < 3; i++) place[i] = (x[3 * A + i] - origin[i]) * per_length[i];
    const double centre = in_grid(grid, place, per_length, counts, closed, slope);
    if (centre > -size * (scales[3 * kinds[A] + 2] + gap))
      for (long n = LANES * starts[kinds[A]]; n < LANES * starts[kinds[A] + 1]; n++) {
        const double *lane = points + 4 * LANES * (n / LANES) + n % LANES;
        const double p[4] = {lane[0], lane[LANES], lane[2 * LANES], lane[3 * LANES]};
        double arm[3], F[3];
        for (int i = 0; i < 3; i++) {
          arm[i] = fused(RA[3 * i], p[0], fused(RA[3 * i + 1], p[1], RA[3 * i + 2] * p[2]));
          place[i] = (fused(size, arm[i], x[3 * A + i]) - origin[i]) * per_length[i];
        }
        const double depth = in_grid(grid, place, per_length, counts, closed, slope) / size + gap;
        if (depth <= 0) continue;
        sum[6] = larger(sum[6], depth);
        double square = 0;
        for (int i = 0; i < 3; i++) {
          slope[i] *= per_length[i];
          square = fused(slope[i], slope[i], square);
        }
        const double push = p[3] * depth / larger(square_root(square), 1e-12);
        for (int i = 0; i < 3; i++) sum[i] += F[i] = -push * slope[i];
        cross(arm, F, sum + 3);
      }
    for (int i = 0; i < WALL_VALUES; i++) values[WALL_VALUES * A + i] = sum[i];
  }
}
