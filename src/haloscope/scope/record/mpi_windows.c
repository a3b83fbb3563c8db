/* Windows of one-sided communication and files: which communicator they belong to. Sizes of types. */
#include <stdio.h>
#include <stdlib.h>

#include "mpi_tracer.h"

struct owned {
  uint64_t key;
  struct hs_window window;
};
/* There are few of them at a time: a list is searched from its end. */
struct list {
  struct owned *items;
  size_t count, room;
};

static hs_spin lock;
static struct list windows, files;
static uint32_t windows_made;

static struct owned *find_owned(struct list *list, uint64_t key) {
  for (size_t at = list->count; at > 0; at--)
    if (list->items[at - 1].key == key) return &list->items[at - 1];
  return NULL;
}

static void added(struct list *list, uint64_t key, uint32_t number, struct hs_comm *comm) {
  hs_spin_take(&lock);
  struct owned *item = find_owned(list, key); /* a handle that is used again */
  if (item == NULL && list->count == list->room) {
    const size_t room = list->room ? 2 * list->room : 16;
    struct owned *wider = realloc(list->items, room * sizeof *wider);
    if (wider) {
      list->items = wider;
      list->room = room;
    }
  }
  if (item == NULL && list->count < list->room) item = &list->items[list->count++];
  if (item) *item = (struct owned){key, {number, comm}};
  hs_spin_drop(&lock);
}

static int removed(struct list *list, uint64_t key, struct hs_window *window) {
  hs_spin_take(&lock);
  struct owned *item = find_owned(list, key);
  const int there = item != NULL;
  if (there) {
    *window = item->window;
    *item = list->items[--list->count];
  }
  hs_spin_drop(&lock);
  return there;
}

void hs_new_window(MPI_Win handle, MPI_Comm comm) {
  struct hs_comm *owner = hs_comm_of(comm);
  char line[80];
  if (owner == NULL || handle == MPI_WIN_NULL) return;
  __atomic_add_fetch(&owner->users, 1, __ATOMIC_RELAXED);
  const uint32_t number = __atomic_fetch_add(&windows_made, 1, __ATOMIC_RELAXED);
  snprintf(line, sizeof line, "{\"window\": %u, \"comm\": %u}", number, owner->number);
  hs_define(line);
  added(&windows, HS_KEY(handle), number, owner);
}

static struct hs_window window_of(MPI_Win handle) {
  struct hs_window window = {0, NULL};
  hs_spin_take(&lock);
  const struct owned *item = find_owned(&windows, HS_KEY(handle));
  if (item) window = item->window;
  hs_spin_drop(&lock);
  return window;
}

void hs_new_file(MPI_File handle, MPI_Comm comm) {
  struct hs_comm *owner = hs_comm_of(comm);
  if (owner == NULL || handle == MPI_FILE_NULL) return;
  __atomic_add_fetch(&owner->users, 1, __ATOMIC_RELAXED);
  added(&files, HS_KEY(handle), 0, owner);
}

struct hs_comm *hs_take_file(MPI_File handle) {
  struct hs_window file;
  return removed(&files, HS_KEY(handle), &file) ? file.comm : NULL;
}

void hs_record_access(uint32_t kind, MPI_Win handle, int target, uint64_t bytes) {
  const struct hs_window window = window_of(handle);
  if (window.comm == NULL) return;
  const uint32_t peer = hs_peer(window.comm, target);
  if (peer != HS_NOBODY) hs_event(kind, peer, window.number, bytes, 0, 0);
}

/* The n-th epoch of a window belongs to the n-th of the other side, recorded or not. */
static void record_epoch(uint32_t region, uint32_t kind, MPI_Win handle, uint64_t group) {
  const struct hs_window window = window_of(handle);
  if (window.comm == NULL) return;
  if (HS_RECORDED) hs_event(kind, window.number, group, 0, 0, 0);
  else hs_event(HS_EVENT_SKIPPED, window.number, group, kind | HS_SKIPPED_EPOCH, HS_NOBODY, 0);
}

void hs_record_epoch(uint32_t region, uint32_t kind, MPI_Win handle, MPI_Group group) {
  record_epoch(region, kind, handle, hs_group_number(group));
}

void hs_record_window(uint32_t region, uint32_t kind, MPI_Win handle) {
  record_epoch(region, kind, handle, 0);
}

void hs_record_lock(uint32_t kind, MPI_Win handle, int target, int all, int exclusive) {
  const struct hs_window window = window_of(handle);
  if (window.comm == NULL) return;
  const uint64_t peer = all ? HS_NOBODY : hs_peer(window.comm, target);
  hs_event(kind, window.number, peer | (uint64_t)(exclusive != 0) << 32, 0, 0, 0);
}

void hs_record_fence(uint32_t region, MPI_Win handle) {
  const struct hs_window window = window_of(handle);
  if (window.comm) hs_record_collective(region, window.comm, HS_OP_FENCE | HS_NO_ROOT, 0, 0);
}

int hs_own_Win_free(uint32_t region, MPI_Win *handle) {
  struct hs_window window = {0, NULL};
  const int there = removed(&windows, HS_KEY(*handle), &window);
  const MPI_Win before = *handle;
  const int code = PMPI_Win_free(handle);
  if (!there) return code;
  if (code != MPI_SUCCESS) {
    added(&windows, HS_KEY(before), window.number, window.comm);
    return code;
  }
  hs_record_collective(region, window.comm, HS_OP_FREE | HS_NO_ROOT, 0, 0);
  hs_release_comm(window.comm);
  return code;
}

/* ---- sizes of MPI types: queried once for each type that is never freed ---- */

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
