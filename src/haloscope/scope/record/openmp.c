/* OpenMP through OMPT, the tools interface of the OpenMP specification (5.0, chapter 4), where the
 * runtime has it: LLVM's and Intel's do, GNU's does not.
 *
 * The thread that meets a parallel region enters it; each thread of the team enters its implicit
 * task at the same call path. A runtime tells a worker that a team has ended only when it wakes it
 * for the next one: the end is then taken from the thread that ended the team. */
#include "location.h"

#include <dlfcn.h>
#include <stdlib.h>

#define PUBLIC __attribute__((visibility("default")))

/* --- the interface, as the specification has it ------------------------------------------------ */

union data {
  uint64_t value;
  void *pointer;
};
typedef void (*function)(void);
typedef function (*look_up)(const char *name);
typedef int (*set_callback)(int event, function callback);
struct start_result {
  int (*initialize)(look_up look, int device, union data *tool);
  void (*finalize)(union data *tool);
  union data tool;
};

enum { PARALLEL_BEGIN = 3, PARALLEL_END = 4, TASK_CREATE = 5, TASK_SCHEDULE = 6, IMPLICIT_TASK = 7,
       WORK = 20, SYNC_REGION = 23, MUTEX_ACQUIRE = 26, MUTEX_ACQUIRED = 27 };
enum { BEGIN = 1 };                               /* endpoint of a scope */
enum { INITIAL = 1, EXPLICIT = 4 };               /* kinds of tasks */
enum { COMPLETE = 1, CANCELLED = 3 };             /* ways in which a task stops */
enum { SECTIONS = 2, SINGLE = 3, SINGLE_OTHER = 4, WORKSHARE = 5, DISTRIBUTE = 6, TASKLOOP = 7 };
enum { EXPLICIT_BARRIER = 3, TASKWAIT = 5, TASKGROUP = 6, REDUCTION = 7 };
enum { CRITICAL = 5 };

/* --- regions ----------------------------------------------------------------------------------- */

enum region { R_PARALLEL, R_IMPLICIT, R_TASK, R_FOR, R_SECTIONS, R_SINGLE, R_WORKSHARE,
              R_DISTRIBUTE, R_TASKLOOP, R_BARRIER, R_IMPLICIT_BARRIER, R_TASKWAIT, R_TASKGROUP,
              R_CRITICAL, REGIONS, NO_REGION = REGIONS };

static const char *const names[REGIONS][2] = {
    {"omp parallel", "parallel"}, {"omp implicit task", "work"}, {"omp task", "work"},
    {"omp for", "work"},          {"omp sections", "work"},      {"omp single", "work"},
    {"omp workshare", "work"},    {"omp distribute", "work"},    {"omp taskloop", "work"},
    {"omp barrier", "barrier"},   {"omp implicit barrier", "barrier"},
    {"omp taskwait", "other"},    {"omp taskgroup", "other"},    {"omp critical wait", "other"}};
static uint32_t numbers[REGIONS];
static int have_numbers;

static enum region region_of_work(int kind) {
  switch (kind) {
    case SECTIONS: return R_SECTIONS;
    case SINGLE: return R_SINGLE;
    case SINGLE_OTHER: return NO_REGION;
    case WORKSHARE: return R_WORKSHARE;
    case DISTRIBUTE: return R_DISTRIBUTE;
    case TASKLOOP: return R_TASKLOOP;
    default: return R_FOR;
  }
}

static enum region region_of_wait(int kind) {
  switch (kind) {
    case EXPLICIT_BARRIER: return R_BARRIER;
    case TASKWAIT: return R_TASKWAIT;
    case TASKGROUP: return R_TASKGROUP;
    case REDUCTION: return NO_REGION;
    default: return R_IMPLICIT_BARRIER;
  }
}

/* --- teams --------------------------------------------------------------------------------------- */

