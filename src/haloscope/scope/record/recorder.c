/* Life of the recorder: its memory, its first call, the threads of the process, its rank, its pauses. */
#include "location.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MEMBARRIER_CMD_PRIVATE_EXPEDITED
#define MEMBARRIER_CMD_PRIVATE_EXPEDITED (1 << 3)
#define MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED (1 << 4)
#endif

enum { MOST_LOCATIONS = 100000, MOST_SAID = 64 };

struct recorder hs_recorder = {.lock = PTHREAD_MUTEX_INITIALIZER, .size = 1,
                               .phase_region = HS_FILTERED};
__thread struct location *hs_me __attribute__((tls_model("initial-exec")));
static __thread int starting __attribute__((tls_model("initial-exec")));

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t thread_end;

/* The lock may be taken again by the thread that has it. */
static __thread int locked __attribute__((tls_model("initial-exec")));

void hs_lock(void) {
  if (locked++ == 0) {
    if (hs_me) hs_me->busy++;
    pthread_mutex_lock(&hs_recorder.lock);
  }
}

void hs_unlock(void) {
  if (--locked == 0) {
    pthread_mutex_unlock(&hs_recorder.lock);
    if (hs_me) hs_me->busy--;
  }
}

const char *hs_launcher_rank(void) {
  static const char *const names[] = {"PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK",
                                      "MV2_COMM_WORLD_RANK", "PALS_RANKID", "SLURM_PROCID"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *rank = getenv(names[i]);
    if (rank && *rank) return rank;
  }
  return NULL;
}

/* Launchers name the rank before MPI does. */
static int is_rank_0(void) {
  if (hs_recorder.attached) return hs_recorder.rank == 0;
  const char *rank = hs_launcher_rank();
  return rank == NULL || strcmp(rank, "0") == 0;
}

void hs_say_once(const char *text) {
  static uint64_t said[MOST_SAID];
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char *c = text; *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3ull;
  if (!is_rank_0()) return;
  int known = 0, i = 0;
  pthread_mutex_lock(&lock);
  for (; i < MOST_SAID && said[i] && !known; i++) known = said[i] == hash;
  if (!known && i < MOST_SAID) said[i] = hash;
  pthread_mutex_unlock(&lock);
  if (known || i == MOST_SAID) return;
  char line[4600];
  struct text out;
  text_open(&out, line, sizeof line);
  text_format(&out, "haloscope: %s\n", text);
  ssize_t written = write(STDERR_FILENO, line, (size_t)(out.at - line));
  (void)written;
}

/* --- memory ----------------------------------------------------------------------------------
 *
 * Taken from the system in large pieces and never given back, so that it needs neither malloc, which
 * the program may have replaced, nor a lock. */

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

/* --- start -------------------------------------------------------------------------------- */

static void forked(void) {
  hs_recorder.state = OFF;
  hs_recorder.open = 0;
  hs_me = NULL;
}

static void thread_ends(void *its_location);

static struct location *new_location(void) {
  if (hs_recorder.location_count >= MOST_LOCATIONS) return NULL;
  struct location *me = hs_keep(sizeof *me);
  if (!me) return NULL;
  me->number = hs_recorder.location_count++;
  me->file.fd = -1;
  me->busy = 1;
  struct location **last = &hs_recorder.locations;
  while (*last) last = &(*last)->next_location;
  *last = me;
  if (!calltree_root(me)) return NULL;
  char name[32];
  struct text text;
  text_open(&text, name, sizeof name);
  if (me->number) text_format(&text, "thread %u", me->number);
  else text_put(&text, "main");
  definitions_format("{\"location\": %u, \"kind\": \"thread\", \"name\": \"%s\"}", me->number, name);
  if (hs_recorder.mode == MODE_TRACE) buffer_open(me);
  return me;
}

/* Give a location its thread: the calling one, or the first one of the process from afar. */
static void occupy(struct location *me, uint64_t tick) {
  me->in_use = 1;
  me->toggles = hs_recorder.toggle_count;
  me->turn = hs_recorder.turn;
  location_begin(me, tick);
  if (!hs_recorder.open) location_pause(me, tick);
}

