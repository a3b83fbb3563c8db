/* Tracer of NVIDIA GPUs: kernels, copies and fills from CUPTI's activity records.
 *
 * CUDA's driver loads this library when the program initialises it. CUPTI hands over buffers of
 * records when they are full, and others when they are asked for. Records carry
 * times of the recorder's clock where CUPTI takes one; else pairs of both clocks' readings, taken
 * with each buffer, lead from one to the other. */
#include "gpu_calls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
  BUFFER = 1 << 20,     /* bytes */
  ALIGNMENT = 8,
  MOST_PAIRS = 4096,
  READINGS = 8,
  MOST_NAMES = 1 << 16, /* names of kernels */
  MOST_NAME = 2000
};

struct gpu_cupti gpu_cupti;

/* One buffer is looked at at a time. */
static pthread_mutex_t records_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t record_count, dropped, untimed, overhead;

/* --- flushing ------------------------------------------------------------------------------- */

/* A thread that asks CUPTI for its records each second.
 *
 * CUPTI's own period hands over full buffers only: a slow program would yield no records for
 * minutes, and none at all where it is killed. A buffer with unfinished work stays with CUPTI until
 * that work ends. */
enum { PERIOD = 1 }; /* seconds */

static struct {
  pthread_mutex_t lock;
  pthread_cond_t over;
  pthread_t thread;
  int runs, ends;
} flusher = {.lock = PTHREAD_MUTEX_INITIALIZER, .over = PTHREAD_COND_INITIALIZER};

static void *flush_periodically(void *unused) {
  struct timespec until;
  pthread_mutex_lock(&flusher.lock);
  while (!flusher.ends) {
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PERIOD;
    pthread_cond_timedwait(&flusher.over, &flusher.lock, &until);
    if (flusher.ends) break;
    pthread_mutex_unlock(&flusher.lock);
    gpu_cupti.cuptiActivityFlushAll_(0);
    hs_streams_settle();
    pthread_mutex_lock(&flusher.lock);
  }
  pthread_mutex_unlock(&flusher.lock);
  return unused;
}

static void begin_flushing(void) {
  sigset_t all, before;
  sigfillset(&all); /* signals are the program's */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_mutex_lock(&flusher.lock);
  if (!flusher.ends)
    flusher.runs = pthread_create(&flusher.thread, NULL, flush_periodically, NULL) == 0;
  pthread_mutex_unlock(&flusher.lock);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void flush_from_now_on(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, begin_flushing);
}

/* Whether this is the first call: nothing is asked for any more when it returns. */
static int flush_no_more(void) {
  pthread_mutex_lock(&flusher.lock);
  int first = !flusher.ends;
  flusher.ends = 1;
  pthread_cond_signal(&flusher.over);
  pthread_mutex_unlock(&flusher.lock);
  if (first && flusher.runs) pthread_join(flusher.thread, NULL);
  return first;
}

/* --- buffers -------------------------------------------------------------------------------- */

struct spare {
  struct spare *next;
};
static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static struct spare *spares;

static void CUPTIAPI on_request(uint8_t **buffer, size_t *size, size_t *most_records) {
  flush_from_now_on();
  pthread_mutex_lock(&spare_lock);
  struct spare *spare = spares;
  if (spare) spares = spare->next;
  pthread_mutex_unlock(&spare_lock);
  void *memory = spare;
  if (!memory && posix_memalign(&memory, ALIGNMENT, BUFFER)) memory = NULL;
  *buffer = memory;
  *size = memory ? BUFFER : 0;
  *most_records = 0;
}

static void give_back(void *buffer) {
  struct spare *spare = buffer;
  pthread_mutex_lock(&spare_lock);
  spare->next = spares;
  spares = spare;
  pthread_mutex_unlock(&spare_lock);
}

/* --- clocks --------------------------------------------------------------------------------- */

