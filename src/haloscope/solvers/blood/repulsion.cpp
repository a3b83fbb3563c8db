// Repulsion at short range: between vertices of different cells, and between vertices and walls.
//
// At distance r below the cutoff r0 a vertex is pushed away by
//
//   F(r) = k (r0 / max(r, r0 / 10) - 1),
//
// which is k at half the cutoff, 0 at the cutoff and at most 9 k. Vertices are put into bins of one
// lattice unit by a counting sort; a vertex adds up what those around it do to it, bin after bin,
// within a bin in the order of kind, cell and vertex. So the sums have the same bits for any number
// of threads or ranks, and the two forces of a pair are exactly opposite.
//
// X positions, F forces of a kind: component c of vertex i at c * vertices + i. Vertex i of a kind
// has the number first + i among those of all kinds; its cell is first_cell + i / a_cell.
// Bins cover the own box and what its vertices can meet around it; box: that region as an own box.
// Constants: real, those of bins.hpp.

#include "own_box.hpp"

INLINE real push(real r, real k, real r0) { return k * (r0 / larger(r, r0 / 10) - 1); }

// Bin of each vertex, -1 outside of all; on a GPU they are counted too.
KERNEL place(const int *numbers, const real *X, long vertices, long count, long first, int *places,
             int *counts) {
  const Box box = box_of(numbers);
  PARTS(i, count) {
    int at[3];
    bool within = true;
    for (int d = 0; d < 3; d++) {
      const real x = X[d * vertices + i];
      const bool known = placeable(x);
      at[d] = own(floor_of(known ? x : (real)0), box.axes[d]);
      within = within && known && at[d] >= 0;
    }
    const int bin = (at[2] * box.axes[1].count + at[1]) * box.axes[0].count + at[0];
    places[first + i] = within ? bin : -1;
#if ON_GPU
    if (within) atomicAdd(counts + bin, 1);
#endif
  }
}

#if ON_GPU
#include "bins.hpp"

KERNEL fill_bins(const int *places, long count, const int *starts, int *counts, int *items) {
  FOR_EACH(i, count)
    if (places[i] >= 0) put(items, starts, counts, places[i], (int)i);
}

