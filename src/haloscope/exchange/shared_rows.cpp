// Packs rows of values that several ranks hold, and puts what others know of them in its place.
//
// A row has `width` values of each of FIELDS fields: value v of field f of row k is
// state[f * field_stride + k * width + v]. A message has room for a number of rows and holds
// lists[m] of them now, one after the other, each field after field.
// chunks[c] = {message, place of its first row in `lists`, first value of the chunk in the message,
// values that it has room for, its address in even and in odd exchanges, address of its flag or 0}.
// Cores take whole messages. Flags and epochs are those of pack.cpp.
//
// real: a whole number as wide as a value, since what is to stay is +0 to the last bit;
// COMPLETES: whether what comes as +0 leaves what is there.
CONSTANTS(TYPE(real), INT(FIELDS), INT(COMPLETES))

#define CHUNK_WORDS 7

#if ON_GPU
// Values of a chunk that are in use.
INLINE unsigned used(const long *chunk, const int *lists, unsigned width) {
  const long left = (long)lists[chunk[0]] * FIELDS * width - chunk[2];
  return left < 0 ? 0 : (unsigned)smaller(left, chunk[3]);
}

// Where a value of a message lies in the array.
INLINE long place_of(unsigned value, const int *rows, long field_stride, unsigned width) {
  const unsigned line = value / width, row = line / FIELDS, field = line - row * FIELDS;
  return field * field_stride + (long)rows[row] * width + (value - line * width);
}
#endif

KERNEL(pack_rows, IN(real, state), LONG(field_stride), LONG(width), IN(int, lists),
       IN(long, chunks), LONG(count), INOUT(long, sent)) {
#if ON_GPU
  for (long c = blockIdx.x; c < count; c += gridDim.x) {
    const long *chunk = chunks + c * CHUNK_WORDS;
    long *flag = (long *)chunk[6];
    const long epoch = flag ? sent[c] : 0;
    real *to = (real *)(epoch & 1 ? chunk[5] : chunk[4]);
    const int *listed = lists + chunk[1];
    const unsigned first = (unsigned)chunk[2], values = used(chunk, lists, (unsigned)width);
    for (unsigned i = threadIdx.x; i < values; i += blockDim.x)
      to[i] = state[place_of(first + i, listed, field_stride, (unsigned)width)];
    if (flag) {
      BARRIER();
      if (threadIdx.x == 0) {
        sent[c] = epoch + 1;
        flag_raise(flag, epoch + 1);
      }
    }
  }
#else
  for (long c = 0; c < count; ++c) {
    const long *chunk = chunks + c * CHUNK_WORDS;
    const int *listed = lists + chunk[1];
    BLOCKS(line, (long)lists[chunk[0]] * FIELDS) {
      real *to = (real *)chunk[4] + line * width;
      const real *from = state + line % FIELDS * field_stride + (long)listed[line / FIELDS] * width;
      THREADS(v, width) to[v] = from[v];
    }
  }
#endif
}

// One rank at most has sent a value, or anything but +0 for it: messages may come in any order.
KERNEL(place_rows, INOUT(real, state), LONG(field_stride), LONG(width), IN(int, lists),
       IN(long, chunks), LONG(count), INOUT(long, received)) {
#if ON_GPU
  for (long c = blockIdx.x; c < count; c += gridDim.x) {
    const long *chunk = chunks + c * CHUNK_WORDS;
    long *flag = (long *)chunk[6];
    const long epoch = flag ? received[c] : 0;
    if (flag) {
      if (threadIdx.x == 0) flag_wait(flag, epoch + 1);
      BARRIER();
    }
    const real *from = (const real *)(epoch & 1 ? chunk[5] : chunk[4]);
    const int *listed = lists + chunk[1];
    const unsigned first = (unsigned)chunk[2], values = used(chunk, lists, (unsigned)width);
    for (unsigned i = threadIdx.x; i < values; i += blockDim.x) {
      // Not through the first-level cache, which does not see what another GPU writes.
      const real value = __ldcg(from + i);
      if (!COMPLETES || value != 0) state[place_of(first + i, listed, field_stride, (unsigned)width)] = value;
    }
    if (flag && threadIdx.x == 0) received[c] = epoch + 1;
  }
#else
  for (long c = 0; c < count; ++c) {
    const long *chunk = chunks + c * CHUNK_WORDS;
    const int *listed = lists + chunk[1];
    BLOCKS(line, (long)lists[chunk[0]] * FIELDS) {
      const real *from = (const real *)chunk[4] + line * width;
      real *to = state + line % FIELDS * field_stride + (long)listed[line / FIELDS] * width;
      THREADS(v, width) to[v] = !COMPLETES || from[v] != 0 ? from[v] : to[v];
    }
  }
#endif
}
