/* Several threads a rank send and receive at the same time, each with a tag of its own. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 4, ROUNDS = 50, AT_ONCE = 8 };

static int rank, size;

static void *exchange(void *its_tag) {
  const int tag = *(int *)its_tag, next = (rank + 1) % size, before = (rank + size - 1) % size;
  int out[AT_ONCE], in[AT_ONCE];
  MPI_Request requests[2 * AT_ONCE];
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = 0; i < AT_ONCE; i++) {
      out[i] = round;
      MPI_Irecv(&in[i], 1, MPI_INT, before, tag, MPI_COMM_WORLD, &requests[i]);
      MPI_Isend(&out[i], 1, MPI_INT, next, tag, MPI_COMM_WORLD, &requests[AT_ONCE + i]);
    }
    if (round % 2) {
      MPI_Waitall(2 * AT_ONCE, requests, MPI_STATUSES_IGNORE);
    } else {
      int done = 0, count, indices[2 * AT_ONCE];
      while (done < 2 * AT_ONCE) {
        MPI_Testsome(2 * AT_ONCE, requests, &count, indices, MPI_STATUSES_IGNORE);
        if (count != MPI_UNDEFINED) done += count;
      }
    }
    MPI_Sendrecv(out, 1, MPI_INT, next, tag, in, 1, MPI_INT, before, tag, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
  }
  return NULL;
}

int main(int argc, char **argv) {
  int provided, tags[THREADS];
  pthread_t threads[THREADS];
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  if (provided != MPI_THREAD_MULTIPLE) {
    printf("no threads\n");
    MPI_Finalize();
    return 0;
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < THREADS; i++) {
    tags[i] = i + 1;
    pthread_create(&threads[i], NULL, exchange, &tags[i]);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  MPI_Finalize();
  return 0;
}
