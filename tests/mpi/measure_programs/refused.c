/* Sends that MPI refuses, each beside one that arrives: their calls return errors, nothing else. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
  int rank, got, refused = 0;
  MPI_Request requests[2];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (int kind = 0; kind < 4; kind++) {
    const int count = kind == 1 ? -1 : 1, tag = kind == 2 ? -77 : 5;
    const MPI_Datatype type = kind == 3 ? MPI_DATATYPE_NULL : MPI_INT;
    if (kind == 0) {
      MPI_Irecv(&got, 1, MPI_INT, rank, tag, MPI_COMM_WORLD, &requests[0]);
      MPI_Isend(&rank, count, type, rank, tag, MPI_COMM_WORLD, &requests[1]);
      MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
      continue;
    }
    refused += MPI_Send(&rank, count, type, rank, tag, MPI_COMM_WORLD) != MPI_SUCCESS;
    refused += MPI_Isend(&rank, count, type, rank, tag, MPI_COMM_WORLD, &requests[1]) != MPI_SUCCESS;
    refused += MPI_Sendrecv(&rank, count, type, rank, tag, &got, 1, MPI_INT, MPI_PROC_NULL, 5,
                            MPI_COMM_WORLD, MPI_STATUS_IGNORE) != MPI_SUCCESS;
  }
  printf("refused %d\n", refused);
  MPI_Finalize();
  return 0;
}
