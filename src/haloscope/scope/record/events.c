/* Events: entering and leaving regions, messages, pauses. This is the path that must be fast. */
#include "location.h"

#include <string.h>

static const uint8_t further_words[HS_EVENT_KINDS] = HS_WORDS_OF_KINDS;

/* A full disk ends the recording: then the location is paused, and nothing may be put. */
static inline void make_room(struct location *me) {
  if (UNLIKELY(me->next >= me->limit) && me->base) buffer_roll(me);
}

static int has_room(struct location *me) {
  make_room(me);
  return !(me->odd & ODD_PAUSED);
}

/* --- what is not recorded but has its place in an order: messages and collectives ---
 *
 * The n-th send of a channel belongs to the n-th receive, whether these were recorded or not: in a
 * pause, or where the user's filter names the call, the numbers go on here. They are written as
 * HS_EVENT_SKIPPED when the pause is over, or before the next event of the same channel. */

enum { FEWEST = 16, MOST_SKIPS = 1 << 20 };

static uint32_t skip_place(uint32_t peer, uint64_t channel, uint64_t flag) {
  uint64_t hash = (channel ^ flag) * 0x9e3779b97f4a7c15ull;
  hash = (hash ^ hash >> 29 ^ peer) * 0xd1342543de82ef95ull;
  return (uint32_t)(hash >> 32);
}

static struct skipped *find_skip(const struct location *me, uint32_t peer, uint64_t channel,
                            uint64_t flag) {
  uint32_t at = skip_place(peer, channel, flag) & me->skip_mask;
  struct skipped *one = &me->skips[at];
  while (one->count && (one->peer != peer || one->channel != channel || one->flag != flag)) {
    at = (at + 1) & me->skip_mask;
    one = &me->skips[at];
  }
  return one;
}

static int more_skips(struct location *me) {
  const struct location before = *me;
  const uint32_t room = me->skips ? 2 * (me->skip_mask + 1) : FEWEST;
  if (room > MOST_SKIPS) return 0;
  struct skipped *larger = hs_keep(room * sizeof *larger);
  if (!larger) return 0;
  me->skips = larger;
  me->skip_mask = room - 1;
  for (uint32_t i = 0; before.skips && i <= before.skip_mask; i++) {
    const struct skipped *one = &before.skips[i];
    if (one->count) *find_skip(me, one->peer, one->channel, one->flag) = *one;
  }
  return 1;
}

static void skips_add(struct location *me, uint32_t peer, uint64_t channel, uint64_t flag) {
  if (!tracing(me)) return;
  if ((!me->skips || 2 * me->skip_count > me->skip_mask) && !more_skips(me)) return;
  struct skipped *one = find_skip(me, peer, channel, flag);
  if (one->count == 0) {
    *one = (struct skipped){channel, flag, 0, peer};
    me->skip_count++;
    me->skipped++;
  }
  one->count++;
  me->skip_messages++;
}

static int skips_holds(const struct location *me, uint32_t peer, uint64_t channel, uint64_t flag) {
  return me->skip_count && find_skip(me, peer, channel, flag)->count != 0;
}

static void defer(struct location *me, uint32_t kind, uint32_t payload, const uint64_t *words) {
  if (me->deferred_count == me->deferred_room) {
    const uint32_t room = me->deferred_room ? 2 * me->deferred_room : FEWEST;
    struct deferred *larger = room <= MOST_SKIPS ? hs_keep(room * sizeof *larger) : NULL;
    if (!larger) return;
    if (me->deferred) memcpy(larger, me->deferred, me->deferred_count * sizeof *larger);
    me->deferred = larger;
    me->deferred_room = room;
  }
  struct deferred *one = &me->deferred[me->deferred_count++];
  *one = (struct deferred){kind, payload, {words[0], words[1], words[2]}};
  me->skipped++;
}

