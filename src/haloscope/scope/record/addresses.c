/* What is known of addresses of the program's code: a table that is read without a lock. */
#include "location.h"

struct address_table {
  uint32_t mask, count;
  struct address_known slots[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static inline uint32_t place_of(const void *key) {
  return (uint32_t)(((uintptr_t)key * 0x9e3779b97f4a7c15ull) >> 32);
}

const struct address_known *addresses_find(struct address_table *const *where, const void *key) {
  const struct address_table *table = __atomic_load_n(where, __ATOMIC_ACQUIRE);
  if (UNLIKELY(!table)) return NULL;
  for (uint32_t slot = place_of(key) & table->mask;; slot = (slot + 1) & table->mask) {
    const void *there = __atomic_load_n(&table->slots[slot].key, __ATOMIC_ACQUIRE);
    if (LIKELY(there == key)) return &table->slots[slot];
    if (!there) return NULL;
  }
}

static void put(struct address_table *table, const struct address_known *known) {
  uint32_t slot = place_of(known->key) & table->mask;
  while (table->slots[slot].key) slot = (slot + 1) & table->mask;
  table->slots[slot].region = known->region;
  table->slots[slot].name = known->name;
  __atomic_store_n(&table->slots[slot].key, known->key, __ATOMIC_RELEASE);
  table->count++;
}

/* The first word on a key stays. A table that has become too small is left to those who read it. */
void addresses_keep(struct address_table **where, struct address_known known) {
  pthread_mutex_lock(&lock);
  struct address_table *table = *where;
  if (!addresses_find(where, known.key)) {
    if (!table || table->count * 2 > table->mask) {
      uint32_t mask = table ? table->mask * 2 + 1 : 1023;
      struct address_table *larger = hs_keep(sizeof *larger + (mask + 1ul) * sizeof *larger->slots);
      if (larger) {
        larger->mask = mask;
        for (uint32_t i = 0; table && i <= table->mask; i++)
          if (table->slots[i].key) put(larger, &table->slots[i]);
        __atomic_store_n(where, larger, __ATOMIC_RELEASE);
      }
      table = larger;
    }
    if (table) put(table, &known);
  }
  pthread_mutex_unlock(&lock);
}
