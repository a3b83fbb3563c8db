/* Writes a file with MPI-IO and reads it back; the file is the first argument. */
#include <mpi.h>

enum { OWN = 10 };

int main(int argc, char **argv) {
  int rank, out[OWN], in[2 * OWN];
  MPI_File file;
  MPI_Status status;
  MPI_Request request;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0; i < OWN; i++) out[i] = rank;
  MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
  const MPI_Offset place = (MPI_Offset)rank * (MPI_Offset)sizeof out;
  MPI_File_write_at(file, place, out, OWN, MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_write_at_all(file, place, out, OWN / 2, MPI_INT, &status);
  MPI_File_iwrite_at(file, place, out, 3, MPI_INT, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_File_sync(file);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_seek(file, place, MPI_SEEK_SET);
  MPI_File_read_all_begin(file, in, 4, MPI_INT);
  MPI_File_read_all_end(file, in, &status);
  /* More than there is: what was read counts, not what was asked for. */
  MPI_File_seek(file, -8, MPI_SEEK_END);
  MPI_File_read(file, in, OWN, MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_seek(file, -8, MPI_SEEK_END);
  MPI_File_iread(file, in, OWN, MPI_INT, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_File_close(&file);
  MPI_Finalize();
  return in[0] < 0;
}
