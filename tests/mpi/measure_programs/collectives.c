/* Calls each collective operation once in each of its forms; test_measure.py knows the bytes. */
#include <mpi.h>

enum { MOST = 64 };

static int rank, size;
static double out[4 * MOST], in[4 * MOST];
static int counts[MOST], places[MOST], bytes_places[MOST];
static MPI_Datatype types[MOST];

static void blocking(MPI_Comm comm) {
  MPI_Barrier(comm);
  MPI_Bcast(in, 3, MPI_DOUBLE, 1, comm);
  MPI_Scatter(out, 2, MPI_DOUBLE, in, 2, MPI_DOUBLE, 0, comm);
  MPI_Scatterv(out, counts, places, MPI_DOUBLE, in, rank + 1, MPI_DOUBLE, 0, comm);
  MPI_Gather(out, 2, MPI_DOUBLE, in, 2, MPI_DOUBLE, 0, comm);
  MPI_Gatherv(out, rank + 1, MPI_DOUBLE, in, counts, places, MPI_DOUBLE, 0, comm);
  MPI_Allgather(out, 2, MPI_DOUBLE, in, 2, MPI_DOUBLE, comm);
  MPI_Allgatherv(out, rank + 1, MPI_DOUBLE, in, counts, places, MPI_DOUBLE, comm);
  MPI_Alltoall(out, 2, MPI_DOUBLE, in, 2, MPI_DOUBLE, comm);
  MPI_Alltoallv(out, counts, places, MPI_DOUBLE, in, counts + MOST / 2, places, MPI_DOUBLE, comm);
  MPI_Alltoallw(out, counts, bytes_places, types, in, counts + MOST / 2, bytes_places, types, comm);
  MPI_Reduce(out, in, 5, MPI_DOUBLE, MPI_SUM, 1, comm);
  MPI_Allreduce(out, in, 5, MPI_DOUBLE, MPI_SUM, comm);
  MPI_Allreduce(MPI_IN_PLACE, in, 6, MPI_DOUBLE, MPI_SUM, comm);
  MPI_Reduce_scatter(out, in, counts, MPI_DOUBLE, MPI_SUM, comm);
  MPI_Reduce_scatter_block(out, in, 2, MPI_DOUBLE, MPI_SUM, comm);
  MPI_Scan(out, in, 4, MPI_DOUBLE, MPI_SUM, comm);
  MPI_Exscan(out, in, 4, MPI_DOUBLE, MPI_SUM, comm);
  /* In place, with arguments that must not be looked at. */
  MPI_Gather(rank ? out : MPI_IN_PLACE, rank ? 2 : -1, rank ? MPI_DOUBLE : MPI_DATATYPE_NULL, in, 2,
             MPI_DOUBLE, 0, comm);
  MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, 2, MPI_DOUBLE, comm);
  MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, 2, MPI_DOUBLE, comm);
}

static void started(MPI_Comm comm) {
  MPI_Request requests[4];
  int flag = 0;
  MPI_Ibarrier(comm, &requests[0]);
  MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
  MPI_Ibcast(in, 3, MPI_DOUBLE, 1, comm, &requests[0]);
  MPI_Iallreduce(out, in + 8, 5, MPI_DOUBLE, MPI_SUM, comm, &requests[1]);
  MPI_Igatherv(out, rank + 1, MPI_DOUBLE, in + 16, counts, places, MPI_DOUBLE, 0, comm,
               &requests[2]);
  MPI_Ialltoall(out, 2, MPI_DOUBLE, in + 128, 2, MPI_DOUBLE, comm, &requests[3]);
  MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
  MPI_Iexscan(out, in, 4, MPI_DOUBLE, MPI_SUM, comm, &requests[0]);
  while (!flag) MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE);
}

static void persistent(MPI_Comm comm) {
#if MPI_VERSION >= 4
  MPI_Request request;
  MPI_Allreduce_init(out, in, 5, MPI_DOUBLE, MPI_SUM, comm, MPI_INFO_NULL, &request);
  for (int i = 0; i < 2; i++) {
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Request_free(&request);
#else
  (void)comm;
#endif
}

static void neighbours(void) {
  const int dims[] = {size}, periods[] = {1};
  MPI_Comm ring;
  MPI_Request request;
  MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &ring);
  MPI_Neighbor_allgather(out, 2, MPI_DOUBLE, in, 2, MPI_DOUBLE, ring);
  MPI_Neighbor_alltoall(out, 3, MPI_DOUBLE, in, 3, MPI_DOUBLE, ring);
  MPI_Ineighbor_alltoall(out, 3, MPI_DOUBLE, in, 3, MPI_DOUBLE, ring, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Comm_free(&ring);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < size; i++) {
    counts[i] = i + 1;                /* for those that every rank gives i + 1 */
    counts[MOST / 2 + i] = rank + 1;  /* what rank i then has for this one */
    places[i] = 2 * i;
    bytes_places[i] = 16 * i;
    types[i] = MPI_DOUBLE;
  }
  blocking(MPI_COMM_WORLD);
  started(MPI_COMM_WORLD);
  persistent(MPI_COMM_WORLD);
  neighbours();
  MPI_Finalize();
  return 0;
}
