// Events of a stretch of a location's words as arrays, for all that is written in Python.
#include "decoder.h"

enum End : int64_t { ALL_WORDS = 0, ZERO_WORD = 1, BROKEN = 2 };

// Arrays have an element for each word. `position`: in, the tick before the first event; out, words
// that were consumed, the tick there, and why the decoder stopped.
extern "C" int64_t decode_events(const uint64_t *words, int64_t count, int64_t epoch, int64_t *position,
                                 int64_t *ticks, int64_t *kinds, int64_t *payloads, int64_t *starts) {
  LocationInput in{};
  in.words = words;
  in.count = count;
  in.epoch = epoch;
  Decoder d;
  d.open_at(in, 0, (int64_t)((uint64_t)position[1] - (uint64_t)epoch));
  int64_t events = 0;
  for (; d.next(); events++) {
    ticks[events] = d.now;
    kinds[events] = d.kind;
    payloads[events] = d.payload;
    starts[events] = d.start;
  }
  position[0] = d.place;
  position[1] = (int64_t)((uint64_t)epoch + (uint64_t)d.ticks);
  position[2] = d.broken ? BROKEN : d.place < count ? ZERO_WORD : ALL_WORDS;
  return events;
}
