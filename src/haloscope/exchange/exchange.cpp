// Exchanges of values with other ranks: packs them into messages, and puts what arrives in its place.
//
// INDEX: which values of an array, `state`, are exchanged.
//   BOXES     boxes of values of a grid.
//   ENTRIES   FIELDS values of each of some positions: field f of position p is state[p + f * field_stride].
//             A list of ranges of positions is `starts` and `positions`: range k is
//             positions[starts[k]] up to positions[starts[k + 1]].
//   ROWS      rows of `width` values of each of FIELDS fields: value v of field f of row k is
//             state[f * field_stride + k * width + v]. A message has room for a number of rows and holds
//             lists[m] of them now, one after the other, each field after field.
// OPERATION: how an arriving value and those in its place are combined; COMPLETE: a value that arrives
// as +0 leaves the one there. `real` of ROWS is a whole number as wide as a value, since +0 is compared
// to the last bit.
//
// All messages of a rank are moved in one launch. GPUs cut them into chunks, one for a block of threads
// at a time; cores take whole boxes or messages. Flags exist where messages go straight into the memory
// of another GPU. They hold the number of exchanges whose chunk has arrived, so they are never set back.
// Two places for each message are enough: the flag of the next exchange from the same neighbour says
// that it has read the last.
CONSTANTS(TYPE(real), TYPE(index), INT(INDEX), INT(FIELDS), INT(OPERATION))

#define BOXES 0
#define ENTRIES 1
#define ROWS 2

#define COPY 0
#define SUM 1
#define MINIMUM 2
#define MAXIMUM 3
#define COMPLETE 4

// A chunk as Python writes it.
struct Chunk {
#if INDEX == BOXES
  long first, counts[3], strides[3];  // the box
#elif INDEX == ROWS
  long message, rows;  // its number, and the place of its first row in `lists`
#endif
  // Its first value in the box, in the message (ROWS), or among those of all messages (ENTRIES); values;
  // addresses in even and in odd exchanges; address of its flag or 0.
  long begin, values, even, odd, flag;
};

#if ON_GPU
// Packs a chunk, and raises its flag; without one nothing counts exchanges, and all are even.
template <typename Pack>
INLINE void send(const Chunk &chunk, long *sent, Pack pack_to) {
  long *flag = (long *)chunk.flag;
  const long epoch = *sent;
  pack_to((real *)(epoch & 1 ? chunk.odd : chunk.even));
  if (flag) {
    BARRIER();
    if (threadIdx.x == 0) {
      *sent = epoch + 1;
      flag_raise(flag, epoch + 1);
    }
  }
}

// Waits for a chunk's flag, and unpacks it from where its values are.
template <typename Unpack>
INLINE void receive(const Chunk &chunk, long *received, Unpack unpack_from) {
  long *flag = (long *)chunk.flag;
  const long epoch = *received;
  if (flag) {
    if (threadIdx.x == 0) flag_wait(flag, epoch + 1);
    BARRIER();
  }
  unpack_from((const real *)(epoch & 1 ? chunk.odd : chunk.even));
  if (flag && threadIdx.x == 0) *received = epoch + 1;
}

// Not through the first-level cache, which does not see what another GPU writes.
#define ARRIVED(p) __ldcg(p)
#else
#define ARRIVED(p) *(p)
#endif

#if INDEX == BOXES
#if ON_GPU
#define BATCH 2
#define RECEIVING 4
#define BLOCKS_TOGETHER 2

// Index in the state of value e of a box.
INLINE long place(const Chunk &chunk, unsigned e) {
  const unsigned n0 = (unsigned)chunk.counts[0], n1 = (unsigned)chunk.counts[1];
  const unsigned row = e / n0, i0 = e - row * n0;
  const unsigned i2 = row / n1, i1 = row - i2 * n1;
  return chunk.first + i0 * chunk.strides[0] + i1 * chunk.strides[1] + i2 * chunk.strides[2];
}

struct alignas(2 * sizeof(real)) Pair {
  real first, second;
};

