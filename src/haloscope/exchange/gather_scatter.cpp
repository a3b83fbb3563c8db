// Combines, or swaps, all copies of values that are scattered over a rank and over ranks.
//
// Field f of position p is state[p + f * field_stride]; FIELDS fields go together, an entry of a
// message is the FIELDS values of one position or group.
//
// chunks[k] = {first value, values, address of the chunk in even and in odd exchanges, address of
// its flag or 0}; values are counted through all messages of the rank, one after the other. Cores
// take whole messages. Flags and epochs are those of pack.cpp.
//
// A list of ranges is `starts` and `items`: range k is items[starts[k]] up to items[starts[k + 1]].
//
// index: the type of positions; OPERATION: how copies are combined, one of the three below.
CONSTANTS(TYPE(real), TYPE(index), INT(FIELDS), INT(OPERATION))

#define SUM 0
#define MINIMUM 1
#define MAXIMUM 2
#define CHUNK_WORDS 5

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
#if OPERATION == SUM
  return a + b;
#elif OPERATION == MINIMUM
  return b < a || b != b ? b : a;
#else
  return b > a || b != b ? b : a;
#endif
}

// All copies of a range, in order.
INLINE real partial(const real *state, const index *positions, index begin, index end) {
  real value = state[positions[begin]];
  for (index i = begin + 1; i < end; ++i) value = combined(value, state[positions[i]]);
  return value;
}

#if ON_GPU
// Packs a chunk, and raises its flag.
INLINE void send(const real *state, long field_stride, const index *starts, const index *positions,
                 const long *chunk, long *sent) {
  long *flag = (long *)chunk[4];
  const long epoch = flag ? *sent : 0;
  real *to = (real *)(epoch & 1 ? chunk[3] : chunk[2]);
  for (unsigned i = threadIdx.x; i < (unsigned)chunk[1]; i += blockDim.x) {
    const unsigned long value = chunk[0] + i;
    const unsigned long k = value / FIELDS, f = value - k * FIELDS;
    to[i] = partial(state + f * field_stride, positions, starts[k], starts[k + 1]);
  }
  if (flag) {
    BARRIER();
    if (threadIdx.x == 0) {
      *sent = epoch + 1;
      flag_raise(flag, epoch + 1);
    }
  }
}
#endif

// Packs what the copies of this rank come to; range k holds those of entry k of the messages.
KERNEL(gather, IN(real, state), LONG(field_stride), IN(index, starts), IN(index, positions),
       IN(long, chunks), LONG(count), INOUT(long, sent)) {
#if ON_GPU
  for (long c = blockIdx.x; c < count; c += gridDim.x)
    send(state, field_stride, starts, positions, chunks + c * CHUNK_WORDS, sent + c);
#else
  for (long c = 0; c < count; ++c) {
    const long *chunk = chunks + c * CHUNK_WORDS;
    const long first = chunk[0] / FIELDS;
    real *to = (real *)chunk[2];
    FOR_VALUES(k, f, chunk[1] / FIELDS) {
      const index begin = starts[first + k], end = starts[first + k + 1];
      to[k * FIELDS + f] = partial(state + f * field_stride, positions, begin, end);
    }
  }
#endif
}

// Waits for all messages, where they tell of themselves by flags.
INLINE void arrive(const long *chunks, long count, long *received) {
#if ON_GPU
  FOR_EACH(c, count) {
    const long *flag = (const long *)chunks[c * CHUNK_WORDS + 4];
    if (flag) flag_wait(flag, ++received[c]);
  }
#endif
}

// Combines the copies of values that no other rank has, while messages travel; then waits for them.
// Most have two copies, which need no ranges.
KERNEL(within, IN(real, state), OUT(real, into), LONG(field_stride), LONG(pairs),
       IN(index, paired), LONG(groups), IN(index, starts), IN(index, positions), IN(long, chunks),
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
  arrive(chunks, count, received);
}

// Values of messages are not read through a GPU's first-level cache, which does not see what another
// GPU writes.
#if ON_GPU
#define CAME(p) __ldcg(p)
#else
#define CAME(p) *(p)
#endif