static int start(void) {
  hs_recorder.process = getpid();
  hs_recorder.page = (size_t)sysconf(_SC_PAGESIZE);
  clock_begin();
  if (!environment_read() || !definitions_open()) return 0;
  if (pthread_key_create(&thread_end, thread_ends) || pthread_atfork(NULL, NULL, forked)) return 0;
  if (at_quick_exit(hs_finish)) return 0;
  syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
  if (hs_recorder.unwind) unwind_ready();
  hs_recorder.open = hs_recorder.phase[0] == 0;
  hs_recorder.turn = 1;
  hs_recorder.state = ON;
  counters_define();
  definitions_region("program", NULL, "program", "other", "", 0);
  struct location *first = new_location();
  if (!first) return 0;
  occupy(first, clock_epoch());
  if (hs_recorder.mode == MODE_PROFILE) profile_catch_signals();
  return 1;
}

/* The location of a thread that has none yet; NULL where nothing is recorded. */
struct location *hs_acquire(void) {
  if (hs_recorder.state == OFF || hs_recorder.state == ENDED || starting) return hs_me;
  starting = 1;
  pthread_mutex_lock(&start_lock);
  if (hs_recorder.state == UNTOUCHED && !start()) hs_recorder.state = OFF;
  struct location *me = NULL;
  if (hs_recorder.state == ON) {
    hs_lock();
    if (gettid() == getpid()) {
      me = hs_recorder.locations;
      if (me && me->ended) occupy(me, now());
    } else {
      me = hs_recorder.locations ? hs_recorder.locations->next_location : NULL;
      while (me && me->in_use) me = me->next_location;
      if (!me) me = new_location();
      if (me) occupy(me, now());
    }
    hs_unlock();
  }
  if (me) {
    me->thread = gettid();
    me->ended = 0;
    pthread_setspecific(thread_end, me);
    if (hs_recorder.counters) counters_open(me);
    me->busy = 0;
    hs_me = me;
  }
  pthread_mutex_unlock(&start_lock);
  starting = 0;
  return me;
}

/* Its location is there for the next thread. */
static void thread_ends(void *its_location) {
  struct location *me = its_location;
  if (hs_me != me) return;
  me->busy = 1;
  COMPILER_BARRIER();
  if (hs_recorder.state != ON || !hs_take_turn(me)) return;
  openmp_close(me);
  if (!hs_recorder.stopped) location_close_calls(me, now());
  counters_close(me);
  hs_me = NULL;
  me->ended = 1;
  COMPILER_BARRIER();
  if (me->number) __atomic_store_n(&me->in_use, 0, __ATOMIC_RELEASE);
}

/* --- rank ----------------------------------------------------------------------------------- */

void hs_record_no_more(int state) {
  hs_recorder.state = state;
  hs_recorder.open = 0;
  hs_recorder.turn++;
}

void hs_become_rank(int rank, int size, const char *mpi, const char *threads) {
  clock_fix();
  strncpy(hs_recorder.mpi, mpi ? mpi : "", sizeof hs_recorder.mpi - 1);
  strncpy(hs_recorder.threads, threads ? threads : "", sizeof hs_recorder.threads - 1);
  hs_recorder.rank = rank;
  hs_recorder.size = size;
  if (!files_take_rank()) {
    char line[300], path[4096];
    file_path(path, sizeof path, "def", -1);
    if (access(path, F_OK) == 0)
      snprintf(line, sizeof line,
               "process %d is not recorded: the folder of the measurement already has a rank %d; "
               "measure one program at a time",
               (int)hs_recorder.process, rank);
    else
      snprintf(line, sizeof line,
               "rank %d is not recorded: its files in the folder of the measurement cannot be "
               "renamed; remove no files there",
               rank);
    files_drop();
    hs_say_once(line);
    hs_record_no_more(OFF);
    return;
  }
  definitions_opening(clock_rate());
  for (struct location *location = hs_recorder.locations; location; location = location->next_location)
    buffer_rename(location);
}

