/* Every wait of collective operations, each in a function of its name, on three ranks. */
#include "naps.h"
#include <signal.h>
#include <sys/time.h>

#define NAP 0.2
#define WORLD MPI_COMM_WORLD

static MPI_Comm turned, two;
static char block[4096];

static void barrier(void) {
  if (rank == 1) nap(NAP);
  MARK("call");
  MPI_Barrier(WORLD);
}

static void allreduce(void) {
  double mine = rank, sum;
  if (rank == 2) nap(NAP);
  MARK("call");
  MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, WORLD);
}

static void alltoall(void) {
  if (rank == 0) nap(NAP);
  MARK("call");
  MPI_Alltoall(block, 8, MPI_BYTE, block + 2048, 8, MPI_BYTE, WORLD);
}

static void allgather(void) {
  if (rank == 0) nap(NAP);
  MARK("call");
  MPI_Allgather(block, 8, MPI_BYTE, block + 2048, 8, MPI_BYTE, WORLD);
}

static void broadcast(void) {
  if (rank == 1) nap(NAP);
  MARK("call");
  MPI_Bcast(block, 8, MPI_BYTE, 1, WORLD);
}

static void scatter(void) {
  if (rank == 0) nap(NAP);
  MARK("call");
  MPI_Scatter(block, 8, MPI_BYTE, block + 2048, 8, MPI_BYTE, 0, WORLD);
}

static void reduce(void) {
  double mine = rank, sum;
  if (rank == 2) nap(NAP);
  MARK("call");
  MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, WORLD);
}

static void gather(void) {
  if (rank == 0) nap(NAP);
  MARK("call");
  MPI_Gather(block, 8, MPI_BYTE, block + 2048, 8, MPI_BYTE, 1, WORLD);
}

static void scan(void) {
  double mine = rank, sum;
  if (rank == 0) nap(NAP);
  MARK("call");
  MPI_Scan(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, WORLD);
}

/* Ranks 2, 1, 0 of the world: the world's rank 2 is the lowest. */
static void scan_of_turned_ranks(void) {
  double mine = rank, sum;
  if (rank == 2) nap(NAP);
  MARK("call");
  MPI_Exscan(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, turned);
}

/* The root is rank 2 of `turned`, which is the world's rank 0. */
static void broadcast_to_turned_ranks(void) {
  if (rank == 0) nap(NAP);
  MARK("call");
  MPI_Bcast(block, 8, MPI_BYTE, 2, turned);
}

static void nonblocking(void) {
  MPI_Request request;
  MPI_Ibarrier(WORLD, &request);
  if (rank == 1) nap(NAP / 2);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* A signal that makes rank 1 sleep within a call while the others leave it. */
PLAIN void sleep_within(int number) {
  (void)number;
  nap(NAP);
}

static void alarm_in(double seconds) {
  struct itimerval timer = {{0, 0}, {0, (long)(seconds * 1e6)}};
  signal(SIGALRM, sleep_within);
  setitimer(ITIMER_REAL, &timer, NULL);
}

static void slow_barrier(void) {
  if (rank == 2) return;
  if (rank == 1) alarm_in(NAP / 4);
  if (rank == 0) nap(NAP / 2);
  MARK("call");
  MPI_Barrier(two);
  MARK("left");
}

static void slow_allreduce(void) {
  double mine = rank, sum;
  if (rank == 2) return;
  if (rank == 1) alarm_in(NAP / 4);
  if (rank == 0) nap(NAP / 2);
  MARK("call");
  MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, two);
  MARK("left");
}

static void slow_scan(void) {
  double mine = rank, sum;
  if (rank == 2) return;
  if (rank == 1) alarm_in(NAP / 4);
  if (rank == 0) nap(NAP / 2);
  MARK("call");
  MPI_Scan(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, two);
  MARK("left");
}

static void work(void) { nap(rank == 1 ? NAP : NAP / 2); }

static void delayed_barrier(void) {
  work();
  MARK("call");
  MPI_Barrier(WORLD);
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  MPI_Comm_split(WORLD, 0, -rank, &turned);
  MPI_Comm_split(WORLD, rank == 2 ? MPI_UNDEFINED : 0, rank, &two);
  void (*const scenes[])(void) = {
      barrier, allreduce, alltoall, allgather, broadcast, scatter, reduce, gather, scan,
      scan_of_turned_ranks, broadcast_to_turned_ranks, nonblocking, slow_barrier, slow_allreduce,
      slow_scan, delayed_barrier};
  for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
    together();
    scenes[i]();
  }
  together();
  if (rank == 2) nap(NAP);
  end(argv);
}
