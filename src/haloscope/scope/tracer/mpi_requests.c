/* Requests from the call that starts them to the one that completes them.
 *
 * Where threads may call MPI at the same time, a handle may be given out again before the call that
 * completed its request has returned: then requests are taken out before that call, and what it
 * did not complete is put back.
 */
#include <stdlib.h>

#include "mpi_pending.h"

enum { FEW = 32 };

/* ---- starting ---- */

uint32_t hs_tell_isend(uint64_t bytes, int dest, int tag, MPI_Comm handle) {
  const struct hs_comm *comm = hs_comm_of(handle);
  const uint32_t peer = comm ? hs_peer(comm, dest) : HS_NOBODY;
  if (peer == HS_NOBODY) return HS_NOBODY;
  const uint32_t number = hs_next_number();
  hs_event(HS_EVENT_ISEND, peer, hs_channel(comm, tag), bytes, number, 0);
  return number;
}

uint32_t hs_tell_irecv(void) {
  const uint32_t number = hs_next_number();
  hs_event(HS_EVENT_IRECV, number, 0, 0, 0, 0);
  return number;
}

uint32_t hs_tell_icollective(const struct hs_comm *comm, uint64_t operation, uint64_t sent,
                             uint64_t received) {
  if (comm->between) return HS_NOBODY;
  const uint32_t number = hs_next_number();
  hs_event(HS_EVENT_ICOLLECTIVE, comm->number, operation, sent, received, number);
  return number;
}

/* A message to or from nobody is kept, too: its handle may be that of others. */
static uint8_t kind_or_none(uint32_t number, enum hs_pending kind) {
  return (uint8_t)(number == HS_NOBODY ? HS_PENDING_NONE : kind);
}

void hs_track_send(MPI_Request handle, uint32_t number) {
  hs_track(handle, &(struct hs_request){.kind = kind_or_none(number, HS_PENDING_SEND),
                                        .active = 1, .number = number});
}

void hs_track_receive(MPI_Request handle, uint32_t number, struct hs_comm *comm) {
  hs_track(handle, &(struct hs_request){.kind = comm ? HS_PENDING_RECEIVE : HS_PENDING_NONE,
                                        .active = 1, .number = number, .comm = comm});
}

void hs_track_exchange(MPI_Request handle, uint32_t send, uint32_t receive, MPI_Comm comm,
                       int source, int tag, uint64_t bytes) {
  hs_track(handle, &(struct hs_request){.kind = HS_PENDING_EXCHANGE, .active = 1, .number = send,
                                        .receive = receive, .comm = hs_comm_of(comm),
                                        .source = source, .tag = tag, .second = bytes});
}

void hs_track_collective(MPI_Request handle, uint32_t number) {
  hs_track(handle, &(struct hs_request){.kind = kind_or_none(number, HS_PENDING_COLLECTIVE),
                                        .active = 1, .number = number});
}

void hs_track_idup(MPI_Request handle, uint32_t number, MPI_Comm parent, MPI_Comm *made) {
  hs_track(handle, &(struct hs_request){.kind = HS_PENDING_COMM, .active = 1, .number = number,
                                        .parent = parent, .made = made});
}

void hs_keep_send(MPI_Request handle, uint64_t bytes, int dest, int tag, MPI_Comm comm) {
  struct hs_comm *found = hs_comm_of(comm);
  struct hs_request kept = {.persistent = 1, .comm = found, .peer = HS_NOBODY};
  if (found) kept.peer = hs_peer(found, dest);
  if (kept.peer != HS_NOBODY) {
    kept.kind = HS_PENDING_SEND;
    kept.first = hs_channel(found, tag);
    kept.second = bytes;
  }
  hs_track(handle, &kept);
}

void hs_keep_receive(MPI_Request handle, int source, MPI_Comm comm) {
  struct hs_comm *found = source == MPI_PROC_NULL ? NULL : hs_comm_of(comm);
  hs_track(handle, &(struct hs_request){.kind = found ? HS_PENDING_RECEIVE : HS_PENDING_NONE,
                                        .persistent = 1, .comm = found});
}

void hs_keep_collective(MPI_Request handle, struct hs_comm *comm, uint64_t operation,
                        uint64_t sent, uint64_t received) {
  const uint8_t kind = comm->between ? HS_PENDING_NONE : HS_PENDING_COLLECTIVE;
  hs_track(handle, &(struct hs_request){.kind = kind, .persistent = 1, .comm = comm,
                                        .first = operation, .second = sent, .third = received});
}

