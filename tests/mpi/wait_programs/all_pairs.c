/* Boundary exchange of an unstructured mesh, written in two ways.
 *
 *   all_pairs all|neighbours STEPS WORK_US [BYTES [asleep]]
 *
 * Each rank owns a piece of a mesh in the unit square, and shares a boundary with the few ranks
 * whose pieces are near. `all` does what is easily written: in turns of distance d every rank sends
 * to rank + d and receives from rank - d with MPI_Sendrecv, whether there is anything to send or
 * not. `neighbours` does the same and leaves out what is empty. WORK_US is what a rank computes
 * between two exchanges, in microseconds of its own processor time, up to a fifth more or less by
 * rank and step; BYTES is the size of the largest boundary (16384). Rank 0 prints the seconds of
 * the steps, from a barrier to a barrier.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_RANKS 64
#define NEAR 3 /* a piece borders on so many others at least */

static int rank, size;
static int boundary[MOST_RANKS][MOST_RANKS]; /* bytes from one rank to another */
static char *outgoing, *incoming;
static volatile double sink;

static unsigned long long state = 20070920;
static double chance(void) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (double)(state >> 11) / 9007199254740992.0;
}

/* The same on every rank. */
static void partition_mesh(int most_bytes) {
  double x[MOST_RANKS], y[MOST_RANKS];
  for (int i = 0; i < size; i++) x[i] = chance(), y[i] = chance();
  for (int i = 0; i < size; i++) {
    int near = 0;
    for (int j = 0; j < size; j++) near += boundary[i][j] > 0;
    for (; near < NEAR; near++) {
      int best = -1;
      double least = 9;
      for (int j = 0; j < size; j++) {
        const double d = (x[i] - x[j]) * (x[i] - x[j]) + (y[i] - y[j]) * (y[i] - y[j]);
        if (j != i && !boundary[i][j] && d < least) least = d, best = j;
      }
      if (best < 0) break;
      boundary[i][best] = boundary[best][i] = 8 + (int)(chance() * (most_bytes - 8));
    }
  }
}

static double processor_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

void compute(double seconds, int asleep) {
  if (asleep) {
    struct timespec t = {0, (long)(seconds * 1e9)};
    nanosleep(&t, NULL);
    return;
  }
  const double end = processor_seconds() + seconds;
  double sum = 0;
  while (processor_seconds() < end)
    for (int i = 0; i < 200; i++) sum += i * 1e-3;
  sink = sum;
}

static void exchange_with_all(void) {
  for (int d = 1; d < size; d++) {
    const int to = (rank + d) % size, from = (rank - d + size) % size;
    MPI_Sendrecv(outgoing, boundary[rank][to], MPI_BYTE, to, d, incoming, boundary[from][rank],
                 MPI_BYTE, from, d, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

static void exchange_with_neighbours(void) {
  for (int d = 1; d < size; d++) {
    const int to = (rank + d) % size, from = (rank - d + size) % size;
    const int sent = boundary[rank][to], received = boundary[from][rank];
    if (sent && received)
      MPI_Sendrecv(outgoing, sent, MPI_BYTE, to, d, incoming, received, MPI_BYTE, from, d,
                   MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (sent)
      MPI_Send(outgoing, sent, MPI_BYTE, to, d, MPI_COMM_WORLD);
    else if (received)
      MPI_Recv(incoming, received, MPI_BYTE, from, d, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

void gather(int with_all) {
  if (with_all)
    exchange_with_all();
  else
    exchange_with_neighbours();
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc < 4 || size > MOST_RANKS || (strcmp(argv[1], "all") && strcmp(argv[1], "neighbours"))) {
    if (rank == 0) fprintf(stderr, "all_pairs all|neighbours STEPS WORK_US [BYTES [asleep]]\n");
    MPI_Finalize();
    return 2;
  }
  const int with_all = !strcmp(argv[1], "all"), steps = atoi(argv[2]);
  const double work = 1e-6 * atof(argv[3]);
  const int most_bytes = argc > 4 ? atoi(argv[4]) : 16384;
  const int asleep = argc > 5 && !strcmp(argv[5], "asleep");
  partition_mesh(most_bytes);
  outgoing = calloc(most_bytes, 1);
  incoming = calloc(most_bytes, 1);
  for (int i = 0; i < rank; i++) chance(); /* from here on each rank has its own */
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  for (int step = 0; step < steps; step++) {
    compute(work * (0.8 + 0.4 * chance()), asleep);
    gather(with_all);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    int empty = 0;
    for (int i = 0; i < size; i++)
      for (int j = 0; j < size; j++) empty += i != j && !boundary[i][j];
    printf("%.6f s, %d of %d messages of a step empty\n", MPI_Wtime() - begin,
           with_all ? empty : 0, size * (size - 1));
  }
  free(outgoing);
  free(incoming);
  MPI_Finalize();
  return 0;
}
