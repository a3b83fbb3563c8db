/* What the recorder keeps of a process, of a thread and of a call path; for its own files only.
 *
 * A thread that has called the recorder has a location: its file of events and its own call tree.
 * Nodes carry numbers that are the same on all threads of a process. While a thread changes its
 * location it is `busy`: a signal handler that comes in between is not recorded, and whoever ends
 * the recording waits until nobody is.
 */
#ifndef HALOSCOPE_LOCATION_H
#define HALOSCOPE_LOCATION_H

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "recorder.h"

#pragma GCC visibility push(hidden)

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define COMPILER_BARRIER() __asm__ volatile("" ::: "memory")

enum {
  MOST_DEPTH = 2000,       /* of calls within each other; deeper ones count for the last */
  MOST_NODES = 1 << 18,    /* call paths of a location */
  MOST_COUNTERS = 8,       /* hardware counters read at once */
  MOST_FRAMES = 64,        /* callers looked at when unwinding */
  SPARE_WORDS = 256,       /* kept free in a window for what must still be written */
  SIZE_CLASSES = 66        /* 0 bytes, 1, up to 2, 4, 8, ... 2^64 */
};

enum { OPENING = 2048 }; /* bytes of the first line of the definitions */

/* Why a location takes the slow way (bits of location.odd). */
enum { ODD_PAUSED = 1, ODD_DEEP = 2, ODD_PHASE = 4, ODD_COUNTERS = 8 };

struct messages {
  uint64_t sent, sent_empty, sent_bytes;
  uint64_t received, received_empty, received_bytes;
  uint64_t collectives, collective_sent, collective_received;
  uint64_t accesses, accessed_bytes;
  uint64_t sizes[SIZE_CLASSES];
};

struct node {
  struct node *parent;
  struct node *outer; /* what was open when it was entered: not always its parent */
  struct node *last;  /* the child that was entered last */
  const void *site;
  uint32_t region;
  uint32_t number;
  uint32_t depth;
  uint64_t entered;     /* ticks; see location.away */
  const char *frame;    /* stack pointer of its caller when it was entered; NULL not known */
  uint64_t visits, ticks, least, most;
  uint64_t inner;       /* ticks of what was entered within */
  struct messages *messages;
  uint64_t *counters;   /* sums, then values at the last enter */
  struct node *next;    /* in the order in which they were made */
};

struct pair {
  struct node *node;
  uint32_t peer;
  uint64_t messages, empty, bytes;
};

/* Messages of a channel, or collectives of a communicator, that were not recorded. */
struct skipped {
  uint64_t channel, flag, count; /* count 0: the place is empty */
  uint32_t peer;
};

/* An event that could not be recorded in a pause, and is when it is over. */
struct deferred {
  uint32_t kind, payload;
  uint64_t words[3];
};

struct child_slot {
  const struct node *parent;
  const void *site;
  struct node *child;
  uint32_t region;
};

struct paused_call {
  uint32_t region;
  const void *site;
  const char *frame;
};

/* A file that survives programs which close what is not theirs. */
struct file {
  int fd;
  dev_t device;
  ino_t inode;
};

struct location {
  volatile uint32_t busy;
  uint32_t turn; /* of recorder.turn that this location has seen */
  uint32_t odd;
  uint32_t stamped; /* the last event has read the clock for the LEAVE to come */
  struct node *current;
  uint64_t *next, *limit; /* where the next word goes, and where a new window is due */
  uint64_t last;          /* tick of the last event */
  uint64_t away;          /* profile mode: ticks of pauses so far */
  uint64_t events;
  uint32_t skipped;       /* channels with skipped messages not yet recorded, and events deferred */
  uint32_t depth, beyond; /* calls open; calls open that are too deep to record */
  uint32_t number;
  /* Less often: */
  int in_use;        /* has a thread */
  int ended;
  pid_t thread;
  struct node *root, *newest;
  uint32_t nodes;
  struct child_slot *children;
  uint32_t child_mask, child_count;
  uint64_t toggles;  /* pauses and resumes taken in */
  struct node *paused_at;
  uint64_t paused_since;
  struct paused_call *shadow;
  uint32_t shadow_depth;
  uint32_t phase_depth;
  struct pair *pairs;
  struct pair *last_pair;
  uint32_t pair_mask, pair_count;
  struct skipped *skips;
  uint32_t skip_mask, skip_count;
  uint64_t skip_messages; /* together */
  struct deferred *deferred;
  uint32_t deferred_count, deferred_room;
  struct file file;
  char *base;
  size_t length;     /* of the window */
  uint64_t offset;   /* of the window in the file */
  uint64_t flushes, flush_ticks, left_out;
  int counting, counted; /* hardware counters are open; were read at the last pause */
  int counter_files[MOST_COUNTERS];
  uint64_t counters_away[MOST_COUNTERS], counters_at_pause[MOST_COUNTERS];
  struct unwind_slot *unwound;
  struct team *team;        /* OpenMP: that it works for, and what was open before */
  struct node *team_outer;
  const struct node *mirrored;
  struct node *mirror;
  struct location *next_location;
};

