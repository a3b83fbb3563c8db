/* What tests tell the CUPTI that they play. Times are nanoseconds since the tracer was loaded. */
#ifndef FAKE_CUPTI_H
#define FAKE_CUPTI_H

#include "cupti_activity.h"

struct fake_work {
  CUpti_ActivityKind kind;
  const char *name;
  uint8_t copy;
  uint64_t bytes, begin, end;
  uint32_t stream, correlation, node;
};

void fake_context(uint32_t number, uint32_t device);
/* One side of a call, such as cuLaunchKernel; 0 where nobody watches it. */
int fake_call(const char *name, CUpti_ApiCallbackSite site, uint64_t stream, uint32_t correlation,
              uint64_t event);
void fake_resource(CUpti_CallbackId id); /* such as a context that was made */
uint64_t fake_time(void);
void fake_record(const struct fake_work *work);
void fake_drop(size_t records);
void fake_leave(void); /* from now on a call is an error, as when libraries have ended */
void fake_deliver(void); /* on a thread of its own, as CUPTI does */

#endif
