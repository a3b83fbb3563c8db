/* What the recorder offers to those who tell it what happens: the MPI wrappers, the hooks of the
 * compiler, user regions, OpenMP. The recorder knows no MPI; it lives in the preloaded library.
 *
 * While nobody has called it, the recorder has allocated nothing and opened nothing. The first
 * call reads the environment that `haloscope measure` has set:
 *
 *   HALOSCOPE_MEASURE   folder for the measurement, absolute; unset: every call does nothing
 *   HALOSCOPE_MODE      trace or profile
 *   HALOSCOPE_BUFFER    MiB of a location's buffer in trace mode, 16 where not set
 *   HALOSCOPE_FILTER    patterns of names that are not recorded, one a line; !pattern: but these;
 *                       a line that begins with # is a remark
 *   HALOSCOPE_PHASE     NAME or NAME:N: record only within (the N-th visit of) this region
 *   HALOSCOPE_UNWIND    frames of the stack to look at in MPI calls, 0 for none
 *   HALOSCOPE_COUNTERS  hardware counters to read, separated by commas
 *
 * All functions may be called from any thread, before MPI_Init and after MPI_Finalize too.
 */
#ifndef HALOSCOPE_RECORDER_H
#define HALOSCOPE_RECORDER_H

#include <stdint.h>
#include "events.h"

#define HS_FILTERED 0xffffffffu

/* The tracers of the MPI flavours are libraries of their own that call these. */
#pragma GCC visibility push(default)

/* A region's number, made on first use. The texts are copied. HS_FILTERED where the user's filter
 * names it: then leave hs_enter and hs_leave for it away. */
uint32_t hs_region(const char *name, const char *paradigm, const char *role, const char *file,
                   int line);

/* Enter and leave; `site` is the address that the call returns to, or NULL. Visits nest. While
 * measurement is paused nothing is recorded, and what was entered before stays entered. */
void hs_enter(uint32_t region, const void *site);
void hs_leave(uint32_t region);

/* As hs_enter, for MPI calls: with HALOSCOPE_UNWIND, the functions on the stack from the one that
 * `site` lies in outwards become nodes between (paradigm `unwound`), which are never entered
 * themselves. `site` is what __builtin_return_address(0) gives in the function that the program has
 * called. */
void hs_enter_unwound(uint32_t region, const void *site);

/* An event with its further words (events.h says how many). Its time is that of the event before
 * it for HS_EVENT_SEND, ISEND, IRECV, PUT, GET, POST, START, LAUNCH: they follow an hs_enter. The kinds
 * that stand before an hs_leave read the clock, and the hs_leave after them takes that time. In
 * profile mode messages and bytes are counted, the rest is left out. */
/* Zero where it was not recorded, as in a pause. Messages and collectives are counted then. */
int hs_event(uint32_t kind, uint32_t payload, uint64_t first, uint64_t second, uint64_t third,
             uint64_t fourth);

/* A message or a collective operation (`peer` HS_NOBODY, `flag` 0) that is not recorded, as the user's
 * filter names its call: HS_SKIPPED_SENT or HS_SKIPPED_RECEIVED. It is told by an HS_EVENT_SKIPPED
 * before the next event that it has to stand before. */
void hs_skip(uint32_t peer, uint64_t channel, uint64_t flag);

/* Zero while nothing is recorded: paused, outside of the phase, or not measured at all. Wrappers
 * keep their tables of requests and communicators up to date all the same. */
int hs_recording(void);

/* Clock of this process: ticks now, and ticks a second. */
uint64_t hs_ticks(void);
double hs_ticks_per_second(void);

/* Files are named by the rank: called once, at the end of MPI_Init. What came before is kept
 * until then. Without MPI the recorder makes itself rank 0 of 1 when the process ends. */
void hs_attach(int rank, int size, const char *mpi, const char *threads);

/* What recording costs this process: seconds that a visit shows and seconds beyond it, medians of
 * many. `visit` enters region 0 by hs_enter without a site, tells what it likes (16 words at most)
 * and leaves; nothing of it is kept. 0 where no trace is written, or one with hardware counters. */
int hs_rehearse(void (*visit)(void), double *within, double *beyond);

/* True where this process has its files in the measurement's folder and has not given up. */
int hs_ready(void);

/* Rank that the launcher has given this process, as text; NULL where it tells none. */
const char *hs_launcher_rank(void);

/* MPI runs, or has ended in order: while it runs the end of the process comes early. */
void hs_mpi_runs(int runs);

/* Append a line of JSON to this rank's definitions (no newline in it). */
void hs_define(const char *line);

/* Measurement off and on again, counted: as many resumes as pauses. */
void hs_pause(void);
void hs_resume(void);

/* Writes a profile now, since what comes next (MPI_Abort) may kill this process: nothing is recorded
 * any more. The events of a trace are in their files already, and it goes on. */
void hs_record_abort(int code);

/* Told once on standard error of rank 0 or of a process without a rank: "haloscope: ...". */
void hs_say_once(const char *text);

/* ---- streams of GPUs: their work is reported after its end, by another thread than the one that
 * started it, and out of order. Only hs_launch makes the calling thread a location. ---- */

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
