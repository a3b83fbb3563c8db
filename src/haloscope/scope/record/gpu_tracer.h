/* What the parts of the GPUs' tracer share: a library that CUDA's driver and NVTX load into
 * measured programs, by CUDA_INJECTION64_PATH and NVTX_INJECTION64_PATH.
 *
 * The recorder is in the preloaded library. Where that is not in the process, its functions are
 * NULL here, and the tracer does nothing. CUPTI is loaded by name, not linked: the program may have
 * it already. */
#ifndef HALOSCOPE_GPU_TRACER_H
#define HALOSCOPE_GPU_TRACER_H

#include "recorder.h"

#pragma weak hs_region
#pragma weak hs_enter
#pragma weak hs_leave
#pragma weak hs_event
#pragma weak hs_recording
#pragma weak hs_say_once
#pragma weak hs_device_clock
#pragma weak hs_device_region
#pragma weak hs_stream
#pragma weak hs_launch
#pragma weak hs_stream_work
#pragma weak hs_streams_settle
#pragma weak hs_device_note
#pragma weak hs_at_finish

#define GPU_PUBLIC __attribute__((visibility("default")))

/* Whether the recorder is in this process. */
int gpu_has_recorder(void);

/* Whether it may be called: a process may be told where its measurement goes later than it
 * initialises CUDA, and the recorder asks at its first call only. */
int gpu_is_measured(void);

/* Tell once, from the first of the ranks: "GPUs are not measured (only the CPU side): " and the reason. */
void gpu_say_missing(const char *reason);

/* What a call of CUDA does. */
enum gpu_role {
  GPU_LAUNCH,
  GPU_COPY,
  GPU_SYNC,   /* waits; a copy that does not return before it is done, too */
  GPU_MEMORY, /* memory, modules, contexts, graphs: set up and taken down */
  GPU_RECORD  /* of an event into a stream: no region of its own */
};

/* A function of CUDA that is looked at; gpu_build.py writes the tables from CUPTI's headers. */
struct gpu_call {
  uint32_t id; /* CUPTI's number of it */
  enum gpu_role role;
  const char *name;
  int starts;                                /* it starts a kernel, copy or graph */
  int per_thread;                            /* its NULL stream is the thread's own */
  void *(*stream)(const void *parameters);   /* NULL where it has none */
  void *(*event)(const void *parameters);
};
extern const struct gpu_call gpu_driver_calls[], gpu_runtime_calls[];
extern const unsigned gpu_driver_call_count, gpu_runtime_call_count;

#endif
