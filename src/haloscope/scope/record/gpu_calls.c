/* Calls of CUDA by the host: regions, what they start, and what they wait for.
 *
 * A call of the runtime makes calls of the driver: the outermost is the region, the inner ones
 * name the stream. Within a call of MPI nothing is entered: its work counts as MPI's time. */
#include "gpu_calls.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "stub.h"

enum { MOST_IDS = 4096, EVENTS = 1 << 16, DOMAINS = 2 };
#define UNKNOWN 0xfffffffeu /* a region that has not been asked for */

static const struct gpu_call *calls[DOMAINS][MOST_IDS];
static uint32_t regions[DOMAINS][MOST_IDS];
static uint64_t recorded[EVENTS]; /* address of an event << 16 | location of its stream */
static uint32_t generation;       /* of streams: changes where one is destroyed */

/* The stream that a thread has named last: looking it up costs more than all else. */
struct named_stream {
  CUcontext context;
  const void *stream;
  uint32_t per_thread, generation, location;
};

static __thread struct {
  uint32_t depth;    /* of calls within each other */
  uint32_t region;   /* of the outermost, HS_FILTERED where none was entered */
  uint32_t started;  /* correlation of the last call that has started something */
  uint32_t waits;    /* one of the calls has waited ... */
  uint32_t waited;   /* ... for this location */
  struct named_stream named;
} mine;

static const char *const roles[] = {"launch", "copy", "sync", "memory", ""};

static int is_driver(CUpti_CallbackDomain domain) { return domain == CUPTI_CB_DOMAIN_DRIVER_API; }

static int is_inside_mpi(void) {
  static __thread struct hs_mpi_thread *mpi;
  static __thread int looked;
  if (!looked) {
    looked = 1;
    mpi = dlsym(RTLD_DEFAULT, "hs_mpi_thread");
  }
  const char *inside = mpi ? mpi->inside : NULL;
  return inside && (const char *)__builtin_frame_address(0) < inside;
}

static uint32_t region_of(CUpti_CallbackDomain domain, const struct gpu_call *call) {
  uint32_t *region = &regions[is_driver(domain)][call->id];
  if (*region == UNKNOWN) *region = hs_region(call->name, "cuda", roles[call->role], "", 0);
  return *region;
}

/* --- streams and events --------------------------------------------------------------------- */

/* Location of a stream that a call names; of one that has never worked, only if `make`. */
static uint32_t location_of(const CUpti_CallbackData *callback, const struct gpu_call *call, int make) {
  CUstream stream = call->stream ? call->stream(callback->functionParams) : NULL;
  uint32_t now = __atomic_load_n(&generation, __ATOMIC_RELAXED);
  struct named_stream *named = &mine.named;
  if (named->context == callback->context && named->stream == stream && named->generation == now &&
      named->per_thread == (uint32_t)call->per_thread && named->location != HS_NOBODY &&
      callback->context)
    return named->location;
  uint32_t id = 0, device = 0;
  if (!callback->context ||
      gpu_cupti.cuptiGetStreamIdEx_(callback->context, stream, (uint8_t)call->per_thread, &id) !=
          CUPTI_SUCCESS ||
      gpu_cupti.cuptiGetDeviceId_(callback->context, &device) != CUPTI_SUCCESS)
    return HS_NOBODY;
  uint32_t location = hs_stream((int)device, callback->contextUid, id, make);
  *named = (struct named_stream){callback->context, stream, (uint32_t)call->per_thread, now, location};
  return location;
}

static uint64_t *place_of(const void *event) {
  return &recorded[((uintptr_t)event * 0x9e3779b97f4a7c15ull) >> 48 & (EVENTS - 1)];
}

static void note_event(const CUpti_CallbackData *callback, const struct gpu_call *call) {
  const void *event = call->event ? call->event(callback->functionParams) : NULL;
  uint32_t location = event ? location_of(callback, call, 0) : HS_NOBODY;
  if (!event) return;
  uint64_t word = (uint64_t)(uintptr_t)event << 16 | (location < 0xffff ? location : 0xffff);
  __atomic_store_n(place_of(event), word, __ATOMIC_RELAXED);
}

static uint32_t location_of_event(const void *event) {
  uint64_t word = __atomic_load_n(place_of(event), __ATOMIC_RELAXED);
  if (!event || word >> 16 != ((uint64_t)(uintptr_t)event << 16) >> 16) return HS_NOBODY;
  return (word & 0xffff) == 0xffff ? HS_NOBODY : (uint32_t)(word & 0xffff);
}

