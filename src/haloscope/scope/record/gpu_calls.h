/* Declarations that the parts of the tracer that use CUPTI share. */
#ifndef HALOSCOPE_GPU_CALLS_H
#define HALOSCOPE_GPU_CALLS_H

#include <cuda.h>
#include <cupti_activity.h>
#include <cupti_callbacks.h>
#include <cupti_driver_cbid.h>
#include <cupti_result.h>
#include <cupti_runtime_cbid.h>

#include "gpu_tracer.h"

/* Functions of CUPTI that are used; the last one is not in every version. */
#define GPU_CUPTI_NEEDED(F) \
  F(cuptiSubscribe) F(cuptiUnsubscribe) F(cuptiEnableCallback) F(cuptiActivityRegisterCallbacks) \
  F(cuptiActivityEnable) F(cuptiActivityGetNextRecord) F(cuptiActivityFlushAll) \
  F(cuptiActivityGetNumDroppedRecords) F(cuptiGetTimestamp) F(cuptiGetDeviceId) \
  F(cuptiGetStreamIdEx) F(cuptiGetResultString)
#define GPU_CUPTI_WISHED(F) F(cuptiActivityRegisterTimestampCallback)

#define GPU_DECLARE(name) __typeof__(&name) name##_;
struct gpu_cupti {
  GPU_CUPTI_NEEDED(GPU_DECLARE)
  GPU_CUPTI_WISHED(GPU_DECLARE)
};
#undef GPU_DECLARE
extern struct gpu_cupti gpu_cupti;

/* Start and stop the callbacks of CUPTI for the calls of the tables. */
CUptiResult gpu_watch_calls(void);
void gpu_leave_calls(void);

#endif
