/* What every process with the GPUs' tracer needs, with CUPTI or without. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_tracer.h"

int gpu_is_measured(void) {
  const char *folder = getenv("HALOSCOPE_MEASURE");
  return hs_enter && hs_stream_work && folder && *folder;
}

void gpu_say_missing(const char *reason) {
  static const char *const ranks[] = {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK",
                                      "MV2_COMM_WORLD_RANK", "SLURM_PROCID", "PALS_RANKID"};
  char line[1024];
  for (size_t each = 0; each < sizeof ranks / sizeof *ranks; each++) {
    const char *rank = getenv(ranks[each]);
    if (rank && strcmp(rank, "0") != 0) return;
  }
  snprintf(line, sizeof line, "GPUs are not measured: %s; everything else is", reason);
  hs_say_once(line);
}