static void start(uint32_t region, MPI_Request handle) {
  const struct hs_request now = pending_start(handle, HS_RECORDED);
  if (!HS_RECORDED) return;
  if (now.kind == HS_PENDING_SEND)
    hs_event(HS_EVENT_ISEND, now.peer, now.first, now.second, now.number, 0);
  else if (now.kind == HS_PENDING_RECEIVE)
    hs_event(HS_EVENT_IRECV, now.number, 0, 0, 0, 0);
  else if (now.kind == HS_PENDING_COLLECTIVE)
    hs_event(HS_EVENT_ICOLLECTIVE, now.comm->number, now.first, now.second, now.third, now.number);
}

/* ---- completing ---- */

int hs_message_came(int code) {
  int class = MPI_SUCCESS;
  if (code == MPI_SUCCESS) return 1;
  PMPI_Error_class(code, &class);
  return class == MPI_ERR_TRUNCATE;
}

uint64_t hs_received_bytes(const MPI_Status *status) {
  int few = MPI_UNDEFINED;
  MPI_Count many = 0;
  PMPI_Get_count(status, MPI_BYTE, &few);
  if (HS_LIKELY(few != MPI_UNDEFINED)) return (uint64_t)few;
  PMPI_Get_elements_x(status, MPI_BYTE, &many);
  return many > 0 ? (uint64_t)many : 0;
}

static void tell_received(const struct hs_request *what, uint32_t number, int source, int tag,
                          uint64_t bytes) {
  const uint32_t peer = hs_peer(what->comm, source);
  if (peer == HS_NOBODY) return;
  hs_event(HS_EVENT_IRECV_DONE, peer, hs_channel(what->comm, tag), bytes, number, 0);
}

/* MPICH (to version 5.0 at least) leaves the status of MPI_Isendrecv as it is or fills it with
 * nonsense: then what was asked for has to do. */
static void tell_exchanged(const struct hs_request *what, const MPI_Status *status) {
  int source = status->MPI_SOURCE, tag = status->MPI_TAG;
  const int any = what->source == MPI_ANY_SOURCE || what->tag == MPI_ANY_TAG;
  if (source == what->source && tag == what->tag) {
    tell_received(what, what->receive, source, tag, hs_received_bytes(status));
  } else if (!any) {
    tell_received(what, what->receive, what->source, what->tag, what->second);
  } else {
#ifdef OPEN_MPI
    tell_received(what, what->receive, source, tag, hs_received_bytes(status));
#else
    hs_say_once("a message that MPI_Isendrecv has received from anybody is left out: this MPI does "
                "not tell its sender");
#endif
  }
}

static void tell_done(const struct hs_request *what, const MPI_Status *status) {
  int cancelled = 0;
  if (what->kind == HS_PENDING_NONE || (what->persistent && !what->active)) return;
  if (HS_UNLIKELY(what->cancelled)) PMPI_Test_cancelled(status, &cancelled);
  if (cancelled) {
    hs_event(HS_EVENT_CANCELLED, what->number, 0, 0, 0, 0);
    return;
  }
  switch (what->kind) {
    case HS_PENDING_SEND:
      hs_event(HS_EVENT_ISEND_DONE, what->number, 0, 0, 0, 0);
      break;
    case HS_PENDING_RECEIVE:
      tell_received(what, what->number, status->MPI_SOURCE, status->MPI_TAG,
                    hs_received_bytes(status));
      break;
    case HS_PENDING_EXCHANGE:
      if (what->number != HS_NOBODY) hs_event(HS_EVENT_ISEND_DONE, what->number, 0, 0, 0, 0);
      if (what->comm && what->receive != HS_NOBODY) tell_exchanged(what, status);
      break;
    case HS_PENDING_COMM:
      hs_new_comm(what->parent, *what->made, 0);
      hs_event(HS_EVENT_ICOLLECTIVE_DONE, what->number, 0, 0, 0, 0);
      break;
    case HS_PENDING_COLLECTIVE:
      hs_event(HS_EVENT_ICOLLECTIVE_DONE, what->number, 0, 0, 0, 0);
      break;
    default:
      break;
  }
}

/* What a call that may complete requests has been given. MPI nulls the program's own handles. */
struct waiting {
  int count;
  uint32_t region;    /* of the call; HS_FILTERED where the filter names it ... */
  uint32_t stand_in;  /* ... then the region that takes its place when something is completed */
  MPI_Request *handles;
  struct hs_request *claimed; /* where threads may call MPI at the same time */
  MPI_Status *statuses;
  void *memory;
  MPI_Request few_handles[FEW];
  MPI_Status few_statuses[FEW];
};

