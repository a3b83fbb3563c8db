/* Communicators as the analysis knows them: numbers, ranks of the world, keys that all agree on.
 *
 * The key of a communicator is a hash of its parent's key, of its members in order, and of how
 * many communicators with these members the parent has had before. All members take part in the
 * making of each of those, in the same order, so that they agree without a message. (Members of
 * MPI_Comm_create_group may make several at a time under different tags: the tag is hashed, too.)
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "mpi_tracer.h"

enum { WORLD_KEY = 0x776f726c64 /* "world" */, MOST_NAME = 200, MOST_DIMENSIONS = 64 };

MPI_Comm hs_last_handle = MPI_COMM_NULL;
struct hs_comm *hs_last_comm;

static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static MPI_Group world_group = MPI_GROUP_NULL;
static int world_size;
static uint32_t comms_made, groups_made;

/* ---- a table from 64-bit keys to values; a key of zero is an empty place ---- */

struct place {
  uint64_t key;
  uint64_t value;
};
struct table {
  struct place *places;
  size_t mask, used;
};

static struct place *place_of(const struct table *table, uint64_t key) {
  size_t at = hs_mix(key) & table->mask;
  while (table->places[at].key != 0 && table->places[at].key != key) at = (at + 1) & table->mask;
  return &table->places[at];
}

static uint64_t looked_up(const struct table *table, uint64_t key) {
  return table->places ? place_of(table, key)->value : 0;
}

static int noted(struct table *table, uint64_t key, uint64_t value) {
  if (table->places == NULL || table->used * 2 > table->mask) {
    size_t kept = 0;
    for (size_t at = 0; table->places && at <= table->mask; at++) kept += table->places[at].value != 0;
    const size_t room = kept * 4 > table->mask ? table->mask * 2 + 2 : table->mask + 1;
    struct table wider = {NULL, (table->places ? room : 64) - 1, kept};
    wider.places = calloc(wider.mask + 1, sizeof *wider.places);
    if (wider.places == NULL) return 0;
    for (size_t at = 0; table->places && at <= table->mask; at++)
      if (table->places[at].value != 0)
        *place_of(&wider, table->places[at].key) = table->places[at];
    free(table->places);
    *table = wider;
  }
  struct place *place = place_of(table, key);
  if (place->key == 0) table->used++;
  *place = (struct place){key, value};
  return 1;
}

/* A value of zero stands for none. The key keeps its place until the table grows. */
static void forgotten(struct table *table, uint64_t key) {
  if (table->places) place_of(table, key)->value = 0;
}

static hs_spin comms_lock;
static struct table comms;  /* by handle + 1 */
static struct table counts; /* communicators made, by hash of parent, members and tag */
static struct table groups; /* number + 1 by hash of members */

/* ---- definitions ---- */

static void put_numbers(FILE *line, const uint32_t *numbers, int count) {
  for (int i = 0; i < count; i++)
    fprintf(line, "%s%u", i ? ", " : "[", numbers ? numbers[i] : (uint32_t)i);
  fputs(count > 0 ? "]" : "[]", line);
}

static void put_string(FILE *line, const char *text) {
  for (; *text; text++) {
    const unsigned char byte = (unsigned char)*text;
    if (byte == '"' || byte == '\\' || byte < 32 || byte > 126) fprintf(line, "\\u%04x", byte);
    else fputc(byte, line);
  }
}

static void put_topology(FILE *line, MPI_Comm handle) {
  int kind = MPI_UNDEFINED, count = 0;
  if (PMPI_Topo_test(handle, &kind) != MPI_SUCCESS || kind != MPI_CART) return;
  if (PMPI_Cartdim_get(handle, &count) != MPI_SUCCESS || count > MOST_DIMENSIONS) return;
  int dims[MOST_DIMENSIONS], periods[MOST_DIMENSIONS], at[MOST_DIMENSIONS];
  if (PMPI_Cart_get(handle, count, dims, periods, at) != MPI_SUCCESS) return;
  for (int i = 0; i < count; i++) periods[i] = periods[i] != 0;
  fputs(", \"dims\": ", line);
  put_numbers(line, (const uint32_t *)dims, count);
  fputs(", \"periods\": ", line);
  put_numbers(line, (const uint32_t *)periods, count);
}

/* Ends a line that was written into memory, and records it. */
static void define(FILE *line, char *const *text) {
  fputs("}", line);
  if (fclose(line) == 0) hs_define(*text);
  free(*text);
}

static int all_known(const uint32_t *ranks, int count) {
  for (int i = 0; ranks && i < count; i++)
    if (ranks[i] == HS_NOBODY) return 0;
  return 1;
}