struct team {
  struct node *node;      /* the parallel region, in the call tree of the thread that met it */
  volatile uint64_t end;  /* tick, 0 while it runs */
  int holders;
  struct team *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct team *unused;

static struct team *new_team(struct node *node) {
  pthread_mutex_lock(&lock);
  struct team *team = unused;
  if (team) unused = team->next;
  pthread_mutex_unlock(&lock);
  if (!team) team = hs_keep(sizeof *team);
  if (team) *team = (struct team){node, 0, 1, NULL};
  return team;
}

static void release(struct team *team) {
  if (__atomic_sub_fetch(&team->holders, 1, __ATOMIC_ACQ_REL) > 0) return;
  pthread_mutex_lock(&lock);
  team->next = unused;
  unused = team;
  pthread_mutex_unlock(&lock);
}

/* --- a callback's begin and end -------------------------------------------------------------------- */

static struct location *take(void) {
  struct location *me = location_take(here());
  if (!me || !location_ready(me)) return NULL;
  if (UNLIKELY(!__atomic_load_n(&have_numbers, __ATOMIC_ACQUIRE))) {
    for (int i = 0; i < REGIONS; i++)
      numbers[i] = definitions_region(names[i][0], NULL, "openmp", names[i][1], "", 0);
    __atomic_store_n(&have_numbers, 1, __ATOMIC_RELEASE);
  }
  return me;
}

static void enter(struct location *me, enum region region, const void *site) {
  if (region != NO_REGION && numbers[region] != HS_FILTERED)
    location_enter(me, numbers[region], site, NULL);
}

static void leave(struct location *me, enum region region) {
  if (region != NO_REGION && numbers[region] != HS_FILTERED) location_leave(me, numbers[region]);
}

/* --- parallel regions --------------------------------------------------------------------------------- */

static void on_parallel_begin(union data *task, const void *frame, union data *parallel,
                              unsigned requested, int flags, const void *site) {
  (void)task, (void)frame, (void)flags;
  struct location *me = take();
  parallel->pointer = NULL;
  if (!me) return;
  if (numbers[R_PARALLEL] != HS_FILTERED)
    location_enter_unwound(me, numbers[R_PARALLEL], site, __builtin_dwarf_cfa());
  parallel->pointer = new_team(me->current);
  location_give(me);
  hs_event(HS_EVENT_FORK, requested, 0, 0, 0, 0);
}

static void on_parallel_end(union data *parallel, union data *task, int flags, const void *site) {
  (void)task, (void)flags, (void)site;
  struct team *team = parallel ? parallel->pointer : NULL;
  hs_event(HS_EVENT_JOIN, 0, 0, 0, 0, 0);
  struct location *me = take();
  if (team) {
    team->end = now();
    release(team);
  }
  if (!me) return;
  leave(me, R_PARALLEL);
  location_give(me);
}

static void begin_of_worker(struct location *me, struct team *team) {
  struct node *around = me->odd || !team ? NULL : calltree_mirror(me, team->node);
  struct node *node =
      around ? calltree_find(me, around, numbers[R_IMPLICIT], NULL) : NULL;
  if (!node) {
    enter(me, R_IMPLICIT, NULL);
    return;
  }
  __atomic_add_fetch(&team->holders, 1, __ATOMIC_ACQ_REL);
  me->team = team;
  me->team_outer = me->current;
  location_enter_node(me, node, NULL);
}

/* When a worker's part in its team was over: not later than the team itself. */
static uint64_t end_for(const struct location *me) {
  uint64_t tick = now();
  return me->team && me->team->end && me->team->end < tick ? me->team->end : tick;
}

void openmp_close(struct location *me) {
  if (!me->team) return;
  if (!(me->odd & ODD_PAUSED)) location_leave_to(me, me->team_outer, end_for(me));
  release(me->team);
  me->team = NULL;
}

static void on_implicit_task(int endpoint, union data *parallel, union data *task, unsigned threads,
                             unsigned index, int flags) {
  (void)task, (void)threads;
  if (flags & INITIAL) return;
  struct location *me = take();
  if (!me) return;
  if (numbers[R_IMPLICIT] == HS_FILTERED) {
    location_give(me);
    return;
  }
  if (endpoint == BEGIN && index == 0)
    enter(me, R_IMPLICIT, NULL);
  else if (endpoint == BEGIN)
    begin_of_worker(me, parallel ? parallel->pointer : NULL);
  else if (index == 0 || !me->team || me->odd & ODD_PAUSED)
    leave(me, R_IMPLICIT);
  if (endpoint != BEGIN && index != 0) openmp_close(me);
  location_give(me);
}

/* --- what a team does ----------------------------------------------------------------------------------- */

static void on_work(int kind, int endpoint, union data *parallel, union data *task, uint64_t count,
                    const void *site) {
  (void)parallel, (void)task, (void)count;
  struct location *me = take();
  if (!me) return;
  if (endpoint == BEGIN)
    enter(me, region_of_work(kind), site);
  else
    leave(me, region_of_work(kind));
  location_give(me);
}

static void on_sync_region(int kind, int endpoint, union data *parallel, union data *task,
                           const void *site) {
  (void)parallel, (void)task;
  enum region region = region_of_wait(kind);
  struct location *me = take();
  if (!me) return;
  if (endpoint == BEGIN)
    enter(me, region, site);
  else if (region != NO_REGION && me->team && !me->odd && me->current->region == numbers[region])
    location_leave_to(me, me->current->outer, end_for(me));
  else
    leave(me, region);
  location_give(me);
}

static void on_mutex_acquire(int kind, unsigned hint, unsigned implementation, uint64_t mutex,
                             const void *site) {
  (void)hint, (void)implementation, (void)mutex;
  struct location *me = kind == CRITICAL ? take() : NULL;
  if (!me) return;
  enter(me, R_CRITICAL, site);
  location_give(me);
}

static void on_mutex_acquired(int kind, uint64_t mutex, const void *site) {
  (void)mutex, (void)site;
  struct location *me = kind == CRITICAL ? take() : NULL;
  if (!me) return;
  leave(me, R_CRITICAL);
  location_give(me);
}

/* --- explicit tasks: recorded where they begin and end on one thread --------------------------------------- */

enum { TASK_MADE = 1, TASK_RUNS = 2 };

static void on_task_create(union data *encountering, const void *frame, union data *made, int flags,
                           int dependences, const void *site) {
  (void)encountering, (void)frame, (void)dependences, (void)site;
  made->value = flags & EXPLICIT ? TASK_MADE : 0;
}

static void on_task_schedule(union data *prior, int status, union data *next) {
  struct location *me = take();
  if (!me) return;
  uint64_t running = TASK_RUNS | (uint64_t)me->number << 8;
  if (prior && prior->value == running && (status == COMPLETE || status == CANCELLED)) {
    leave(me, R_TASK);
    prior->value = 0;
  }
  if (next && next->value == TASK_MADE) {
    enter(me, R_TASK, NULL);
    next->value = running;
  }
  location_give(me);
}

/* --- start --------------------------------------------------------------------------------------------------- */

static int initialize(look_up look, int device, union data *tool) {
  (void)device, (void)tool;
  set_callback set = (set_callback)look("ompt_set_callback");
  if (!set) return 0;
  set(PARALLEL_BEGIN, (function)on_parallel_begin);
  set(PARALLEL_END, (function)on_parallel_end);
  set(IMPLICIT_TASK, (function)on_implicit_task);
  set(WORK, (function)on_work);
  set(SYNC_REGION, (function)on_sync_region);
  set(TASK_CREATE, (function)on_task_create);
  set(TASK_SCHEDULE, (function)on_task_schedule);
  set(MUTEX_ACQUIRE, (function)on_mutex_acquire);
  set(MUTEX_ACQUIRED, (function)on_mutex_acquired);
  return 1;
}

static void finalize(union data *tool) { (void)tool; }

PUBLIC struct start_result *ompt_start_tool(unsigned version, const char *runtime);

/* The runtime asks whether there is a tool. A process that is not measured leaves the place to
 * whatever else there is. */
PUBLIC struct start_result *ompt_start_tool(unsigned version, const char *runtime) {
  typedef struct start_result *starter(unsigned, const char *);
  static struct start_result result = {initialize, finalize, {0}};
  const char *folder = getenv("HALOSCOPE_MEASURE");
  if (folder && *folder && hs_recorder.state != OFF) return &result;
  starter *next = (starter *)(uintptr_t)dlsym(RTLD_NEXT, "ompt_start_tool");
  return next ? next(version, runtime) : NULL;
}
