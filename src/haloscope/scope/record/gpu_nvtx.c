/* Ranges that programs and libraries mark by NVTX become regions of the thread that marks them.
 *
 * NVTX loads this library into whatever uses it, with a GPU or without, and takes the functions
 * that stand for its own. What begins on one thread and may end on another (nvtxRangeStart) is left
 * out: regions nest. The layouts are those of NVTX 3, which keeps them for all versions to come. */
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "gpu_tracer.h"

/* --- what every process with the GPU tracer needs, with CUPTI or without --------------------- */

int gpu_has_recorder(void) { return hs_enter && hs_stream_work; }

int gpu_is_measured(void) {
  static int known;
  if (__builtin_expect(!__atomic_load_n(&known, __ATOMIC_RELAXED), 0)) {
    const char *folder = getenv("HALOSCOPE_MEASURE");
    if (!gpu_has_recorder() || !folder || !*folder) return 0;
    __atomic_store_n(&known, 1, __ATOMIC_RELAXED);
  }
  return 1;
}

void gpu_say_missing(const char *reason) {
  char line[1024];
  snprintf(line, sizeof line, "GPUs are not measured (only the CPU side): %s", reason);
  hs_say_once(line);
}

#ifdef HS_NO_CUPTI
/* Stands for the tracer of GPUs where no CUPTI was found: says so in programs that use a GPU. */
GPU_PUBLIC int InitializeInjection(void);

/* Called by CUDA's driver when the program initialises it. */
GPU_PUBLIC int InitializeInjection(void) {
  if (gpu_has_recorder()) gpu_say_missing(HS_NO_CUPTI);
  return 1;
}
#endif

/* --- the interface -------------------------------------------------------------------------- */

typedef void (*function)(void);
struct export_table {
  size_t size;
  int (*functions_of)(int module, function ***table, unsigned *count);
};
typedef const void *get_export_table(uint32_t id);

enum { CALLBACKS = 1 };               /* export table */
enum { CORE = 1, CORE2 = 5 };         /* modules */
enum { PUSH_EX = 8, PUSH_A = 9, PUSH_W = 10, POP = 11 };
enum { DOMAIN_PUSH = 4, DOMAIN_POP = 5, REGISTER_A = 10, REGISTER_W = 11, DOMAIN_A = 12,
       DOMAIN_W = 13 };
enum { PAYLOAD = 2, PUSH_PAYLOAD = 3, POP_PAYLOAD = 4 }; /* an extension, and its functions */
enum { TEXT = 1, WIDE_TEXT = 2, REGISTERED = 3 }; /* kinds of messages */

struct attributes {
  uint16_t version, size;
  uint32_t category;
  int32_t color_kind;
  uint32_t color;
  int32_t payload_kind, reserved;
  uint64_t payload;
  int32_t message_kind;
  const void *message;
};
_Static_assert(offsetof(struct attributes, message) == 40, "as NVTX lays it out");

struct extension {
  uint16_t version, size, module, compatible_with;
  size_t segment_count;
  struct {
    size_t id, count;
    intptr_t *functions;
  } *segments;
};

/* --- names ---------------------------------------------------------------------------------- */

enum { MOST_RANGES = 10000, RANGE_SLOTS = 1 << 15, MOST_DEPTH = 64, MOST_TEXT = 512,
       MOST_DOMAINS = 32 };