/* Define a communicator, again where it gets its name after its creation. */
void hs_define_comm(struct hs_comm *comm, MPI_Comm handle) {
  char name[MPI_MAX_OBJECT_NAME + 1] = "", *text = NULL;
  int length = 0;
  size_t size;
  FILE *line = open_memstream(&text, &size);
  if (line == NULL) return;
  fprintf(line, "{\"comm\": %u, \"key\": \"%016llx\", \"members\": ", comm->number, (unsigned long long)comm->key);
  if (comm->ranks == NULL && comm->size == world_size) fputs("\"world\"", line);
  else put_numbers(line, comm->ranks, all_known(comm->ranks, comm->size) ? comm->size : 0);
  if (comm->between) {
    fputs(", \"remote\": ", line);
    put_numbers(line, comm->peers, all_known(comm->peers, comm->peer_count) ? comm->peer_count : 0);
  }
  PMPI_Comm_get_name(handle, name, &length);
  /* Open MPI gives such names by itself. */
  if (name[0] && strncmp(name, "MPI COMMUNICATOR ", 17) != 0) {
    name[MOST_NAME < MPI_MAX_OBJECT_NAME ? MOST_NAME : MPI_MAX_OBJECT_NAME - 1] = '\0';
    fputs(", \"name\": \"", line);
    put_string(line, name);
    fputs("\"", line);
  }
  if (!comm->between) put_topology(line, handle);
  define(line, &text);
}

/* ---- members ---- */

/* Ranks of the world of a group's members; NULL where rank i is the world's rank i. */
static uint32_t *world_ranks(MPI_Group group, int size, int *known) {
  *known = 1;
  int *own = calloc((size_t)(size > 0 ? size : 1), sizeof *own);
  uint32_t *world = malloc((size_t)(size > 0 ? size : 1) * sizeof *world);
  if (own == NULL || world == NULL) {
    free(own);
    free(world);
    *known = 0;
    return NULL;
  }
  for (int i = 0; i < size; i++) own[i] = i;
  PMPI_Group_translate_ranks(group, size, own, world_group, (int *)world);
  int same = 1;
  for (int i = 0; i < size; i++) {
    if ((int)world[i] == MPI_UNDEFINED) world[i] = HS_NOBODY; /* of another program */
    same &= world[i] == (uint32_t)i;
  }
  free(own);
  if (same) {
    free(world);
    return NULL;
  }
  return world;
}

static uint64_t members_hash(const uint32_t *ranks, int size) {
  uint64_t hash = hs_mix((uint64_t)size + 1);
  for (int i = 0; i < size; i++) hash = hs_mix(hash ^ (ranks ? ranks[i] : (uint32_t)i)) + 1;
  return hash;
}

static void note_neighbours(struct hs_comm *comm, MPI_Comm handle) {
  int kind = MPI_UNDEFINED, weighted = 0;
  if (comm->between || PMPI_Topo_test(handle, &kind) != MPI_SUCCESS) return;
  if (kind == MPI_CART) {
    int count = 0;
    PMPI_Cartdim_get(handle, &count);
    comm->in_degree = comm->out_degree = 2 * count;
  } else if (kind == MPI_GRAPH) {
    PMPI_Graph_neighbors_count(handle, comm->rank, &comm->in_degree);
    comm->out_degree = comm->in_degree;
  } else if (kind == MPI_DIST_GRAPH) {
    PMPI_Dist_graph_neighbors_count(handle, &comm->in_degree, &comm->out_degree, &weighted);
  }
}

static void discard(struct hs_comm *comm) {
  if (comm->peers != comm->ranks) free(comm->peers);
  free(comm->ranks);
  free(comm);
}

static struct hs_comm *describe(MPI_Comm handle) {
  struct hs_comm *comm = calloc(1, sizeof *comm);
  MPI_Group group;
  int known = 1;
  if (comm == NULL) return NULL;
  PMPI_Comm_test_inter(handle, &comm->between);
  PMPI_Comm_rank(handle, &comm->rank);
  PMPI_Comm_size(handle, &comm->size);
  PMPI_Comm_group(handle, &group);
  comm->ranks = world_ranks(group, comm->size, &known);
  PMPI_Group_free(&group);
  comm->peers = comm->ranks;
  comm->peer_count = comm->size;
  if (known && comm->between) {
    PMPI_Comm_remote_size(handle, &comm->remote_size);
    PMPI_Comm_remote_group(handle, &group);
    comm->peers = world_ranks(group, comm->remote_size, &known);
    comm->peer_count = comm->remote_size;
    PMPI_Group_free(&group);
  }
  if (!known) {
    discard(comm);
    return NULL;
  }
  note_neighbours(comm, handle);
  return comm;
}

/* ---- the table of communicators ---- */

static void keep(MPI_Comm handle, struct hs_comm *comm) {
  hs_spin_take(&comms_lock);
  noted(&comms, HS_KEY(handle) + 1, (uint64_t)(uintptr_t)comm);
  hs_spin_drop(&comms_lock);
}

static struct hs_comm *kept_comm(MPI_Comm handle) {
  hs_spin_take(&comms_lock);
  struct hs_comm *comm = (struct hs_comm *)(uintptr_t)looked_up(&comms, HS_KEY(handle) + 1);
  hs_spin_drop(&comms_lock);
  return comm;
}

