/* Streams of GPUs: a location each, with the work that the GPU tracer reports.
 *
 * Kernels of one stream follow each other, but they are reported in another order. They are held in a
 * heap by their begin, at most MOST_HELD of them and for HOLD seconds, and written from there.
 * Work that overlaps what its stream has done already, as the branches of a graph do, goes to a
 * further location of that stream: "GPU 0 stream 7 +1". Nothing is left out for that.
 *
 * Locks: the streams' lock comes before the recorder's. */
#include "location.h"

#include <string.h>

enum {
  MOST_STREAMS = 1024, /* with locations of their own; the others of a GPU share one */
  STREAM_SLOTS = 4096,
  MOST_LANES = 64,
  MOST_HELD = 8192,
  FIRST_HELD = 256,
  LAUNCHES = 1 << 18, /* remembered; work is reported within a second or so */
  HOLD = 3            /* seconds */
};
static const uint64_t NANOSECONDS = 1000000000u;
static const uint64_t NEGLIGIBLE = 100; /* nanoseconds of overlap that clocks make up */

struct held {
  uint64_t begin, end; /* ticks */
  uint64_t turn, bytes;
  uint32_t parent, region, correlation, direction;
};

struct path {
  uint32_t parent, region;
  struct node *node;
};

struct lane {
  struct location *location;
  uint64_t end;
};

struct stream {
  uint64_t key;
  int device;
  char name[64];
  struct lane lanes[MOST_LANES];
  uint32_t lane_count;
  struct held *heap;
  uint32_t count, room;
  struct path *paths;
  uint32_t path_mask, path_count;
  uint64_t left_out;
  struct stream *next;
};

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream *streams[STREAM_SLOTS], *first_stream;
static uint32_t stream_count;
static uint64_t turns;
static int closed;
static void (*finish_tracer)(void);
static uint64_t *launches; /* correlation << 32 | node of the call, by the lowest bits */

/* --- clock ---------------------------------------------------------------------------------- */

enum { FRACTION = 48 }; /* bits behind the point */
static pthread_once_t clock_once = PTHREAD_ONCE_INIT;
static uint64_t zero_tick;
static __int128 nanoseconds_a_tick, ticks_a_nanosecond;

static void fix_clock(void) {
  double rate = clock_final_rate();
  const double one = (double)(1ull << FRACTION);
  nanoseconds_a_tick = (__int128)((double)NANOSECONDS / rate * one);
  ticks_a_nanosecond = (__int128)(rate / (double)NANOSECONDS * one);
  zero_tick = now();
}

uint64_t hs_device_clock(void) {
  clock_begin();
  pthread_once(&clock_once, fix_clock);
  return NANOSECONDS + (uint64_t)((now() - zero_tick) * nanoseconds_a_tick >> FRACTION);
}

static uint64_t tick_of(uint64_t nanoseconds) {
  pthread_once(&clock_once, fix_clock);
  int64_t since = (int64_t)(nanoseconds - NANOSECONDS);
  uint64_t tick = zero_tick + (uint64_t)(int64_t)(since * ticks_a_nanosecond >> FRACTION);
  return tick < clock_epoch() ? clock_epoch() : tick;
}

/* --- locations ------------------------------------------------------------------------------ */

/* Lock held. It has no thread, is never entered and takes no part in pauses: those who end threads
 * and pause them pass it by. Its file is made with the first work, so that the host that launches
 * that work does not wait for it. */
static struct location *new_stream_location(const struct stream *stream, uint32_t lane) {
  char name[96];
  struct text text;
  struct location *me = hs_keep(sizeof *me);
  if (!me) return NULL;
  text_open(&text, name, sizeof name);
  text_put(&text, stream->name);
  if (lane) text_format(&text, " +%u", lane);
  hs_lock();
  me->number = hs_recorder.location_count++;
  me->file.fd = -1;
  me->in_use = 1;
  me->ended = 1;
  me->odd = ODD_PAUSED;
  if (!calltree_root(me)) {
    hs_unlock();
    return NULL;
  }
  definitions_format("{\"location\": %u, \"kind\": \"stream\", \"name\": \"%s\", \"device\": %d}", me->number, name,
                     stream->device);
  struct location **last = &hs_recorder.locations;
  while (*last) last = &(*last)->next_location;
  *last = me;
  hs_unlock();
  return me;
}

