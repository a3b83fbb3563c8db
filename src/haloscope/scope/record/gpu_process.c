/* Functions that every process with the GPU tracer needs, with CUPTI or without. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_tracer.h"

int gpu_has_recorder(void) { return hs_enter && hs_stream_work; }

int gpu_is_measured(void) {
  static int known;
  if (__builtin_expect(!__atomic_load_n(&known, __ATOMIC_RELAXED), 0)) {
    const char *folder = getenv("HALOSCOPE_MEASURE");
    if (!gpu_has_recorder() || !folder || !*folder) return 0;
    __atomic_store_n(&known, 1, __ATOMIC_RELAXED);
  }
  return 1;
}

void gpu_say_missing(const char *reason) {
  static const char *const ranks[] = {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK",
                                      "MV2_COMM_WORLD_RANK", "SLURM_PROCID", "PALS_RANKID"};
  char line[1024];
  for (size_t variable = 0; variable < sizeof ranks / sizeof *ranks; variable++) {
    const char *rank = getenv(ranks[variable]);
    if (rank && strcmp(rank, "0") != 0) return;
  }
  snprintf(line, sizeof line, "GPUs are not measured (only the CPU side): %s", reason);
  hs_say_once(line);
}

#ifdef HS_NO_CUPTI
/* Stands for the tracer of GPUs where no CUPTI was found: says so in programs that use a GPU. */
GPU_PUBLIC int InitializeInjection(void);

/* Called by CUDA's driver when the program initialises it. */
GPU_PUBLIC int InitializeInjection(void) {
  if (gpu_has_recorder()) gpu_say_missing(HS_NO_CUPTI);
  return 1;
}
#endif
