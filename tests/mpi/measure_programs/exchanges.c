/* Non-blocking exchanges in which less comes than there is room for. */
#include <mpi.h>

int main(int argc, char **argv) {
  int rank, out[100] = {0}, in[100];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#if MPI_VERSION >= 4
  MPI_Request request;
  const int other = 1 - rank, count = rank + 1;
  MPI_Isendrecv(out, 3 * count, MPI_INT, other, 3, in, 100, MPI_INT, other, 3, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Isendrecv_replace(out, count, MPI_INT, other, 4, other, 4, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
#endif
  MPI_Finalize();
  return 0;
}
