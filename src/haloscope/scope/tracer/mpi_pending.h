/* The table of requests under way, as the wrappers of requests use it. */
#ifndef HALOSCOPE_MPI_PENDING_H
#define HALOSCOPE_MPI_PENDING_H

#include "mpi_tracer.h"

#pragma GCC visibility push(hidden)

int pending_take(MPI_Request handle, struct hs_request *what);
void pending_put_back(MPI_Request handle, const struct hs_request *what);
struct hs_request pending_start(MPI_Request handle, int recorded);
void pending_rename(MPI_Request before, MPI_Request after);
void pending_cancel(MPI_Request handle);

/* Forget the request; returns the communicator that is to be given to hs_release_comm, or NULL. */
struct hs_comm *pending_drop(MPI_Request handle);

#pragma GCC visibility pop

#endif
