/* Hardware counters of each thread, read when a region is entered and left: perf_event_open.
 *
 * All counters of a thread are one group that is read by one call of the system; it is pinned, so
 * that either all of them count all the time or that is said. What the system refuses is said once
 * and left out. */
#include "location.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct counter {
  const char *name, *unit;
  uint32_t type;
  uint64_t config;
};

static const struct counter known[] = {
    {"instructions", "#", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
    {"cycles", "#", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    {"cache-misses", "#", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
    {"cache-references", "#", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_REFERENCES},
    {"branches", "#", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS},
    {"branch-misses", "#", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES},
    {"stalled-cycles", "#", PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_BACKEND},
    {"task-clock", "ns", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK},
    {"page-faults", "#", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS},
    {"context-switches", "#", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES},
    {"migrations", "#", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_MIGRATIONS},
};
enum { KNOWN = sizeof known / sizeof *known, HIGH_FILE = 300 };

static const struct counter *chosen[MOST_COUNTERS];

static int open_one(const struct counter *counter, int leader) {
  struct perf_event_attr wanted = {.size = sizeof wanted,
                                   .type = counter->type,
                                   .config = counter->config,
                                   .read_format = PERF_FORMAT_GROUP,
                                   .pinned = leader < 0,
                                   .exclude_kernel = counter->type == PERF_TYPE_HARDWARE,
                                   .exclude_hv = 1};
  int file = (int)syscall(SYS_perf_event_open, &wanted, 0, -1, leader, PERF_FLAG_FD_CLOEXEC);
  if (file < 0) return file;
  int high = fcntl(file, F_DUPFD_CLOEXEC, HIGH_FILE);
  if (high < 0) return file;
  close(file);
  return high;
}

/* The group's values; false where the system does not count. */
static int read_group(int leader, uint32_t count, uint64_t *values) {
  uint64_t read_back[1 + MOST_COUNTERS];
  ssize_t wanted = (ssize_t)((1 + count) * sizeof *read_back);
  if (leader < 0 || read(leader, read_back, (size_t)wanted) != wanted) return 0;
  memcpy(values, read_back + 1, count * sizeof *values);
  return 1;
}

static void refuse(const char *name, const char *why) {
  char line[300];
  snprintf(line, sizeof line, "the counter %.60s is left out: %s", name, why);
  hs_say_once(line);
}

static const char *reason_for(int error) {
  switch (error) {
    case EACCES:
    case EPERM: return "the system does not allow it (see /proc/sys/kernel/perf_event_paranoid)";
    case ENOENT:
    case ENODEV:
    case EOPNOTSUPP: return "this machine does not count it";
    case ENOSYS: return "this system has no counters";
    default: return strerror(error);
  }
}

static const struct counter *find(const char *name, size_t length) {
  for (size_t i = 0; i < KNOWN; i++)
    if (strlen(known[i].name) == length && strncmp(known[i].name, name, length) == 0)
      return &known[i];
  return NULL;
}

/* Those of the user's list that this machine can count together, tried out on this thread. */
void counters_define(void) {
  int files[MOST_COUNTERS];
  uint32_t count = 0;
  uint64_t values[MOST_COUNTERS];
  for (const char *name = environment_counters(), *end; *name; name = end + (*end == ',')) {
    end = strchr(name, ',');
    if (!end) end = name + strlen(name);
    if (end == name) continue;
    char text[64] = "";
    strncat(text, name, (size_t)(end - name) < sizeof text ? (size_t)(end - name) : sizeof text - 1);
    const struct counter *counter = find(name, (size_t)(end - name));
    if (!counter || count == MOST_COUNTERS) {
      refuse(text, counter ? "too many counters" : "unknown name; allowed: instructions, cycles, "
             "cache-misses, cache-references, branches, branch-misses, stalled-cycles, task-clock, "
             "page-faults, context-switches, migrations");
      continue;
    }
    files[count] = open_one(counter, count ? files[0] : -1);
    if (files[count] < 0) {
      refuse(text, reason_for(errno));
      continue;
    }
    chosen[count++] = counter;
    if (!read_group(files[0], count, values)) {
      refuse(text, "the processor cannot count it together with the preceding counters");
      close(files[--count]);
    }
  }
  for (uint32_t i = 0; i < count; i++) {
    close(files[i]);
    definitions_format("{\"counter\": %u, \"name\": \"%s\", \"unit\": \"%s\"}", i, chosen[i]->name,
                       chosen[i]->unit);
  }
  hs_recorder.counters = count;
}

const char *counters_name(uint32_t number) { return chosen[number]->name; }

/* By the thread itself. Its counters begin with zero. */
void counters_open(struct location *me) {
  memset(me->counters_away, 0, sizeof me->counters_away);
  for (uint32_t i = 0; i < hs_recorder.counters; i++) {
    me->counter_files[i] = open_one(chosen[i], i ? me->counter_files[0] : -1);
    if (me->counter_files[i] < 0) {
      refuse(chosen[i]->name, "a thread cannot count it");
      if (i == 0) return;
    }
  }
  me->counting = 1;
}

void counters_close(struct location *me) {
  for (uint32_t i = 0; me->counting && i < hs_recorder.counters; i++)
    if (me->counter_files[i] >= 0) close(me->counter_files[i]);
  me->counting = 0;
}

/* Values since the thread's begin, pauses left out. */
int counters_read(struct location *me, uint64_t *values) {
  if (!me->counting || !read_group(me->counter_files[0], hs_recorder.counters, values)) return 0;
  for (uint32_t i = 0; i < hs_recorder.counters; i++) values[i] -= me->counters_away[i];
  return 1;
}

void counters_pause(struct location *me) { me->counted = counters_read(me, me->counters_at_pause); }

void counters_resume(struct location *me) {
  uint64_t values[MOST_COUNTERS];
  if (!me->counted || !counters_read(me, values)) return;
  for (uint32_t i = 0; i < hs_recorder.counters; i++)
    me->counters_away[i] += values[i] - me->counters_at_pause[i];
}
