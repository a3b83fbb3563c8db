/* Leaves word of why a process that has loaded an MPI was not measured.
 *
 * The reason is the name of a file in the measurement's folder, and its content is the library that
 * the reason is about: `haloscope measure` makes a line of it where nothing was measured. All
 * processes of a run may leave the same one.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "stub_loaded.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "location.h"

static int reason_left;

void hs_leave_reason(const char *reason, const char *about) {
  char path[PATH_MAX + 100];
  const char *folder = getenv("HALOSCOPE_MEASURE");
  reason_left = 1;
  if (folder == NULL || *folder == '\0') return;
  snprintf(path, sizeof path, "%s/.unmeasured-%s", folder, reason);
  const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return;
  const ssize_t written = write(file, about, strlen(about));
  (void)written;
  close(file);
}

static const char *file_of(const void *address) {
  Dl_info where;
  return address && dladdr(address, &where) && where.dli_fname ? where.dli_fname : "";
}

/* Only the start of MPI tells the recorder that there is one. */
__attribute__((destructor)) static void on_exit_of_process(void) {
  struct hs_library mpi;
  const char *folder = getenv("HALOSCOPE_MEASURE");
  int begun = 0;
  if (folder == NULL || *folder == '\0' || reason_left || hs_recorder.mpi[0]) return;
  if (hs_find_mpi(&mpi) == 0) return;
  int (*has_begun)(int *) = (int (*)(int *))dlsym(mpi.handle, "PMPI_Initialized");
  if (has_begun == NULL) return;
  has_begun(&begun);
  const char *own = file_of((const void *)hs_leave_reason);
  const char *first = file_of(dlsym(RTLD_DEFAULT, "MPI_Init"));
  if (!begun) hs_leave_reason("no-init", mpi.path);
  else if (*first && strcmp(first, own) != 0) hs_leave_reason("other-tool", first);
  else hs_leave_reason("opened", mpi.path);
}