// Calls read(i), then write(i, what was read), for all i below count, a batch a thread: loads come before stores.
template <typename Read, typename Write>
INLINE void for_all(unsigned count, Read read, Write write) {
  for (unsigned i = threadIdx.x; i < count; i += BATCH * blockDim.x) {
    decltype(read(i)) values[BATCH];
#pragma unroll
    for (int b = 0; b < BATCH; ++b)
      if (i + b * blockDim.x < count) values[b] = read(i + b * blockDim.x);
#pragma unroll
    for (int b = 0; b < BATCH; ++b)
      if (i + b * blockDim.x < count) write(i + b * blockDim.x, values[b]);
  }
}

INLINE Pair arrived_pair(const real *from) {
  Pair pair;
  static_assert(sizeof(real) >= 4, "a pair of values");
  if constexpr (sizeof(real) == 8) {
    const double2 two = __ldcg((const double2 *)from);
    pair = {(real)two.x, (real)two.y};
  } else {
    const float2 two = __ldcg((const float2 *)from);
    pair = {(real)two.x, (real)two.y};
  }
  return pair;
}

// Messages are written and read in pairs of values where they lie so: half the packets of a link.
INLINE bool in_pairs(const void *message) {
  return (unsigned long)message % sizeof(Pair) == 0;
}

// Whether the two values of each pair lie side by side in the state, so that their place is worked out
// once, and whether they can be read and written as a pair there, too.
INLINE bool side_by_side(const Chunk &chunk) {
  return chunk.strides[0] == 1 && (chunk.counts[0] | chunk.begin) % 2 == 0;
}
INLINE bool pairs_in_state(const real *state, const Chunk &chunk) {
  const long others = chunk.first | chunk.strides[1] | chunk.strides[2];
  return side_by_side(chunk) && in_pairs(state) && others % 2 == 0;
}

INLINE void pack_box(const real *state, const Chunk &chunk, real *to) {
  const unsigned begin = (unsigned)chunk.begin, count = (unsigned)chunk.values;
  const unsigned paired = in_pairs(to) ? count / 2 : 0;
  auto value = [&](unsigned e) { return state[place(chunk, begin + e)]; };
  auto store = [&](unsigned i, Pair pair) { ((Pair *)to)[i] = pair; };
  auto from = [&](unsigned i) { return state + place(chunk, begin + 2 * i); };
  if (pairs_in_state(state, chunk))
    for_all(paired, [&](unsigned i) { return *(const Pair *)from(i); }, store);
  else if (side_by_side(chunk))
    for_all(paired, [&](unsigned i) { return Pair{from(i)[0], from(i)[1]}; }, store);
  else
    for_all(paired, [&](unsigned i) { return Pair{value(2 * i), value(2 * i + 1)}; }, store);
  for_all(count - 2 * paired, [&](unsigned i) { return value(2 * paired + i); },
          [&](unsigned i, real single) { to[2 * paired + i] = single; });
}

INLINE void unpack_box(real *state, const Chunk &chunk, const real *from) {
  const unsigned begin = (unsigned)chunk.begin, count = (unsigned)chunk.values;
  const unsigned paired = in_pairs(from) ? count / 2 : 0;
  auto put = [&](unsigned e, real value) { state[place(chunk, begin + e)] = value; };
  auto load = [&](unsigned i) { return arrived_pair(from + 2 * i); };
  auto to = [&](unsigned i) { return state + place(chunk, begin + 2 * i); };
  if (pairs_in_state(state, chunk))
    for_all(paired, load, [&](unsigned i, Pair pair) { *(Pair *)to(i) = pair; });
  else if (side_by_side(chunk))
    for_all(paired, load, [&](unsigned i, Pair pair) {
      real *there = to(i);
      there[0] = pair.first, there[1] = pair.second;
    });
  else
    for_all(paired, load, [&](unsigned i, Pair pair) {
      put(2 * i, pair.first);
      put(2 * i + 1, pair.second);
    });
  for_all(count - 2 * paired, [&](unsigned i) { return ARRIVED(from + 2 * paired + i); },
          [&](unsigned i, real single) { put(2 * paired + i, single); });
}