enum mode { MODE_TRACE = 1, MODE_PROFILE = 2 };
enum state { UNTOUCHED = 0, OFF = 1, ON = 2, ENDED = 3 };

struct recorder {
  volatile int state;
  volatile uint32_t turn;  /* changes with every pause, resume and stop */
  volatile int open;       /* recording: not paused, within the phase */
  int mode;
  int tsc;                 /* clock is the time-stamp counter */
  pthread_mutex_t lock;
  pid_t process;
  const char *folder;
  size_t window;           /* bytes */
  size_t page;
  uint32_t unwind;
  uint32_t counters;
  int rank, size, attached;
  int mpi_runs;
  char mpi[128], threads[16];
  struct location *locations;
  uint32_t location_count;
  uint32_t phase_region;   /* number, HS_FILTERED without a phase */
  char phase[256];
  uint64_t phase_visit;    /* 0: every one */
  uint64_t phase_visits, phase_inside;
  int64_t pauses;
  int stopped;
  uint64_t *toggles;
  uint64_t toggle_count, toggle_room;
};

extern struct recorder hs_recorder;
extern __thread struct location *hs_me __attribute__((tls_model("initial-exec")));

/* clock.c */
void clock_begin(void);
void clock_fix(void);
double clock_rate(void);
double clock_final_rate(void);
uint64_t clock_base(void);
uint64_t clock_epoch(void);

