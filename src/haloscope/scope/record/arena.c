/* Memory of the recorder: taken from the system in large pieces and never given back, so that it
 * needs neither malloc, which the program may have replaced, nor a lock. */
#include "location.h"

#include <sys/mman.h>

enum { PIECE = 1 << 20, ALIGNMENT = 16 };

struct piece {
  size_t used;
};

static struct piece *newest;

static void *from_system(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

void *hs_keep(size_t bytes) {
  if (bytes > (size_t)1 << 40) return NULL;
  bytes = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
  if (bytes > PIECE / 4) return from_system(bytes);
  for (;;) {
    struct piece *piece = __atomic_load_n(&newest, __ATOMIC_ACQUIRE);
    if (piece) {
      size_t place = __atomic_fetch_add(&piece->used, bytes, __ATOMIC_RELAXED);
      if (place + bytes <= PIECE) return (char *)piece + place;
    }
    struct piece *fresh = from_system(PIECE);
    if (!fresh) return NULL;
    fresh->used = ALIGNMENT;
    /* Where another thread was faster, its piece is the one to use. */
    if (!__atomic_compare_exchange_n(&newest, &piece, fresh, 0, __ATOMIC_RELEASE,
                                     __ATOMIC_RELAXED))
      munmap(fresh, PIECE);
  }
}