INLINE void send_box(const real *state, const Chunk chunk, long *sent) {
  send(chunk, sent, [&](real *to) { pack_box(state, chunk, to); });
}

INLINE void receive_box(real *state, const Chunk chunk, long *received) {
  receive(chunk, received, [&](const real *from) { unpack_box(state, chunk, from); });
}

KERNEL(pack, IN(real, state), IN(Chunk, chunks), LONG(count), INOUT(long, sent)) {
  for (long k = blockIdx.x; k < count; k += gridDim.x) send_box(state, chunks[k], sent + k);
}

KERNEL(unpack, OUT(real, state), IN(Chunk, chunks), LONG(count), INOUT(long, received)) {
  for (long k = blockIdx.x; k < count; k += gridDim.x) receive_box(state, chunks[k], received + k);
}

// Both in one launch, where nothing is computed in between and flags show what has arrived. All
// blocks fit on the GPU at once, so that none waits for one that has not begun.
//
// Where there are more chunks than blocks, whoever is free takes the next one: blocks get unequal
// shares of a link. One of RECEIVING blocks only receives, so that what has arrived is unpacked while
// the rest travels; the others do so when nothing is left to send. turns = {chunks sent, chunks
// received, blocks that are done}, zeros before and after.
KERNEL_BOUNDS(__launch_bounds__(256, BLOCKS_TOGETHER), swap, INOUT(real, state),
              IN(Chunk, outgoing), LONG(sends), INOUT(long, sent), IN(Chunk, incoming),
              LONG(receives), INOUT(long, received), INOUT(long, turns)) {
  const unsigned block = blockIdx.x, blocks = gridDim.x;
  if (sends <= blocks && receives <= blocks) {
    if (block < sends) send_box(state, outgoing[block], sent + block);
    if (block < receives) receive_box(state, incoming[block], received + block);
    return;
  }
  SHARED(long, taken, 1);
  auto take = [&](long *turn) {
    BARRIER();
    if (threadIdx.x == 0) taken[0] = (long)atomicAdd((unsigned long long *)turn, 1ULL);
    BARRIER();
    return taken[0];
  };
  if (block < blocks - blocks / RECEIVING)
    for (long k; (k = take(turns)) < sends;) send_box(state, outgoing[k], sent + k);
  for (long k; (k = take(turns + 1)) < receives;) receive_box(state, incoming[k], received + k);
  if (threadIdx.x == 0 && atomicAdd((unsigned long long *)turns + 2, 1ULL) + 1 == blocks)
    turns[0] = turns[1] = turns[2] = 0;
}

#else
// Rows of all boxes in parallel; within a row the values do not overlap.
#define FOR_ROWS(row_body)                                                              \
  for (long k = 0; k < count; ++k) {                                                    \
    const Chunk chunk = chunks[k];                                                      \
    const long n0 = chunk.counts[0], n1 = chunk.counts[1], n2 = chunk.counts[2];        \
    const long stride = chunk.strides[0];                                               \
    PRAGMA(omp parallel for collapse(2) schedule(static) if (n0 * n1 * n2 > 16384))     \
    for (long i2 = 0; i2 < n2; ++i2)                                                    \
      for (long i1 = 0; i1 < n1; ++i1) {                                                \
        const long row = chunk.first + i1 * chunk.strides[1] + i2 * chunk.strides[2];   \
        real *packed = (real *)chunk.even + (i2 * n1 + i1) * n0;                        \
        PRAGMA(omp simd) for (long i0 = 0; i0 < n0; ++i0) { row_body; }                 \
      }                                                                                 \
  }

KERNEL(pack, IN(real, state), IN(Chunk, chunks), LONG(count), INOUT(long, sent)) {
  FOR_ROWS(packed[i0] = state[row + i0 * stride])
}

KERNEL(unpack, OUT(real, state), IN(Chunk, chunks), LONG(count), INOUT(long, received)) {
  FOR_ROWS(state[row + i0 * stride] = packed[i0])
}
#endif