static inline uint64_t now(void) {
#if defined(__x86_64__)
  if (LIKELY(hs_recorder.tsc)) return __rdtsc();
#endif
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static inline int tracing(const struct location *me) { return me->base != NULL; }

/* A location to be changed by its thread: NULL where that is within a change already. */
static inline struct location *location_take(struct location *me) {
  if (UNLIKELY(!me || me->busy)) return NULL;
  me->busy = 1;
  COMPILER_BARRIER();
  return me;
}

static inline void location_give(struct location *me) {
  COMPILER_BARRIER();
  me->busy = 0;
}

static inline void node_visited(struct node *node, uint64_t taken) {
  node->visits++;
  node->ticks += taken;
  if (taken < node->least) node->least = taken;
  if (taken > node->most) node->most = taken;
}

/* recorder.c */
struct location *hs_acquire(void);
void hs_lock(void);
void hs_unlock(void);
void hs_stop(struct location *me, const char *reason); /* recording ends early */
int hs_take_turn(struct location *me); /* false: the recording has ended */
void hs_take_toggles(struct location *me);
void hs_become_rank(int rank, int size, const char *mpi, const char *threads); /* lock held */
void hs_phase_changes(struct location *me, int inside);
void hs_record_no_more(int state); /* OFF or ENDED from here on */

/* ending.c */
void hs_finish(void);
void hs_finish_in_signal(int number);
void hs_record_rate(double rate); /* lock held */

/* --- words of a trace ------------------------------------------------------------------------ */

/* The ticks since the event before, with a word of its own where they do not fit. */
static inline uint64_t delta_to(struct location *me, uint64_t tick) {
  uint64_t delta = tick - me->last;
  if (UNLIKELY(delta > HS_MOST_DELTA)) {
    if ((int64_t)delta < 0) return 0; /* clocks of two processors, a few ticks apart */
    *(volatile uint64_t *)me->next = HS_EVENT_TIME | (tick - clock_epoch()) << 6;
    me->next++;
    delta = 0;
  }
  me->last = tick;
  return delta << 6;
}

static inline void put_event(struct location *me, uint64_t tick, uint32_t kind, uint32_t payload) {
  uint64_t delta = delta_to(me, tick);
  *(volatile uint64_t *)me->next = kind | delta | (uint64_t)payload << 32;
  me->next++;
  me->events++;
}

static inline void put_words(struct location *me, uint64_t tick, uint32_t kind, uint32_t payload,
                             const uint64_t *words, uint32_t count) {
  uint64_t delta = delta_to(me, tick);
  uint64_t *first = me->next;
  for (uint32_t i = 0; i < count; i++) first[1 + i] = words[i];
  COMPILER_BARRIER();
  *(volatile uint64_t *)first = kind | delta | (uint64_t)payload << 32;
  me->next = first + 1 + count;
  me->events++;
}

static inline struct location *here(void) {
  struct location *me = hs_me;
  return LIKELY(me != NULL) ? me : hs_acquire();
}

/* recorder.c: memory that is never given back, without malloc */
void *hs_keep(size_t bytes); /* zeroed; NULL where there is none */

/* environment.c */
int environment_read(void);
int environment_filters(const char *name, const char *other);
int environment_filters_anything(void);
const char *environment_counters(void);

/* definitions.c */
int definitions_open(void);
void definitions_line(const char *text, size_t length); /* lock held */
/* A line of at most a kilobyte, as text_format; without its newline. */
__attribute__((format(printf, 1, 2))) void definitions_format(const char *format, ...);
void definitions_opening(double rate);
void definitions_close(void);
uint32_t definitions_node(uint32_t parent, uint32_t region, const void *site);
uint32_t definitions_region(const char *name, const char *plain, const char *paradigm,
                            const char *role, const char *file, int line);
void definitions_lost(const char *reason, const struct location *where);

/* buffers.c */
void file_path(char *path, size_t room, const char *ending, int location);
int file_ready(struct file *file, const char *path);
int file_open_new(struct file *file, const char *path);
int file_may_grow_to(uint64_t size);
int files_take_rank(void); /* false: another process has that rank, or the folder is gone */
void files_drop(void);
int buffer_open(struct location *me);
void buffer_roll(struct location *me);
void buffer_rename(struct location *me);
void buffer_close(struct location *me, int truncate);

/* definitions.c: the call tree */
struct node *calltree_root(struct location *me);
struct node *calltree_child(struct location *me, struct node *parent, uint32_t region,
                            const void *site);
struct node *calltree_find(struct location *me, struct node *parent, uint32_t region,
                           const void *site);

struct node *calltree_mirror(struct location *me, const struct node *node);

/* events.c */
int location_ready(struct location *me); /* false: the recording has ended */
void location_enter_unwound(struct location *me, uint32_t region, const void *site,
                            const char *stack);
void location_enter(struct location *me, uint32_t region, const void *site, const char *frame);
void location_enter_node(struct location *me, struct node *node, const char *frame);
void location_leave(struct location *me, uint32_t region);
void location_begin(struct location *me, uint64_t tick);
void location_leave_to(struct location *me, const struct node *outer, uint64_t tick);
void location_close_calls(struct location *me, uint64_t tick);
void location_count_open(struct location *me, uint64_t tick);
void location_pause(struct location *me, uint64_t tick);
void location_resume(struct location *me, uint64_t tick);
void location_region(struct location *me, uint32_t region, uint64_t begin, uint64_t end);

/* profile.c */
void profile_message(struct location *me, uint32_t kind, uint32_t peer, const uint64_t *words);
void profile_write(double rate);
void profile_catch_signals(void);

/* counters.c */
void counters_define(void);
const char *counters_name(uint32_t number);
void counters_open(struct location *me);
void counters_close(struct location *me);
int counters_read(struct location *me, uint64_t *values);
void counters_pause(struct location *me);
void counters_resume(struct location *me);

/* symbols.c */
struct function {
  const void *begin;   /* its first address, or the address asked for where not known */
  const char *name;    /* readable */
  const char *linked;  /* as the linker knows it */
  const char *object;  /* base name of its file */
  const void *base;    /* where that file is loaded */
};
int symbols_find(const void *address, struct function *function);
int symbols_site(const void *address, char *text, size_t room);

struct address_known {
  const void *key;
  uint32_t region; /* HS_FILTERED: not recorded */
  const char *name;
};
struct address_table;
const struct address_known *addresses_find(struct address_table *const *where, const void *key);
void addresses_keep(struct address_table **where, struct address_known known);

/* openmp.c */
void openmp_close(struct location *me);

/* gpu_streams.c */
void streams_finish(void);

/* unwind.c */
void unwind_ready(void);
struct node *unwind_callers(struct location *me, const void *site, const char *frame);

/* text.c: text without the C library's streams, usable in signal handlers */
struct text {
  char *begin, *at, *end;
};
void text_open(struct text *text, char *room, size_t size);
void text_put(struct text *text, const char *plain);
/* As printf: %s, %d, %u, %x and long ones; a %s after a quote is escaped as in JSON, %f is not negative,
 * and %e is in seconds with a tenth of a nanosecond. */
__attribute__((format(printf, 2, 3))) void text_format(struct text *text, const char *format, ...);
void text_vformat(struct text *text, const char *format, va_list values);

#pragma GCC visibility pop
#endif
