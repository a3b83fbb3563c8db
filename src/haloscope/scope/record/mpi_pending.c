/* Pending operations by handle: requests, and messages that were probed.
 *
 * A handle may stand for several requests at a time (an MPI hands one and the same out for all
 * messages that it could send at once), so that each handle has a queue. Where threads may call
 * MPI at the same time, each has a table of its own, with a lock, and looks into its own first.
 */
#include <stdlib.h>

#include "mpi_tracer.h"

enum { SHARDS = 64 };
#define NO_RECORD 0xffffffffu

struct queue {
  uint64_t key; /* handle + 1; 0 where the place is empty */
  uint32_t head, tail;
};

struct shard {
  hs_spin lock;
  struct queue *queues;
  size_t mask, used;
  struct hs_request *records;
  uint32_t room, spare; /* spare: a list of free records */
} __attribute__((aligned(64)));

static struct shard shards[SHARDS];
static uint32_t numbers;

uint32_t hs_next_number(void) {
  if (HS_UNLIKELY(hs_multiple)) return __atomic_fetch_add(&numbers, 1, __ATOMIC_RELAXED);
  return numbers++;
}

static unsigned own_shard(void) {
  static unsigned threads;
  if (HS_LIKELY(!hs_multiple)) return 0;
  if (hs_mpi_thread.number == 0)
    hs_mpi_thread.number = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
  return hs_mpi_thread.number % SHARDS;
}

static size_t home_of(const struct shard *shard, uint64_t key) { return hs_mix(key) & shard->mask; }

static struct queue *queue_of(const struct shard *shard, uint64_t key) {
  size_t at = home_of(shard, key);
  while (shard->queues[at].key != 0 && shard->queues[at].key != key) at = (at + 1) & shard->mask;
  return &shard->queues[at];
}

static int more_queues(struct shard *shard) {
  struct shard wider = *shard;
  wider.mask = shard->queues ? shard->mask * 2 + 1 : 255;
  wider.queues = calloc(wider.mask + 1, sizeof *wider.queues);
  if (wider.queues == NULL) return 0;
  for (size_t at = 0; shard->queues && at <= shard->mask; at++)
    if (shard->queues[at].key) *queue_of(&wider, shard->queues[at].key) = shard->queues[at];
  free(shard->queues);
  shard->queues = wider.queues;
  shard->mask = wider.mask;
  return 1;
}

static int more_records(struct shard *shard) {
  const uint32_t room = shard->room ? shard->room * 2 : 256;
  struct hs_request *wider = realloc(shard->records, room * sizeof *wider);
  if (wider == NULL) return 0;
  for (uint32_t at = shard->room; at < room; at++)
    wider[at].next = at + 1 < room ? at + 1 : NO_RECORD;
  shard->spare = shard->room;
  shard->records = wider;
  shard->room = room;
  return 1;
}

/* Take a queue's place away; those behind it that belong further to the front move up. */
static void close_gap(struct shard *shard, struct queue *queue) {
  size_t gap = (size_t)(queue - shard->queues);
  for (size_t at = (gap + 1) & shard->mask; shard->queues[at].key; at = (at + 1) & shard->mask) {
    const size_t home = home_of(shard, shard->queues[at].key);
    if (((at - home) & shard->mask) < ((at - gap) & shard->mask)) continue;
    shard->queues[gap] = shard->queues[at];
    gap = at;
  }
  shard->queues[gap].key = 0;
  shard->used--;
}

static void add(struct shard *shard, uint64_t key, const struct hs_request *request, int in_front) {
  if ((shard->queues == NULL || shard->used * 2 > shard->mask) && !more_queues(shard)) return;
  if ((shard->room == 0 || shard->spare == NO_RECORD) && !more_records(shard)) return;
  const uint32_t at = shard->spare;
  struct hs_request *record = &shard->records[at];
  shard->spare = record->next;
  *record = *request;
  record->next = NO_RECORD;
  struct queue *queue = queue_of(shard, key);
  if (queue->key == 0) {
    *queue = (struct queue){key, at, at};
    shard->used++;
  } else if (in_front) {
    record->next = queue->head;
    queue->head = at;
  } else {
    shard->records[queue->tail].next = at;
    queue->tail = at;
  }
}

/* The oldest request of a handle, or NULL. */
static struct hs_request *first(const struct shard *shard, uint64_t key) {
  if (shard->queues == NULL) return NULL;
  const struct queue *queue = queue_of(shard, key);
  return queue->key ? &shard->records[queue->head] : NULL;
}

/* The oldest request of a handle, this thread's own first, and the table that it is in, locked. */
static struct hs_request *locked_first(uint64_t key, struct shard **where) {
  const unsigned own = own_shard();
  for (unsigned turn = 0; turn < (hs_multiple ? SHARDS : 1); turn++) {
    struct shard *shard = *where = &shards[(own + turn) % SHARDS];
    hs_spin_take(&shard->lock);
    struct hs_request *record = first(shard, key);
    if (record) return record;
    hs_spin_drop(&shard->lock);
  }
  return NULL;
}

