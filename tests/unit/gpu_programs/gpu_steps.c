/* Plays a program with a GPU, by what its arguments say, one after the other; see the tests.
 *
 *   find                             what CUDA's driver does with CUDA_INJECTION64_PATH
 *   load                             the same, and a context on the GPU
 *   forget  remember                 where the measurement goes
 *   enter:NAME  leave:NAME           a region of the user
 *   begin:CALL:STREAM:CORRELATION[:EVENT]  end:...    the two sides of a call of CUDA
 *   call:CALL:STREAM:CORRELATION[:EVENT]              both
 *   kernel:NAME:STREAM:CORRELATION:BEGIN:END[:NODE]   a record; microseconds since the load
 *   reused:NAME:...                                   the same, in the place of the name before
 *   now:NAME:STREAM:CORRELATION:LENGTH                a kernel that begins now
 *   copy:KIND:STREAM:CORRELATION:BEGIN:END:BYTES      to_device, to_host, within, peer, fill
 *   many:COUNT:STREAM                kernels of 10 us each 20 us, records in a disorder of up to 300
 *   overhead:BEGIN:END  drop:COUNT  deliver  context:NUMBER:DEVICE  destroy
 *   mpi:begin  mpi:end               within a call of MPI
 *   pause  resume  attach:RANK:SIZE  sleep:MILLISECONDS  exit:HOW */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../recorder_programs/recorder_calls.h"
#include "fake_cupti.h"
#include "stub.h"

__attribute__((visibility("default"))) __thread struct hs_mpi_thread hs_mpi_thread
    __attribute__((tls_model("global-dynamic")));

enum { MOST_WORDS = 8, BATCH = 300 };
static char *words[MOST_WORDS];
static int count;

static __typeof__(fake_context) *set_context;
static __typeof__(fake_call) *call;
static __typeof__(fake_resource) *resource;
static __typeof__(fake_time) *time_now;
static __typeof__(fake_record) *record;
static __typeof__(fake_drop) *drop;
static __typeof__(fake_deliver) *deliver;

static uint64_t number(int at) { return at < count ? strtoull(words[at], NULL, 0) : 0; }
static uint64_t nanoseconds(int at) { return (uint64_t)(1000 * strtod(words[at], NULL) + 0.5); }

/* Registered before the tracer's own, and so called after it. */
static void leave_cupti(void) {
  void *cupti = dlopen(getenv("FAKE_CUPTI"), RTLD_NOW | RTLD_NOLOAD);
  if (cupti) ((__typeof__(fake_leave) *)dlsym(cupti, "fake_leave"))();
}

static void find(void) {
  const char *path = getenv("CUDA_INJECTION64_PATH");
  void *tracer = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!tracer) {
    fprintf(stderr, "%s\n", dlerror());
    exit(7);
  }
  if (getenv("FAKE_CUPTI")) atexit(leave_cupti);
  int (*initialize)(void) = (int (*)(void))dlsym(tracer, "InitializeInjection");
  printf("loaded %d\n", initialize());
  void *cupti = dlopen(getenv("FAKE_CUPTI"), RTLD_NOW | RTLD_NOLOAD);
  if (!cupti) return;
  set_context = dlsym(cupti, "fake_context");
  call = dlsym(cupti, "fake_call");
  resource = dlsym(cupti, "fake_resource");
  time_now = dlsym(cupti, "fake_time");
  record = dlsym(cupti, "fake_record");
  drop = dlsym(cupti, "fake_drop");
  deliver = dlsym(cupti, "fake_deliver");
}

static void kernel(const char *name, uint64_t stream, uint64_t correlation, uint64_t begin,
                   uint64_t end, uint64_t node) {
  record(&(struct fake_work){CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, name, 0, 0, begin, end,
                             (uint32_t)stream, (uint32_t)correlation, (uint32_t)node});
}

static void copy(void) {
  struct fake_work work = {.kind = CUPTI_ACTIVITY_KIND_MEMCPY, .copy = 8, .bytes = number(6),
                           .begin = 1000 * number(4), .end = 1000 * number(5),
                           .stream = (uint32_t)number(2), .correlation = (uint32_t)number(3)};
  if (strcmp(words[1], "to_device") == 0) work.copy = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  if (strcmp(words[1], "to_host") == 0) work.copy = CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
  if (strcmp(words[1], "peer") == 0) work.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
  if (strcmp(words[1], "fill") == 0) work.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  record(&work);
}

