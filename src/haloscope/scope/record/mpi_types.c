/* Sizes of MPI types: queried once for each type that is never freed. */
#include "mpi_tracer.h"

struct named_type {
  uint64_t key, value;
};

enum { NAMED_TYPES = 256 };
static hs_spin named_lock;
static struct named_type named[NAMED_TYPES]; /* by handle + 1: these are never freed */

static uint64_t asked_size(MPI_Datatype type) {
  MPI_Count size = 0;
  PMPI_Type_size_x(type, &size);
  return size > 0 ? (uint64_t)size : 0;
}

uint64_t hs_type_size(MPI_Datatype type) {
  if (type == MPI_DATATYPE_NULL) return 0;
  const uint64_t key = HS_KEY(type) + 1;
  struct named_type *place = &named[hs_mix(key) & (NAMED_TYPES - 1)];
  const uint64_t stored_key = __atomic_load_n(&place->key, __ATOMIC_ACQUIRE);
  if (HS_LIKELY(stored_key == key)) return place->value;
  const uint64_t size = asked_size(type);
  if (stored_key == 0) {
    int integers, addresses, types, combiner = MPI_UNDEFINED;
    PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    hs_spin_take(&named_lock);
    if (combiner == MPI_COMBINER_NAMED && place->key == 0) {
      place->value = size;
      __atomic_store_n(&place->key, key, __ATOMIC_RELEASE);
    }
    hs_spin_drop(&named_lock);
  }
  return size;
}