// Bins hold a few items each. Also clears the counts for the next time.
KERNEL order_bins(const int *starts, int *counts, long bins, int *items) {
  FOR_EACH(b, bins) {
    const int begin = starts[b], end = starts[b + 1];
    for (int n = begin + 1; n < end; n++) {
      const int item = items[n];
      int to = n;
      for (; to > begin && items[to - 1] > item; to--) items[to] = items[to - 1];
      items[to] = item;
    }
    counts[b] = 0;
  }
}
#else
// Each thread takes a range of bins through all vertices, so that bins keep their order.
KERNEL sort_bins(const int *places, long count, long bins, int *starts, int *items, int *sums,
                 long parts) {
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
#endif

// Positions and cells of a kind's vertices in the order of bins.
KERNEL collect(const real *X, long vertices, long count, long first, long first_cell, long a_cell,
               const int *starts, long bins, const int *items, real *sorted, int *cells,
               long room) {
  PARTS(n, starts[bins]) {
    const long i = items[n] - first;
    if (i < 0 || i >= count) continue;
    for (int d = 0; d < 3; d++) sorted[d * room + n] = X[d * vertices + i];
    cells[n] = (int)(first_cell + i / a_cell);
  }
}

// Adds what items begin..end do to a vertex at x of a cell.
INLINE void add_pairs(real *sum, const real *x, int cell, const Box &box, const real *sorted,
                      const int *cells, long room, int begin, int end, real k, real r0) {
  for (int n = begin; n < end; n++) {
    if (cells[n] == cell) continue;
    real d[3], r2 = 0;
    for (int c = 0; c < 3; c++) {
      d[c] = x[c] - sorted[c * room + n];
      const Axis &axis = box.axes[c];
      if (axis.period && 2 * absolute(d[c]) > (real)axis.period)
        d[c] -= (real)axis.period * nearest_point(d[c] * (real)axis.inverse);
      r2 = fused(d[c], d[c], r2);
    }
    if (r2 >= r0 * r0) continue;
    const real r = square_root(r2), f = r > 0 ? push(r, k, r0) / r : 0;
    for (int c = 0; c < 3; c++) sum[c] = fused(f, d[c], sum[c]);
  }
}

// Whether bin `at` and those up to `reach` from it are all there, round periodic ends or not.
INLINE bool surrounded(int at, int reach, const Axis &axis) {
  return axis.count == axis.period || (at >= reach && at + reach < axis.count);
}

// For vertices whose surroundings lie in bins; others can spread nothing to own points.
KERNEL repel(const int *numbers, const real *X, real *F, long vertices, long count, long first,
             long first_cell, long a_cell, const int *places, const int *starts,
             const real *sorted, const int *cells, long room, long reach, double strength,
             double cutoff) {
  const Box box = box_of(numbers);
  const Axis ax = box.axes[0], ay = box.axes[1], az = box.axes[2];
  const int m = (int)reach;
  PARTS(i, count) {
    const int bin = places[first + i];
    if (bin < 0) continue;
    const int at_x = bin % ax.count, at_y = bin / ax.count % ay.count,
              at_z = bin / ax.count / ay.count;
    if (!surrounded(at_x, m, ax) || !surrounded(at_y, m, ay) || !surrounded(at_z, m, az)) continue;
    const int cell = (int)(first_cell + i / a_cell);
    const real x[3] = {X[i], X[vertices + i], X[2 * vertices + i]};
    real sum[3] = {0, 0, 0};
    for (int dz = -m; dz <= m; dz++)
      for (int dy = -m; dy <= m; dy++) {
        const int z = (at_z + dz + az.count) % az.count, y = (at_y + dy + ay.count) % ay.count;
        const int *row = starts + ((long)z * ay.count + y) * ax.count;
        if (at_x >= m && at_x + m < ax.count) {
          add_pairs(sum, x, cell, box, sorted, cells, room, row[at_x - m], row[at_x + m + 1],
                    (real)strength, (real)cutoff);
          continue;
        }
        for (int dx = -m; dx <= m; dx++) {
          const int b = (at_x + dx + ax.count) % ax.count;
          add_pairs(sum, x, cell, box, sorted, cells, room, row[b], row[b + 1], (real)strength,
                    (real)cutoff);
        }
      }
    for (int c = 0; c < 3; c++) F[c * vertices + i] += sum[c];
  }
}

// distance: of lattice points from the nearest wall. Between points it is trilinear; a point that
// is no fluid counts as one lattice unit further out than the nearest to the wall of those that are.
KERNEL repel_walls(const int *numbers, const int *points, long halo, const real *distance,
                   const real *X, real *F, long vertices, long count, double strength,
                   double cutoff) {
  const Box box = box_of(numbers);
  const Table table = table_of(points, box, halo);
  const real far = (real)cutoff + 2;
  PARTS(i, count) {
    real t[3], d[8], lowest = far;
    long at[3];
    bool here = true;
    for (int c = 0; c < 3; c++) {
      const real x = X[c * vertices + i];
      const bool known = placeable(x);
      const int below = floor_of(known ? x : (real)0);
      t[c] = x - (real)below;
      const int place = from_first(below + (int)halo, box.axes[c]);
      here = here && known && place >= 0 && place + 1 < box.axes[c].count + 2 * halo;
      at[c] = place - halo;
    }
    if (!here) continue;
    for (int n = 0; n < 8; n++) {
      const int p = points[place_of(table, at[0] + n % 2, at[1] + n / 2 % 2, at[2] + n / 4)];
      d[n] = p < 0 ? -1 : smaller(distance[p], far);
      if (p >= 0) lowest = smaller(lowest, d[n]);
    }
    if (lowest >= far) continue;
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
    if (r >= (real)cutoff || !(steepness > 0)) continue;
    const real f = push(r, (real)strength, (real)cutoff) / steepness;
    for (int c = 0; c < 3; c++)
      F[c * vertices + i] = fused(f, slope[c], F[c * vertices + i]);
  }
}
