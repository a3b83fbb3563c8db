// Repulsion at short range: between vertices of different cells, and between vertices and walls.
//
// At distance r below the cutoff r0 a vertex is pushed away by
//
//   F(r) = k (r0 / max(r, r0 / 10) - 1),
//
// which is k at half the cutoff, 0 at the cutoff and at most 9 k. What a pair adds is rounded to a
// whole multiple of a unit so small, and so far from overflow, that sums of these are exact. So they
// are the same in any order, for any number of threads or ranks, and the two forces of a pair are
// exactly opposite. Vertices are put into bins of one lattice unit by a counting sort. From these
// come lists of what is near, which are kept (repulsion_lists.hpp, repulsion_lists_gpu.hpp).
//
// positions, forces of a kind: component c of vertex i at c * vertices + i. Vertex i of a kind has
// the number first + i among those of all kinds; its cell is first_cell + i / a_cell.
// Bins cover the own box and what its vertices can meet around it; box_numbers: of that region as of
// an own box.

CONSTANTS(TYPE(real))

#include "own_box.hpp"

#if ON_GPU
#define VERTICES_A_BATCH THREADS_A_BLOCK
#else
#define VERTICES_A_BATCH 32
#endif

INLINE real push(real r, real k, real r0) { return k * (r0 / larger(r, r0 / 10) - 1); }

// Adds the force along d, a distance with the square r2. Next to the anchor, 1.5 * 2^52 units, numbers
// are a unit apart.
INLINE void add_push(double *sum, const real *d, real r2, real k, real r0, double anchor) {
  const real r = square_root(r2), f = r > 0 ? push(r, k, r0) / r : 0;
  for (int c = 0; c < 3; c++) sum[c] += ((double)(f * d[c]) + anchor) - anchor;
}

// Bin of a position, -1 outside of all.
INLINE int bin_of(const real *x, long apart, const Box &box) {
  int at[3];
  bool within = true;
  for (int d = 0; d < 3; d++) {
    const bool known = placeable(x[d * apart]);
    at[d] = own(floor_of(known ? x[d * apart] : (real)0), box.axes[d]);
    within = within && known && at[d] >= 0;
  }
  return within ? (at[2] * box.axes[1].count + at[1]) * box.axes[0].count + at[0] : -1;
}

#if ON_GPU
#include "bins.hpp"
#else
KERNEL(place, IN(int, box_numbers), IN(real, positions), LONG(vertices), LONG(count), LONG(first),
       OUT(int, places)) {
  const Box box = box_of(box_numbers);
  PARTS(i, count) places[first + i] = bin_of(positions + i, vertices, box);
}

// Each thread takes a range of bins through all vertices, so that bins keep their order.
KERNEL(sort_bins, IN(int, places), LONG(count), LONG(bins), INOUT(int, starts), OUT(int, items),
       INOUT(int, sums), LONG(parts)) {
  PARTS(k, parts) {
    const long begin = k * bins / parts, end = (k + 1) * bins / parts;
    int sum = 0;
    for (long b = begin; b < end; b++) starts[b] = 0;
    for (long i = 0; i < count; i++)
      if (places[i] >= begin && places[i] < end) {
        starts[places[i]]++;
        sum++;
      }
    sums[k] = sum;
  }
  PARTS(k, parts) {
    const long begin = k * bins / parts, end = (k + 1) * bins / parts;
    int before = 0;
    for (long part = 0; part < k; part++) before += sums[part];
    for (long b = begin; b < end; b++) {
      const int here = starts[b];
      starts[b] = before;
      before += here;
    }
    for (long i = 0; i < count; i++)
      if (places[i] >= begin && places[i] < end) items[starts[places[i]]++] = (int)i;
    // Each bin's start has gone to its end, which is the next one's start.
    for (long b = end - 1; b > begin; b--) starts[b] = starts[b - 1];
    if (end > begin) starts[begin] = before - sums[k];
    if (k == parts - 1) starts[bins] = before;
  }
}
// Positions and cells of a kind's vertices in the order of bins.
KERNEL(collect, IN(real, positions), LONG(vertices), LONG(count), LONG(first), LONG(first_cell),
       LONG(a_cell), IN(int, starts), LONG(bins), IN(int, items), OUT(real, sorted),
       OUT(int, cells), LONG(room)) {
  PARTS(n, starts[bins]) {
    const long i = items[n] - first;
    if (i < 0 || i >= count) continue;
    for (int d = 0; d < 3; d++) sorted[d * room + n] = positions[d * vertices + i];
    cells[n] = (int)(first_cell + i / a_cell);
  }
}

#endif

// Whether bin `at` and those up to `reach` from it are all there, round periodic ends or not.
INLINE bool surrounded(int at, int reach, const Axis &axis) {
  return axis.count == axis.period || (at >= reach && at + reach < axis.count);
}

INLINE int wrapped(int at, int count) { return at < 0 ? at + count : at < count ? at : at - count; }