#elif INDEX == ENTRIES
// All fields of items k below n: a thread takes all fields of an item, a core one field after the
// other of a block of items, since fields may lie so that they compete for the same cache lines.
#if ON_GPU
#define FOR_VALUES(k, f, n) FOR_EACH(k, n) for (int f = 0; f < FIELDS; ++f)
#else
#define ITEMS 256
#define FOR_VALUES(k, f, n)                                         \
  PRAGMA(omp parallel for schedule(static) if ((n) > 8 * ITEMS))    \
  for (long block = 0; block < (long)(n); block += ITEMS)           \
    for (int f = 0; f < FIELDS; ++f)                                \
      for (long k = block; k < smaller((long)(n), block + ITEMS); ++k)
#endif

// The first operand comes from the lower rank, or the lower position. A NaN stays.
INLINE real combined(real a, real b) {
#if OPERATION == MINIMUM
  return b < a || b != b ? b : a;
#elif OPERATION == MAXIMUM
  return b > a || b != b ? b : a;
#else
  return a + b;
#endif
}

// All copies of a range, in order; a range that is copied has one.
INLINE real partial(const real *state, const index *positions, index begin, index end) {
  real value = state[positions[begin]];
#if OPERATION != COPY
  for (index i = begin + 1; i < end; ++i) value = combined(value, state[positions[i]]);
#endif
  return value;
}

#if ON_GPU
INLINE void send_entries(const real *state, long field_stride, const index *starts,
                         const index *positions, const Chunk &chunk, long *sent) {
  const long begin = chunk.begin;
  const unsigned values = (unsigned)chunk.values;
  send(chunk, sent, [&](real *to) {
    for (unsigned i = threadIdx.x; i < values; i += blockDim.x) {
      const unsigned long value = begin + i;
      const unsigned long k = value / FIELDS, f = value - k * FIELDS;
      to[i] = partial(state + f * field_stride, positions, starts[k], starts[k + 1]);
    }
  });
}
#endif

// Packs what the copies of this rank come to; range k holds those of entry k of the messages.
KERNEL(pack, IN(real, state), LONG(field_stride), IN(index, starts), IN(index, positions),
       IN(Chunk, chunks), LONG(count), INOUT(long, sent)) {
#if ON_GPU
  for (long c = blockIdx.x; c < count; c += gridDim.x)
    send_entries(state, field_stride, starts, positions, chunks[c], sent + c);
#else
  for (long c = 0; c < count; ++c) {
    const Chunk chunk = chunks[c];
    const long first = chunk.begin / FIELDS;
    real *to = (real *)chunk.even;
    FOR_VALUES(k, f, chunk.values / FIELDS) {
      const index begin = starts[first + k], end = starts[first + k + 1];
      to[k * FIELDS + f] = partial(state + f * field_stride, positions, begin, end);
    }
  }
#endif
}

#if OPERATION == COPY
KERNEL(unpack, OUT(real, state), LONG(field_stride), IN(index, positions), IN(Chunk, chunks),
       LONG(count), INOUT(long, received)) {
#if ON_GPU
  for (long c = blockIdx.x; c < count; c += gridDim.x) {
    const Chunk &chunk = chunks[c];
    const long begin = chunk.begin;
    const unsigned values = (unsigned)chunk.values;
    receive(chunk, received + c, [&](const real *from) {
      for (unsigned i = threadIdx.x; i < values; i += blockDim.x) {
        const unsigned long value = begin + i;
        const unsigned long k = value / FIELDS, f = value - k * FIELDS;
        state[positions[k] + f * field_stride] = ARRIVED(from + i);
      }
    });
  }
#else
  for (long c = 0; c < count; ++c) {
    const Chunk chunk = chunks[c];
    const index *to = positions + chunk.begin / FIELDS;
    const real *from = (const real *)chunk.even;
    FOR_VALUES(k, f, chunk.values / FIELDS) state[to[k] + f * field_stride] = from[k * FIELDS + f];
  }
#endif
}

// Swaps the two copies of values that no other rank has.
KERNEL(swap_within, IN(real, state), OUT(real, into), LONG(field_stride), LONG(pairs),
       IN(index, paired)) {
  FOR_VALUES(k, f, pairs) {
    const long a = paired[2 * k] + f * field_stride, b = paired[2 * k + 1] + f * field_stride;
    const real left = state[a], right = state[b];
    into[a] = right;
    into[b] = left;
  }
}

