/* The recorder's functions as a program sees them that may run without the recorder. */
#ifndef RECORDER_CALLS_H
#define RECORDER_CALLS_H

#include <stdint.h>

#define WEAK __attribute__((weak))

WEAK uint32_t hs_region(const char *, const char *, const char *, const char *, int);
WEAK void hs_enter(uint32_t, const void *);
WEAK void hs_enter_unwound(uint32_t, const void *);
WEAK void hs_leave(uint32_t);
WEAK void hs_event(uint32_t, uint32_t, uint64_t, uint64_t, uint64_t, uint64_t);
WEAK int hs_recording(void);
WEAK uint64_t hs_ticks(void);
WEAK double hs_ticks_per_second(void);
WEAK void hs_attach(int, int, const char *, const char *);
WEAK void hs_define(const char *);
WEAK int hs_rehearse(void (*)(void), double *, double *);
WEAK void hs_pause(void);
WEAK void hs_resume(void);

#endif
