! Messages of a Fortran program that uses the module mpi_f08.
program messages
  use mpi_f08
  implicit none
  integer :: rank, ranks, sent, got
  type(MPI_Request) :: requests(2)
  type(MPI_Status) :: status
  type(MPI_Comm) :: rows
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  sent = rank
  call MPI_Isend(sent, 1, MPI_INTEGER, mod(rank + 1, ranks), 8, MPI_COMM_WORLD, requests(1))
  call MPI_Irecv(got, 1, MPI_INTEGER, MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, requests(2))
  call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
  call MPI_Sendrecv(sent, 1, MPI_INTEGER, mod(rank + 1, ranks), 9, got, 1, MPI_INTEGER, &
      mod(rank + ranks - 1, ranks), 9, MPI_COMM_WORLD, status)
  call MPI_Allreduce(MPI_IN_PLACE, got, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), rank, rows)
  call MPI_Barrier(rows)
  print '(i0)', got
  call MPI_Finalize()
end program