#else
// Combines the copies of values that no other rank has, while messages travel; then waits for them
// where they have flags. Most have two copies, which need no ranges.
KERNEL(within, IN(real, state), OUT(real, into), LONG(field_stride), LONG(pairs),
       IN(index, paired), LONG(groups), IN(index, starts), IN(index, positions), IN(Chunk, chunks),
       LONG(count), INOUT(long, received)) {
  FOR_VALUES(k, f, pairs) {
    const long a = paired[2 * k] + f * field_stride, b = paired[2 * k + 1] + f * field_stride;
    into[a] = into[b] = combined(state[a], state[b]);
  }
  FOR_VALUES(k, f, groups) {
    const index begin = starts[k], end = starts[k + 1];
    const real value = partial(state + f * field_stride, positions, begin, end);
    for (index i = begin; i < end; ++i) into[positions[i] + f * field_stride] = value;
  }
#if ON_GPU
  FOR_EACH(c, count) {
    const long *flag = (const long *)chunks[c].flag;
    if (flag) flag_wait(flag, ++received[c]);
  }
#endif
}

// Field f of group k, which other ranks have too, combined in the order of ranks; see `unpack`.
INLINE void combine(const real *state, real *into, long k, const index *starts,
                    const index *positions, const index *other_starts, const index *places,
                    const index *lower, const real *from) {
  const index begin = starts[k], end = starts[k + 1];
  const index first = other_starts[k], own = first + lower[k], last = other_starts[k + 1];
  const real here = partial(state, positions, begin, end);
  real value = first < own ? ARRIVED(from + places[first]) : here;
  for (index i = first + 1; i < own; ++i) value = combined(value, ARRIVED(from + places[i]));
  if (first < own) value = combined(value, here);
  for (index i = own; i < last; ++i) value = combined(value, ARRIVED(from + places[i]));
  for (index i = begin; i < end; ++i) into[positions[i]] = value;
}

// Combines values that other ranks have too, in the order of ranks. Range k of `others` holds where
// what has come from them lies; `lower` of these ranks come before this one. Even exchanges read the
// first half of `others`, odd ones the second.
KERNEL(unpack, IN(real, state), OUT(real, into), LONG(field_stride), LONG(groups),
       IN(index, starts), IN(index, positions), IN(index, other_starts), IN(index, others),
       IN(index, lower), LONG(arrived), LONG(odd), IN(long, received)) {
  const real *from = (const real *)arrived;
  const index *places = odd && (*received - 1) & 1 ? others + odd : others;
  FOR_VALUES(k, f, groups)
    combine(state + f * field_stride, into + f * field_stride, k, starts, positions, other_starts,
            places, lower, from + f);
}

#if ON_GPU
#define BLOCKS_TOGETHER 4
// Sends, waits and combines in one launch, where flags show what has arrived and no value has all its
// copies here; without `sends` what `pack` has sent is waited for. All blocks fit on the GPU at once,
// so that none waits for one that has not begun. counters: blocks that have packed since ever, launches
// with sends, blocks that are done.
KERNEL_BOUNDS(__launch_bounds__(256, BLOCKS_TOGETHER), swap, IN(real, state), OUT(real, into),
              LONG(field_stride), IN(index, out_starts), IN(index, out_positions),
              IN(Chunk, outgoing), LONG(sends), INOUT(long, sent), LONG(groups), IN(index, starts),
              IN(index, positions), IN(index, other_starts), IN(index, others), IN(index, lower),
              LONG(arrived), LONG(odd), IN(Chunk, incoming), LONG(count), INOUT(long, received),
              INOUT(long, counters)) {
  // The last block changes these when all have read them.
  const long epoch = *received, packed = (counters[1] + 1) * gridDim.x;
  if (sends) {
    for (long c = blockIdx.x; c < sends; c += gridDim.x)
      send_entries(state, field_stride, out_starts, out_positions, outgoing[c], sent + c);
    BARRIER();
    // No result may take the place of what another block has yet to pack.
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd((unsigned long long *)counters, 1ULL);
      while (glance(counters) < packed) {
      }
      __threadfence();
    }
  }
  for (long c = threadIdx.x; c < count; c += blockDim.x)
    flag_wait((const long *)incoming[c].flag, epoch + 1);
  BARRIER();
  const index *places = odd && epoch & 1 ? others + odd : others;
  FOR_VALUES(k, f, groups)
    combine(state + f * field_stride, into + f * field_stride, k, starts, positions, other_starts,
            places, lower, (const real *)arrived + f);
  BARRIER();
  if (threadIdx.x == 0) {
    __threadfence();
    if (atomicAdd((unsigned long long *)(counters + 2), 1ULL) + 1 == gridDim.x) {
      counters[1] += sends ? 1 : 0;
      counters[2] = 0;
      for (long c = 0; c < count; ++c) received[c] = epoch + 1;
    }
  }
}
#endif
#endif

