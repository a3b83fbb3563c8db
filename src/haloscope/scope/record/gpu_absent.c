/* Stands for the tracer of GPUs where no CUPTI was found: says so in programs that use a GPU. */
#include "gpu_tracer.h"

GPU_PUBLIC int InitializeInjection(void);

/* Called by CUDA's driver when the program initialises it. */
GPU_PUBLIC int InitializeInjection(void) {
  if (gpu_has_recorder()) gpu_say_missing(HS_NO_CUPTI);
  return 1;
}