/* An event that cannot be recorded now. */
static void skips_take(struct location *me, uint32_t kind, uint32_t payload, const uint64_t *words) {
  if (!tracing(me)) return;
  const uint64_t channel = words[0];
  switch (kind) {
    case HS_EVENT_SEND:
    case HS_EVENT_ISEND:
      skips_add(me, payload, channel, HS_SKIPPED_SENT);
      break;
    case HS_EVENT_RECV:
      skips_add(me, payload, channel, HS_SKIPPED_RECEIVED);
      break;
    case HS_EVENT_COLLECTIVE:
    case HS_EVENT_ICOLLECTIVE:
      skips_add(me, HS_NOBODY, payload, 0);
      break;
    case HS_EVENT_IRECV_DONE: /* its post was recorded */
      defer(me, HS_EVENT_SKIPPED, payload, (uint64_t[]){channel, 1 | HS_SKIPPED_RECEIVED, words[2]});
      break;
    case HS_EVENT_ISEND_DONE:
    case HS_EVENT_ICOLLECTIVE_DONE:
      defer(me, HS_EVENT_SKIPPED, HS_NOBODY, (uint64_t[]){0, 0, payload});
      break;
    case HS_EVENT_POST:
    case HS_EVENT_START:
      defer(me, HS_EVENT_SKIPPED, payload, (uint64_t[]){words[0], kind | HS_SKIPPED_EPOCH, HS_NOBODY});
      break;
    case HS_EVENT_COMPLETE:
    case HS_EVENT_WAIT:
      defer(me, HS_EVENT_SKIPPED, payload, (uint64_t[]){0, kind | HS_SKIPPED_EPOCH, HS_NOBODY});
      break;
    case HS_EVENT_CANCELLED:
    case HS_EVENT_SKIPPED:
      defer(me, kind, payload, words);
      break;
    default:
      break;
  }
}

/* Records the messages and operations skipped so far, which come before the next event. */
static void record_skipped(struct location *me) {
  for (uint32_t i = 0; me->skips && i <= me->skip_mask; i++) {
    struct skipped *one = &me->skips[i];
    if (one->count == 0) continue;
    if (!has_room(me)) return;
    put_words(me, me->last, HS_EVENT_SKIPPED, one->peer,
              (uint64_t[]){one->channel, (one->count & HS_SKIPPED_COUNT) | one->flag, HS_NOBODY}, 3);
    one->count = 0;
  }
  for (uint32_t i = 0; i < me->deferred_count; i++) {
    const struct deferred *one = &me->deferred[i];
    if (!has_room(me)) return;
    put_words(me, me->last, one->kind, one->payload, one->words, further_words[one->kind]);
  }
  me->skipped = me->skip_count = me->deferred_count = 0;
  me->skip_messages = 0;
}

/* Whether the skipped events must be recorded before this event. Otherwise they are recorded
 * rarely. */
static int comes_after_skipped(const struct location *me, uint32_t kind, uint32_t payload,
                               uint64_t channel) {
  enum { MOST_MESSAGES = 256 };
  if (me->skip_messages >= MOST_MESSAGES || me->deferred_count) return 1;
  switch (kind) {
    case HS_EVENT_SEND:
    case HS_EVENT_ISEND:
      return skips_holds(me, payload, channel, HS_SKIPPED_SENT);
    case HS_EVENT_RECV:
      return skips_holds(me, payload, channel, HS_SKIPPED_RECEIVED);
    case HS_EVENT_COLLECTIVE:
    case HS_EVENT_ICOLLECTIVE:
      return skips_holds(me, HS_NOBODY, payload, 0);
    case HS_EVENT_IRECV:
    case HS_EVENT_SKIPPED:
      return 1;
    default:
      return 0;
  }
}

/* --- one visit, recorded ----------------------------------------------------------------- */

static inline void note_enter(struct location *me, struct node *node, uint64_t tick) {
  if (tracing(me))
    put_event(me, tick, HS_EVENT_ENTER, node->number);
  else
    node->entered = tick - me->away;
}

static inline void begin_visit(struct location *me, struct node *node, uint64_t tick) {
  node->outer = me->current;
  me->current = node;
  note_enter(me, node, tick);
}

static inline void count_visit(struct location *me, struct node *node, uint64_t tick) {
  uint64_t taken = tick - me->away - node->entered;
  if (UNLIKELY((int64_t)taken < 0)) taken = 0;
  node_visited(node, taken);
  if (node->outer) node->outer->inner += taken;
}

static inline void end_visit(struct location *me, struct node *node, uint64_t tick) {
  if (tracing(me))
    put_event(me, tick, HS_EVENT_LEAVE, node->number);
  else
    count_visit(me, node, tick);
  me->current = node->outer;
}

static inline uint64_t stamp(struct location *me) {
  uint64_t tick = me->stamped ? me->last : now();
  me->stamped = 0;
  return tick;
}

/* Without those of the nodes within. */
static void count(struct node *node, uint32_t counter, uint64_t counted) {
  node->counters[counter] += counted;
  if (node->outer) node->outer->counters[counter] -= counted;
}

