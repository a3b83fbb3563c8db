/* Plays CUPTI in tests: hands over the records that a test asks for, and calls back.
 *
 *   FAKE_CUPTI_CLOCK=own        does not take the tracer's clock; its own runs three times as fast
 *   FAKE_CUPTI_REFUSES=NAME     this function fails */
#define _GNU_SOURCE
#include "fake_cupti.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cupti_driver_cbid.h"
#include "cupti_runtime_cbid.h"
#include "generated_cuda_meta.h"

enum { MOST = 64, PACE = 3 };
#define PUBLIC __attribute__((visibility("default")))
#pragma GCC visibility push(default)

static CUpti_CallbackFunc on_call;
static CUpti_BuffersCallbackRequestFunc on_request;
static CUpti_BuffersCallbackCompleteFunc on_complete;
static CUpti_TimestampCallbackFunc their_clock;
static int enabled[4][MOST], kinds[MOST];
static uint8_t *buffer;
static size_t size, used, dropped;
static uint64_t zero;
static uint32_t context_number = 1, device_number;
static char contexts[16];
/* Of the buffer. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int gone; /* as CUPTI is when the libraries of a process have ended */

static int refuses(const char *name) {
  const char *refused = getenv("FAKE_CUPTI_REFUSES");
  return refused && strcmp(refused, name) == 0;
}

static int has_own_clock(void) {
  const char *clock = getenv("FAKE_CUPTI_CLOCK");
  return clock && strcmp(clock, "own") == 0;
}

