/* Shared by the parts of an MPI flavour's tracer: communicators, requests, windows, sizes.
 *
 * A wrapper looks like this, whatever it does besides:
 *
 *   if (HS_PASS_ON) return PMPI_Send(...);   within another MPI call, or MPI not running
 *   HS_BEGIN(index)                          enters the region
 *   ... events that stand before the call
 *   code = PMPI_Send(...);
 *   ... events that stand after it
 *   HS_END                                   leaves the region
 *
 * Where the user's filter names the function, `region` is HS_FILTERED: then the tables of
 * communicators, requests and windows are kept up to date, and messages are counted (hs_skip).
 */
#ifndef HALOSCOPE_MPI_TRACER_H
#define HALOSCOPE_MPI_TRACER_H

#include <mpi.h>
#include <stdint.h>
#include <string.h>

#include "recorder.h"
#include "stub.h"

#pragma GCC visibility push(hidden)

#define HS_LIKELY(x) __builtin_expect(!!(x), 1)
#define HS_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define HS_REGION_UNKNOWN 0xfffffffeu
#define HS_NO_ROOT ((uint64_t)HS_NOBODY << 32)

/* ---- wrappers ---- */

struct hs_described {
  const char *name, *role;
};
extern const struct hs_described hs_described[]; /* by index of a wrapper */
extern uint32_t hs_regions[];                    /* HS_REGION_UNKNOWN until first called */
uint32_t hs_make_region(unsigned index);

extern int hs_closed;   /* MPI is not running: nothing is recorded */
extern int hs_multiple; /* threads may call MPI at the same time */

/* A frame that is not deeper than that of the call noted before: that call was left by a jump. */
#define HS_FRAME ((const char *)__builtin_frame_address(0))
#define HS_NESTED (hs_mpi_thread.inside != NULL && HS_FRAME < hs_mpi_thread.inside)
#define HS_PASS_ON HS_UNLIKELY(hs_closed || HS_NESTED)

/* Where the program called MPI: through a Fortran library from where that was called. */
const void *hs_fortran_site(const void *caller);
static inline const void *hs_site(const void *caller) {
  return HS_LIKELY(hs_mpi_thread.fortran_site == NULL) ? caller : hs_fortran_site(caller);
}

static inline uint32_t hs_open(unsigned index, const char *frame, const void *caller) {
  hs_mpi_thread.inside = frame;
  uint32_t region = hs_regions[index];
  if (HS_UNLIKELY(region == HS_REGION_UNKNOWN)) region = hs_make_region(index);
  const void *site = hs_site(caller);
  if (HS_LIKELY(region != HS_FILTERED)) hs_enter_unwound(region, site);
  return region;
}

static inline void hs_close(uint32_t region) {
  if (HS_LIKELY(region != HS_FILTERED)) hs_leave(region);
  hs_mpi_thread.inside = NULL;
}

#define HS_BEGIN(index) \
  const uint32_t region = hs_open(index, HS_FRAME, __builtin_return_address(0));
#define HS_END hs_close(region);

/* The same for functions that nobody calls a million times: they compile faster. */
uint32_t hs_open_rarely(unsigned index, const char *frame, const void *caller);
void hs_close_rarely(uint32_t region);
#define HS_BEGIN_RARELY(index) \
  const uint32_t region = hs_open_rarely(index, HS_FRAME, __builtin_return_address(0));
#define HS_END_RARELY hs_close_rarely(region);
#define HS_RECORDED HS_LIKELY(region != HS_FILTERED)

/* ---- locks, taken only where threads may call MPI at the same time ---- */

typedef volatile int hs_spin;
void hs_spin_wait(hs_spin *lock);
static inline void hs_spin_take(hs_spin *lock) {
  if (HS_UNLIKELY(hs_multiple) && __atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE)) hs_spin_wait(lock);
}
static inline void hs_spin_drop(hs_spin *lock) {
  if (HS_UNLIKELY(hs_multiple)) __atomic_store_n(lock, 0, __ATOMIC_RELEASE);
}

/* Handles are numbers in one MPI and pointers in the other. */
#define HS_KEY(handle) hs_key(&(handle), sizeof(handle))
static inline uint64_t hs_key(const void *handle, size_t size) {
  uint64_t key = 0;
  memcpy(&key, handle, size < sizeof key ? size : sizeof key);
  return key;
}
static inline uint64_t hs_mix(uint64_t value) {
  value = (value ^ value >> 31) * 0x9e3779b97f4a7c15ull;
  value = (value ^ value >> 29) * 0xd1342543de82ef95ull;
  return value ^ value >> 32;
}

/* ---- mpi_comms.c ---- */

struct hs_comm {
  uint32_t number;
  int size, rank, remote_size;
  int between;         /* an intercommunicator */
  uint32_t *ranks;     /* of the world, NULL where they are the same */
  uint32_t *peers;     /* whom messages go to: those of the other side between two groups */
  int peer_count;
  uint64_t key;
  int in_degree, out_degree; /* neighbours in its topology */
  uint32_t users;      /* requests under way */
  int freed;
};

