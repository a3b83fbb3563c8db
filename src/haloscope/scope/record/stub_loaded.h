/* What the stub knows of the libraries that a program has loaded. */
#ifndef HALOSCOPE_STUB_LOADED_H
#define HALOSCOPE_STUB_LOADED_H

#include <limits.h>

#include "stub.h"

#pragma GCC visibility push(hidden)

struct hs_library {
  void *handle;        /* of dlopen; NULL where it was not found */
  char path[PATH_MAX];
};

/* How many MPI libraries are loaded; `mpi` is the first. */
int hs_find_mpi(struct hs_library *mpi);

/* A function of the libraries whose names begin with libmpi, or NULL. */
void *hs_find_function(const char *name);

/* From now on hs_redirect knows where calls go. `table` may be NULL. */
void hs_loaded_tracer(const struct hs_library *mpi, const struct hs_function *table);

/* ---- stub_reason.c ---- */

/* This process is not measured: leave word of it in the measurement's folder. */
void hs_leave_reason(const char *reason, const char *about);

#pragma GCC visibility pop
#endif
