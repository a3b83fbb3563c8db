// Lists which vertices of cells that two ranks hold travel between them, from where they are now.
//
// positions    component d of vertex v of cell c at d * vertices + c * a_cell + v
// table        lines, then where each message's lines begin and where the last ones end (messages + 1),
//              then of each line its message, its cell, and who owns that: HERE, THERE or another
// boxes        of each message's other rank, then of this one: where it begins along x, y, z and how wide
//              it is; last the periods of the axes, 0 where there is none
// reach        how far outside of a rank's box a vertex is of use to it
// margin       how far outside it may be and yet enter the box before lists are made anew
// counts       entries of each line in each list; then how many lines before it have in its message
// totals       entries of each message in each list
// Lists are those of exchange.cpp, with rows of one value: c * a_cell + v. Both ranks of a message find
// the same entries in the same order, since they have the same bits of the same cells.

CONSTANTS(TYPE(real))

#define LANES 32
#define PARTS_OF_A_SUM 128
#define LISTS 4
#define HERE 0
#define THERE 1

// How far outside of a box a vertex is along the axis where it is farthest; 0 within.
INLINE real outside(const real *x, long vertices, long i, const real *box, const real *periods) {
  real farthest = 0;
  for (int d = 0; d < 3; d++) {
    const real at = x[d * vertices + i], width = box[3 + d], period = periods[d];
    // What is no number, or parked, is far from all boxes.
    if (!(absolute(at) < (real)1e9)) return (real)1e9;
    real after = at - box[d];
    if (period > 0) {
      const real turns = after / period;
      long whole = (long)turns;
      whole -= turns < (real)whole;
      after -= period * (real)whole;
    }
    const real before = period > 0 ? period - after : -after;
    const real beyond = after - width;
    // On a periodic axis the nearer way around counts.
    const real far = period > 0 ? smaller(beyond, before) : larger(beyond, before);
    farthest = larger(farthest, far);
  }
  return farthest;
}

// Bits of the lists that a vertex is in: velocities to send and to get, forces to send and to get. Who
// owns a cell needs all its velocities, others those of vertices that are of use to them.
INLINE int lists_of(const real *x, long vertices, long i, const real *boxes, long messages, long message,
                    int owner, double reach, double margin) {
  const real *const periods = boxes + 6 * (messages + 1);
  const real here = outside(x, vertices, i, boxes + 6 * messages, periods);
  const real there = outside(x, vertices, i, boxes + 6 * message, periods);
  const int gives = here <= margin && (owner == THERE || there <= reach);
  const int gets = there <= margin && (owner == HERE || here <= reach);
  const int pushes = owner == HERE && there <= reach;
  const int pushed = owner == THERE && here <= reach;
  return gives | gets << 1 | pushes << 2 | pushed << 3;
}

INLINE const int *line_of(const int *table, long messages, long n) { return table + 2 + messages + 3 * n; }

KERNEL(count_travelling, IN(real, positions), LONG(vertices), LONG(a_cell), IN(int, table),
       LONG(messages), IN(real, boxes), DOUBLE(reach), DOUBLE(margin), OUT(int, counts)) {
  BLOCKS(n, table[0]) {
    SHARED(int, lane_sums, LISTS * LANES);
    const int *const line = line_of(table, messages, n);
    THREADS(i, LANES) {
      int sums[LISTS] = {0, 0, 0, 0};
      for (long v = i; v < a_cell; v += LANES) {
        const int lists = lists_of(positions, vertices, line[1] * a_cell + v, boxes, messages,
                                   line[0], line[2], reach, margin);
        for (int k = 0; k < LISTS; k++) sums[k] += lists >> k & 1;
      }
      for (int k = 0; k < LISTS; k++) lane_sums[k * LANES + i] = sums[k];
    }
    BARRIER();
    THREADS(k, LISTS) {
      int sum = 0;
      for (int i = 0; i < LANES; i++) sum += lane_sums[k * LANES + i];
      counts[LISTS * n + k] = sum;
    }
    BARRIER();
  }
}

KERNEL(add_up_lines, IN(int, table), LONG(messages), INOUT(int, counts), OUT(int, totals)) {
  BLOCKS(m, messages) {
    SHARED(int, parts, LISTS * PARTS_OF_A_SUM);
    const long begin = table[1 + m], lines = table[2 + m] - begin;
    const long lines_a_part = (lines + PARTS_OF_A_SUM - 1) / PARTS_OF_A_SUM;
    THREADS(i, PARTS_OF_A_SUM)
      for (int k = 0; k < LISTS; k++) {
        int sum = 0;
        for (long n = i * lines_a_part; n < smaller(lines, (i + 1) * lines_a_part); n++) sum += counts[LISTS * (begin + n) + k];
        parts[k * PARTS_OF_A_SUM + i] = sum;
      }
    BARRIER();
    THREADS(k, LISTS) {
      int sum = 0;
      for (int i = 0; i < PARTS_OF_A_SUM; i++) {
        const int part = parts[k * PARTS_OF_A_SUM + i];
        parts[k * PARTS_OF_A_SUM + i] = sum;
        sum += part;
      }
      totals[LISTS * m + k] = sum;
    }
    BARRIER();
    THREADS(i, PARTS_OF_A_SUM)
      for (int k = 0; k < LISTS; k++) {
        int sum = parts[k * PARTS_OF_A_SUM + i];
        for (long n = i * lines_a_part; n < smaller(lines, (i + 1) * lines_a_part); n++) {
          const int count = counts[LISTS * (begin + n) + k];
          counts[LISTS * (begin + n) + k] = sum;
          sum += count;
        }
      }
    BARRIER();
  }
}

// firsts: where each message's entries begin in each list, list after list.
KERNEL(list_travelling, IN(real, positions), LONG(vertices), LONG(a_cell), IN(int, table),
       LONG(messages), IN(real, boxes), DOUBLE(reach), DOUBLE(margin), IN(int, counts),
       IN(int, totals), IN(int, firsts), OUT(int, velocities_out), OUT(int, velocities_in),
       OUT(int, forces_out), OUT(int, forces_in)) {
  int *const lists[LISTS] = {velocities_out, velocities_in, forces_out, forces_in};
  BLOCKS(n, larger((long)table[0], messages)) {
    SHARED(int, marks, LANES);
    SHARED(int, next, LISTS);
    if (n < messages) THREADS(k, LISTS) lists[k][n] = totals[LISTS * n + k];
    if (n >= table[0]) continue;
    const int *const line = line_of(table, messages, n);
    const long base = line[1] * a_cell;
    THREADS(k, LISTS) next[k] = firsts[k * messages + line[0]] + counts[LISTS * n + k];
    for (long first = 0; first < a_cell; first += LANES) {
      THREADS(i, LANES)
        marks[i] = first + i < a_cell ? lists_of(positions, vertices, base + first + i, boxes,
                                                 messages, line[0], line[2], reach, margin)
                                      : 0;
      BARRIER();
      THREADS(i, LANES)
        for (int k = 0; k < LISTS; k++)
          if (marks[i] >> k & 1) {
            int at = next[k];
            for (int j = 0; j < i; j++) at += marks[j] >> k & 1;
            lists[k][at] = (int)(base + first + i);
          }
      BARRIER();
      THREADS(k, LISTS)
        for (int j = 0; j < LANES; j++) next[k] += marks[j] >> k & 1;
      BARRIER();
    }
  }
}
