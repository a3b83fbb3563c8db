/* Interface of the recorder for the GPU tracer: locations for streams, whose work is reported after
 * its end, by another thread than the one that started it, and out of order.
 *
 * The tracer of GPUs is a library of its own (gpu_tracer.h). These functions may be called from
 * any thread; only hs_launch makes the calling thread a location. */
#ifndef HALOSCOPE_GPU_STREAMS_H
#define HALOSCOPE_GPU_STREAMS_H

#include "recorder.h"

/* A kernel or copy that is over. Times are those of hs_device_clock. */
struct hs_work {
  int device;
  uint32_t context, stream; /* numbers that a GPU's runtime gives them */
  uint32_t region;          /* of hs_device_region */
  uint32_t correlation;     /* of the call that started it; 0 where it is not known */
  uint32_t direction;       /* HS_COPY_*, 0 for a kernel */
  uint64_t bytes;           /* of a copy */
  uint64_t begin, end;
};

#pragma GCC visibility push(default)

/* This process's clock in nanoseconds, never zero. Its zero and its rate are its own; they stay. */
uint64_t hs_device_clock(void);

/* As hs_region, for activities that the GPU runtime's own threads report. */
uint32_t hs_device_region(const char *name, const char *paradigm, const char *role);

/* Number of a stream's location, or HS_NOBODY: made where it is not there yet, if `make`. */
uint32_t hs_stream(int device, uint32_t context, uint32_t stream, int make);

/* The calling thread starts work with this correlation in its current region: work reported later
 * gets this call path. Where that region has just been entered, an event records it, too; `stream`
 * is a location or HS_NOBODY. */
void hs_launch(uint32_t stream, uint32_t correlation, int entered);

/* Work of a stream, in any order. It is kept for a while and written in the order of its begin. */
void hs_stream_work(const struct hs_work *work);

/* Write the work that is too old for older work to arrive. */
void hs_streams_settle(void);

/* Append a line of JSON to this rank's definitions, as hs_define. */
void hs_device_note(const char *line);

/* Called once, before the recording of this process ends, to record the rest of the work. */
void hs_at_finish(void (*finish)(void));

#pragma GCC visibility pop

#endif
