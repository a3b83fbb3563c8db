/* Measures the cost of recording MPI calls: runs the work of a wrapper without the call, so that no
 * message is sent. */
#include <stdio.h>

#include "mpi_tracer.h"

static int own_rank;
static MPI_Status came; /* of an empty message from oneself */

static inline void open_call(void) {
  hs_mpi_thread.inside = HS_FRAME;
  hs_enter(0, NULL);
}
static inline void close_call(void) {
  hs_leave(0);
  hs_mpi_thread.inside = NULL;
}

static void call(void) {
  open_call();
  close_call();
}
static void send_call(void) {
  open_call();
  hs_record_send(0, 0, own_rank, 0, MPI_COMM_WORLD);
  close_call();
}
static void receive_call(void) {
  open_call();
  hs_record_receive(0, MPI_SUCCESS, &came, hs_comm_of(MPI_COMM_WORLD));
  close_call();
}

void hs_record_cost(int rank) {
  char line[240];
  double within[3], beyond[3];
  void (*const calls[3])(void) = {call, send_call, receive_call};
  const char *const outer = hs_mpi_thread.inside;
  own_rank = rank;
  if (PMPI_Recv(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &came) != MPI_SUCCESS) return;
  came.MPI_SOURCE = rank;
  came.MPI_TAG = 0;
  for (int which = 0; which < 3; which++) {
    const int done = hs_rehearse(calls[which], &within[which], &beyond[which]);
    hs_mpi_thread.inside = outer;
    if (!done) return;
  }
  /* Cost of the messages beyond the call. */
  for (int which = 1; which < 3; which++) {
    within[which] = within[which] > within[0] ? within[which] - within[0] : 0;
    beyond[which] = beyond[which] > beyond[0] ? beyond[which] - beyond[0] : 0;
  }
  snprintf(line, sizeof line,
           "{\"recording\": \"mpi\", \"call\": [%.3e, %.3e], \"before\": [%.3e, %.3e],"
           " \"after\": [%.3e, %.3e]}",
           within[0], beyond[0], within[1], beyond[1], within[2], beyond[2]);
  hs_define(line);
}
