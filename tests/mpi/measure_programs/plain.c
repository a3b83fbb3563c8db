/* Prints what it was given and who it is, and ends with a code of its own. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
  int rank, size, sum;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  printf("rank %d of %d: %s, sum %d\n", rank, size, argc > 1 ? argv[1] : "", sum);
  MPI_Finalize();
  return argc > 1 && strcmp(argv[1], "an argument") == 0 ? 7 : 0;
}
