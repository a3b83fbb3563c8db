/* What the recorder offers to the tracer of GPUs: locations for streams, whose work is told later
 * than it was done, by another thread than the one that started it, and out of order.
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

/* As hs_region, for what a GPU's own threads tell. */
uint32_t hs_device_region(const char *name, const char *paradigm, const char *role);

/* Number of a stream's location, or HS_NOBODY: made where it is not there yet, if `make`. */
uint32_t hs_stream(int device, uint32_t context, uint32_t stream, int make);

/* The calling thread starts work with this correlation in the region that it is in: what is told
 * of the work later gets this call path. Where that region has just been entered, an event says so,
 * too; `stream` is a location or HS_NOBODY. */
void hs_launch(uint32_t stream, uint32_t correlation, int entered);

/* Work of a stream, in any order. It is kept for a while and written in the order of its begin. */
void hs_stream_work(const struct hs_work *work);

/* Write what is so old that nothing older can come any more. */
void hs_streams_settle(void);

/* Append a line of JSON to this rank's definitions, as hs_define. */
void hs_device_note(const char *line);

/* Called once, before the recording of this process ends: tell what has not been told. */
void hs_at_finish(void (*tell)(void));

#pragma GCC visibility pop

#endif
