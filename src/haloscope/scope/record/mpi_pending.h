/* The table of requests under way, as the wrappers of requests use it. */
#ifndef HALOSCOPE_MPI_PENDING_H
#define HALOSCOPE_MPI_PENDING_H

#include "mpi_tracer.h"

#pragma GCC visibility push(hidden)

int pending_take(MPI_Request handle, struct hs_request *request);
void pending_put_back(MPI_Request handle, const struct hs_request *request);
struct hs_request pending_start(MPI_Request handle);
void pending_unrecorded(MPI_Request handle); /* the start of a persistent one was not recorded */
int pending_mark_recorded(MPI_Request handle, struct hs_request *request); /* its completion, once */
void pending_rename(MPI_Request before, MPI_Request after);
void pending_cancel(MPI_Request handle);

/* Forget the request; 0 where there is none. Pass its communicator to hs_release_comm. */
int pending_drop(MPI_Request handle, struct hs_request *request);

#pragma GCC visibility pop

#endif