struct hs_comm *hs_find_comm(MPI_Comm handle); /* NULL for no communicator */
extern MPI_Comm hs_last_handle;
extern struct hs_comm *hs_last_comm;
static inline struct hs_comm *hs_comm_of(MPI_Comm handle) {
  if (HS_LIKELY(handle == hs_last_handle && !hs_multiple)) return hs_last_comm;
  return hs_find_comm(handle);
}
void hs_comms_begin(void);
struct hs_comm *hs_new_comm(MPI_Comm parent, MPI_Comm made, int tag);
struct hs_comm *hs_forget_comm(MPI_Comm handle); /* to be freed by hs_drop_comm */
void hs_keep_comm(MPI_Comm handle, struct hs_comm *comm); /* it was not freed after all */
void hs_drop_comm(struct hs_comm *comm);
void hs_define_comm(struct hs_comm *comm, MPI_Comm handle);
uint32_t hs_group_number(MPI_Group group);

/* ---- mpi_types.c ---- */

uint64_t hs_type_size(MPI_Datatype type);

/* ---- ranks and bytes ---- */

/* Rank of the world, HS_NOBODY for one that is none. */
static inline uint32_t hs_peer(const struct hs_comm *comm, int rank) {
  if (HS_UNLIKELY((unsigned)rank >= (unsigned)comm->peer_count)) return HS_NOBODY;
  return comm->peers ? comm->peers[rank] : (uint32_t)rank;
}

static inline uint64_t hs_channel(const struct hs_comm *comm, int tag) {
  return comm->number | (uint64_t)(uint32_t)tag << 32;
}

#define HS_BYTES(count, type) ((count) > 0 ? (uint64_t)(count)*hs_type_size(type) : (uint64_t)0)

/* Sum of int or MPI_Count counts, and of counts of types of their own. */
#define HS_SUM(counts, n)                                            \
  __extension__({                                                    \
    uint64_t sum_ = 0;                                               \
    for (int i_ = 0; i_ < (n); i_++) sum_ += (uint64_t)(counts)[i_]; \
    sum_;                                                            \
  })
#define HS_SUM_BYTES(counts, types, n)                                          \
  __extension__({                                                               \
    uint64_t sum_ = 0;                                                          \
    for (int i_ = 0; i_ < (n); i_++) sum_ += HS_BYTES((counts)[i_], (types)[i_]); \
    sum_;                                                                       \
  })

/* ---- messages of blocking calls ---- */

/* A call that MPI refuses with an error sends no message. */
#define HS_CAN_SEND(count, type, tag) ((count) >= 0 && (tag) >= 0 && (type) != MPI_DATATYPE_NULL)

static inline void hs_record_send(uint32_t region, uint64_t bytes, int dest, int tag, MPI_Comm handle) {
  const struct hs_comm *comm = hs_comm_of(handle);
  if (comm == NULL) return;
  const uint32_t peer = hs_peer(comm, dest);
  if (peer == HS_NOBODY) return;
  if (HS_RECORDED) hs_event(HS_EVENT_SEND, peer, hs_channel(comm, tag), bytes, 0, 0);
  else hs_skip(peer, hs_channel(comm, tag), HS_SKIPPED_SENT);
}

int hs_message_came(int code); /* a message was received, be it cut short */
uint64_t hs_received_bytes(const MPI_Status *status);

static inline void hs_record_receive(uint32_t region, int code, const MPI_Status *status,
                                     const struct hs_comm *comm) {
  if (comm == NULL || (HS_UNLIKELY(code != MPI_SUCCESS) && !hs_message_came(code))) return;
  const uint32_t peer = hs_peer(comm, status->MPI_SOURCE);
  if (peer == HS_NOBODY) return;
  const uint64_t channel = hs_channel(comm, status->MPI_TAG);
  if (HS_RECORDED) hs_event(HS_EVENT_RECV, peer, channel, hs_received_bytes(status), 0, 0);
  else hs_skip(peer, channel, HS_SKIPPED_RECEIVED);
}

/* ---- collectives ---- */

/* 1 at the root, 0 at those it deals with, -1 where the call is none of this rank's business. */
static inline int hs_part(const struct hs_comm *comm, int root) {
  if (HS_UNLIKELY(comm->between)) return root == MPI_ROOT ? 1 : root == MPI_PROC_NULL ? -1 : 0;
  return comm->rank == root;
}
static inline uint64_t hs_root(const struct hs_comm *comm, uint32_t operation, int root) {
  return operation | (uint64_t)hs_peer(comm, root) << 32;
}
/* Collectives between two groups are timed regions only. */
static inline void hs_record_collective(uint32_t region, const struct hs_comm *comm, uint64_t operation,
                                        uint64_t sent, uint64_t received) {
  if (comm->between) return;
  if (HS_RECORDED) hs_event(HS_EVENT_COLLECTIVE, comm->number, operation, sent, received, 0);
  else hs_skip(HS_NOBODY, comm->number, 0);
}
void hs_record_created(uint32_t region, MPI_Comm handle, uint32_t operation);

