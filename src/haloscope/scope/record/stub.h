/* What the preloaded stub and the tracer of an MPI flavour share.
 *
 * The stub is the part of the preloaded library that knows the names of MPI functions and nothing
 * of any MPI. Its trampolines lead to the flavour's tracer, a library of its own that is compiled
 * with the mpi.h of the MPI that the program has loaded.
 */
#ifndef HALOSCOPE_STUB_H
#define HALOSCOPE_STUB_H

#include <limits.h>
#include <stddef.h>

struct hs_function {
  const char *name;    /* such as MPI_Send */
  void *wrapper;
  const void *measured; /* the MPI's own PMPI_Send; NULL where this MPI has none */
};

/* A tracer's functions, the last one without a name. The tracer's only public symbol. */
#define HS_TRACER_TABLE "hs_tracer_functions"

struct hs_mpi_thread {
  /* Frame of the MPI call that this thread is in: what lies deeper is the MPI's own doing. */
  const char *inside;
  /* Where the program called the Fortran binding that now calls MPI. (The trampolines know where
   * this lies.) */
  const void *fortran_site;
  unsigned number; /* of this thread among those that call MPI, from 1; 0 not yet known */
};
_Static_assert(offsetof(struct hs_mpi_thread, fortran_site) == 8, "as in wrappers.py");
extern __thread struct hs_mpi_thread hs_mpi_thread __attribute__((tls_model("initial-exec")));

/* Where MPI's Fortran libraries lie. */
enum { HS_MOST_FORTRAN = 8 };
struct hs_range {
  const char *begin, *end;
};
extern struct hs_range hs_fortran[HS_MOST_FORTRAN];

/* This process is not measured after all: nothing of it is kept. */
void hs_give_up(void);

/* Lead calls of functions that not every MPI has to the tracer, in libraries loaded since. */
void hs_redirect(void);

/* ---- between the parts of the stub ---- */

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

/* This process is not measured: leave word of it in the measurement's folder. */
void hs_leave_reason(const char *reason, const char *about);

#pragma GCC visibility pop

#endif
