/* Requests from the call that starts them to the one that completes them.
 *
 * Where threads may call MPI at the same time, a handle may be given out again before the call that
 * completed its request has returned: then requests are taken out before that call, and those
 * that it did not complete are put back.
 */
#include <stdlib.h>

#include "mpi_tracer.h"

enum { FEW = 32 };

/* ---- starting ---- */

uint32_t hs_record_isend(uint32_t region, uint64_t bytes, int dest, int tag, MPI_Comm handle) {
  const struct hs_comm *comm = hs_comm_of(handle);
  const uint32_t peer = comm ? hs_peer(comm, dest) : HS_NOBODY;
  if (peer == HS_NOBODY) return HS_NOBODY;
  if (!HS_RECORDED) {
    hs_skip(peer, hs_channel(comm, tag), HS_SKIPPED_SENT);
    return HS_NOBODY;
  }
  const uint32_t number = hs_next_number();
  return hs_event(HS_EVENT_ISEND, peer, hs_channel(comm, tag), bytes, number, 0) ? number : HS_NOBODY;
}

uint32_t hs_record_irecv(uint32_t region, int source) {
  if (!HS_RECORDED || source == MPI_PROC_NULL) return HS_NOBODY;
  const uint32_t number = hs_next_number();
  return hs_event(HS_EVENT_IRECV, number, 0, 0, 0, 0) ? number : HS_NOBODY;
}

uint32_t hs_record_icollective(uint32_t region, const struct hs_comm *comm, uint64_t operation,
                               uint64_t sent, uint64_t received) {
  if (comm->between) return HS_NOBODY;
  if (!HS_RECORDED) {
    hs_skip(HS_NOBODY, comm->number, 0);
    return HS_NOBODY;
  }
  const uint32_t number = hs_next_number();
  return hs_event(HS_EVENT_ICOLLECTIVE, comm->number, operation, sent, received, number)
             ? number
             : HS_NOBODY;
}

/* A receive that was posted without being recorded counts where it was posted, if it is known which
 * messages it takes; else when it is completed. True where it counts now. */
static int skip_receive(const struct hs_comm *comm, int source, int tag) {
  if (source == MPI_ANY_SOURCE || tag == MPI_ANY_TAG) return 0;
  const uint32_t peer = hs_peer(comm, source);
  if (peer != HS_NOBODY) hs_skip(peer, hs_channel(comm, tag), HS_SKIPPED_RECEIVED);
  return 1;
}

/* A message to or from nobody is kept, too: its handle may be that of others. */
static uint8_t kind_or_none(uint32_t number, enum hs_pending kind) {
  return (uint8_t)(number == HS_NOBODY ? HS_PENDING_NONE : kind);
}

void hs_track_send(MPI_Request handle, uint32_t number) {
  hs_track(handle, &(struct hs_request){.kind = kind_or_none(number, HS_PENDING_SEND),
                                        .active = 1, .number = number});
}

void hs_track_receive(MPI_Request handle, uint32_t number, struct hs_comm *comm, int source, int tag) {
  int tells = comm != NULL && source != MPI_PROC_NULL;
  if (tells && number == HS_NOBODY && skip_receive(comm, source, tag)) tells = 0;
  hs_track(handle, &(struct hs_request){.kind = tells ? HS_PENDING_RECEIVE : HS_PENDING_NONE,
                                        .active = 1, .number = number, .comm = tells ? comm : NULL,
                                        .source = source, .tag = tag});
}

void hs_track_exchange(MPI_Request handle, uint32_t send, uint32_t receive, MPI_Comm comm,
                       int source, int tag) {
  struct hs_comm *communicator = source == MPI_PROC_NULL ? NULL : hs_comm_of(comm);
  if (communicator && receive == HS_NOBODY && skip_receive(communicator, source, tag)) communicator = NULL;
  hs_track(handle, &(struct hs_request){.kind = HS_PENDING_EXCHANGE, .active = 1, .number = send,
                                        .receive = receive, .comm = communicator, .source = source,
                                        .tag = tag});
}

void hs_track_file(MPI_Request handle, uint32_t written, int recorded) {
  hs_track(handle, &(struct hs_request){.kind = recorded ? HS_PENDING_FILE : HS_PENDING_NONE,
                                        .active = 1, .number = written});
}

