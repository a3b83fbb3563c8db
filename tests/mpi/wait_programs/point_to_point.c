/* Every wait of messages, each in a function of its name, on three ranks. */
#include "naps.h"

#define NAP 0.2
#define WORLD MPI_COMM_WORLD
#define IGNORE MPI_STATUS_IGNORE

static void late_sender(void) {
  if (rank == 0) {
    nap(NAP);
    MARK("send");
    MPI_Send(data, 8, MPI_BYTE, 1, 0, WORLD);
  } else if (rank == 1) {
    MARK("receive");
    MPI_Recv(data, 8, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, WORLD, IGNORE);
  }
}

static void late_sender_in_wait(void) {
  if (rank == 2) {
    nap(NAP);
    MARK("send");
    MPI_Send(data, 8, MPI_BYTE, 1, 0, WORLD);
  } else if (rank == 1) {
    MPI_Request request;
    MPI_Irecv(data, 8, MPI_BYTE, 2, 0, WORLD, &request);
    nap(NAP / 4);
    MARK("wait");
    MPI_Wait(&request, IGNORE);
  }
}

static void late_sender_in_waitall(void) {
  if (rank == 0) {
    MPI_Request requests[2];
    MPI_Irecv(data, 8, MPI_BYTE, 1, 0, WORLD, &requests[0]);
    MPI_Irecv(data + 8, 8, MPI_BYTE, 2, 0, WORLD, &requests[1]);
    MARK("wait");
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  } else {
    nap(rank == 1 ? NAP / 2 : NAP);
    MARK("send");
    MPI_Send(data, 8, MPI_BYTE, 0, 0, WORLD);
  }
}

static void test_does_not_wait(void) {
  if (rank == 0) {
    nap(NAP / 2);
    MPI_Send(data, 8, MPI_BYTE, 1, 0, WORLD);
  } else if (rank == 1) {
    MPI_Request request;
    int flag = 0;
    MPI_Irecv(data, 8, MPI_BYTE, 0, 0, WORLD, &request);
    while (!flag) MPI_Test(&request, &flag, IGNORE);
  }
}

static void wrong_order_same_source(void) {
  if (rank == 0) {
    MPI_Send(data, 8, MPI_BYTE, 1, 2, WORLD);
    nap(NAP);
    MARK("send");
    MPI_Send(data, 8, MPI_BYTE, 1, 1, WORLD);
  } else if (rank == 1) {
    nap(NAP / 4);
    MARK("receive");
    MPI_Recv(data, 8, MPI_BYTE, 0, 1, WORLD, IGNORE);
    MPI_Recv(data, 8, MPI_BYTE, 0, 2, WORLD, IGNORE);
  }
}

static void wrong_order_different_sources(void) {
  if (rank == 0) {
    nap(NAP);
    MARK("send");
    MPI_Send(data, 8, MPI_BYTE, 1, 0, WORLD);
  } else if (rank == 2) {
    MPI_Send(data, 8, MPI_BYTE, 1, 0, WORLD);
  } else {
    nap(NAP / 4);
    MARK("receive");
    MPI_Recv(data, 8, MPI_BYTE, 0, 0, WORLD, IGNORE);
    MPI_Recv(data, 8, MPI_BYTE, 2, 0, WORLD, IGNORE);
  }
}

static void late_receiver(void) {
  if (rank == 0) {
    MARK("send");
    MPI_Ssend(data, 8, MPI_BYTE, 1, 0, WORLD);
  } else if (rank == 1) {
    nap(NAP);
    MARK("receive");
    MPI_Recv(data, 8, MPI_BYTE, 0, 0, WORLD, IGNORE);
  }
}

static void late_receiver_in_wait(void) {
  if (rank == 0) {
    MPI_Request request;
    MPI_Issend(data, 8, MPI_BYTE, 1, 0, WORLD, &request);
    nap(NAP / 4);
    MARK("wait");
    MPI_Wait(&request, IGNORE);
  } else if (rank == 1) {
    nap(NAP);
    MPI_Request request;
    MARK("receive");
    MPI_Irecv(data, 8, MPI_BYTE, 0, 0, WORLD, &request);
    MPI_Wait(&request, IGNORE);
  }
}

/* A message too large to be sent before its receive is posted. */
static void late_receiver_of_a_large_message(void) {
  const int count = 8 << 20;
  char *large = calloc(count, 1);
  if (rank == 2) {
    MARK("send");
    MPI_Send(large, count, MPI_BYTE, 1, 0, WORLD);
  } else if (rank == 1) {
    nap(NAP);
    MARK("receive");
    MPI_Recv(large, count, MPI_BYTE, 2, 0, WORLD, IGNORE);
  }
  free(large);
}

static void exchange(void) {
  if (rank == 2) return;
  if (rank == 1) nap(NAP);
  MARK("exchange");
  MPI_Sendrecv(data, 8, MPI_BYTE, 1 - rank, 0, data + 8, 8, MPI_BYTE, 1 - rank, 0, WORLD, IGNORE);
}

static void empty_message(void) {
  if (rank == 0) {
    nap(NAP);
    MPI_Send(data, 0, MPI_BYTE, 1, 0, WORLD);
  } else if (rank == 1) {
    MARK("receive");
    MPI_Recv(data, 8, MPI_BYTE, 0, 0, WORLD, IGNORE);
    MARK("received");
  }
}

static void empty_exchange(void) {
  if (rank == 2) return;
  if (rank == 1) nap(NAP);
  MARK("exchange");
  MPI_Sendrecv(data, 0, MPI_BYTE, 1 - rank, 0, data + 8, 8, MPI_BYTE, 1 - rank, 0, WORLD, IGNORE);
  MARK("exchanged");
}

static void to_nobody(void) {
  MPI_Send(data, 8, MPI_BYTE, MPI_PROC_NULL, 0, WORLD);
  MPI_Recv(data, 8, MPI_BYTE, MPI_PROC_NULL, 0, WORLD, IGNORE);
}

static void persistent(void) {
  MPI_Request request;
  if (rank == 0) {
    MPI_Send_init(data, 8, MPI_BYTE, 1, 0, WORLD, &request);
    nap(NAP);
    MARK("start");
  } else if (rank == 1) {
    MPI_Recv_init(data, 8, MPI_BYTE, 0, 0, WORLD, &request);
  } else {
    return;
  }
  MPI_Start(&request);
  if (rank == 1) MARK("wait");
  MPI_Wait(&request, IGNORE);
  MPI_Request_free(&request);
}

/* Rank 1 is made to wait by rank 0, and keeps rank 2 waiting with it. */
static void chain(void) {
  if (rank == 0) {
    nap(NAP);
    MARK("send");
    MPI_Send(data, 8, MPI_BYTE, 1, 0, WORLD);
  } else if (rank == 1) {
    MARK("receive");
    MPI_Recv(data, 8, MPI_BYTE, 0, 0, WORLD, IGNORE);
    MARK("send");
    MPI_Send(data, 8, MPI_BYTE, 2, 0, WORLD);
  } else {
    MARK("receive");
    MPI_Recv(data, 8, MPI_BYTE, 1, 0, WORLD, IGNORE);
  }
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  void (*const scenes[])(void) = {
      late_sender, late_sender_in_wait, late_sender_in_waitall, test_does_not_wait,
      wrong_order_same_source, wrong_order_different_sources, late_receiver,
      late_receiver_in_wait, late_receiver_of_a_large_message, exchange, empty_message,
      empty_exchange, to_nobody, persistent, chain};
  for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
    together();
    scenes[i]();
  }
  together();
  end(argv);
}