static uint64_t clock_now(void) {
  struct timespec time;
  if (their_clock) return their_clock();
  clock_gettime(CLOCK_MONOTONIC_RAW, &time);
  return PACE * ((uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec) + 12345;
}

static uint64_t stamp(uint64_t since) { return zero + (their_clock ? 1 : PACE) * since; }

/* --- what the tracer calls ------------------------------------------------------------------ */

CUptiResult cuptiGetResultString(CUptiResult result, const char **text) {
  *text = result == CUPTI_ERROR_NOT_SUPPORTED ? "CUPTI_ERROR_NOT_SUPPORTED" : "CUPTI_ERROR";
  return CUPTI_SUCCESS;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback,
                           void *data) {
  (void)data;
  if (refuses("cuptiSubscribe")) return CUPTI_ERROR_NOT_SUPPORTED;
  *subscriber = NULL;
  on_call = callback;
  zero = clock_now();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
  (void)subscriber;
  on_call = NULL;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  (void)subscriber;
  if (id >= MOST) return CUPTI_ERROR_INVALID_PARAMETER;
  enabled[domain][id] = (int)enable;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetTimestamp(uint64_t *timestamp) {
  *timestamp = clock_now();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetStreamIdEx(CUcontext context, CUstream stream, uint8_t per_thread,
                               uint32_t *id) {
  if (!context) return CUPTI_ERROR_INVALID_PARAMETER;
  *id = stream ? (uint32_t)(uintptr_t)stream : per_thread ? 8 : 7;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t *id) {
  (void)context;
  *id = device_number;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (refuses("cuptiActivityEnable")) return CUPTI_ERROR_NOT_SUPPORTED;
  kinds[kind] = 1;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *count) {
  (void)context, (void)stream;
  *count = dropped;
  dropped = 0;
  return CUPTI_SUCCESS;
}

static size_t length_of(const CUpti_Activity *record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_MEMCPY: return sizeof(CUpti_ActivityMemcpy);
    case CUPTI_ACTIVITY_KIND_MEMCPY2: return sizeof(CUpti_ActivityMemcpyPtoP2);
    case CUPTI_ACTIVITY_KIND_MEMSET: return sizeof(CUpti_ActivityMemset);
    case CUPTI_ACTIVITY_KIND_OVERHEAD: return sizeof(CUpti_ActivityOverhead);
    default: return sizeof(CUpti_ActivityKernel10);
  }
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *from, size_t valid, CUpti_Activity **record) {
  uint8_t *next = *record ? (uint8_t *)*record + length_of(*record) : from;
  if (next >= from + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = (CUpti_Activity *)(void *)next;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  on_request = request;
  on_complete = complete;
  return CUPTI_SUCCESS;
}

static void *hand_over(void *unused) {
  uint8_t *full = buffer;
  buffer = NULL;
  if (full) on_complete(NULL, 0, full, size, used);
  return unused;
}

void fake_deliver(void) {
  pthread_t worker;
  pthread_mutex_lock(&lock);
  if (!buffer && dropped) on_request(&buffer, &size, &(size_t){0}), used = 0;
  if (pthread_create(&worker, NULL, hand_over, NULL) == 0) pthread_join(worker, NULL);
  pthread_mutex_unlock(&lock);
}

CUptiResult cuptiActivityFlushAll(uint32_t flag) {
  if (gone) abort();
  if (flag > CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) return CUPTI_ERROR_INVALID_PARAMETER;
  fake_deliver();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc callback) {
  if (has_own_clock()) return CUPTI_ERROR_NOT_SUPPORTED;
  their_clock = callback;
  return CUPTI_SUCCESS;
}

/* --- what tests call ------------------------------------------------------------------------ */

void fake_context(uint32_t number, uint32_t device) {
  context_number = number;
  device_number = device;
}

uint64_t fake_time(void) { return (clock_now() - zero) / (their_clock ? 1 : PACE); }

static const struct {
  const char *name;
  uint32_t id;
} functions[] = {
#define DRIVER(name) {#name, CUPTI_DRIVER_TRACE_CBID_##name}
#define RUNTIME(name) {#name, CUPTI_RUNTIME_TRACE_CBID_##name}
    DRIVER(cuLaunchKernel),       DRIVER(cuLaunchKernelEx),
    DRIVER(cuGraphLaunch),        DRIVER(cuMemcpyDtoHAsync_v2),
    DRIVER(cuMemcpyDtoH_v2),      DRIVER(cuStreamSynchronize),
    DRIVER(cuCtxSynchronize),     DRIVER(cuEventRecord),
    DRIVER(cuEventSynchronize),   DRIVER(cuMemAlloc_v2),
    DRIVER(cuStreamSynchronize_ptsz), DRIVER(cuCtxGetCurrent),
    RUNTIME(cudaLaunchKernel_v7000), RUNTIME(cudaStreamSynchronize_v3020),
    RUNTIME(cudaMemcpy_v3020)};

int fake_call(const char *name, CUpti_ApiCallbackSite site, uint64_t stream, uint32_t correlation,
              uint64_t event) {
  CUpti_CallbackDomain domain =
      strncmp(name, "cuda", 4) == 0 ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API;
  uint32_t id = 0;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (strcmp(functions[i].name, name) == 0) id = functions[i].id;
  if (!id || !on_call || !enabled[domain][id]) return 0;
  CUstream handle = (CUstream)(uintptr_t)stream;
  CUevent mark = (CUevent)(uintptr_t)event;
  const CUlaunchConfig config = {1, handle};
  const cuLaunchKernel_params launch = {NULL, 0, handle};
  const cuLaunchKernelEx_params launch_ex = {&config, NULL};
  const cuGraphLaunch_params graph = {NULL, handle};
  const cuStreamSynchronize_params synchronize = {handle};
  const cuEventRecord_params record = {mark, handle};
  const cuEventSynchronize_params wait = {mark};
  const void *parameters = &graph; /* of a copy, too */
  if (strcmp(name, "cuLaunchKernel") == 0) parameters = &launch;
  if (strcmp(name, "cuLaunchKernelEx") == 0) parameters = &launch_ex;
  if (strncmp(name, "cuStreamSynchronize", 19) == 0) parameters = &synchronize;
  if (strcmp(name, "cuEventRecord") == 0) parameters = &record;
  if (strcmp(name, "cuEventSynchronize") == 0) parameters = &wait;
  const CUpti_CallbackData data = {.callbackSite = site,
                                   .functionName = name,
                                   .functionParams = parameters,
                                   .context = (CUcontext)(void *)&contexts[context_number % 16],
                                   .contextUid = context_number,
                                   .correlationId = correlation};
  on_call(NULL, domain, id, &data);
  return 1;
}

void fake_resource(CUpti_CallbackId id) {
  if (on_call && enabled[CUPTI_CB_DOMAIN_RESOURCE][id])
    on_call(NULL, CUPTI_CB_DOMAIN_RESOURCE, id, NULL);
}

void fake_record(const struct fake_work *work) {
  const size_t most = sizeof(CUpti_ActivityKernel10) + sizeof(CUpti_ActivityMemcpy);
  size_t records = 0;
  if (!kinds[work->kind]) return;
  pthread_mutex_lock(&lock);
  if (buffer && used + most > size) fake_deliver();
  if (!buffer) {
    on_request(&buffer, &size, &records);
    used = 0;
  }
  void *place = buffer + used;
  uint64_t begin = work->begin || work->end ? stamp(work->begin) : 0;
  uint64_t end = work->begin || work->end ? stamp(work->end) : 0;
#define PLACE device_number, context_number, work->stream, work->correlation
  switch (work->kind) {
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      *(CUpti_ActivityMemcpy *)place = (CUpti_ActivityMemcpy){
          work->kind, work->copy, work->bytes, begin, end, PLACE};
      break;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      *(CUpti_ActivityMemcpyPtoP2 *)place =
          (CUpti_ActivityMemcpyPtoP2){work->kind, work->bytes, begin, end, PLACE};
      break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
      *(CUpti_ActivityMemset *)place =
          (CUpti_ActivityMemset){work->kind, work->bytes, begin, end, PLACE};
      break;
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      *(CUpti_ActivityOverhead *)place = (CUpti_ActivityOverhead){work->kind, begin, end};
      break;
    default:
      *(CUpti_ActivityKernel10 *)place =
          (CUpti_ActivityKernel10){work->kind, begin, end, PLACE, work->name, work->node};
  }
  used += length_of(place);
  pthread_mutex_unlock(&lock);
}

void fake_drop(size_t records) { dropped += records; }

void fake_leave(void) { gone = 1; }
