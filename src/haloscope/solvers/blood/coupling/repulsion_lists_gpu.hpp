// On a GPU: lists of the vertices of other cells that are near, kept until some vertex has moved.
//
// As on cores (repulsion_lists.hpp), but one launch watches the vertices and makes the lists where that is wanted: all
// steps have the same launches, and a graph can hold them. Where a list finds no room, forces
// come from the bins themselves, in that step and in all others until lists fit again, or the host
// has given them more room.
//
// now: x, y, z and cell of each vertex, by its number among those of all kinds. then: where they
// were when lists were made (kept_positions.hpp), component c of vertex i at c * total + i. While bins are
// read `now` is still what they were made of: a vertex' bin is found again from it, at no cost in memory.
// firsts[k]: first vertex of kind k; firsts[kinds]: all. numbers_listed[k]: its vertices that are near
// others; from firsts[k] on stand their numbers in `listed`, where their lists begin in `near`, and how
// long they are.
// used: entries that all lists want, more than `room` if they do not fit.

#define POSITION 4

// A vertex in `now`, stored in two halves.
struct alignas(2 * sizeof(real)) Present {
  real x, y, z, cell;
};

// Notes where the vertices of a kind are, and asks for lists if one has moved too far; what is no number has always
// moved.
INLINE void watch_kind(const real *positions, long vertices, long count, long first, long first_cell, long a_cell,
                       long total, const float *then, real *now, real far, int *wanted) {
  PARTS(i, count) {
    real x[3], r2 = 0;
    for (int c = 0; c < 3; c++) {
      x[c] = positions[c * vertices + i];
      const real d = moved_at_most(x[c], then[c * total + first + i]);
      r2 = fused(d, d, r2);
    }
    const long cell = first_cell + (unsigned)i / (unsigned)a_cell;
    ((Present *)now)[first + i] = {x[0], x[1], x[2], (real)cell};
    if (!(r2 <= far * far)) *wanted = 1;
  }
}

// Of all kinds but the first one, before keep_near.
KERNEL(watch, IN(real, positions), LONG(vertices), LONG(count), LONG(first), LONG(first_cell),
       LONG(a_cell), LONG(total), IN(float, then), OUT(real, now), DOUBLE(far), OUT(int, wanted)) {
  watch_kind(positions, vertices, count, first, first_cell, a_cell, total, then, now, (real)far, wanted);
}

// Calls visit(other) for the vertices of other cells in the bins around vertex i.
template <typename Visit>
INLINE void others_around(const real *now, const int *starts, const int *items, const int *cells,
                          long reach, const Box &box, long i, Visit visit) {
  const int cell = (int)now[POSITION * i + 3];
  around(bin_of(now + POSITION * i, 1, box), (int)reach, box, starts, [&](int begin, int end) {
    for (int n = begin; n < end; n++)
      if (cells[n] != cell) visit((long)items[n]);
  });
}

