/* Stands for CUPTI's header in tests: parameters of the functions. */
#include "cuda.h"

typedef struct cuLaunchKernel_params_st {
    CUfunction f;
    unsigned int sharedMemBytes;
    CUstream hStream;
} cuLaunchKernel_params;

typedef struct cuLaunchKernelEx_params_st {
    const CUlaunchConfig *config;
    CUfunction f;
} cuLaunchKernelEx_params;

typedef struct cuGraphLaunch_params_st {
    void *hGraphExec;
    CUstream hStream;
} cuGraphLaunch_params;

typedef struct cuMemcpyDtoHAsync_v2_params_st {
    void *dstHost;
    CUstream hStream;
} cuMemcpyDtoHAsync_v2_params;

typedef struct cuMemcpyDtoH_v2_params_st {
    void *dstHost;
} cuMemcpyDtoH_v2_params;

typedef struct cuStreamSynchronize_params_st {
    CUstream hStream;
} cuStreamSynchronize_params;

typedef struct cuStreamSynchronize_ptsz_params_st {
    CUstream hStream;
} cuStreamSynchronize_ptsz_params;

typedef struct cuEventRecord_params_st {
    CUevent hEvent;
    CUstream hStream;
} cuEventRecord_params;

typedef struct cuEventSynchronize_params_st {
    CUevent hEvent;
} cuEventSynchronize_params;
