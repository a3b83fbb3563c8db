! Messages of a Fortran program that uses the module mpi.
program messages
  use mpi
  implicit none
  integer :: rank, ranks, error, sent, got, requests(2), rows
  integer :: status(MPI_STATUS_SIZE)
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  sent = rank
  call MPI_Isend(sent, 1, MPI_INTEGER, mod(rank + 1, ranks), 8, MPI_COMM_WORLD, requests(1), error)
  call MPI_Irecv(got, 1, MPI_INTEGER, MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, requests(2), error)
  call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, error)
  call MPI_Sendrecv(sent, 1, MPI_INTEGER, mod(rank + 1, ranks), 9, got, 1, MPI_INTEGER, &
      mod(rank + ranks - 1, ranks), 9, MPI_COMM_WORLD, status, error)
  call MPI_Allreduce(MPI_IN_PLACE, got, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
  call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), rank, rows, error)
  call MPI_Barrier(rows, error)
  print '(i0)', got
  call MPI_Finalize(error)
end program