static struct lane *open_lane(struct stream *stream) {
  if (stream->lane_count >= MOST_LANES) return NULL;
  struct location *location = new_stream_location(stream, stream->lane_count);
  if (!location) return NULL;
  struct lane *lane = &stream->lanes[stream->lane_count++];
  lane->location = location;
  return lane;
}

static struct stream **slot_of(uint64_t key) {
  uint32_t slot = (uint32_t)((key * 0x9e3779b97f4a7c15ull) >> 32) % STREAM_SLOTS;
  while (streams[slot] && streams[slot]->key != key) slot = (slot + 1) % STREAM_SLOTS;
  return &streams[slot];
}

static void name_stream(struct stream *stream, uint32_t context, uint32_t number, int shared) {
  struct text text;
  text_open(&text, stream->name, sizeof stream->name);
  text_format(&text, "GPU %d", stream->device);
  if (context > 1) text_format(&text, " context %u", context);
  if (shared) text_put(&text, " further streams");
  else text_format(&text, " stream %u", number);
}

/* Streams' lock held. */
static struct stream *find_stream(int device, uint32_t context, uint32_t number, int make) {
  uint64_t key = (uint64_t)context << 32 | number;
  struct stream **slot = slot_of(key);
  if (*slot || !make) return *slot;
  int shared = stream_count >= MOST_STREAMS;
  if (shared) {
    key = UINT64_MAX - (uint32_t)(device & 0xff);
    context = 0;
    slot = slot_of(key);
    if (*slot) return *slot;
  }
  struct stream *stream = hs_keep(sizeof *stream);
  if (!stream) return NULL;
  stream->key = key;
  stream->device = device;
  name_stream(stream, context, number, shared);
  if (!open_lane(stream)) return NULL;
  *slot = stream;
  stream_count++;
  stream->next = first_stream;
  first_stream = stream;
  return stream;
}

static int recording(void) { return hs_recorder.state == ON && !closed && !hs_recorder.stopped; }

uint32_t hs_stream(int device, uint32_t context, uint32_t number, int make) {
  if (!recording()) return HS_NOBODY;
  pthread_mutex_lock(&streams_lock);
  struct stream *stream = recording() ? find_stream(device, context, number, make) : NULL;
  pthread_mutex_unlock(&streams_lock);
  return stream ? stream->lanes[0].location->number : HS_NOBODY;
}

/* --- call paths ----------------------------------------------------------------------------- */

