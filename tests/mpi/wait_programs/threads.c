/* Waits of two threads of each rank, which exchange messages of their own, on two ranks. */
#include "naps.h"
#include <pthread.h>

#define NAP 0.2
#define WORLD MPI_COMM_WORLD

static MPI_Request request;

static void *second(void *nothing) {
  if (rank == 0) {
    nap(NAP);
    mark("second", "send");
    MPI_Send(data, 8, MPI_BYTE, 1, 2, WORLD);
  } else {
    mark("second", "receive");
    MPI_Recv(data, 8, MPI_BYTE, 0, 2, WORLD, MPI_STATUS_IGNORE);
  }
  return nothing;
}

/* What the first thread has begun is waited for by another. */
static void *third(void *nothing) {
  mark("third", "wait");
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  return nothing;
}

static void first(void) {
  if (rank == 0) {
    nap(NAP / 2);
    MPI_Send(data + 8, 8, MPI_BYTE, 1, 1, WORLD);
  } else {
    MPI_Recv(data + 8, 8, MPI_BYTE, 0, 1, WORLD, MPI_STATUS_IGNORE);
  }
}

static void handed_over(void) {
  if (rank == 0) {
    nap(NAP);
    MARK("send");
    MPI_Send(data, 8, MPI_BYTE, 1, 3, WORLD);
  } else {
    MPI_Irecv(data, 8, MPI_BYTE, 0, 3, WORLD, &request);
    pthread_t thread;
    pthread_create(&thread, NULL, third, NULL);
    pthread_join(thread, NULL);
  }
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  together();
  pthread_t thread;
  pthread_create(&thread, NULL, second, NULL);
  first();
  pthread_join(thread, NULL);
  together();
  handed_over();
  together();
  end(argv);
}
