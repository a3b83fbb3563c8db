/* Stands for CUDA's header in tests: only what the tracer of GPUs names. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef struct fake_context *CUcontext;
typedef struct fake_stream *CUstream;
typedef struct fake_event *CUevent;
typedef struct fake_function *CUfunction;
typedef struct {
  unsigned grid;
  CUstream hStream;
} CUlaunchConfig;

#endif