/* Location that a finished call has waited for; all streams where it names none, as for a device. */
static uint32_t awaited(const CUpti_CallbackData *callback, const struct gpu_call *call) {
  if (call->event) return location_of_event(call->event(callback->functionParams));
  return call->stream || call->starts ? location_of(callback, call, call->starts) : HS_NOBODY;
}

/* --- calls ---------------------------------------------------------------------------------- */

static void begin(CUpti_CallbackDomain domain, const CUpti_CallbackData *callback,
                  const struct gpu_call *call) {
  if (mine.depth++ == 0) {
    mine.region = HS_FILTERED;
    mine.started = mine.waits = 0;
    if (call->role != GPU_RECORD && !is_inside_mpi()) {
      mine.region = region_of(domain, call);
      if (mine.region != HS_FILTERED) hs_enter(mine.region, NULL);
    }
  }
  if (call->starts && is_driver(domain)) {
    mine.started = callback->correlationId;
    hs_launch(location_of(callback, call, 1), callback->correlationId, mine.region != HS_FILTERED);
  }
}

static void end(CUpti_CallbackDomain domain, const CUpti_CallbackData *callback,
                const struct gpu_call *call) {
  if (mine.depth == 0) return; /* it was begun before anyone looked */
  if (call->starts && !is_driver(domain) && mine.started != callback->correlationId)
    hs_launch(HS_NOBODY, callback->correlationId, mine.region != HS_FILTERED);
  if (call->role == GPU_RECORD && is_driver(domain)) note_event(callback, call);
  if (call->role == GPU_SYNC && (is_driver(domain) || !mine.waits)) {
    mine.waits = 1;
    mine.waited = is_driver(domain) ? awaited(callback, call) : HS_NOBODY;
  }
  if (--mine.depth > 0 || mine.region == HS_FILTERED) return;
  if (mine.waits) hs_event(HS_EVENT_DEVICE_WAIT, mine.waited, 0, 0, 0, 0);
  hs_leave(mine.region);
}

static void CUPTIAPI on_call(void *unused, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                             const void *data) {
  (void)unused;
  if (!gpu_is_measured()) return;
  if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
    /* The program has a GPU from here on: before, it may only have asked whether there is one. */
    if (id == CUPTI_CBID_RESOURCE_CONTEXT_CREATED) hs_recording();
    __atomic_add_fetch(&generation, 1, __ATOMIC_RELAXED);
    return;
  }
  const CUpti_CallbackData *callback = data;
  const struct gpu_call *call = id < MOST_IDS ? calls[is_driver(domain)][id] : NULL;
  if (!call || !callback) return;
  if (callback->callbackSite == CUPTI_API_ENTER)
    begin(domain, callback, call);
  else
    end(domain, callback, call);
}

static CUpti_SubscriberHandle subscriber;

static void watch(CUpti_CallbackDomain domain, const struct gpu_call *list, unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    if (list[i].id >= MOST_IDS) continue;
    regions[is_driver(domain)][list[i].id] = UNKNOWN;
    calls[is_driver(domain)][list[i].id] = &list[i];
    /* A driver that is older than the headers does not know them all. */
    gpu_cupti.cuptiEnableCallback_(1, subscriber, domain, list[i].id);
  }
}

CUptiResult gpu_watch_calls(void) {
  CUptiResult result = gpu_cupti.cuptiSubscribe_(&subscriber, (CUpti_CallbackFunc)on_call, NULL);
  if (result != CUPTI_SUCCESS) return result;
  watch(CUPTI_CB_DOMAIN_DRIVER_API, gpu_driver_calls, gpu_driver_call_count);
  watch(CUPTI_CB_DOMAIN_RUNTIME_API, gpu_runtime_calls, gpu_runtime_call_count);
  static const CUpti_CallbackId resources[] = {CUPTI_CBID_RESOURCE_CONTEXT_CREATED,
                                               CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING};
  for (size_t i = 0; i < sizeof resources / sizeof *resources; i++)
    gpu_cupti.cuptiEnableCallback_(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, resources[i]);
  return CUPTI_SUCCESS;
}

void gpu_leave_calls(void) { gpu_cupti.cuptiUnsubscribe_(subscriber); }
