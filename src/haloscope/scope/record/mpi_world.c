/* Begin and end of MPI: where the recorder learns its rank and clocks are compared. */
#include <stdio.h>

#include "mpi_tracer.h"

int hs_closed = 1;
int hs_multiple;
static int paused;

void hs_spin_wait(hs_spin *lock) {
  for (;;) {
    while (*lock) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    if (!__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE)) return;
  }
}

uint32_t hs_make_region(unsigned index) {
  const struct hs_described *function = &hs_described[index];
  const uint32_t region = hs_region(function->name, "mpi", function->role, "", 0);
  __atomic_store_n(&hs_regions[index], region, __ATOMIC_RELAXED);
  hs_redirect(); /* a function that is new may come from a library that is new */
  return region;
}

uint32_t hs_open_rarely(unsigned index, const char *frame, const void *caller) {
  return hs_open(index, frame, caller);
}

void hs_close_rarely(uint32_t region) { hs_close(region); }

const void *hs_fortran_site(const void *caller) {
  const void *site = hs_mpi_thread.fortran_site;
  hs_mpi_thread.fortran_site = NULL;
  for (int library = 0; library < HS_MOST_FORTRAN; library++)
    if ((const char *)caller >= hs_fortran[library].begin && (const char *)caller < hs_fortran[library].end)
      return site;
  return caller;
}

/* "MPICH 4.1" from the first line of an MPI's version text. */
static void short_version(char *text, size_t room) {
  char says[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
  int length = 0, used = 0;
  PMPI_Get_library_version(says, &length);
  says[strcspn(says, "\n,")] = '\0';
  for (const char *at = says; *at && (size_t)used + 1 < room; at++) {
    const int blank = *at == ' ' || *at == '\t';
    if (blank && (used == 0 || text[used - 1] == ' ')) continue;
    text[used++] = blank ? ' ' : *at;
  }
  text[used] = '\0';
  static const char *const superfluous[] = {"Version:", "version"};
  for (size_t word = 0; word < sizeof superfluous / sizeof *superfluous; word++) {
    char *at = strstr(text, superfluous[word]);
    if (at == NULL) continue;
    const char *after = at + strlen(superfluous[word]);
    after += *after == ' ';
    memmove(at, after, strlen(after) + 1);
  }
}

static const char *threads_named(int provided) {
  if (provided == MPI_THREAD_MULTIPLE) return "multiple";
  if (provided == MPI_THREAD_SERIALIZED) return "serialized";
  return provided == MPI_THREAD_FUNNELED ? "funneled" : "single";
}

/* Reason why this process is not measured, or NULL; "" where it was printed already. */
static const char *not_measured(int rank, int size) {
  MPI_Comm parent = MPI_COMM_NULL;
  PMPI_Comm_get_parent(&parent);
  if (parent != MPI_COMM_NULL) return "processes started by MPI_Comm_spawn are not measured";
  const uint32_t region = hs_region("agreement of the ranks", "measurement", "other", "", 0);
  if (region != HS_FILTERED) hs_enter(region, NULL);
  const char *reason = hs_carriers_find(rank, size);
  if (region != HS_FILTERED) hs_leave(region);
  return reason;
}

/* After MPI_Init. Returns 0 where this process is not measured. */
static int begin(void) {
  char version[128];
  int rank, size, provided = MPI_THREAD_SINGLE;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  PMPI_Comm_size(MPI_COMM_WORLD, &size);
  PMPI_Query_thread(&provided);
  const char *reason = not_measured(rank, size);
  if (reason) {
    if (rank == 0 && *reason) hs_say_once(reason);
    hs_give_up();
    return 0;
  }
  hs_multiple = provided == MPI_THREAD_MULTIPLE;
  short_version(version, sizeof version);
  hs_attach(rank, size, version, threads_named(provided));
  hs_comms_begin();
  hs_compare_clocks();
  hs_record_cost(rank);
  hs_redirect();
  hs_mpi_runs(1);
  hs_closed = 0;
  return 1;
}

static int begun(uint32_t region, int code) {
  if (code == MPI_SUCCESS && begin()) hs_record_created(region, MPI_COMM_WORLD, HS_OP_INIT);
  return code;
}

int hs_own_Init(uint32_t region, int *argc, char ***argv) {
  hs_carriers_mark();
  return begun(region, PMPI_Init(argc, argv));
}

int hs_own_Init_thread(uint32_t region, int *argc, char ***argv, int required, int *provided) {
  hs_carriers_mark();
  return begun(region, PMPI_Init_thread(argc, argv, required, provided));
}

int hs_own_Finalize(uint32_t region) {
  const struct hs_comm *world = hs_comm_of(MPI_COMM_WORLD);
  hs_compare_clocks();
  hs_closed = 1;
  hs_mpi_runs(0);
  const int code = PMPI_Finalize();
  if (world) hs_record_collective(region, world, HS_OP_FINALIZE | HS_NO_ROOT, 0, 0);
  return code;
}

/* Level 0 pauses the measurement, any other lets it go on, as the MPI standard suggests. */
int hs_own_Pcontrol(uint32_t region, int level) {
  (void)region;
  if ((level == 0) != paused) {
    paused = level == 0;
    if (paused) hs_pause();
    else hs_resume();
  }
  return MPI_SUCCESS;
}

static int freed(uint32_t region, MPI_Comm *handle, int (*release)(MPI_Comm *)) {
  const MPI_Comm before = *handle;
  struct hs_comm *comm = hs_forget_comm(before);
  const int code = release(handle);
  if (code != MPI_SUCCESS) {
    hs_keep_comm(before, comm);
    return code;
  }
  if (comm) hs_record_collective(region, comm, HS_OP_FREE | HS_NO_ROOT, 0, 0);
  hs_drop_comm(comm);
  return code;
}

int hs_own_Comm_free(uint32_t region, MPI_Comm *handle) { return freed(region, handle, PMPI_Comm_free); }

int hs_own_Comm_disconnect(uint32_t region, MPI_Comm *handle) {
  return freed(region, handle, PMPI_Comm_disconnect);
}

int hs_own_Comm_set_name(uint32_t region, MPI_Comm handle, const char *name) {
  (void)region;
  const int code = PMPI_Comm_set_name(handle, name);
  if (code == MPI_SUCCESS) {
    struct hs_comm *comm = hs_comm_of(handle);
    if (comm) hs_define_comm(comm, handle);
  }
  return code;
}
