// Packs boxes of the state into one buffer and back: all messages of a rank in one launch.
//
// boxes[k] = {first, count0, count1, count2, stride0, stride1, stride2, place in the buffer}

#define BOX_WORDS 8

#if ON_GPU
#define FOR_BOXES(index, slot)                                                          \
  for (long k = blockIdx.y; k < boxes_count; k += gridDim.y)                            \
    for (long e = blockIdx.x * (long)blockDim.x + threadIdx.x, index, slot;             \
         place(boxes + k * BOX_WORDS, e, index, slot); e += (long)gridDim.x * blockDim.x)

// Index and slot of value e of a box; false past its end.
INLINE bool place(const long *box, long e, long &index, long &slot) {
  const unsigned n0 = (unsigned)box[1], n1 = (unsigned)box[2], n2 = (unsigned)box[3];
  if (e >= (long)n0 * n1 * n2) return false;
  const unsigned row = (unsigned)e / n0, i0 = (unsigned)e - row * n0;
  const unsigned i2 = row / n1, i1 = row - i2 * n1;
  index = box[0] + i0 * box[4] + i1 * box[5] + i2 * box[6];
  slot = box[7] + e;
  return true;
}

KERNEL pack(const real *state, real *buffer, const long *boxes, long boxes_count) {
  FOR_BOXES(index, slot) buffer[slot] = state[index];
}

KERNEL unpack(real *state, const real *buffer, const long *boxes, long boxes_count) {
  FOR_BOXES(index, slot) state[index] = buffer[slot];
}

#else
// Rows of all boxes in parallel; within a row the values do not overlap.
#define FOR_BOXES(row_body)                                                             \
  for (long k = 0; k < boxes_count; ++k) {                                              \
    const long *box = boxes + k * BOX_WORDS;                                            \
    const long n0 = box[1], n1 = box[2], n2 = box[3], stride = box[4];                  \
    PRAGMA(omp parallel for collapse(2) schedule(static) if (n0 * n1 * n2 > 16384))     \
    for (long i2 = 0; i2 < n2; ++i2)                                                    \
      for (long i1 = 0; i1 < n1; ++i1) {                                                \
        const long from = box[0] + i1 * box[5] + i2 * box[6];                           \
        const long to = box[7] + (i2 * n1 + i1) * n0;                                   \
        PRAGMA(omp simd) for (long i0 = 0; i0 < n0; ++i0) { row_body; }                 \
      }                                                                                 \
  }

KERNEL pack(const real *state, real *buffer, const long *boxes, long boxes_count) {
  FOR_BOXES(buffer[to + i0] = state[from + i0 * stride])
}

KERNEL unpack(real *state, const real *buffer, const long *boxes, long boxes_count) {
  FOR_BOXES(state[from + i0 * stride] = buffer[to + i0])
}
#endif