static int begin_waiting(struct waiting *self, uint32_t region, int count,
                         const MPI_Request *handles, MPI_Status *statuses, int status_count) {
  self->count = count > 0 ? count : 0;
  self->region = region;
  self->stand_in = HS_FILTERED;
  self->handles = self->few_handles;
  self->statuses = self->few_statuses;
  self->claimed = NULL;
  self->memory = NULL;
  const size_t many = (size_t)self->count;
  if (many > FEW || HS_UNLIKELY(hs_multiple)) {
    self->memory = malloc(many * (sizeof(MPI_Status) + sizeof(MPI_Request) +
                                  (hs_multiple ? sizeof(struct hs_request) : 0)) + 64);
    if (self->memory == NULL) return 0;
    char *at = self->memory;
    if (hs_multiple) {
      self->claimed = (struct hs_request *)at;
      at += many * sizeof(struct hs_request);
    }
    self->handles = (MPI_Request *)at; /* of 8 or 4 bytes, statuses of multiples of 4 */
    self->statuses = (MPI_Status *)(at + ((many * sizeof(MPI_Request) + 7) & ~(size_t)7));
  }
  if (many) memcpy(self->handles, handles, many * sizeof *handles);
  if (status_count == 0 ? statuses != MPI_STATUSES_IGNORE : statuses != MPI_STATUS_IGNORE)
    self->statuses = statuses;
  for (int i = 0; self->claimed && i < self->count; i++)
    if (!pending_take(self->handles[i], &self->claimed[i])) self->handles[i] = MPI_REQUEST_NULL;
  return 1;
}

/* Request `i` is done, with a code of its own. */
static void completed(struct waiting *self, int i, const MPI_Status *status, int code) {
  struct hs_request what;
  if (self->claimed) {
    if (self->handles[i] == MPI_REQUEST_NULL) return;
    what = self->claimed[i];
    self->handles[i] = MPI_REQUEST_NULL; /* nothing to put back */
  } else if (!pending_take(self->handles[i], &what)) {
    return;
  }
  if (self->region == HS_FILTERED && self->stand_in == HS_FILTERED && what.active && what.kind) {
    self->stand_in = hs_region("MPI_completion", "mpi", "test", "", 0);
    if (self->stand_in != HS_FILTERED) hs_enter(self->stand_in, NULL);
  }
  if (hs_message_came(code)) tell_done(&what, status);
  if (what.comm && !what.persistent) hs_release_comm(what.comm);
}

static void end_waiting(struct waiting *self) {
  for (int i = 0; self->claimed && i < self->count; i++)
    if (self->handles[i] != MPI_REQUEST_NULL) pending_put_back(self->handles[i], &self->claimed[i]);
  if (self->stand_in != HS_FILTERED) hs_leave(self->stand_in);
  free(self->memory);
}

static int in_statuses(int code) {
  int class = code;
  if (code != MPI_SUCCESS) PMPI_Error_class(code, &class);
  return class == MPI_ERR_IN_STATUS;
}

static void completed_all(struct waiting *self, int code) {
  const int each = in_statuses(code);
  if (code != MPI_SUCCESS && !each) return;
  for (int i = 0; i < self->count; i++) {
    const int own = each ? self->statuses[i].MPI_ERROR : MPI_SUCCESS;
    if (own != MPI_ERR_PENDING) completed(self, i, &self->statuses[i], own);
  }
}

static void completed_some(struct waiting *self, int code, int count,
                           const int *indices) {
  const int each = in_statuses(code);
  if (count == MPI_UNDEFINED || count <= 0 || (code != MPI_SUCCESS && !each)) return;
  for (int i = 0; i < count; i++)
    completed(self, indices[i], &self->statuses[i], each ? self->statuses[i].MPI_ERROR : MPI_SUCCESS);
}

static void completed_one(struct waiting *self, int code, int index) {
  if (index == MPI_UNDEFINED || index < 0 || index >= self->count) return;
  completed(self, index, self->statuses, code);
}

int hs_own_Wait(uint32_t region, MPI_Request *request, MPI_Status *status) {
  struct waiting all;
  if (!begin_waiting(&all, region, 1, request, status, 1)) return PMPI_Wait(request, status);
  const int code = PMPI_Wait(request, all.statuses);
  completed_one(&all, code, 0);
  end_waiting(&all);
  return code;
}