/* In batches whose order is turned round. */
static void many(void) {
  uint64_t total = number(1);
  for (uint64_t batch = 0; batch < total; batch += BATCH)
    for (uint64_t i = batch + BATCH < total ? batch + BATCH : total; i-- > batch;)
      kernel("tiny", number(2), i + 1, 20000 * i + 1000, 20000 * i + 11000, 0);
}

static void nap(long milliseconds) {
  struct timespec rest = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  while (nanosleep(&rest, &rest)) continue;
}

static void end(const char *how) {
  if (strcmp(how, "exit") == 0) exit(0);
  if (strcmp(how, "_exit") == 0) _exit(0);
  if (strcmp(how, "kill") == 0) raise(SIGKILL);
  if (strcmp(how, "abort") == 0) abort();
}

static void step(const char *what) {
  const char *name = words[0];
  if (strcmp(name, "find") == 0) find();
  else if (strcmp(name, "load") == 0) {
    find();
    if (resource) resource(CUPTI_CBID_RESOURCE_CONTEXT_CREATED);
  }
  else if (strcmp(name, "forget") == 0) {
    setenv("REMEMBERED", getenv("HALOSCOPE_MEASURE"), 1);
    unsetenv("HALOSCOPE_MEASURE");
  }
  else if (strcmp(name, "remember") == 0) setenv("HALOSCOPE_MEASURE", getenv("REMEMBERED"), 1);
  else if (strcmp(name, "enter") == 0) hs_enter(hs_region(words[1], "user", "other", "", 0), NULL);
  else if (strcmp(name, "leave") == 0) hs_leave(hs_region(words[1], "user", "other", "", 0));
  else if (strcmp(name, "begin") == 0 || strcmp(name, "end") == 0 || strcmp(name, "call") == 0) {
    if (*name != 'e') call(words[1], CUPTI_API_ENTER, number(2), (uint32_t)number(3), number(4));
    if (*name != 'b') call(words[1], CUPTI_API_EXIT, number(2), (uint32_t)number(3), number(4));
  }
  else if (strcmp(name, "kernel") == 0 || strcmp(name, "reused") == 0) {
    static char place[64];
    snprintf(place, sizeof place, "%s", words[1]);
    kernel(*name == 'k' ? strdup(words[1]) : place, number(2), number(3), nanoseconds(4),
           nanoseconds(5), number(6));
  }
  else if (strcmp(name, "now") == 0) {
    uint64_t begin = time_now();
    kernel(strdup(words[1]), number(2), number(3), begin, begin + 1000 * number(4), 0);
  }
  else if (strcmp(name, "copy") == 0) copy();
  else if (strcmp(name, "many") == 0) many();
  else if (strcmp(name, "overhead") == 0)
    record(&(struct fake_work){.kind = CUPTI_ACTIVITY_KIND_OVERHEAD, .begin = 1000 * number(1),
                               .end = 1000 * number(2)});
  else if (strcmp(name, "drop") == 0) drop(number(1));
  else if (strcmp(name, "deliver") == 0) deliver();
  else if (strcmp(name, "destroy") == 0) resource(CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING);
  else if (strcmp(name, "context") == 0) set_context((uint32_t)number(1), (uint32_t)number(2));
  else if (strcmp(name, "mpi") == 0)
    hs_mpi_thread.inside = strcmp(words[1], "begin") == 0 ? __builtin_frame_address(0) : NULL;
  else if (strcmp(name, "pause") == 0) hs_pause();
  else if (strcmp(name, "resume") == 0) hs_resume();
  else if (strcmp(name, "attach") == 0)
    hs_attach((int)number(1), (int)number(2), "some MPI 1.0", "single");
  else if (strcmp(name, "sleep") == 0) nap((long)number(1));
  else if (strcmp(name, "exit") == 0) end(words[1]);
  else {
    fprintf(stderr, "what is %s?\n", what);
    exit(9);
  }
  fflush(stdout);
}

/* Steps run in a frame of their own: what they call lies deeper than a call of MPI. */
int main(int arguments, char **given) {
  for (int i = 1; i < arguments; i++) {
    char *text = strdup(given[i]);
    for (count = 0; text && count < MOST_WORDS; count++) words[count] = strsep(&text, ":");
    step(given[i]);
  }
  return 0;
}
