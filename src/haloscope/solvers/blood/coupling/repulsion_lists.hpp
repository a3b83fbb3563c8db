// On cores: lists of the vertices of other cells that are near, kept until some vertex has moved.
//
// A list holds what is within `radius`, the cutoff and a margin. It has all pairs that repel as long
// as no vertex is half the margin away from where it was when the list was made.
//
// then: positions at that time. now: those of all kinds, POSITION values a vertex.
// Lists of a kind: part k of its vertices has numbers_listed[k] vertices that have any; their numbers
// stand in `listed` from begin_of(k) on, the ends of their lists in `ends`, and what is near, by the
// numbers among all kinds, in `near` from k * room on.

// A position fills half a cache line at most and never lies in two.
#define POSITION 4

INLINE long begin_of(long k, long count, long parts) { return k * count / parts; }

// Copies positions; moved[k]: whether a vertex of part k is farther than `far` from where it was.
KERNEL(watch, IN(real, positions), LONG(vertices), LONG(count), LONG(first), IN(real, then),
       OUT(real, now), DOUBLE(far), OUT(int, moved), LONG(parts)) {
  const real limit = (real)(far * far);
  PARTS(k, parts) {
    int still = 1;
    for (long i = begin_of(k, count, parts); i < begin_of(k + 1, count, parts); i++) {
      real r2 = 0;
      for (int c = 0; c < 3; c++) {
        const real x = positions[c * vertices + i], d = x - then[c * vertices + i];
        now[POSITION * (first + i) + c] = x;
        r2 = fused(d, d, r2);
      }
      // No number is not near either.
      still &= r2 <= limit;
    }
    moved[k] = !still;
  }
}

// needed[k]: the room that the lists of part k want.
KERNEL(list_near, IN(int, box_numbers), IN(real, positions), LONG(vertices), LONG(count),
       LONG(first), LONG(first_cell), LONG(a_cell), IN(int, places), IN(int, starts),
       IN(int, items), IN(real, sorted), IN(int, cells), LONG(total), LONG(reach), DOUBLE(radius),
       OUT(real, then), OUT(int, listed), OUT(int, ends), OUT(int, numbers_listed), OUT(int, near),
       LONG(room), OUT(int, needed), LONG(parts)) {
  const Box box = box_of(box_numbers);
  const real limit = (real)(radius * radius);
  PARTS(k, parts) {
    const long begin = begin_of(k, count, parts);
    long near_count = 0, lists = 0;
    for (long i = begin; i < begin_of(k + 1, count, parts); i++) {
      const int cell = (int)(first_cell + i / a_cell);
      const real x[3] = {positions[i], positions[vertices + i], positions[2 * vertices + i]};
      for (int c = 0; c < 3; c++) then[c * vertices + i] = x[c];
      const long before = near_count;
      around(places[first + i], (int)reach, box, starts, [&](int from, int to) {
        for (int n = from; n < to; n++) {
          real d[3];
          if (cells[n] == cell || distance_squared(x, sorted + n, total, box, d) >= limit) continue;
          if (near_count < room) near[k * room + near_count] = items[n];
          near_count++;
        }
      });
      if (near_count == before) continue;
      listed[begin + lists] = (int)i;
      ends[begin + lists++] = (int)near_count;
    }
    numbers_listed[k] = (int)lists;
    needed[k] = (int)near_count;
  }
}

KERNEL(repel_listed, IN(int, box_numbers), INOUT(real, forces), LONG(vertices), LONG(count),
       LONG(first), IN(real, now), IN(int, listed), IN(int, ends), IN(int, numbers_listed),
       IN(int, near), LONG(room), DOUBLE(strength), DOUBLE(cutoff), DOUBLE(anchor), LONG(parts)) {
  const Box box = box_of(box_numbers);
  const real r0 = (real)cutoff;
  PARTS(k, parts) {
    const long begin = begin_of(k, count, parts);
    const int *other = near + k * room;
    for (long n = begin; n < begin + numbers_listed[k]; n++) {
      const long i = listed[n];
      double sum[3] = {0, 0, 0};
      for (const int *end = near + k * room + ends[n]; other < end; other++) {
        real d[3];
        const real r2 = distance_squared(now + POSITION * (first + i),
                                         now + POSITION * (long)*other, 1, box, d);
        if (r2 < r0 * r0) add_push(sum, d, r2, (real)strength, r0, anchor);
      }
      add_force(forces + i, vertices, sum);
    }
  }
}
