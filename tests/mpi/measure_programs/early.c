/* Rank 1 leaves by _exit, without MPI_Finalize, while the others still compute. */
#include <mpi.h>
#include <unistd.h>

int main(int argc, char **argv) {
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) _exit(0);
  usleep(200000);
  MPI_Finalize();
  return 0;
}
