/* Counts what is not recorded but has its place in an order: messages and collectives.
 *
 * The n-th send of a channel belongs to the n-th receive, whether these were recorded or not: in a
 * pause, or where the user's filter names the call, the numbers go on here. They are written as
 * HS_EVENT_SKIPPED when the pause is over, or before the next event of the same channel.
 */
#include "location.h"

#include <string.h>

enum { FEWEST = 16, MOST = 1 << 20 };

static uint32_t place_of(uint32_t peer, uint64_t channel, uint64_t flag) {
  uint64_t hash = (channel ^ flag) * 0x9e3779b97f4a7c15ull;
  hash = (hash ^ hash >> 29 ^ peer) * 0xd1342543de82ef95ull;
  return (uint32_t)(hash >> 32);
}

static struct skipped *find(const struct location *me, uint32_t peer, uint64_t channel,
                            uint64_t flag) {
  uint32_t at = place_of(peer, channel, flag) & me->skip_mask;
  struct skipped *one = &me->skips[at];
  while (one->count && (one->peer != peer || one->channel != channel || one->flag != flag)) {
    at = (at + 1) & me->skip_mask;
    one = &me->skips[at];
  }
  return one;
}

static int more_room(struct location *me) {
  const struct location before = *me;
  const uint32_t room = me->skips ? 2 * (me->skip_mask + 1) : FEWEST;
  if (room > MOST) return 0;
  struct skipped *larger = hs_keep(room * sizeof *larger);
  if (!larger) return 0;
  me->skips = larger;
  me->skip_mask = room - 1;
  for (uint32_t i = 0; before.skips && i <= before.skip_mask; i++) {
    const struct skipped *one = &before.skips[i];
    if (one->count) *find(me, one->peer, one->channel, one->flag) = *one;
  }
  return 1;
}

void skips_add(struct location *me, uint32_t peer, uint64_t channel, uint64_t flag) {
  if (!tracing(me)) return;
  if ((!me->skips || 2 * me->skip_count > me->skip_mask) && !more_room(me)) return;
  struct skipped *one = find(me, peer, channel, flag);
  if (one->count == 0) {
    *one = (struct skipped){channel, flag, 0, peer};
    me->skip_count++;
    me->skipped++;
  }
  one->count++;
  me->skip_messages++;
}

int skips_holds(const struct location *me, uint32_t peer, uint64_t channel, uint64_t flag) {
  return me->skip_count && find(me, peer, channel, flag)->count != 0;
}

static void defer(struct location *me, uint32_t kind, uint32_t payload, const uint64_t *words) {
  if (me->deferred_count == me->deferred_room) {
    const uint32_t room = me->deferred_room ? 2 * me->deferred_room : FEWEST;
    struct deferred *larger = room <= MOST ? hs_keep(room * sizeof *larger) : NULL;
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
void skips_take(struct location *me, uint32_t kind, uint32_t payload, const uint64_t *words) {
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