/* Nobody saw it being made: MPI_COMM_SELF, or one with ranks of another program. */
static struct hs_comm *find_unseen(MPI_Comm handle) {
  static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&one_at_a_time);
  struct hs_comm *comm = kept_comm(handle);
  if (comm == NULL) comm = hs_new_comm(MPI_COMM_NULL, handle, 0);
  pthread_mutex_unlock(&one_at_a_time);
  return comm;
}

struct hs_comm *hs_find_comm(MPI_Comm handle) {
  if (handle == MPI_COMM_NULL) return NULL;
  struct hs_comm *comm = kept_comm(handle);
  if (comm == NULL) comm = find_unseen(handle);
  if (!hs_multiple && comm != NULL) {
    hs_last_handle = handle;
    hs_last_comm = comm;
  }
  return comm;
}

static int make(MPI_Comm parent_handle, MPI_Comm handle, int tag, struct hs_comm **made) {
  struct hs_comm *comm = *made = describe(handle);
  if (comm == NULL) return 0;
  const struct hs_comm *parent = hs_find_comm(parent_handle);
  uint64_t hash = members_hash(comm->ranks, comm->size);
  if (comm->between) /* both sides see the other's members as the remote ones */
    hash += members_hash(comm->peers, comm->peer_count);
  hash = hs_mix(hash ^ (uint64_t)(uint32_t)tag);
  if (parent && !comm->between) hash = hs_mix(hash ^ parent->key);
  pthread_mutex_lock(&making);
  const uint64_t before = looked_up(&counts, hash | 1);
  noted(&counts, hash | 1, before + 1);
  comm->key = hs_mix(hash + before);
  comm->number = comms_made++;
  pthread_mutex_unlock(&making);
  return 1;
}

struct hs_comm *hs_new_comm(MPI_Comm parent, MPI_Comm made, int tag) {
  struct hs_comm *comm;
  if (made == MPI_COMM_NULL || !make(parent, made, tag, &comm)) return NULL;
  keep(made, comm);
  hs_define_comm(comm, made);
  hs_redirect();
  return comm;
}

void hs_comms_begin(void) {
  struct hs_comm *world;
  PMPI_Comm_group(MPI_COMM_WORLD, &world_group);
  PMPI_Comm_size(MPI_COMM_WORLD, &world_size);
  world = describe(MPI_COMM_WORLD);
  if (world == NULL) return;
  world->key = WORLD_KEY;
  world->number = comms_made++;
  keep(MPI_COMM_WORLD, world);
  hs_define_comm(world, MPI_COMM_WORLD);
}

struct hs_comm *hs_forget_comm(MPI_Comm handle) {
  struct hs_comm *comm = hs_find_comm(handle);
  hs_spin_take(&comms_lock);
  forgotten(&comms, HS_KEY(handle) + 1);
  hs_spin_drop(&comms_lock);
  if (handle == hs_last_handle) {
    hs_last_handle = MPI_COMM_NULL;
    hs_last_comm = NULL;
  }
  return comm;
}

void hs_keep_comm(MPI_Comm handle, struct hs_comm *comm) {
  if (comm != NULL) keep(handle, comm);
}

void hs_release_comm(struct hs_comm *comm) {
  if (comm && __atomic_sub_fetch(&comm->users, 1, __ATOMIC_ACQ_REL) == 0 &&
      __atomic_load_n(&comm->freed, __ATOMIC_ACQUIRE))
    discard(comm);
}

/* The program has freed it; messages that are under way still need it. */
void hs_drop_comm(struct hs_comm *comm) {
  if (comm == NULL) return;
  __atomic_add_fetch(&comm->users, 1, __ATOMIC_ACQ_REL);
  __atomic_store_n(&comm->freed, 1, __ATOMIC_RELEASE);
  hs_release_comm(comm);
}

void hs_record_created(uint32_t region, MPI_Comm handle, uint32_t operation) {
  const struct hs_comm *comm = hs_comm_of(handle);
  if (comm) hs_record_collective(region, comm, operation | HS_NO_ROOT, 0, 0);
}

/* ---- groups ---- */

uint32_t hs_group_number(MPI_Group group) {
  int size = 0, known = 1;
  PMPI_Group_size(group, &size);
  uint32_t *ranks = world_ranks(group, size, &known);
  const uint64_t hash = members_hash(ranks, size) | 1;
  pthread_mutex_lock(&making);
  uint32_t number = (uint32_t)looked_up(&groups, hash);
  if (number == 0 && noted(&groups, hash, groups_made + 1)) {
    char *text = NULL;
    size_t length;
    FILE *line = open_memstream(&text, &length);
    number = ++groups_made;
    if (line) {
      fprintf(line, "{\"group\": %u, \"members\": ", number - 1);
      put_numbers(line, ranks, all_known(ranks, size) ? size : 0);
      define(line, &text);
    }
  }
  pthread_mutex_unlock(&making);
  free(ranks);
  return number - 1;
}