// Watches the vertices of the first kind, and makes the lists of all where that is wanted. Bins are in no order: sums
// of forces have none; cells: of items. Lists come in the order of bins, so that neighbouring threads look at the same
// vertices. wanted: the flag, and how many blocks have arrived.
KERNEL_BOUNDS(__launch_bounds__(THREADS_A_BLOCK, BLOCKS_TOGETHER), keep_near, INOUT(int, wanted),
              IN(int, box_numbers), IN(real, positions), LONG(vertices), LONG(count), LONG(first),
              LONG(first_cell), LONG(a_cell), LONG(total), INOUT(float, then), INOUT(real, now),
              DOUBLE(far), INOUT(int, counts), LONG(bins), INOUT(int, sums), INOUT(int, starts),
              INOUT(int, items), INOUT(int, cells), LONG(reach), DOUBLE(radius), IN(long, firsts),
              LONG(kinds), INOUT(int, numbers_listed), OUT(int, listed), OUT(long, begins),
              OUT(int, lengths), OUT(int, near), LONG(room), INOUT(long, used)) {
  watch_kind(positions, vertices, count, first, first_cell, a_cell, total, then, now, (real)far, wanted);
  wait_for_all_blocks(wanted + 1);
  if (!is_set(wanted)) return;
  const Box box = box_of(box_numbers);
  PARTS(i, total) {
    const int bin = bin_of(now + POSITION * i, 1, box);
    for (int c = 0; c < 3; c++) then[c * total + i] = (float)now[POSITION * i + c];
    if (bin >= 0) atomicAdd(counts + bin, 1);
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *used = 0;
    for (long k = 0; k < kinds; k++) numbers_listed[k] = 0;
  }
  wait_for_all_blocks(wanted + 1);
  sum_counts(counts, bins, sums);
  wait_for_all_blocks(wanted + 1);
  scan_counts(counts, bins, sums, starts);
  wait_for_all_blocks(wanted + 1);
  FOR_EACH(i, total) {
    const int bin = bin_of(now + POSITION * i, 1, box);
    if (bin < 0) continue;
    const long at = put(items, starts, counts, bin, (int)i);
    cells[at] = (int)now[POSITION * i + 3];
  }
  wait_for_all_blocks(wanted + 1);
  const real limit = (real)(radius * radius);
  PARTS(n, starts[bins]) {
    const long i = items[n];
    const real x[3] = {now[POSITION * i], now[POSITION * i + 1], now[POSITION * i + 2]};
    int near_count = 0;
    const auto is_near = [&](long other) {
      real d[3];
      return distance_squared(x, now + POSITION * other, 1, box, d) < limit;
    };
    others_around(now, starts, items, cells, reach, box, i,
                  [&](long other) { near_count += is_near(other); });
    if (near_count == 0) continue;
    long k = 0;
    while (k + 1 < kinds && i >= firsts[k + 1]) k++;
    const long slot = firsts[k] + atomicAdd(numbers_listed + k, 1);
    long to = (long)atomicAdd((unsigned long long *)used, (unsigned long long)near_count);
    listed[slot] = (int)i;
    begins[slot] = to;
    lengths[slot] = near_count;
    if (to + near_count > room) continue;
    others_around(now, starts, items, cells, reach, box, i, [&](long other) {
      if (is_near(other)) near[to++] = (int)other;
    });
  }
}

// Of one kind: its vertices are from `first` on, and `forces` are theirs.
KERNEL(repel_near, IN(int, box_numbers), INOUT(real, forces), LONG(vertices), LONG(count),
       LONG(first), LONG(kind), IN(real, now), IN(int, starts), IN(int, items), IN(int, cells),
       LONG(reach), IN(int, numbers_listed), IN(int, listed), IN(long, begins), IN(int, lengths),
       IN(int, near), LONG(room), IN(long, used), OUT(int, wanted), DOUBLE(strength),
       DOUBLE(cutoff), DOUBLE(anchor)) {
  const Box box = box_of(box_numbers);
  const real r0 = (real)cutoff;
  const bool fits = *used <= room;
  if (kind == 0 && blockIdx.x == 0 && threadIdx.x == 0) {
    if (fits) wanted[0] = 0;
    wanted[1] = 0;
  }
  PARTS(n, fits ? (long)numbers_listed[kind] : count) {
    const long i = fits ? (long)listed[first + n] : first + n;
    const real x[3] = {now[POSITION * i], now[POSITION * i + 1], now[POSITION * i + 2]};
    double sum[3] = {0, 0, 0};
    const auto add = [&](long other) {
      real d[3];
      const real r2 = distance_squared(x, now + POSITION * other, 1, box, d);
      if (r2 < r0 * r0) add_push(sum, d, r2, (real)strength, r0, anchor);
    };
    if (fits) {
      const int *const other = near + begins[first + n];
      for (int m = 0; m < lengths[first + n]; m++) add(other[m]);
    } else {
      others_around(now, starts, items, cells, reach, box, i, add);
    }
    add_force(forces + i - first, vertices, sum);
  }
}
