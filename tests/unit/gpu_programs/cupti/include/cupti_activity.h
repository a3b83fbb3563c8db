/* Stands for CUPTI's header in tests. */
#ifndef FAKE_CUPTI_ACTIVITY_H
#define FAKE_CUPTI_ACTIVITY_H

#include "cuda.h"
#include "cupti_callbacks.h"
#include "cupti_result.h"

typedef enum {
  CUPTI_ACTIVITY_KIND_MEMCPY = 1,
  CUPTI_ACTIVITY_KIND_MEMSET = 2,
  CUPTI_ACTIVITY_KIND_KERNEL = 3,
  CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL = 10,
  CUPTI_ACTIVITY_KIND_OVERHEAD = 17,
  CUPTI_ACTIVITY_KIND_MEMCPY2 = 22
} CUpti_ActivityKind;
enum { CUPTI_ACTIVITY_FLAG_FLUSH_FORCED = 1 };
enum {
  CUPTI_ACTIVITY_MEMCPY_KIND_HTOD = 1,
  CUPTI_ACTIVITY_MEMCPY_KIND_DTOH = 2,
  CUPTI_ACTIVITY_MEMCPY_KIND_HTOA = 3,
  CUPTI_ACTIVITY_MEMCPY_KIND_ATOH = 4,
  CUPTI_ACTIVITY_MEMCPY_KIND_DTOD = 8,
  CUPTI_ACTIVITY_MEMCPY_KIND_PTOP = 10
};

typedef struct {
  CUpti_ActivityKind kind;
} CUpti_Activity;

typedef struct {
  CUpti_ActivityKind kind;
  uint64_t start;
} CUpti_ActivityKernel;

typedef struct {
  CUpti_ActivityKind kind;
  uint64_t start, end;
  uint32_t deviceId, contextId, streamId, correlationId;
  const char *name;
  uint64_t graphNodeId;
} CUpti_ActivityKernel10;

typedef struct {
  CUpti_ActivityKind kind;
} CUpti_ActivityKernel9;

typedef struct {
  CUpti_ActivityKind kind;
  uint8_t copyKind;
  uint64_t bytes, start, end;
  uint32_t deviceId, contextId, streamId, correlationId;
} CUpti_ActivityMemcpy;

typedef struct {
  CUpti_ActivityKind kind;
  uint64_t bytes, start, end;
  uint32_t deviceId, contextId, streamId, correlationId;
} CUpti_ActivityMemcpyPtoP2;

typedef struct {
  CUpti_ActivityKind kind;
  uint64_t bytes, start, end;
  uint32_t deviceId, contextId, streamId, correlationId;
} CUpti_ActivityMemset;

typedef struct {
  CUpti_ActivityKind kind;
  uint64_t start, end;
} CUpti_ActivityOverhead;

typedef void (*CUpti_BuffersCallbackRequestFunc)(uint8_t **, size_t *, size_t *);
typedef void (*CUpti_BuffersCallbackCompleteFunc)(CUcontext, uint32_t, uint8_t *, size_t, size_t);
typedef uint64_t (*CUpti_TimestampCallbackFunc)(void);

CUptiResult cuptiGetTimestamp(uint64_t *timestamp);
CUptiResult cuptiGetStreamIdEx(CUcontext context, CUstream stream, uint8_t perThreadStream,
                               uint32_t *streamId);
CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t *deviceId);
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind);
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t streamId,
                                              size_t *dropped);
CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record);
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete);
CUptiResult cuptiActivityFlushAll(uint32_t flag);
CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc callback);

#endif