/* Where CUPTI does not take the recorder's clock: readings of both at one moment, in order. */
static struct pair {
  uint64_t theirs, ours;
} pairs[MOST_PAIRS];
static unsigned pair_count;
static int clocks_differ;

static void take_pair(void) {
  struct pair best = {0, 0};
  uint64_t closest = UINT64_MAX;
  for (int i = 0; i < READINGS; i++) {
    uint64_t theirs = 0, before = hs_device_clock();
    if (gpu_cupti.cuptiGetTimestamp_(&theirs) != CUPTI_SUCCESS) return;
    uint64_t after = hs_device_clock();
    if (after - before < closest) {
      closest = after - before;
      best = (struct pair){theirs, before + (after - before) / 2};
    }
  }
  if (pair_count && best.theirs <= pairs[pair_count - 1].theirs) return;
  if (pair_count == MOST_PAIRS) {
    for (unsigned i = 0; i < MOST_PAIRS / 2; i++) pairs[i] = pairs[2 * i];
    pair_count = MOST_PAIRS / 2;
  }
  pairs[pair_count++] = best;
}

/* Along the line through the readings on both sides of a time, the nearest two beyond the ends. */
static uint64_t our_time(uint64_t theirs) {
  if (!clocks_differ || !pair_count) return theirs;
  unsigned low = 0, high = pair_count;
  while (high - low > 1) {
    unsigned middle = (low + high) / 2;
    if (pairs[middle].theirs <= theirs)
      low = middle;
    else
      high = middle;
  }
  const struct pair *first = &pairs[low];
  double slope = 1;
  if (pair_count > 1) {
    if (low + 1 == pair_count) first = &pairs[low - 1];
    slope = (double)(first[1].ours - first[0].ours) / (double)(first[1].theirs - first[0].theirs);
    if (low + 1 == pair_count) first++;
  }
  double ours = (double)(int64_t)(theirs - first->theirs) * slope;
  return first->ours + (uint64_t)(int64_t)ours;
}

/* --- names ---------------------------------------------------------------------------------- */

static struct named {
  const char *key; /* CUPTI's own text */
  char *name;      /* a copy of it: a module that was unloaded leaves its place to others */
  uint32_t region;
} names[MOST_NAMES];
static unsigned name_count;

/* The name as the source has it, by the C++ library that the program has loaded, or the usual one. */
static char *readable(const char *name) {
  typedef char *demangler(const char *, char *, size_t *, int *);
  static demangler *demangle;
  if (strncmp(name, "_Z", 2) != 0) return NULL;
  if (!demangle) {
    void *library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
    if (!library) library = dlopen("libc++abi.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!library) library = dlopen("libstdc++.so.6", RTLD_LAZY);
    demangle = (demangler *)(uintptr_t)dlsym(library ? library : RTLD_DEFAULT, "__cxa_demangle");
  }
  int status = -1;
  char *plain = demangle ? demangle(name, NULL, NULL, &status) : NULL;
  if (status == 0) return plain;
  free(plain);
  return NULL;
}

static uint32_t define_kernel(const char *name) {
  char *plain = readable(name);
  const char *shown = plain ? plain : *name ? name : "kernel";
  const char *bare = strncmp(shown, "void ", 5) == 0 ? shown + 5 : shown;
  uint32_t region =
      hs_device_region(shown, strncmp(bare, "nccl", 4) == 0 ? "nccl" : "cuda", "kernel");
  free(plain);
  return region;
}

static uint32_t region_of_kernel(const char *name) {
  if (!name) name = "";
  unsigned slot = (unsigned)(((uintptr_t)name * 0x9e3779b97f4a7c15ull) >> 48) % MOST_NAMES;
  while (names[slot].key && names[slot].key != name) slot = (slot + 1) % MOST_NAMES;
  struct named *entry = &names[slot];
  if (entry->key && strncmp(entry->name, name, MOST_NAME) == 0) return entry->region;
  uint32_t region = define_kernel(name);
  if (!entry->key && name_count > MOST_NAMES / 2) return region;
  char *copy = strndup(name, MOST_NAME);
  if (!copy) return region;
  name_count += !entry->key;
  free(entry->name);
  *entry = (struct named){name, copy, region};
  return region;
}

enum { COPY_KINDS = HS_COPY_FILL + 1 };

static uint32_t region_of_copy(uint32_t direction) {
  static const char *const shown[COPY_KINDS] = {"", "copy to device", "copy to host",
                                                "copy within device", "copy between devices",
                                                "fill"};
  static uint32_t known[COPY_KINDS]; /* one more than the region */
  if (!known[direction]) known[direction] = hs_device_region(shown[direction], "cuda", "copy") + 1;
  return known[direction] - 1;
}

static uint32_t direction_of(unsigned kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOA: return HS_COPY_TO_DEVICE;
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOH: return HS_COPY_TO_HOST;
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP: return HS_COPY_PEER;
    default: return HS_COPY_WITHIN;
  }
}