void hs_attach(int rank, int size, const char *mpi, const char *threads) {
  if (!here() || hs_recorder.state != ON || hs_recorder.attached) return;
  hs_lock();
  if (!hs_recorder.attached) hs_become_rank(rank, size, mpi, threads);
  hs_unlock();
}

int hs_ready(void) { return here() != NULL && hs_recorder.state == ON; }

void hs_mpi_runs(int runs) { hs_recorder.mpi_runs = runs; }

/* --- pauses ----------------------------------------------------------------------------------- */

int hs_recording(void) { return here() != NULL && hs_recorder.open; }

/* Apply the pauses and resumes of other threads since this location looked last. */
void hs_take_toggles(struct location *me) {
  for (;;) {
    hs_lock();
    uint64_t tick = 0;
    if (me->toggles < hs_recorder.toggle_count) tick = hs_recorder.toggles[me->toggles++];
    hs_unlock();
    if (!tick) return;
    if (tick & 1)
      location_resume(me, tick & ~1ull);
    else
      location_pause(me, tick);
  }
}

/* Something has changed for all threads. A thread that comes after the end forgets its location:
 * the one that ends the recording has it now. */
int hs_take_turn(struct location *me) {
  uint32_t turn = hs_recorder.turn;
  if (hs_recorder.state != ON) {
    me->busy = 0;
    hs_me = NULL;
    return 0;
  }
  me->turn = turn;
  hs_take_toggles(me);
  return 1;
}

/* Lock held. The lowest bit of a tick is 1 where the recording goes on, 0 where it pauses. */
static void toggle(int open) {
  if (open == hs_recorder.open) return;
  if (hs_recorder.toggle_count == hs_recorder.toggle_room) {
    uint64_t room = hs_recorder.toggle_room ? 2 * hs_recorder.toggle_room : 256;
    uint64_t *larger = hs_keep(room * sizeof *larger);
    if (!larger) return;
    if (hs_recorder.toggles)
      memcpy(larger, hs_recorder.toggles, hs_recorder.toggle_count * sizeof *larger);
    hs_recorder.toggles = larger;
    hs_recorder.toggle_room = room;
  }
  hs_recorder.toggles[hs_recorder.toggle_count++] = (now() & ~1ull) | (uint64_t)open;
  hs_recorder.open = open;
  hs_recorder.turn++;
}

/* Lock held: whether anything is recorded follows from everything that may forbid it. */
static void see_to_the_gate(void) {
  toggle(!hs_recorder.stopped && hs_recorder.pauses <= 0 &&
         (!hs_recorder.phase[0] || hs_recorder.phase_inside > 0));
}

static void pause_by(int more) {
  struct location *me = here();
  if (!me || me->busy || hs_recorder.state != ON) return;
  me->busy = 1;
  hs_lock();
  hs_recorder.pauses += more;
  see_to_the_gate();
  hs_unlock();
  hs_take_turn(me);
  me->busy = 0;
}

void hs_pause(void) { pause_by(1); }
void hs_resume(void) { pause_by(-1); }

void hs_phase_changes(struct location *me, int inside) {
  hs_lock();
  hs_recorder.phase_inside += inside ? 1 : (uint64_t)-1;
  see_to_the_gate();
  hs_unlock();
  hs_take_turn(me);
}

void hs_stop(struct location *me, const char *reason) {
  char line[300];
  hs_lock();
  int first = !hs_recorder.stopped;
  if (first) {
    hs_recorder.stopped = 1;
    definitions_lost(reason, me);
    see_to_the_gate();
  }
  hs_unlock();
  if (!first) return;
  snprintf(line, sizeof line,
           "recording ended before the program: %s; the events until then are kept",
           reason);
  hs_say_once(line);
  if (me == hs_me) hs_take_turn(me);
}