static void put_counters(struct location *me, struct node *node, int entering) {
  uint64_t values[MOST_COUNTERS];
  if (!counters_read(me, values)) return;
  for (uint32_t i = 0; i < hs_recorder.counters; i++) {
    if (tracing(me))
      put_words(me, me->last, HS_EVENT_COUNTER, i, &values[i], 1);
    else if (entering)
      node->counters[hs_recorder.counters + i] = values[i];
    else
      count(node, i, values[i] - node->counters[hs_recorder.counters + i]);
  }
}

/* --- the slow ways ----------------------------------------------------------------------- */

static void shadow_enter(struct location *me, uint32_t region, const void *site,
                         const char *frame) {
  if (!me->shadow) me->shadow = hs_keep(MOST_DEPTH * sizeof *me->shadow);
  if (!me->shadow || me->shadow_depth >= MOST_DEPTH) return;
  me->shadow[me->shadow_depth++] = (struct paused_call){region, site, frame};
}

/* What was entered before the pause is left without a trace of it until the resume. */
static void shadow_leave(struct location *me, uint32_t region) {
  for (uint32_t i = me->shadow_depth; i > 0; i--)
    if (me->shadow[i - 1].region == region) {
      me->depth -= me->shadow_depth - (i - 1);
      me->shadow_depth = i - 1;
      return;
    }
  for (struct node *node = me->current; node && node->parent; node = node->outer)
    if (node->region == region) {
      me->depth = node->depth - 1 + me->shadow_depth;
      me->current = node->outer;
      return;
    }
}

static void enter_here(struct location *me, uint32_t region, const void *site, const char *frame) {
  struct node *node = calltree_find(me, me->current, region, site);
  if (!node) {
    me->beyond++;
    me->left_out++;
    me->odd |= ODD_DEEP;
    return;
  }
  location_enter_node(me, node, frame);
}

static void enter_oddly(struct location *me, uint32_t region, const void *site,
                        const char *frame) {
  if (me->beyond || me->depth >= MOST_DEPTH) {
    me->beyond++;
    me->left_out++;
    me->odd |= ODD_DEEP;
    return;
  }
  if ((me->odd & ODD_PHASE) && region == hs_recorder.phase_region && me->phase_depth == 0) {
    hs_lock();
    uint64_t visit = ++hs_recorder.phase_visits;
    hs_unlock();
    if (hs_recorder.phase_visit == 0 || visit == hs_recorder.phase_visit) {
      me->phase_depth = me->depth + 1;
      hs_phase_changes(me, 1);
    }
  }
  if (me->odd & ODD_PAUSED) {
    shadow_enter(me, region, site, frame);
    me->depth++;
    return;
  }
  enter_here(me, region, site, frame);
}

static void leave_down_to(struct location *me, uint32_t region) {
  struct node *node = me->current;
  while (node && node->region != region) node = node->outer;
  if (!node || !node->parent) return; /* was never entered */
  uint64_t tick = stamp(me);
  location_leave_to(me, node->outer, tick);
}

static void leave_oddly(struct location *me, uint32_t region) {
  if (me->beyond) {
    if (--me->beyond == 0) me->odd &= ~(uint32_t)ODD_DEEP;
    return;
  }
  if (me->odd & ODD_PAUSED)
    shadow_leave(me, region);
  else
    leave_down_to(me, region);
  if (me->phase_depth && me->depth < me->phase_depth) {
    me->phase_depth = 0;
    hs_phase_changes(me, 0);
  }
}

/* --- entering and leaving ---------------------------------------------------------------- */

void location_enter_node(struct location *me, struct node *node, const char *frame) {
  node->frame = frame;
  node->depth = ++me->depth;
  if (UNLIKELY(me->depth >= MOST_DEPTH)) me->odd |= ODD_DEEP;
  me->stamped = 0;
  begin_visit(me, node, now());
  if (UNLIKELY(me->odd & ODD_COUNTERS)) put_counters(me, node, 1);
}

static inline void enter(struct location *me, uint32_t region, const void *site,
                         const char *frame) {
  if (UNLIKELY(me->turn != hs_recorder.turn) && !hs_take_turn(me)) return;
  make_room(me);
  if (UNLIKELY(me->odd)) {
    enter_oddly(me, region, site, frame);
    return;
  }
  struct node *parent = me->current;
  struct node *node = parent->last;
  if (UNLIKELY(!node || node->region != region || node->site != site || node->parent != parent)) {
    node = calltree_find(me, parent, region, site);
    if (UNLIKELY(!node)) {
      enter_here(me, region, site, frame);
      return;
    }
    parent->last = node;
  }
  node->frame = frame;
  node->depth = ++me->depth;
  if (UNLIKELY(me->depth >= MOST_DEPTH)) me->odd |= ODD_DEEP;
  me->stamped = 0;
  begin_visit(me, node, now());
}