int hs_own_Waitany(uint32_t region, int count, MPI_Request requests[], int *index,
                   MPI_Status *status) {
  struct waiting all;
  if (!begin_waiting(&all, region, count, requests, status, 1))
    return PMPI_Waitany(count, requests, index, status);
  const int code = PMPI_Waitany(count, requests, index, all.statuses);
  completed_one(&all, code, *index);
  end_waiting(&all);
  return code;
}

int hs_own_Waitall(uint32_t region, int count, MPI_Request requests[], MPI_Status *statuses) {
  struct waiting all;
  if (!begin_waiting(&all, region, count, requests, statuses, 0))
    return PMPI_Waitall(count, requests, statuses);
  const int code = PMPI_Waitall(count, requests, all.statuses);
  completed_all(&all, code);
  end_waiting(&all);
  return code;
}

int hs_own_Waitsome(uint32_t region, int incount, MPI_Request requests[], int *outcount,
                    int indices[], MPI_Status *statuses) {
  struct waiting all;
  if (!begin_waiting(&all, region, incount, requests, statuses, 0))
    return PMPI_Waitsome(incount, requests, outcount, indices, statuses);
  const int code = PMPI_Waitsome(incount, requests, outcount, indices, all.statuses);
  completed_some(&all, code, *outcount, indices);
  end_waiting(&all);
  return code;
}

int hs_own_Test(uint32_t region, MPI_Request *request, int *flag, MPI_Status *status) {
  struct waiting all;
  if (!begin_waiting(&all, region, 1, request, status, 1)) return PMPI_Test(request, flag, status);
  *flag = 0;
  const int code = PMPI_Test(request, flag, all.statuses);
  if (*flag || code != MPI_SUCCESS) completed_one(&all, code, 0);
  end_waiting(&all);
  return code;
}

int hs_own_Testany(uint32_t region, int count, MPI_Request requests[], int *index, int *flag,
                   MPI_Status *status) {
  struct waiting all;
  if (!begin_waiting(&all, region, count, requests, status, 1))
    return PMPI_Testany(count, requests, index, flag, status);
  *flag = 0;
  const int code = PMPI_Testany(count, requests, index, flag, all.statuses);
  if (*flag) completed_one(&all, code, *index);
  end_waiting(&all);
  return code;
}

int hs_own_Testall(uint32_t region, int count, MPI_Request requests[], int *flag,
                   MPI_Status *statuses) {
  struct waiting all;
  if (!begin_waiting(&all, region, count, requests, statuses, 0))
    return PMPI_Testall(count, requests, flag, statuses);
  *flag = 0;
  const int code = PMPI_Testall(count, requests, flag, all.statuses);
  if (*flag || code != MPI_SUCCESS) completed_all(&all, code);
  end_waiting(&all);
  return code;
}

int hs_own_Testsome(uint32_t region, int incount, MPI_Request requests[], int *outcount,
                    int indices[], MPI_Status *statuses) {
  struct waiting all;
  if (!begin_waiting(&all, region, incount, requests, statuses, 0))
    return PMPI_Testsome(incount, requests, outcount, indices, statuses);
  const int code = PMPI_Testsome(incount, requests, outcount, indices, all.statuses);
  completed_some(&all, code, *outcount, indices);
  end_waiting(&all);
  return code;
}

int hs_own_Start(uint32_t region, MPI_Request *request) {
  const MPI_Request before = *request;
  start(region, before);
  const int code = PMPI_Start(request);
  pending_rename(before, *request);
  return code;
}

int hs_own_Startall(uint32_t region, int count, MPI_Request requests[]) {
  MPI_Request few[FEW];
  MPI_Request *before = count > FEW ? malloc((size_t)count * sizeof *before) : few;
  for (int i = 0; i < count; i++) {
    if (before) before[i] = requests[i];
    start(region, requests[i]);
  }
  const int code = PMPI_Startall(count, requests);
  for (int i = 0; before && i < count; i++) pending_rename(before[i], requests[i]);
  if (before != few) free(before);
  return code;
}

int hs_own_Request_free(uint32_t region, MPI_Request *request) {
  struct hs_comm *comm = pending_drop(*request);
  (void)region;
  const int code = PMPI_Request_free(request);
  hs_release_comm(comm);
  return code;
}

int hs_own_Cancel(uint32_t region, MPI_Request *request) {
  (void)region;
  pending_cancel(*request);
  return PMPI_Cancel(request);
}