/* Where the host was when it started work: a launch in a pause leaves none. */
void hs_launch(uint32_t stream, uint32_t correlation, int entered) {
  struct location *me = here();
  if (!me || me->busy || !hs_recorder.open) return;
  if (UNLIKELY(!__atomic_load_n(&launches, __ATOMIC_ACQUIRE))) {
    pthread_mutex_lock(&streams_lock);
    if (!launches) {
      uint64_t *fresh = hs_keep(LAUNCHES * sizeof *fresh);
      __atomic_store_n(&launches, fresh, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&streams_lock);
    if (!launches) return;
  }
  uint64_t launch = (uint64_t)correlation << 32 | me->current->number;
  __atomic_store_n(&launches[correlation % LAUNCHES], launch, __ATOMIC_RELAXED);
  if (entered) hs_event(HS_EVENT_LAUNCH, stream, correlation, 0, 0, 0);
}

/* Whether the process was recording at a tick. */
static int was_open(uint64_t tick) {
  hs_lock();
  uint64_t low = 0, high = hs_recorder.toggle_count;
  while (low < high) {
    uint64_t middle = (low + high) / 2;
    if ((hs_recorder.toggles[middle] & ~1ull) <= tick)
      low = middle + 1;
    else
      high = middle;
  }
  int open = low ? (int)(hs_recorder.toggles[low - 1] & 1) : hs_recorder.phase[0] == 0;
  hs_unlock();
  return open;
}

/* Node that the work lies below; HS_FILTERED where it is not to be recorded. */
static uint32_t parent_of(const struct hs_work *work, uint64_t begin) {
  uint64_t *known = __atomic_load_n(&launches, __ATOMIC_ACQUIRE);
  uint64_t launch =
      known ? __atomic_load_n(&known[work->correlation % LAUNCHES], __ATOMIC_RELAXED) : 0;
  if (work->correlation && launch >> 32 == work->correlation) return (uint32_t)launch;
  return was_open(begin) ? 0 : HS_FILTERED;
}

static int grow_paths(struct stream *stream) {
  uint32_t mask = stream->paths ? stream->path_mask * 2 + 1 : 63;
  struct path *larger = hs_keep((mask + 1ul) * sizeof *larger);
  if (!larger) return 0;
  for (uint32_t i = 0; stream->paths && i <= stream->path_mask; i++) {
    const struct path *old = &stream->paths[i];
    if (!old->node) continue;
    uint32_t slot = (old->parent * 0x9e3779b1u ^ old->region * 0x85ebca77u) & mask;
    while (larger[slot].node) slot = (slot + 1) & mask;
    larger[slot] = *old;
  }
  stream->paths = larger;
  stream->path_mask = mask;
  return 1;
}

/* The node of a kernel below the call that has started it. */
static struct node *node_of(struct stream *stream, uint32_t parent, uint32_t region) {
  if ((!stream->paths || stream->path_count * 2 > stream->path_mask) && !grow_paths(stream))
    return NULL;
  uint32_t slot = (parent * 0x9e3779b1u ^ region * 0x85ebca77u) & stream->path_mask;
  struct path *path;
  for (; (path = &stream->paths[slot])->node; slot = (slot + 1) & stream->path_mask)
    if (path->parent == parent && path->region == region) return path->node;
  struct location *me = stream->lanes[0].location;
  if (me->nodes >= MOST_NODES) return NULL;
  struct node *node = hs_keep(sizeof *node);
  if (!node) return NULL;
  node->number = definitions_node(parent, region, NULL);
  if (node->number == HS_FILTERED) return NULL;
  node->region = region;
  node->least = UINT64_MAX;
  me->newest->next = node;
  me->newest = node;
  me->nodes++;
  *path = (struct path){parent, region, node};
  stream->path_count++;
  return node;
}

/* --- the order of begin --------------------------------------------------------------------- */

static int comes_before(const struct held *a, const struct held *b) {
  return a->begin != b->begin ? a->begin < b->begin
         : a->end != b->end   ? a->end < b->end
                              : a->turn < b->turn;
}

static int grow_heap(struct stream *stream) {
  uint32_t room = stream->room ? 2 * stream->room : FIRST_HELD;
  struct held *larger = hs_keep(room * sizeof *larger);
  if (!larger) return 0;
  if (stream->count) memcpy(larger, stream->heap, stream->count * sizeof *larger);
  stream->heap = larger;
  stream->room = room;
  return 1;
}

static void push(struct stream *stream, const struct held *work) {
  struct held *heap = stream->heap;
  uint32_t at = stream->count++;
  for (uint32_t above; at && comes_before(work, &heap[above = (at - 1) / 2]); at = above)
    heap[at] = heap[above];
  heap[at] = *work;
}

static struct held pop(struct stream *stream) {
  struct held *heap = stream->heap, first = heap[0], last = heap[--stream->count];
  uint32_t at = 0;
  for (uint32_t child; (child = 2 * at + 1) < stream->count; at = child) {
    if (child + 1 < stream->count && comes_before(&heap[child + 1], &heap[child])) child++;
    if (!comes_before(&heap[child], &last)) break;
    heap[at] = heap[child];
  }
  if (stream->count) heap[at] = last;
  return first;
}

/* --- events --------------------------------------------------------------------------------- */

/* The first location of the stream that is done with what it did before. */
static struct lane *lane_for(struct stream *stream, uint64_t begin) {
  uint64_t close = (uint64_t)(NEGLIGIBLE * ticks_a_nanosecond >> FRACTION);
  for (uint32_t i = 0; i < stream->lane_count; i++)
    if (stream->lanes[i].end <= begin + close) return &stream->lanes[i];
  return open_lane(stream);
}

static int can_write(struct location *me) {
  if (!me->base && me->file.fd < 0) {
    hs_lock();
    buffer_open(me);
    hs_unlock();
  }
  if (me->base && me->next >= me->limit) buffer_roll(me);
  return me->base && !hs_recorder.stopped;
}

static void write_work(struct stream *stream, struct held *work) {
  struct node *node = node_of(stream, work->parent, work->region);
  struct lane *lane = node ? lane_for(stream, work->begin) : NULL;
  if (!lane || !can_write(lane->location)) {
    stream->left_out++;
    return;
  }
  struct location *me = lane->location;
  if (work->begin < me->last) work->begin = me->last;
  if (work->end < work->begin) work->end = work->begin;
  put_event(me, work->begin, HS_EVENT_ENTER, node->number);
  if (work->correlation) put_event(me, work->begin, HS_EVENT_EXECUTE, work->correlation);
  if (work->direction) put_words(me, work->begin, HS_EVENT_COPY, work->direction, &work->bytes, 1);
  put_event(me, work->end, HS_EVENT_LEAVE, node->number);
  lane->end = work->end;
}

static void count_work(struct stream *stream, const struct held *work) {
  struct node *node = node_of(stream, work->parent, work->region);
  uint64_t taken = work->end > work->begin ? work->end - work->begin : 0;
  if (!node) {
    stream->left_out++;
    return;
  }
  node_visited(node, taken);
  if (!work->direction) return;
  if (!node->messages) node->messages = hs_keep(sizeof *node->messages);
  if (!node->messages) return;
  node->messages->accesses++;
  node->messages->accessed_bytes += work->bytes;
}

void hs_stream_work(const struct hs_work *work) {
  if (!recording() || work->region == HS_FILTERED) return;
  struct held held = {.begin = tick_of(work->begin),
                      .end = tick_of(work->end),
                      .bytes = work->bytes,
                      .region = work->region,
                      .correlation = work->correlation,
                      .direction = work->direction};
  held.parent = parent_of(work, held.begin);
  if (held.parent == HS_FILTERED) return;
  pthread_mutex_lock(&streams_lock);
  struct stream *stream =
      recording() ? find_stream(work->device, work->context, work->stream, 1) : NULL;
  if (stream && hs_recorder.mode == MODE_PROFILE) {
    count_work(stream, &held);
  } else if (stream) {
    held.turn = turns++;
    if (stream->count == stream->room && (stream->room >= MOST_HELD || !grow_heap(stream))) {
      if (stream->count) {
        struct held oldest = pop(stream);
        write_work(stream, &oldest);
      }
    }
    if (stream->room)
      push(stream, &held);
    else
      stream->left_out++;
  }
  pthread_mutex_unlock(&streams_lock);
}

/* Streams' lock held: write the work that ended before a tick. */
static void write_until(uint64_t tick) {
  for (struct stream *stream = first_stream; stream; stream = stream->next)
    while (stream->count && stream->heap[0].end < tick) {
      struct held oldest = pop(stream);
      write_work(stream, &oldest);
    }
}

void hs_streams_settle(void) {
  if (!recording()) return;
  uint64_t tick = now(), hold = (uint64_t)(HOLD * (__int128)NANOSECONDS * ticks_a_nanosecond >> FRACTION);
  pthread_mutex_lock(&streams_lock);
  if (recording() && tick > hold) write_until(tick - hold);
  pthread_mutex_unlock(&streams_lock);
}

/* --- definitions and the end ---------------------------------------------------------------- */

uint32_t hs_device_region(const char *name, const char *paradigm, const char *role) {
  return recording() ? definitions_region(name, NULL, paradigm, role, "", 0) : HS_FILTERED;
}

void hs_device_note(const char *line) {
  size_t length = strlen(line);
  if (hs_recorder.state != ON) return;
  hs_lock();
  definitions_line(line, length);
  definitions_line("\n", 1);
  hs_unlock();
}

void hs_at_finish(void (*finish)(void)) { __atomic_store_n(&finish_tracer, finish, __ATOMIC_RELEASE); }

static void record_left_out(uint64_t count) {
  if (!count || hs_recorder.state != ON) return;
  hs_lock();
  definitions_format("{\"lost\": \"%lu kernels and copies of GPUs: the buffer was full\"}", count);
  hs_unlock();
}

/* Called before the files of the locations are closed; afterwards nothing is taken any more. */
void streams_finish(void) {
  uint64_t left_out = 0;
  void (*finish)(void) = __atomic_exchange_n(&finish_tracer, NULL, __ATOMIC_ACQ_REL);
  if (finish) finish();
  pthread_mutex_lock(&streams_lock);
  write_until(UINT64_MAX);
  closed = 1;
  for (struct stream *stream = first_stream; stream; stream = stream->next)
    left_out += stream->left_out;
  pthread_mutex_unlock(&streams_lock);
  if (!hs_recorder.stopped) record_left_out(left_out);
}