struct string {
  char text[MOST_TEXT];
};
struct domain {
  int is_nccl;
  unsigned index; /* among the domains; 0 is the one without a name, and those beyond the last */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned domain_count = 1;
static struct {
  uint64_t hash; /* of a name; 0 for none. Stored last */
  uint32_t region;
} ranges[RANGE_SLOTS];
static unsigned range_count;

/* Ranges nest within each domain of a thread. */
static __thread struct {
  uint32_t regions[MOST_DEPTH];
  unsigned depth;
} open_ranges[MOST_DOMAINS];

static void narrow(char *text, const wchar_t *wide) {
  size_t at = 0;
  for (; wide && *wide && at + 5 < MOST_TEXT; wide++) {
    uint32_t c = (uint32_t)*wide;
    if (c >= 0x110000 || (c >= 0xd800 && c < 0xe000)) c = 0xfffd;
    if (c < 0x80) {
      text[at++] = (char)c;
    } else if (c < 0x800) {
      text[at++] = (char)(0xc0 | c >> 6);
      text[at++] = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
      text[at++] = (char)(0xe0 | c >> 12);
      text[at++] = (char)(0x80 | (c >> 6 & 63));
      text[at++] = (char)(0x80 | (c & 63));
    } else {
      text[at++] = (char)(0xf0 | c >> 18);
      text[at++] = (char)(0x80 | (c >> 12 & 63));
      text[at++] = (char)(0x80 | (c >> 6 & 63));
      text[at++] = (char)(0x80 | (c & 63));
    }
  }
  text[at] = 0;
}

static void copy_text(char *text, const char *from) {
  size_t length = from ? strnlen(from, MOST_TEXT - 1) : 0;
  if (length) memcpy(text, from, length);
  text[length] = 0;
}

static void read_message(char *text, const struct attributes *attributes) {
  text[0] = 0;
  if (!attributes || attributes->size < sizeof *attributes || !attributes->message) return;
  if (attributes->message_kind == TEXT) copy_text(text, attributes->message);
  if (attributes->message_kind == WIDE_TEXT) narrow(text, attributes->message);
  if (attributes->message_kind == REGISTERED)
    copy_text(text, ((const struct string *)attributes->message)->text);
}

static uint32_t define(const char *text, int nccl) {
  return hs_region(text, nccl ? "nccl" : "user", nccl ? "launch" : "other", "", 0);
}

/* A program may number its ranges: those beyond the limit share one name. */
static uint32_t region_of(const struct domain *domain, const char *text) {
  int nccl = domain && domain->is_nccl;
  if (!*text) text = "range";
  uint64_t hash = 0xcbf29ce484222325ull + (uint64_t)nccl;
  for (const char *c = text; *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3ull;
  hash |= 1;
  unsigned slot = (unsigned)(hash >> 40) % RANGE_SLOTS;
  for (uint64_t there; (there = __atomic_load_n(&ranges[slot].hash, __ATOMIC_ACQUIRE));
       slot = (slot + 1) % RANGE_SLOTS)
    if (there == hash) return ranges[slot].region;
  uint32_t region = define(range_count < MOST_RANGES ? text : "further ranges", nccl);
  pthread_mutex_lock(&lock);
  while (ranges[slot].hash && ranges[slot].hash != hash) slot = (slot + 1) % RANGE_SLOTS;
  if (!ranges[slot].hash && range_count < MOST_RANGES) {
    range_count++;
    ranges[slot].region = region;
    __atomic_store_n(&ranges[slot].hash, hash, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
  return region;
}

/* --- ranges --------------------------------------------------------------------------------- */

static unsigned index_of(const struct domain *domain) {
  return domain && domain->index < MOST_DOMAINS ? domain->index : 0;
}

static int push(const struct domain *domain, const char *text) {
  unsigned index = index_of(domain);
  unsigned depth = open_ranges[index].depth++;
  if (depth >= MOST_DEPTH) return (int)depth;
  uint32_t region = gpu_is_measured() ? region_of(domain, text) : HS_FILTERED;
  open_ranges[index].regions[depth] = region;
  if (region != HS_FILTERED) hs_enter(region, NULL);
  return (int)depth;
}

static int pop(const struct domain *domain) {
  unsigned index = index_of(domain);
  if (open_ranges[index].depth == 0) return -1;
  unsigned depth = --open_ranges[index].depth;
  if (depth < MOST_DEPTH && open_ranges[index].regions[depth] != HS_FILTERED)
    hs_leave(open_ranges[index].regions[depth]);
  return (int)depth;
}

static int push_text(const char *message) {
  char text[MOST_TEXT];
  copy_text(text, message);
  return push(NULL, text);
}

static int push_wide(const wchar_t *message) {
  char text[MOST_TEXT];
  narrow(text, message);
  return push(NULL, text);
}

static int push_domain(const struct domain *domain, const struct attributes *attributes) {
  char text[MOST_TEXT];
  read_message(text, attributes);
  return push(domain, text);
}

static int push_attributes(const struct attributes *attributes) { return push_domain(NULL, attributes); }
static int pop_plain(void) { return pop(NULL); }

/* NCCL ends ranges so, with numbers that are known only then. */
static int push_payload(const struct domain *domain, const void *payload, size_t count) {
  (void)payload;
  (void)count;
  return push(domain, "");
}

static int pop_payload(const struct domain *domain, const void *payload, size_t count) {
  (void)payload;
  (void)count;
  return pop(domain);
}

/* --- strings and domains: kept, since handles to them stay in use ------------------------------ */

static struct string *register_text(const struct domain *domain, const char *message) {
  (void)domain;
  struct string *kept = calloc(1, sizeof *kept);
  if (kept) copy_text(kept->text, message);
  return kept;
}

static struct string *register_wide(const struct domain *domain, const wchar_t *message) {
  (void)domain;
  struct string *kept = calloc(1, sizeof *kept);
  if (kept) narrow(kept->text, message);
  return kept;
}

static struct domain *make_domain(const char *name) {
  struct domain *made = calloc(1, sizeof *made);
  if (!made) return NULL;
  made->is_nccl = name && strcmp(name, "NCCL") == 0;
  pthread_mutex_lock(&lock);
  made->index = domain_count++;
  pthread_mutex_unlock(&lock);
  return made;
}

static struct domain *make_domain_wide(const wchar_t *name) {
  char text[MOST_TEXT];
  narrow(text, name);
  return make_domain(text);
}

/* --- begin ---------------------------------------------------------------------------------- */

static void replace(function **table, unsigned count, unsigned id, function ours) {
  if (id < count && table[id]) *table[id] = ours;
}

GPU_PUBLIC int InitializeInjectionNvtx2(get_export_table *look_up);

/* Called by NVTX once for each library that uses it; 0 makes its functions do nothing. */
GPU_PUBLIC int InitializeInjectionNvtx2(get_export_table *look_up) {
  function **table = NULL;
  unsigned count = 0;
  const struct export_table *exports =
      gpu_has_recorder() && look_up ? look_up(CALLBACKS) : NULL;
  if (!exports || exports->size < sizeof *exports || !exports->functions_of(CORE, &table, &count)) return 0;
  replace(table, count, PUSH_EX, (function)push_attributes);
  replace(table, count, PUSH_A, (function)push_text);
  replace(table, count, PUSH_W, (function)push_wide);
  replace(table, count, POP, (function)pop_plain);
  if (!exports->functions_of(CORE2, &table, &count)) return 1;
  replace(table, count, DOMAIN_PUSH, (function)push_domain);
  replace(table, count, DOMAIN_POP, (function)pop);
  replace(table, count, REGISTER_A, (function)register_text);
  replace(table, count, REGISTER_W, (function)register_wide);
  replace(table, count, DOMAIN_A, (function)make_domain);
  replace(table, count, DOMAIN_W, (function)make_domain_wide);
  return 1;
}

GPU_PUBLIC int InitializeInjectionNvtxExtension(struct extension *extension);

/* Called by NVTX for each extension that a library uses; 0 makes its functions do nothing. */
GPU_PUBLIC int InitializeInjectionNvtxExtension(struct extension *extension) {
  if (!gpu_has_recorder() || !extension || extension->size < sizeof *extension ||
      extension->module != PAYLOAD || extension->segment_count == 0 ||
      extension->segments[0].count <= POP_PAYLOAD)
    return 0;
  extension->segments[0].functions[PUSH_PAYLOAD] = (intptr_t)push_payload;
  extension->segments[0].functions[POP_PAYLOAD] = (intptr_t)pop_payload;
  return 1;
}