int location_ready(struct location *me) {
  if (UNLIKELY(me->turn != hs_recorder.turn) && !hs_take_turn(me)) return 0;
  make_room(me);
  return 1;
}

/* Where callers are wanted, the node of the one that calls is found on the stack. */
void location_enter_unwound(struct location *me, uint32_t region, const void *site,
                            const char *stack) {
  if (!location_ready(me)) return;
  if (UNLIKELY(me->odd & (ODD_PAUSED | ODD_DEEP))) {
    enter_oddly(me, region, site, NULL);
    return;
  }
  struct node *parent = hs_recorder.unwind ? unwind_callers(me, site, stack) : me->current;
  struct node *node = parent->last;
  if (UNLIKELY(!node || node->region != region || node->site != site || node->parent != parent))
    node = calltree_find(me, parent, region, site);
  if (UNLIKELY(!node)) {
    enter_here(me, region, site, NULL);
    return;
  }
  parent->last = node;
  location_enter_node(me, node, NULL);
}

static inline void leave(struct location *me, uint32_t region) {
  if (UNLIKELY(me->turn != hs_recorder.turn) && !hs_take_turn(me)) return;
  make_room(me);
  struct node *node = me->current;
  if (UNLIKELY(me->odd || node->region != region || !node->parent)) {
    leave_oddly(me, region);
    return;
  }
  end_visit(me, node, stamp(me));
  me->depth--;
}

void location_enter(struct location *me, uint32_t region, const void *site, const char *frame) {
  enter(me, region, site, frame);
}

void location_leave(struct location *me, uint32_t region) { leave(me, region); }

void hs_enter(uint32_t region, const void *site) {
  struct location *me = here();
  if (UNLIKELY(region == HS_FILTERED) || !location_take(me)) return;
  enter(me, region, site, NULL);
  location_give(me);
}

void hs_enter_unwound(uint32_t region, const void *site) {
  struct location *me = here();
  if (UNLIKELY(region == HS_FILTERED) || !location_take(me)) return;
  if (hs_recorder.unwind)
    location_enter_unwound(me, region, site, __builtin_dwarf_cfa());
  else
    enter(me, region, site, NULL);
  location_give(me);
}

void hs_leave(uint32_t region) {
  struct location *me = here();
  if (UNLIKELY(region == HS_FILTERED) || !location_take(me)) return;
  leave(me, region);
  location_give(me);
}

/* --- events within regions ---------------------------------------------------------------- */

static int takes_time_of_enter(uint32_t kind) {
  return kind == HS_EVENT_SEND || kind == HS_EVENT_ISEND || kind == HS_EVENT_IRECV ||
         kind == HS_EVENT_PUT || kind == HS_EVENT_GET || kind == HS_EVENT_POST ||
         kind == HS_EVENT_START || kind == HS_EVENT_LAUNCH || kind == HS_EVENT_SKIPPED;
}

int hs_event(uint32_t kind, uint32_t payload, uint64_t first, uint64_t second, uint64_t third,
             uint64_t fourth) {
  struct location *me = here();
  if (kind <= HS_EVENT_LEAVE || kind >= HS_EVENT_KINDS || !location_take(me)) return 0;
  int on = LIKELY(me->turn == hs_recorder.turn) || hs_take_turn(me);
  uint64_t words[4] = {first, second, third, fourth};
  const int recorded = on && has_room(me);
  if (LIKELY(recorded)) {
    if (UNLIKELY(me->skipped) && comes_after_skipped(me, kind, payload, first)) record_skipped(me);
    uint64_t tick = me->last;
    if (!takes_time_of_enter(kind)) {
      if (!me->stamped) tick = now();
      me->stamped = 1;
    }
    if (tracing(me)) {
      put_words(me, tick, kind, payload, words, further_words[kind]);
    } else {
      me->last = tick;
      profile_message(me, kind, payload, words);
    }
  } else if (on) {
    skips_take(me, kind, payload, words);
  }
  location_give(me);
  return recorded;
}

void hs_skip(uint32_t peer, uint64_t channel, uint64_t flag) {
  struct location *me = here();
  if (!location_take(me)) return;
  if (LIKELY(me->turn == hs_recorder.turn) || hs_take_turn(me)) skips_add(me, peer, channel, flag);
  location_give(me);
}

