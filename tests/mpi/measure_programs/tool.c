/* A program whose own MPI_Init and MPI_Finalize stand before MPI's, as those of a profiling tool
 * that is linked with it; ends with code 3. */
#include <mpi.h>

__attribute__((visibility("default"))) int MPI_Init(int *argc, char ***argv) {
  return PMPI_Init(argc, argv);
}
__attribute__((visibility("default"))) int MPI_Finalize(void) { return PMPI_Finalize(); }

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 3;
}