// Field f of group k, which other ranks have too, combined in the order of ranks; see `scatter`.
INLINE void combine(const real *state, real *into, long k, const index *starts,
                    const index *positions, const index *other_starts, const index *places,
                    const index *lower, const real *from) {
  const index begin = starts[k], end = starts[k + 1];
  const index first = other_starts[k], own = first + lower[k], last = other_starts[k + 1];
  const real here = partial(state, positions, begin, end);
  real value = first < own ? CAME(from + places[first]) : here;
  for (index i = first + 1; i < own; ++i) value = combined(value, CAME(from + places[i]));
  if (first < own) value = combined(value, here);
  for (index i = own; i < last; ++i) value = combined(value, CAME(from + places[i]));
  for (index i = begin; i < end; ++i) into[positions[i]] = value;
}

// Combines values that other ranks have too, in the order of ranks. Range k of `others` tells where
// what has come from them lies; `lower` of these ranks come before this one. Even exchanges read the
// first half of `others`, odd ones the second.
KERNEL(scatter, IN(real, state), OUT(real, into), LONG(field_stride), LONG(groups),
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
// Sends, waits and combines in one launch, where flags tell what has arrived and no value has all its
// copies here; without `sends` what `gather` has sent is waited for. All blocks fit on the GPU at once,
// so that none waits for one that has not begun. counters: blocks that have packed since ever, launches
// with sends, blocks that are done.
KERNEL_BOUNDS(__launch_bounds__(256, BLOCKS_TOGETHER), meet, IN(real, state), OUT(real, into),
              LONG(field_stride), IN(index, out_starts), IN(index, out_positions),
              IN(long, outgoing), LONG(sends), INOUT(long, sent), LONG(groups), IN(index, starts),
              IN(index, positions), IN(index, other_starts), IN(index, others), IN(index, lower),
              LONG(arrived), LONG(odd), IN(long, incoming), LONG(count), INOUT(long, received),
              INOUT(long, counters)) {
  // The last block changes these when all have read them.
  const long epoch = *received, packed = (counters[1] + 1) * gridDim.x;
  if (sends) {
    for (long c = blockIdx.x; c < sends; c += gridDim.x)
      send(state, field_stride, out_starts, out_positions, outgoing + c * CHUNK_WORDS, sent + c);
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
    flag_wait((const long *)incoming[c * CHUNK_WORDS + 4], epoch + 1);
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

// Puts what has come from other ranks in the place of the copies that went to them.
KERNEL(place, OUT(real, into), LONG(field_stride), IN(index, positions), IN(long, chunks),
       LONG(count), INOUT(long, received)) {
#if ON_GPU
  for (long c = blockIdx.x; c < count; c += gridDim.x) {
    const long *chunk = chunks + c * CHUNK_WORDS;
    long *flag = (long *)chunk[4];
    const long epoch = flag ? received[c] : 0;
    if (flag) {
      if (threadIdx.x == 0) flag_wait(flag, epoch + 1);
      BARRIER();
    }
    const real *from = (const real *)(epoch & 1 ? chunk[3] : chunk[2]);
    for (unsigned i = threadIdx.x; i < (unsigned)chunk[1]; i += blockDim.x) {
      const unsigned long value = chunk[0] + i;
      const unsigned long k = value / FIELDS, f = value - k * FIELDS;
      // Not through the first-level cache, which does not see what another GPU writes.
      into[positions[k] + f * field_stride] = __ldcg(from + i);
    }
    if (flag && threadIdx.x == 0) received[c] = epoch + 1;
  }
#else
  for (long c = 0; c < count; ++c) {
    const long *chunk = chunks + c * CHUNK_WORDS;
    const index *to = positions + chunk[0] / FIELDS;
    const real *from = (const real *)chunk[2];
    FOR_VALUES(k, f, chunk[1] / FIELDS) into[to[k] + f * field_stride] = from[k * FIELDS + f];
  }
#endif
}