// Calls visit(begin, end) for the items of bins up to `reach` from a bin, if all of these are there.
// Others are those of vertices that can spread nothing to own points.
template <typename Visit>
INLINE void around(int bin, int reach, const Box &box, const int *starts, Visit visit) {
  if (bin < 0) return;
  const Axis &ax = box.axes[0], &ay = box.axes[1], &az = box.axes[2];
  const int x = bin % ax.count, y = bin / ax.count % ay.count, z = bin / ax.count / ay.count;
  if (!surrounded(x, reach, ax) || !surrounded(y, reach, ay) || !surrounded(z, reach, az)) return;
  const int low = x - reach, high = x + reach + 1;
  for (int dz = -reach; dz <= reach; dz++)
    for (int dy = -reach; dy <= reach; dy++) {
      const long row = (long)wrapped(z + dz, az.count) * ay.count + wrapped(y + dy, ay.count);
      const int *from = starts + row * ax.count;
      visit(from[larger(low, 0)], from[smaller(high, ax.count)]);
      // What lies beyond an end of the row.
      if (low < 0) visit(from[low + ax.count], from[ax.count]);
      if (high > ax.count) visit(from[0], from[high - ax.count]);
    }
}

// d = x - y by way of the nearest periodic image; its square.
INLINE real distance_squared(const real *x, const real *y, long apart, const Box &box, real *d) {
  real r2 = 0;
  for (int c = 0; c < 3; c++) {
    const Axis &axis = box.axes[c];
    d[c] = x[c] - y[c * apart];
    if (axis.period && 2 * absolute(d[c]) > (real)axis.period)
      d[c] -= (real)axis.period * nearest_point(d[c] * (real)axis.inverse);
    r2 = fused(d[c], d[c], r2);
  }
  return r2;
}

// A force of nothing changes nothing, not even the sign of 0.
INLINE void add_force(real *F, long vertices, const double *sum) {
  for (int c = 0; c < 3; c++)
    if (sum[c] != 0) F[c * vertices] += (real)sum[c];
}

#if ON_GPU
#include "kept_positions.hpp"
#include "repulsion_lists_gpu.hpp"
#else
#include "repulsion_lists.hpp"
#endif

// Adds what walls do to a vertex in the lattice cell whose lowest corner has a place in the table.
// distance: of lattice points from the nearest wall. Between points it is trilinear; a point that
// is no fluid counts as one lattice unit further out than the nearest to the wall of those that are.
INLINE void push_from_walls(const real *X, real *F, long vertices, const int *points,
                            const Table &table, const real *distance, real k, real r0) {
  const real far = r0 + 2;
  real t[3], d[8], lowest = far;
  for (int c = 0; c < 3; c++) t[c] = X[c * vertices] - (real)floor_of(X[c * vertices]);
  for (int n = 0; n < 8; n++) {
    const int p = points[(n / 4 * table.ny + n / 2 % 2) * table.nx + n % 2];
    d[n] = p < 0 ? -1 : smaller(distance[p], far);
    if (p >= 0) lowest = smaller(lowest, d[n]);
  }
  if (lowest >= far) return;
  for (int n = 0; n < 8; n++) d[n] = d[n] < 0 ? lowest - 1 : d[n];
  real slope[3] = {0, 0, 0}, r = 0;
  for (int n = 0; n < 8; n++) {
    const real wx = n % 2 ? t[0] : 1 - t[0], wy = n / 2 % 2 ? t[1] : 1 - t[1],
               wz = n / 4 ? t[2] : 1 - t[2];
    r = fused(wx * wy * wz, d[n], r);
    slope[0] = fused(wy * wz, n % 2 ? d[n] : -d[n], slope[0]);
    slope[1] = fused(wx * wz, n / 2 % 2 ? d[n] : -d[n], slope[1]);
    slope[2] = fused(wx * wy, n / 4 ? d[n] : -d[n], slope[2]);
  }
  const real steepness = square_root(
      slope[0] * slope[0] + slope[1] * slope[1] + slope[2] * slope[2]);
  if (r >= r0 || !(steepness > 0)) return;
  const real f = push(r, k, r0) / steepness;
  for (int c = 0; c < 3; c++) F[c * vertices] = fused(f, slope[c], F[c * vertices]);
}

// near: whether walls push anywhere between a place of the table and the next ones along all axes.
// Vertices come in batches, whose places cores find in vector lanes.
KERNEL(repel_walls, IN(int, box_numbers), IN(int, points), LONG(halo), IN(real, distance),
       IN(unsigned char, near), IN(real, positions), INOUT(real, forces), LONG(vertices),
       LONG(count), DOUBLE(strength), DOUBLE(cutoff)) {
  const Box box = box_of(box_numbers);
  const Table table = table_of(points, box, halo);
  BLOCKS(b, (count + VERTICES_A_BATCH - 1) / VERTICES_A_BATCH) {
    const long begin = b * VERTICES_A_BATCH, end = smaller(count, begin + VERTICES_A_BATCH);
    PRIVATE(long, places, VERTICES_A_BATCH);
    THREADS(n, end - begin) MINE(places, n) = 0;
    for (int c = 2; c >= 0; c--) {
      const Axis axis = box.axes[c];
      const int along = axis.count + 2 * (int)halo;
      THREADS(n, end - begin) {
        const real x = positions[c * vertices + begin + n];
        const real known = smaller(larger(x, (real)-1e9), (real)1e9);
        const int at = from_first(floor_of(known) + (int)halo, axis);
        const bool there = placeable(x) & (at >= 0) & (at + 1 < along);
        MINE(places, n) = there & (MINE(places, n) >= 0) ? MINE(places, n) * along + at : -1;
      }
    }
    THREADS(n, end - begin) {
      const long place = MINE(places, n);
      if (place >= 0 && near[place])
        push_from_walls(positions + begin + n, forces + begin + n, vertices, points + place, table,
                        distance, (real)strength, (real)cutoff);
    }
  }
}