/* --- records -------------------------------------------------------------------------------- */

static void record_work(struct hs_work work) {
  if (work.begin == 0 || work.end == 0) {
    untimed++;
    return;
  }
  work.begin = our_time(work.begin);
  work.end = our_time(work.end);
  hs_stream_work(&work);
}

#define WORK_OF(record)                                                            \
  .device = (int)(record)->deviceId, .context = (record)->contextId,               \
  .stream = (record)->streamId, .correlation = (record)->correlationId,            \
  .begin = (record)->start, .end = (record)->end

static void take(const CUpti_Activity *record) {
  record_count++;
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const GPU_KERNEL *kernel = (const GPU_KERNEL *)record;
      record_work((struct hs_work){WORK_OF(kernel), .region = region_of_kernel(kernel->name)});
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const GPU_MEMCPY *copy = (const GPU_MEMCPY *)record;
      uint32_t direction = direction_of(copy->copyKind);
      record_work((struct hs_work){WORK_OF(copy), .region = region_of_copy(direction),
                                   .direction = direction, .bytes = copy->bytes});
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY2: {
      const GPU_MEMCPY_PEER *copy = (const GPU_MEMCPY_PEER *)record;
      record_work((struct hs_work){WORK_OF(copy), .region = region_of_copy(HS_COPY_PEER),
                                   .direction = HS_COPY_PEER, .bytes = copy->bytes});
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const GPU_MEMSET *fill = (const GPU_MEMSET *)record;
      record_work((struct hs_work){WORK_OF(fill), .region = region_of_copy(HS_COPY_FILL),
                                   .direction = HS_COPY_FILL, .bytes = fill->bytes});
      break;
    }
    case CUPTI_ACTIVITY_KIND_OVERHEAD: {
      const GPU_OVERHEAD *spent = (const GPU_OVERHEAD *)record;
      if (spent->end > spent->start) overhead += spent->end - spent->start;
      break;
    }
    default: break;
  }
}

static void CUPTIAPI on_complete(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                                 size_t valid) {
  (void)size;
  if (!buffer) return;
  size_t more = 0;
  if (gpu_cupti.cuptiActivityGetNumDroppedRecords_(context, stream, &more) != CUPTI_SUCCESS)
    more = 0;
  pthread_mutex_lock(&records_lock);
  dropped += more;
  if (clocks_differ) take_pair();
  CUpti_Activity *record = NULL;
  while (valid && gpu_cupti.cuptiActivityGetNextRecord_(buffer, valid, &record) == CUPTI_SUCCESS)
    take(record);
  hs_streams_settle();
  pthread_mutex_unlock(&records_lock);
  give_back(buffer);
}

/* --- begin and end -------------------------------------------------------------------------- */

static pid_t process;

