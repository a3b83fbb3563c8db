/* Stands for CUPTI's header in tests: a few functions, with numbers of their own. */
#ifndef FAKE_CUPTI_DRIVER_CBID_H
#define FAKE_CUPTI_DRIVER_CBID_H

typedef enum {
  CUPTI_DRIVER_TRACE_CBID_INVALID = 0,
  CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel = 1,
  CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx = 2,
  CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch = 3,
  CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2 = 4,
  CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoH_v2 = 5,
  CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize = 6,
  CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize = 7,
  CUPTI_DRIVER_TRACE_CBID_cuEventRecord = 8,
  CUPTI_DRIVER_TRACE_CBID_cuEventSynchronize = 9,
  CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2 = 10,
  CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize_ptsz = 11,
  CUPTI_DRIVER_TRACE_CBID_cuCtxGetCurrent = 12,
  CUPTI_DRIVER_TRACE_CBID_SIZE = 13
} CUpti_driver_api_trace_cbid;

#endif