void hs_track_other(MPI_Request handle, int persistent) {
  hs_track(handle, &(struct hs_request){.kind = HS_PENDING_NONE, .active = 1,
                                        .persistent = (uint8_t)persistent});
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
  struct hs_comm *communicator = hs_comm_of(comm);
  struct hs_request kept = {.persistent = 1, .comm = communicator, .peer = HS_NOBODY};
  if (communicator) kept.peer = hs_peer(communicator, dest);
  if (kept.peer != HS_NOBODY) {
    kept.kind = HS_PENDING_SEND;
    kept.first = hs_channel(communicator, tag);
    kept.second = bytes;
  }
  hs_track(handle, &kept);
}

void hs_keep_receive(MPI_Request handle, int source, int tag, MPI_Comm comm) {
  struct hs_comm *communicator = source == MPI_PROC_NULL ? NULL : hs_comm_of(comm);
  hs_track(handle, &(struct hs_request){.kind = communicator ? HS_PENDING_RECEIVE : HS_PENDING_NONE,
                                        .persistent = 1, .comm = communicator, .source = source,
                                        .tag = tag});
}

void hs_keep_collective(MPI_Request handle, struct hs_comm *comm, uint64_t operation,
                        uint64_t sent, uint64_t received) {
  const uint8_t kind = comm->between ? HS_PENDING_NONE : HS_PENDING_COLLECTIVE;
  hs_track(handle, &(struct hs_request){.kind = kind, .persistent = 1, .comm = comm,
                                        .first = operation, .second = sent, .third = received});
}