static void drop_first(struct shard *shard, uint64_t key) {
  struct queue *queue = queue_of(shard, key);
  const uint32_t at = queue->head;
  queue->head = shard->records[at].next;
  shard->records[at].next = shard->spare;
  shard->spare = at;
  if (queue->head == NO_RECORD) close_gap(shard, queue);
}

static void track(uint64_t key, const struct hs_request *request) {
  struct hs_request record = *request;
  record.shard = (uint8_t)own_shard();
  if (request->comm) __atomic_add_fetch(&request->comm->users, 1, __ATOMIC_RELAXED);
  struct shard *shard = &shards[record.shard];
  hs_spin_take(&shard->lock);
  add(shard, key, &record, 0);
  hs_spin_drop(&shard->lock);
}

static uint64_t key_of(MPI_Request handle) { return HS_KEY(handle) + 1; }

void hs_track(MPI_Request handle, const struct hs_request *request) {
  if (handle != MPI_REQUEST_NULL) track(key_of(handle), request);
}

/* The request that a handle stands for, if any, as it is now. One that is not persistent is taken
 * out. */
int pending_take(MPI_Request handle, struct hs_request *request) {
  struct shard *shard;
  if (handle == MPI_REQUEST_NULL) return 0;
  struct hs_request *record = locked_first(key_of(handle), &shard);
  if (record == NULL) return 0;
  *request = *record;
  if (record->persistent) record->active = record->cancelled = record->recorded = 0;
  else drop_first(shard, key_of(handle));
  hs_spin_drop(&shard->lock);
  return 1;
}

void pending_put_back(MPI_Request handle, const struct hs_request *request) {
  struct shard *shard = &shards[request->shard];
  hs_spin_take(&shard->lock);
  struct hs_request *record = request->persistent ? first(shard, key_of(handle)) : NULL;
  if (!request->persistent) {
    add(shard, key_of(handle), request, 1);
  } else if (record) {
    record->active = request->active;
    record->cancelled = request->cancelled;
    record->recorded = request->recorded;
  }
  hs_spin_drop(&shard->lock);
}

/* Start a persistent request; returns its state, of no kind where the handle has none. */
struct hs_request pending_start(MPI_Request handle) {
  struct shard *shard;
  struct hs_request now = {.kind = HS_PENDING_NONE};
  struct hs_request *record = locked_first(key_of(handle), &shard);
  if (record == NULL) return now;
  if (record->persistent) {
    record->active = 1;
    record->cancelled = record->recorded = 0;
    record->number = hs_next_number();
    now = *record;
  }
  hs_spin_drop(&shard->lock);
  return now;
}

void pending_unrecorded(MPI_Request handle) {
  struct shard *shard;
  struct hs_request *record = locked_first(key_of(handle), &shard);
  if (record == NULL) return;
  record->number = HS_NOBODY;
  hs_spin_drop(&shard->lock);
}

int pending_mark_recorded(MPI_Request handle, struct hs_request *request) {
  struct shard *shard;
  if (handle == MPI_REQUEST_NULL) return 0;
  struct hs_request *record = locked_first(key_of(handle), &shard);
  if (record == NULL) return 0;
  const int first = !record->recorded && record->active;
  *request = *record;
  record->recorded = 1;
  hs_spin_drop(&shard->lock);
  return first;
}

void pending_cancel(MPI_Request handle) {
  struct shard *shard;
  struct hs_request *record = locked_first(key_of(handle), &shard);
  if (record == NULL) return;
  record->cancelled = 1;
  hs_spin_drop(&shard->lock);
}

int pending_drop(MPI_Request handle, struct hs_request *request) {
  struct shard *shard;
  struct hs_request *record = locked_first(key_of(handle), &shard);
  if (record == NULL) return 0;
  *request = *record;
  drop_first(shard, key_of(handle));
  hs_spin_drop(&shard->lock);
  return 1;
}

/* Open MPI may start another request in place of one that it is not yet done with. */
void pending_rename(MPI_Request before, MPI_Request after) {
  struct shard *shard;
  if (before == after) return;
  struct hs_request *record = locked_first(key_of(before), &shard);
  if (record == NULL) return;
  const struct hs_request moved = *record;
  if (moved.persistent) {
    drop_first(shard, key_of(before));
    add(shard, key_of(after), &moved, 0);
  }
  hs_spin_drop(&shard->lock);
}

/* Messages that MPI_Mprobe has matched: their handles are no requests, hence another key. */
static uint64_t message_key(MPI_Message message) { return ~HS_KEY(message); }

void hs_track_message(MPI_Message message, MPI_Comm comm) {
  struct hs_request request = {.kind = HS_PENDING_RECEIVE, .comm = hs_comm_of(comm)};
  if (message == MPI_MESSAGE_NULL || message == MPI_MESSAGE_NO_PROC || request.comm == NULL) return;
  track(message_key(message), &request);
}

struct hs_comm *hs_take_message(MPI_Message message) {
  struct shard *shard;
  struct hs_request *record = locked_first(message_key(message), &shard);
  if (record == NULL) return NULL;
  struct hs_comm *comm = record->comm;
  drop_first(shard, message_key(message));
  hs_spin_drop(&shard->lock);
  return comm;
}