/* ---- mpi_requests.c, mpi_pending.c ---- */

enum hs_pending { HS_PENDING_NONE, HS_PENDING_SEND, HS_PENDING_RECEIVE, HS_PENDING_EXCHANGE,
                  HS_PENDING_COLLECTIVE, HS_PENDING_COMM, HS_PENDING_FILE };

struct hs_request {
  uint8_t kind, persistent, active, cancelled, shard;
  uint8_t recorded;  /* its completion, by MPI_Request_get_status */
  uint32_t number;   /* of the message that is sent, or of another pending operation */
  uint32_t receive;  /* of the message that is received along with it */
  uint32_t next;
  struct hs_comm *comm;
  uint64_t first, second, third; /* of a persistent one: words of the event that starts it */
  uint32_t peer;
  int source, tag;   /* of a message that is received, as asked for */
  MPI_Comm parent;   /* of a communicator that is being made */
  MPI_Comm *made;
};

uint32_t hs_next_number(void);
void hs_track(MPI_Request handle, const struct hs_request *request);

/* The table of requests under way. */
int pending_take(MPI_Request handle, struct hs_request *request);
void pending_put_back(MPI_Request handle, const struct hs_request *request);
struct hs_request pending_start(MPI_Request handle);
void pending_unrecorded(MPI_Request handle); /* the start of a persistent one was not recorded */
int pending_mark_recorded(MPI_Request handle, struct hs_request *request); /* its completion, once */
void pending_rename(MPI_Request before, MPI_Request after);
void pending_cancel(MPI_Request handle);

/* Forget the request; 0 where there is none. Pass its communicator to hs_release_comm. */
int pending_drop(MPI_Request handle, struct hs_request *request);

/* These return HS_NOBODY where nothing is recorded. */
uint32_t hs_record_isend(uint32_t region, uint64_t bytes, int dest, int tag, MPI_Comm handle);
uint32_t hs_record_irecv(uint32_t region, int source);
uint32_t hs_record_icollective(uint32_t region, const struct hs_comm *comm, uint64_t operation,
                               uint64_t sent, uint64_t received);
void hs_track_send(MPI_Request handle, uint32_t number);
void hs_track_receive(MPI_Request handle, uint32_t number, struct hs_comm *comm, int source, int tag);
void hs_track_exchange(MPI_Request handle, uint32_t send, uint32_t receive, MPI_Comm comm,
                       int source, int tag);
void hs_track_file(MPI_Request handle, uint32_t written, int recorded);
void hs_track_other(MPI_Request handle, int persistent);
void hs_track_collective(MPI_Request handle, uint32_t number);
void hs_track_idup(MPI_Request handle, uint32_t number, MPI_Comm parent, MPI_Comm *made);
void hs_keep_send(MPI_Request handle, uint64_t bytes, int dest, int tag, MPI_Comm comm);
void hs_keep_receive(MPI_Request handle, int source, int tag, MPI_Comm comm);
void hs_keep_collective(MPI_Request handle, struct hs_comm *comm, uint64_t operation,
                        uint64_t sent, uint64_t received);
void hs_track_message(MPI_Message message, MPI_Comm comm);
struct hs_comm *hs_take_message(MPI_Message message); /* to be given back to hs_release_comm */
void hs_release_comm(struct hs_comm *comm);

/* ---- mpi_windows.c ---- */

struct hs_window {
  uint32_t number;
  struct hs_comm *comm;
};
void hs_new_window(MPI_Win handle, MPI_Comm comm);
void hs_new_file(MPI_File handle, MPI_Comm comm);
struct hs_comm *hs_take_file(MPI_File handle);
static inline void hs_record_bytes(uint32_t written, uint64_t bytes) {
  hs_event(HS_EVENT_FILE, written, bytes, 0, 0, 0);
}
static inline void hs_record_file(uint32_t written, int code, const MPI_Status *status) {
  if (code == MPI_SUCCESS) hs_record_bytes(written, hs_received_bytes(status));
}
void hs_record_access(uint32_t kind, MPI_Win handle, int target, uint64_t bytes);
void hs_record_epoch(uint32_t region, uint32_t kind, MPI_Win handle, MPI_Group group);
void hs_record_window(uint32_t region, uint32_t kind, MPI_Win handle);
void hs_record_lock(uint32_t kind, MPI_Win handle, int target, int all, int exclusive);
void hs_record_fence(uint32_t region, MPI_Win handle);

/* ---- mpi_carriers.c ---- */

/* Of the ranks with a recorder, the only one on which it communicates; MPI_COMM_NULL for not at all. */
extern MPI_Comm hs_carriers;
void hs_carriers_mark(void); /* before MPI_Init */
const char *hs_carriers_find(int rank, int size); /* why this rank is not measured, or NULL */

/* ---- mpi_clocks.c ---- */

void hs_compare_clocks(void);

void hs_record_cost(int rank);

#pragma GCC visibility pop
#endif