static void start(uint32_t region, MPI_Request handle) {
  const struct hs_request now = pending_start(handle);
  int recorded = 0;
  switch (now.kind) {
    case HS_PENDING_SEND:
      if (HS_RECORDED) recorded = hs_event(HS_EVENT_ISEND, now.peer, now.first, now.second, now.number, 0);
      else hs_skip(now.peer, now.first, HS_SKIPPED_SENT);
      break;
    case HS_PENDING_RECEIVE:
      recorded = HS_RECORDED && hs_event(HS_EVENT_IRECV, now.number, 0, 0, 0, 0);
      if (!recorded) skip_receive(now.comm, now.source, now.tag);
      break;
    case HS_PENDING_COLLECTIVE:
      if (HS_RECORDED)
        recorded = hs_event(HS_EVENT_ICOLLECTIVE, now.comm->number, now.first, now.second, now.third,
                            now.number);
      else
        hs_skip(HS_NOBODY, now.comm->number, 0);
      break;
    default:
      return;
  }
  if (!recorded) pending_unrecorded(handle);
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

/* A receive that is over: completed with a status, or freed without one. A receive that was not
 * recorded when it was posted counts now, unless it counted then. */
static void record_received(const struct hs_request *request, uint32_t number, int source, int tag,
                            uint64_t bytes) {
  const uint32_t peer = hs_peer(request->comm, source);
  if (peer == HS_NOBODY) return;
  const uint64_t channel = hs_channel(request->comm, tag);
  if (number != HS_NOBODY) hs_event(HS_EVENT_IRECV_DONE, peer, channel, bytes, number, 0);
  else if (request->source == MPI_ANY_SOURCE || request->tag == MPI_ANY_TAG)
    hs_skip(peer, channel, HS_SKIPPED_RECEIVED);
}

/* From here on it is not known which messages of the communicator belong together here. */
static void record_unsure(const struct hs_request *request, uint32_t number, uint32_t peer,
                          uint64_t channel, uint64_t flag) {
  if (request->comm) hs_event(HS_EVENT_SKIPPED, peer, channel, HS_SKIPPED_UNSURE | flag, number, 0);
}

/* MPICH (to version 5.0 at least) fills the status of MPI_Isendrecv from an internal message. The
 * message is then the requested one, with as many bytes as were sent. */
static void record_exchanged(const struct hs_request *request, const MPI_Status *status) {
#ifdef OPEN_MPI
  record_received(request, request->receive, status->MPI_SOURCE, status->MPI_TAG, hs_received_bytes(status));
#else
  (void)status;
  if (request->source != MPI_ANY_SOURCE && request->tag != MPI_ANY_TAG) {
    record_received(request, request->receive, request->source, request->tag, HS_BYTES_UNKNOWN);
    return;
  }
  record_unsure(request, request->receive, HS_NOBODY, request->comm->number, HS_SKIPPED_RECEIVED);
  hs_say_once("MPI_Isendrecv received a message from any source; it is left out, and later messages of "
              "its communicator show no waits, since this MPI does not report the sender");
#endif
}

static void record_done(const struct hs_request *request, const MPI_Status *status) {
  int cancelled = 0;
  if (request->kind == HS_PENDING_NONE || request->recorded ||
      (request->persistent && !request->active))
    return;
  if (HS_UNLIKELY(request->cancelled)) PMPI_Test_cancelled(status, &cancelled);
  if (cancelled) {
    if (request->number != HS_NOBODY) hs_event(HS_EVENT_CANCELLED, request->number, 0, 0, 0, 0);
    else if (request->kind == HS_PENDING_RECEIVE && request->source != MPI_ANY_SOURCE &&
             request->tag != MPI_ANY_TAG)
      record_unsure(request, HS_NOBODY, HS_NOBODY, request->comm->number, HS_SKIPPED_RECEIVED); /* counted */
    return;
  }
  switch (request->kind) {
    case HS_PENDING_SEND:
      if (request->number != HS_NOBODY) hs_event(HS_EVENT_ISEND_DONE, request->number, 0, 0, 0, 0);
      break;
    case HS_PENDING_RECEIVE:
      record_received(request, request->number, status->MPI_SOURCE, status->MPI_TAG,
                      hs_received_bytes(status));
      break;
    case HS_PENDING_EXCHANGE:
      if (request->number != HS_NOBODY) hs_event(HS_EVENT_ISEND_DONE, request->number, 0, 0, 0, 0);
      if (request->comm) record_exchanged(request, status);
      break;
    case HS_PENDING_COMM:
      hs_new_comm(request->parent, *request->made, 0); /* fall through */
    case HS_PENDING_COLLECTIVE:
      if (request->number != HS_NOBODY) hs_event(HS_EVENT_ICOLLECTIVE_DONE, request->number, 0, 0, 0, 0);
      break;
    case HS_PENDING_FILE:
      hs_record_bytes(request->number, hs_received_bytes(status));
      break;
    default:
      break;
  }
}

/* The program gives a request away before it is completed. Which message a receive will take is
 * known where it was asked for, or where it has come already. */
static void record_freed(const struct hs_request *request, MPI_Request handle) {
  MPI_Status status;
  int done = 0;
  const int receives = request->kind == HS_PENDING_RECEIVE ||
                       (request->kind == HS_PENDING_EXCHANGE && request->comm != NULL);
  const uint32_t number = request->kind == HS_PENDING_EXCHANGE ? request->receive : request->number;
  if (request->recorded || !request->active || !(receives || request->cancelled)) return;
  if (PMPI_Request_get_status(handle, &done, &status) != MPI_SUCCESS) done = 0;
  if (request->cancelled) {
    int cancelled = 0;
    if (done) PMPI_Test_cancelled(&status, &cancelled);
    if (cancelled) {
      if (number != HS_NOBODY) hs_event(HS_EVENT_CANCELLED, number, 0, 0, 0, 0);
      return;
    }
    if (!receives) {
      if (!done && request->kind == HS_PENDING_SEND)
        record_unsure(request, HS_NOBODY, request->peer, request->first, HS_SKIPPED_SENT);
      return;
    }
    if (!done) {
      record_unsure(request, number, HS_NOBODY, request->comm->number, HS_SKIPPED_RECEIVED);
      return;
    }
  }
  const int any = request->source == MPI_ANY_SOURCE || request->tag == MPI_ANY_TAG;
  const int known = done && request->kind == HS_PENDING_RECEIVE;
  if (any && !known) {
    record_unsure(request, number, HS_NOBODY, request->comm->number, HS_SKIPPED_RECEIVED);
    return;
  }
  const uint32_t peer = hs_peer(request->comm, any ? status.MPI_SOURCE : request->source);
  const uint64_t channel = hs_channel(request->comm, any ? status.MPI_TAG : request->tag);
  if (peer == HS_NOBODY) return;
  if (number != HS_NOBODY)
    hs_event(HS_EVENT_SKIPPED, peer, channel, 1 | HS_SKIPPED_RECEIVED, number, 0);
  else if (any)
    hs_skip(peer, channel, HS_SKIPPED_RECEIVED);
}

/* The region that takes the place of a filtered call when it completes something. */
static void enter_stand_in(uint32_t *stand_in) {
  if (*stand_in != HS_FILTERED) return;
  *stand_in = hs_region("MPI_completion", "mpi", "test", "", 0);
  if (*stand_in != HS_FILTERED) hs_enter(*stand_in, NULL);
}

/* Arguments of a call that may complete requests. MPI nulls the program's own handles. */
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

/* Without memory nothing is known of what is completed. */
static void begin_waiting(struct waiting *self, uint32_t region, int count,
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
    if (self->memory == NULL) {
      self->count = 0;
      self->statuses = statuses;
      return;
    }
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
}

/* Request `i` is done, with a code of its own. */
static void completed(struct waiting *self, int i, const MPI_Status *status, int code) {
  struct hs_request request;
  if (self->claimed) {
    if (self->handles[i] == MPI_REQUEST_NULL) return;
    request = self->claimed[i];
    self->handles[i] = MPI_REQUEST_NULL; /* nothing to put back */
  } else if (!pending_take(self->handles[i], &request)) {
    return;
  }
  if (self->region == HS_FILTERED && request.active && request.kind) enter_stand_in(&self->stand_in);
  if (hs_message_came(code)) record_done(&request, status);
  if (request.comm && !request.persistent) hs_release_comm(request.comm);
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
  const int has_codes = in_statuses(code);
  if (code != MPI_SUCCESS && !has_codes) return;
  for (int i = 0; i < self->count; i++) {
    const int own = has_codes ? self->statuses[i].MPI_ERROR : MPI_SUCCESS;
    if (own != MPI_ERR_PENDING) completed(self, i, &self->statuses[i], own);
  }
}

static void completed_listed(struct waiting *self, int code, int count,
                             const int *indices) {
  const int has_codes = in_statuses(code);
  if (count == MPI_UNDEFINED || count <= 0 || self->count == 0 || (code != MPI_SUCCESS && !has_codes))
    return;
  for (int i = 0; i < count; i++)
    completed(self, indices[i], &self->statuses[i], has_codes ? self->statuses[i].MPI_ERROR : MPI_SUCCESS);
}

static void completed_one(struct waiting *self, int code, int index) {
  if (index == MPI_UNDEFINED || index < 0 || index >= self->count) return;
  completed(self, index, self->statuses, code);
}

int hs_own_Wait(uint32_t region, MPI_Request *request, MPI_Status *status) {
  struct waiting all;
  begin_waiting(&all, region, 1, request, status, 1);
  const int code = PMPI_Wait(request, all.statuses);
  completed_one(&all, code, 0);
  end_waiting(&all);
  return code;
}

int hs_own_Waitany(uint32_t region, int count, MPI_Request requests[], int *index,
                   MPI_Status *status) {
  struct waiting all;
  begin_waiting(&all, region, count, requests, status, 1);
  const int code = PMPI_Waitany(count, requests, index, all.statuses);
  completed_one(&all, code, *index);
  end_waiting(&all);
  return code;
}

int hs_own_Waitall(uint32_t region, int count, MPI_Request requests[], MPI_Status *statuses) {
  struct waiting all;
  begin_waiting(&all, region, count, requests, statuses, 0);
  const int code = PMPI_Waitall(count, requests, all.statuses);
  completed_all(&all, code);
  end_waiting(&all);
  return code;
}

/* MPI_Waitsome or MPI_Testsome. */
static int complete_listed(int (*complete)(int, MPI_Request *, int *, int *, MPI_Status *), uint32_t region,
                         int incount, MPI_Request requests[], int *outcount, int indices[],
                         MPI_Status *statuses) {
  struct waiting all;
  begin_waiting(&all, region, incount, requests, statuses, 0);
  const int code = complete(incount, requests, outcount, indices, all.statuses);
  completed_listed(&all, code, *outcount, indices);
  end_waiting(&all);
  return code;
}

int hs_own_Waitsome(uint32_t region, int incount, MPI_Request requests[], int *outcount,
                    int indices[], MPI_Status *statuses) {
  return complete_listed(PMPI_Waitsome, region, incount, requests, outcount, indices, statuses);
}

int hs_own_Testsome(uint32_t region, int incount, MPI_Request requests[], int *outcount,
                    int indices[], MPI_Status *statuses) {
  return complete_listed(PMPI_Testsome, region, incount, requests, outcount, indices, statuses);
}

int hs_own_Test(uint32_t region, MPI_Request *request, int *flag, MPI_Status *status) {
  struct waiting all;
  begin_waiting(&all, region, 1, request, status, 1);
  *flag = 0;
  const int code = PMPI_Test(request, flag, all.statuses);
  if (*flag || code != MPI_SUCCESS) completed_one(&all, code, 0);
  end_waiting(&all);
  return code;
}

int hs_own_Testany(uint32_t region, int count, MPI_Request requests[], int *index, int *flag,
                   MPI_Status *status) {
  struct waiting all;
  begin_waiting(&all, region, count, requests, status, 1);
  *flag = 0;
  const int code = PMPI_Testany(count, requests, index, flag, all.statuses);
  if (*flag) completed_one(&all, code, *index);
  end_waiting(&all);
  return code;
}

int hs_own_Testall(uint32_t region, int count, MPI_Request requests[], int *flag,
                   MPI_Status *statuses) {
  struct waiting all;
  begin_waiting(&all, region, count, requests, statuses, 0);
  *flag = 0;
  const int code = PMPI_Testall(count, requests, flag, all.statuses);
  if (*flag || code != MPI_SUCCESS) completed_all(&all, code);
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
  struct hs_request dropped;
  const int known = pending_drop(*request, &dropped);
  (void)region;
  if (known) record_freed(&dropped, *request);
  const int code = PMPI_Request_free(request);
  if (known) hs_release_comm(dropped.comm);
  return code;
}

int hs_own_Cancel(uint32_t region, MPI_Request *request) {
  (void)region;
  pending_cancel(*request);
  return PMPI_Cancel(request);
}

/* ---- completed, but kept ---- */

/* Records once the completion of a request that MPI_Request_get_status reports as done. */
static void record_completed(uint32_t region, uint32_t *stand_in, MPI_Request handle,
                             const MPI_Status *status) {
  struct hs_request request;
  if (!pending_mark_recorded(handle, &request)) return;
  if (!HS_RECORDED && request.kind) enter_stand_in(stand_in);
  record_done(&request, status);
}

int hs_own_Request_get_status(uint32_t region, MPI_Request request, int *flag, MPI_Status *status) {
  MPI_Status own;
  uint32_t stand_in = HS_FILTERED;
  if (status == MPI_STATUS_IGNORE) status = &own;
  *flag = 0;
  const int code = PMPI_Request_get_status(request, flag, status);
  if (code == MPI_SUCCESS && *flag) record_completed(region, &stand_in, request, status);
  if (stand_in != HS_FILTERED) hs_leave(stand_in);
  return code;
}

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
#pragma weak PMPI_Request_get_status_any
#pragma weak PMPI_Request_get_status_all
#pragma weak PMPI_Request_get_status_some

int hs_own_Request_get_status_any(uint32_t region, int count, const MPI_Request requests[], int *index,
                                  int *flag, MPI_Status *status) {
  MPI_Status own;
  uint32_t stand_in = HS_FILTERED;
  if (status == MPI_STATUS_IGNORE) status = &own;
  *flag = 0;
  const int code = PMPI_Request_get_status_any(count, requests, index, flag, status);
  if (code == MPI_SUCCESS && *flag && *index >= 0 && *index < count)
    record_completed(region, &stand_in, requests[*index], status);
  if (stand_in != HS_FILTERED) hs_leave(stand_in);
  return code;
}

int hs_own_Request_get_status_all(uint32_t region, int count, const MPI_Request requests[], int *flag,
                                  MPI_Status *statuses) {
  uint32_t stand_in = HS_FILTERED;
  MPI_Status *own = statuses;
  if (own == MPI_STATUSES_IGNORE && count > 0) own = malloc((size_t)count * sizeof *own);
  *flag = 0;
  const int code = PMPI_Request_get_status_all(count, requests, flag, own ? own : statuses);
  for (int i = 0; code == MPI_SUCCESS && *flag && own && i < count; i++)
    record_completed(region, &stand_in, requests[i], &own[i]);
  if (stand_in != HS_FILTERED) hs_leave(stand_in);
  if (own != statuses) free(own);
  return code;
}

int hs_own_Request_get_status_some(uint32_t region, int incount, const MPI_Request requests[],
                                   int *outcount, int indices[], MPI_Status *statuses) {
  uint32_t stand_in = HS_FILTERED;
  MPI_Status *own = statuses;
  if (own == MPI_STATUSES_IGNORE && incount > 0) own = malloc((size_t)incount * sizeof *own);
  const int code = PMPI_Request_get_status_some(incount, requests, outcount, indices, own ? own : statuses);
  const int done = code == MPI_SUCCESS && *outcount != MPI_UNDEFINED && own ? *outcount : 0;
  for (int i = 0; i < done; i++) record_completed(region, &stand_in, requests[indices[i]], &own[i]);
  if (stand_in != HS_FILTERED) hs_leave(stand_in);
  if (own != statuses) free(own);
  return code;
}
#endif
