/* Stands for CUPTI's header in tests: a few functions, with numbers of their own. */
#ifndef FAKE_CUPTI_RUNTIME_CBID_H
#define FAKE_CUPTI_RUNTIME_CBID_H

typedef enum {
  CUPTI_RUNTIME_TRACE_CBID_INVALID = 0,
  CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000 = 1,
  CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020 = 2,
  CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_v3020 = 3,
  CUPTI_RUNTIME_TRACE_CBID_SIZE = 4
} CUpti_runtime_api_trace_cbid;

#endif