static void finish_tracer(void) {
  char line[512];
  /* CUDA and its threads do not live on in a copy of the process. */
  if (getpid() != process || !flush_no_more()) return;
  gpu_cupti.cuptiActivityFlushAll_(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  pthread_mutex_lock(&records_lock);
  if (record_count) {
    snprintf(line, sizeof line,
             "{\"gpu\": %llu, \"dropped\": %llu, \"untimed\": %llu, \"overhead_ns\": %llu, "
             "\"own_clock\": %s}",
             (unsigned long long)record_count, (unsigned long long)dropped,
             (unsigned long long)untimed, (unsigned long long)overhead,
             clocks_differ ? "false" : "true");
    hs_device_note(line);
  }
  if (dropped || untimed) {
    snprintf(line, sizeof line,
             "{\"lost\": \"%llu kernels and copies of GPUs: CUPTI dropped them or recorded no time\"}",
             (unsigned long long)(dropped + untimed));
    hs_device_note(line);
  }
  pthread_mutex_unlock(&records_lock);
}

static int load_cupti(void) {
  void *library = dlopen(HS_CUPTI_NAME, RTLD_NOW | RTLD_NOLOAD);
  if (!library) library = dlopen(HS_CUPTI_LIBRARY, RTLD_NOW);
  if (!library) return 0;
#define LOAD(name) gpu_cupti.name##_ = (__typeof__(&name))(uintptr_t)dlsym(library, #name);
  GPU_CUPTI_NEEDED(LOAD)
  GPU_CUPTI_WISHED(LOAD)
#undef LOAD
#define IS_THERE(name) &&gpu_cupti.name##_
  return 1 GPU_CUPTI_NEEDED(IS_THERE);
#undef IS_THERE
}

/* The first feature that CUPTI refuses; NULL where it does all that is needed. */
static const char *start(CUptiResult *result) {
  clocks_differ = !gpu_cupti.cuptiActivityRegisterTimestampCallback_ ||
                  gpu_cupti.cuptiActivityRegisterTimestampCallback_(hs_device_clock) !=
                      CUPTI_SUCCESS;
  *result = gpu_watch_calls(); /* first: where another tool has CUPTI, nothing is begun */
  if (*result != CUPTI_SUCCESS) return "calls";
  *result = gpu_cupti.cuptiActivityRegisterCallbacks_(on_request, on_complete);
  if (*result != CUPTI_SUCCESS) {
    gpu_leave_calls();
    return "buffers";
  }
  static const CUpti_ActivityKind kinds[] = {
      CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
      CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_OVERHEAD};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    CUptiResult one = gpu_cupti.cuptiActivityEnable_(kinds[i]);
    if (i == 0 && (*result = one) != CUPTI_SUCCESS) {
      gpu_leave_calls();
      return "kernels";
    }
  }
  return NULL;
}

GPU_PUBLIC int InitializeInjection(void);

/* Called by CUDA's driver when the program initialises it. */
GPU_PUBLIC int InitializeInjection(void) {
  static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
  static int begun;
  char line[512];
  if (!gpu_has_recorder()) return 1;
  pthread_mutex_lock(&once);
  int first = !begun;
  begun = 1;
  pthread_mutex_unlock(&once);
  if (!first) return 1;
  process = getpid();
  if (!load_cupti()) {
    snprintf(line, sizeof line, "the library %s cannot be loaded", HS_CUPTI_LIBRARY);
    gpu_say_missing(line);
    return 1;
  }
  CUptiResult result = CUPTI_SUCCESS;
  const char *refused = start(&result);
  if (refused) {
    const char *reason = NULL;
    gpu_cupti.cuptiGetResultString_(result, &reason);
    snprintf(line, sizeof line,
             "CUPTI does not record %s (%s, error %d); check that nvidia-smi works, that CUPTI is "
             "not newer than the driver, and that no other tool measures the GPU",
             refused, reason ? reason : "unknown reason", (int)result);
    gpu_say_missing(line);
    return 1;
  }
  if (clocks_differ) take_pair();
  hs_at_finish(finish_tracer);
  atexit(finish_tracer);
  return 1;
}