#else
#if ON_GPU
// Values of a chunk that are in use.
INLINE unsigned used(const Chunk &chunk, const int *lists, unsigned width) {
  const long left = (long)lists[chunk.message] * FIELDS * width - chunk.begin;
  return left < 0 ? 0 : (unsigned)smaller(left, chunk.values);
}

// Where a value of a message lies in the array.
INLINE long place_of(unsigned value, const int *rows, long field_stride, unsigned width) {
  const unsigned line = value / width, row = line / FIELDS, field = line - row * FIELDS;
  return field * field_stride + (long)rows[row] * width + (value - line * width);
}
#endif

KERNEL(pack, IN(real, state), LONG(field_stride), LONG(width), IN(int, lists), IN(Chunk, chunks),
       LONG(count), INOUT(long, sent)) {
#if ON_GPU
  for (long c = blockIdx.x; c < count; c += gridDim.x) {
    const Chunk &chunk = chunks[c];
    const int *listed = lists + chunk.rows;
    const unsigned first = (unsigned)chunk.begin, values = used(chunk, lists, (unsigned)width);
    send(chunk, sent + c, [&](real *to) {
      for (unsigned i = threadIdx.x; i < values; i += blockDim.x)
        to[i] = state[place_of(first + i, listed, field_stride, (unsigned)width)];
    });
  }
#else
  for (long c = 0; c < count; ++c) {
    const Chunk chunk = chunks[c];
    const int *listed = lists + chunk.rows;
    BLOCKS(line, (long)lists[chunk.message] * FIELDS) {
      real *to = (real *)chunk.even + line * width;
      const real *from = state + line % FIELDS * field_stride + (long)listed[line / FIELDS] * width;
      THREADS(v, width) to[v] = from[v];
    }
  }
#endif
}

// One rank at most has sent a value, or anything but +0 for it: messages may come in any order.
KERNEL(unpack, INOUT(real, state), LONG(field_stride), LONG(width), IN(int, lists),
       IN(Chunk, chunks), LONG(count), INOUT(long, received)) {
  const bool all = OPERATION != COMPLETE;
#if ON_GPU
  for (long c = blockIdx.x; c < count; c += gridDim.x) {
    const Chunk &chunk = chunks[c];
    const int *listed = lists + chunk.rows;
    const unsigned first = (unsigned)chunk.begin, values = used(chunk, lists, (unsigned)width);
    receive(chunk, received + c, [&](const real *from) {
      for (unsigned i = threadIdx.x; i < values; i += blockDim.x) {
        const real value = ARRIVED(from + i);
        if (all || value != 0) state[place_of(first + i, listed, field_stride, (unsigned)width)] = value;
      }
    });
  }
#else
  for (long c = 0; c < count; ++c) {
    const Chunk chunk = chunks[c];
    const int *listed = lists + chunk.rows;
    BLOCKS(line, (long)lists[chunk.message] * FIELDS) {
      const real *from = (const real *)chunk.even + line * width;
      real *to = state + line % FIELDS * field_stride + (long)listed[line / FIELDS] * width;
      THREADS(v, width) to[v] = all || from[v] != 0 ? from[v] : to[v];
    }
  }
#endif
}
#endif
