// The least that a step in place can cost: reads and writes every slot of every point, nothing else.

CONSTANTS(TYPE(real))

#define SLOTS 19
#define VECTOR (64 / (long)sizeof(real))
typedef real Vector __attribute__((vector_size(64), aligned(sizeof(real)), may_alias));

// `count` points, slot i of point p at f[i * stride + p].
KERNEL(update_slots, INOUT(real, f), LONG(stride), LONG(count)) {
  BLOCKS(b, count / 1024) {
    for (long p = b * 1024; p < b * 1024 + 1024; p += VECTOR)
      _Pragma("GCC unroll 19") for (int i = 0; i < SLOTS; ++i) {
        Vector *at = (Vector *)(f + i * stride + p);
        *at = *at * (real)0.999;
      }
  }
}