/* A region that is over already, such as a flush. */
void location_region(struct location *me, uint32_t region, uint64_t begin, uint64_t end) {
  struct node *node = region == HS_FILTERED || (me->odd & ODD_PAUSED)
                          ? NULL
                          : calltree_find(me, me->current, region, NULL);
  if (!node || !tracing(me)) return;
  put_event(me, begin, HS_EVENT_ENTER, node->number);
  put_event(me, end, HS_EVENT_LEAVE, node->number);
}

/* --- begin, end, pauses ------------------------------------------------------------------- */

void location_begin(struct location *me, uint64_t tick) {
  me->stamped = 0;
  me->depth = me->beyond = me->phase_depth = me->shadow_depth = 0;
  me->odd = (hs_recorder.phase[0] ? ODD_PHASE : 0) | (hs_recorder.counters ? ODD_COUNTERS : 0);
  me->current = me->root;
  note_enter(me, me->root, tick);
}

/* What is open within a node ends, at a tick that may have passed already. */
void location_leave_to(struct location *me, const struct node *outer, uint64_t tick) {
  me->stamped = 0;
  while (me->current && me->current != outer) {
    struct node *node = me->current;
    if (!has_room(me)) return;
    end_visit(me, node, tick);
    if (me->odd & ODD_COUNTERS) put_counters(me, node, 0);
    if (me->depth) me->depth--;
  }
}

/* Everything that is open ends here, the thread's whole time included. */
void location_close_calls(struct location *me, uint64_t tick) {
  if (me->odd & ODD_PAUSED) {
    /* Calls entered in the pause were never recorded, and are not recorded now. */
    me->depth -= me->shadow_depth;
    me->shadow_depth = 0;
    location_resume(me, tick);
  }
  if (me->skipped && !(me->odd & ODD_PAUSED)) record_skipped(me);
  if (!(me->odd & ODD_PAUSED)) location_leave_to(me, NULL, tick);
}

/* The same for a profile that a signal ends, with nothing but numbers changed. */
void location_count_open(struct location *me, uint64_t tick) {
  if (me->odd & ODD_PAUSED) tick = me->paused_since;
  for (struct node *node = me->current; node; node = node->outer)
    count_visit(me, node, tick);
  me->current = NULL;
}

void location_pause(struct location *me, uint64_t tick) {
  if (me->odd & ODD_PAUSED) return;
  if ((int64_t)(tick - me->last) < 0) tick = me->last;
  if (tracing(me)) put_event(me, tick, HS_EVENT_PAUSE, 0);
  me->odd |= ODD_PAUSED;
  me->stamped = 0;
  me->paused_at = me->current;
  me->paused_since = tick;
  me->shadow_depth = 0;
  if (me->odd & ODD_COUNTERS) counters_pause(me);
}

/* What was left meanwhile is left now, and what was entered and is still open is entered now:
 * between the pause and the resume there is nothing. */
void location_resume(struct location *me, uint64_t tick) {
  if (!(me->odd & ODD_PAUSED)) return;
  if ((int64_t)(tick - me->paused_since) < 0) tick = me->paused_since;
  struct node *open = me->current;
  uint32_t entered = me->shadow_depth;
  me->odd &= ~(uint32_t)ODD_PAUSED;
  me->away += tick - me->paused_since;
  if (tracing(me)) put_event(me, tick, HS_EVENT_RESUME, 0);
  if (me->skipped) record_skipped(me);
  if (me->odd & ODD_COUNTERS) counters_resume(me);
  me->depth -= entered;
  me->shadow_depth = 0;
  for (struct node *node = me->paused_at; node != open && has_room(me); node = node->outer) {
    end_visit(me, node, tick);
    if (me->odd & ODD_COUNTERS) put_counters(me, node, 0);
  }
  me->current = open;
  for (uint32_t i = 0; i < entered; i++) {
    struct paused_call *call = &me->shadow[i];
    struct node *node = calltree_find(me, me->current, call->region, call->site);
    if (!node) {
      me->beyond += entered - i;
      me->left_out += entered - i;
      me->odd |= ODD_DEEP;
      return;
    }
    if (!has_room(me)) return;
    node->frame = call->frame;
    node->depth = ++me->depth;
    begin_visit(me, node, tick);
    if (me->odd & ODD_COUNTERS) put_counters(me, node, 1);
  }
}
