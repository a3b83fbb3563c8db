! Messages of a Fortran program that includes mpif.h.
      program messages
      implicit none
      include 'mpif.h'
      integer rank, ranks, error, sent, got, requests(2)
      integer statuses(MPI_STATUS_SIZE, 2)
      call MPI_INIT(error)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, error)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, ranks, error)
      sent = rank
      call MPI_ISEND(sent, 1, MPI_INTEGER, mod(rank + 1, ranks), 8,
     &    MPI_COMM_WORLD, requests(1), error)
      call MPI_IRECV(got, 1, MPI_INTEGER, MPI_ANY_SOURCE, 8,
     &    MPI_COMM_WORLD, requests(2), error)
      call MPI_WAITALL(2, requests, statuses, error)
      call MPI_SENDRECV(sent, 1, MPI_INTEGER, mod(rank + 1, ranks), 9,
     &    got, 1, MPI_INTEGER, mod(rank + ranks - 1, ranks), 9,
     &    MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
      call MPI_ALLREDUCE(MPI_IN_PLACE, got, 1, MPI_INTEGER, MPI_SUM,
     &    MPI_COMM_WORLD, error)
      print '(i0)', got
      call MPI_FINALIZE(error)
      end
