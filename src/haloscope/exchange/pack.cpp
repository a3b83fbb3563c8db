// Packs boxes of the state into messages and back: all messages of a rank in one launch.
//
// A box is cut into chunks; on a GPU a block of threads moves one at a time.
// chunks[k] = {first, counts[3], strides[3], first value of the chunk in its box, values,
//              address of the chunk in even and in odd exchanges, address of its flag or 0}
// Flags exist where messages go straight into the memory of another GPU. They hold the number of
// exchanges whose chunk has arrived, so they are never set back. Two places for each message are
// enough: the flag of the next exchange from the same neighbour says that it has read the last.
//
// BLOCKS_TOGETHER: blocks of a GPU's multiprocessor that run `swap` at the same time.
CONSTANTS(TYPE(real), INT(BLOCKS_TOGETHER))

#define CHUNK_WORDS 12

#if ON_GPU
#define BATCH 2
#define RECEIVING 4

// A row of `chunks`, read at once.
struct Chunk {
  long first, counts[3], strides[3], begin, values, even, odd, flag;
};
static_assert(sizeof(Chunk) == CHUNK_WORDS * sizeof(long), "as Python hands them over");

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

// Not through the first-level cache, which does not see what another GPU writes.
INLINE Pair fresh_pair(const real *from) {
  Pair pair;
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

INLINE void send(const real *state, const Chunk chunk, long *sent) {
  long *flag = (long *)chunk.flag;
  const long epoch = *sent;
  const unsigned begin = (unsigned)chunk.begin, count = (unsigned)chunk.values;
  real *to = (real *)(epoch & 1 ? chunk.odd : chunk.even);
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
  if (flag) {
    BARRIER();
    if (threadIdx.x == 0) {
      *sent = epoch + 1;
      flag_raise(flag, epoch + 1);
    }
  }
}

INLINE void receive(real *state, const Chunk chunk, long *received) {
  long *flag = (long *)chunk.flag;
  const long epoch = *received;
  const unsigned begin = (unsigned)chunk.begin, count = (unsigned)chunk.values;
  if (flag) {
    if (threadIdx.x == 0) flag_wait(flag, epoch + 1);
    BARRIER();
  }
  const real *from = (const real *)(epoch & 1 ? chunk.odd : chunk.even);
  const unsigned paired = in_pairs(from) ? count / 2 : 0;
  auto put = [&](unsigned e, real value) { state[place(chunk, begin + e)] = value; };
  auto load = [&](unsigned i) { return fresh_pair(from + 2 * i); };
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
  for_all(count - 2 * paired, [&](unsigned i) { return __ldcg(from + 2 * paired + i); },
          [&](unsigned i, real single) { put(2 * paired + i, single); });
  if (flag && threadIdx.x == 0) *received = epoch + 1;
}

KERNEL(pack, IN(real, state), IN(Chunk, chunks), LONG(count), INOUT(long, sent)) {
  for (long k = blockIdx.x; k < count; k += gridDim.x) send(state, chunks[k], sent + k);
}

KERNEL(unpack, OUT(real, state), IN(Chunk, chunks), LONG(count), INOUT(long, received)) {
  for (long k = blockIdx.x; k < count; k += gridDim.x) receive(state, chunks[k], received + k);
}

// Both in one launch, where nothing is computed in between and flags tell what has arrived. All
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
    if (block < sends) send(state, outgoing[block], sent + block);
    if (block < receives) receive(state, incoming[block], received + block);
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
    for (long k; (k = take(turns)) < sends;) send(state, outgoing[k], sent + k);
  for (long k; (k = take(turns + 1)) < receives;) receive(state, incoming[k], received + k);
  if (threadIdx.x == 0 && atomicAdd((unsigned long long *)turns + 2, 1ULL) + 1 == blocks)
    turns[0] = turns[1] = turns[2] = 0;
}

#else
// Rows of all boxes in parallel; within a row the values do not overlap.
#define FOR_ROWS(row_body)                                                              \
  for (long k = 0; k < count; ++k) {                                                    \
    const long *chunk = chunks + k * CHUNK_WORDS;                                       \
    const long n0 = chunk[1], n1 = chunk[2], n2 = chunk[3], stride = chunk[4];          \
    PRAGMA(omp parallel for collapse(2) schedule(static) if (n0 * n1 * n2 > 16384))     \
    for (long i2 = 0; i2 < n2; ++i2)                                                    \
      for (long i1 = 0; i1 < n1; ++i1) {                                                \
        const long row = chunk[0] + i1 * chunk[5] + i2 * chunk[6];                      \
        real *packed = (real *)chunk[9] + (i2 * n1 + i1) * n0;                          \
        PRAGMA(omp simd) for (long i0 = 0; i0 < n0; ++i0) { row_body; }                 \
      }                                                                                 \
  }

// Nothing counts exchanges here: messages have one place each.
KERNEL(pack, IN(real, state), IN(long, chunks), LONG(count), INOUT(long, sent)) {
  FOR_ROWS(packed[i0] = state[row + i0 * stride])
}

KERNEL(unpack, OUT(real, state), IN(long, chunks), LONG(count), INOUT(long, received)) {
  FOR_ROWS(state[row + i0 * stride] = packed[i0])
}
#endif
