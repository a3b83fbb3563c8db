// Goes through the words of one location: time, kind and payload of one event after the other.
// Nothing in a file is trusted: an event that does not fit ends the location, marked as broken.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

#include "events.h"

extern "C" {

struct Knot {  // of a correction of clocks: from `tick` on, `shift` ticks are added, growing or
  int64_t tick;  // shrinking linearly to the next knot
  int64_t shift;
};

// Words of a location in memory, its clock, and the run's numbers for those of its rank.
struct LocationInput {
  const uint64_t *words;  // the stream, header left out
  int64_t count;          // words
  int64_t epoch;          // ticks
  double rate, zero;      // seconds on the run's clock = ticks * rate + zero
  int32_t rank;
  int32_t is_stream;      // of a GPU
  const int32_t *nodes;   // the run's node by the rank's own, -1 for none
  int64_t node_count;
  const int32_t *comms;   // the run's communicator by the rank's own
  const int32_t *places;  // this rank's number in that communicator, -1 where it is no member
  int64_t comm_count;
  const int32_t *windows;  // the run's communicator by the rank's own window
  const int32_t *window_numbers;  // the run's window by the rank's own
  int64_t window_count;
  const int32_t *group_starts;  // members of the rank's own groups: group_members[starts[g]] ...
  const int32_t *group_members;
  int64_t group_count;
  const Knot *knots;
  int64_t knot_count;
};
}

// Further words by kind: of kinds that do not exist more than any file has.
struct FurtherWords {
  int32_t of_kind[HS_EVENT_KINDS] = HS_WORDS_OF_KINDS;
  constexpr FurtherWords() {
    of_kind[HS_EVENT_END] = INT32_MAX;
    for (int kind = HS_EVENT_SKIPPED + 1; kind < HS_EVENT_LAUNCH; kind++) of_kind[kind] = INT32_MAX;
  }
  constexpr int64_t operator[](int kind) const { return of_kind[kind]; }
};
constexpr FurtherWords kFurther;

// More messages or collectives than any program skips; nobody counts further.
constexpr int64_t kMostSkipped = int64_t(1) << 40, kMostInstances = int64_t(1) << 60;

// Words of a location that stay in this process' memory once they have been read: all, but in a
// large trace only the last ones (1 GiB of all locations, within bounds).
inline int64_t words_kept(int64_t words, int64_t locations) {
  constexpr int64_t kLarge = 1 << 27, kLeast = 1 << 15, kMost = 1 << 19;
  if (words <= kLarge) return INT64_MAX;
  return std::clamp(kLarge / std::max<int64_t>(1, locations), kLeast, kMost);
}

struct Decoder {
  const LocationInput *in = nullptr;
  int64_t place = 0;   // of the next word
  int64_t ticks = 0;   // uncorrected time of the last event, since the epoch
  int64_t knot = 0;    // the last one at or before `ticks`
  bool broken = false;
  int64_t released_words = 0;  // words whose pages have been released

  // The current event, after next():
  int kind = HS_EVENT_END;
  uint32_t payload = 0;
  const uint64_t *words = nullptr;  // its further words
  int64_t start = 0;                // place of its first word
  int64_t now = 0;                  // corrected ticks, the epoch included

  void open(const LocationInput &location) {
    *this = Decoder();
    in = &location;
  }

  // Go on from an event that was seen before.
  void open_at(const LocationInput &location, int64_t at, int64_t ticks_before) {
    open(location);
    place = at;
    ticks = ticks_before;
  }

  // False at the end of the location.
  inline bool next() {
    const int64_t count = in->count;
    const uint64_t *stream = in->words;
    for (;;) {
      if (place >= count) return false;
      const uint64_t first = stream[place];
      if (__builtin_expect((first & 63) == HS_EVENT_TIME, 0)) {
        const int64_t absolute = (int64_t)(first >> 6);
        if (absolute < ticks) { broken = true; return false; }
        ticks = absolute;
        place++;
        continue;
      }
      if (first == 0) return false;
      kind = (int)(first & 63);
      if (kind >= HS_EVENT_KINDS || place + 1 + kFurther[kind] > count) {
        broken = true;
        return false;
      }
      ticks += (int64_t)((first >> 6) & HS_MOST_DELTA);
      payload = (uint32_t)(first >> 32);
      start = place;
      words = stream + place + 1;
      place += 1 + kFurther[kind];
      now = (int64_t)((uint64_t)in->epoch + (uint64_t)ticks);  // an epoch may be any number
      if (__builtin_expect(in->knot_count > 0, 0)) now += shift();
      return true;
    }
  }

  int64_t shift() {
    const Knot *knots = in->knots;
    const int64_t at = in->epoch + ticks;
    while (knot + 1 < in->knot_count && knots[knot + 1].tick <= at) knot++;
    if (at <= knots[knot].tick || knot + 1 >= in->knot_count) return knots[knot].shift;
    const double part = double(at - knots[knot].tick) / double(knots[knot + 1].tick - knots[knot].tick);
    return knots[knot].shift + (int64_t)(part * double(knots[knot + 1].shift - knots[knot].shift));
  }

  // Pages that have been read stay with the system, not with this process: they are of a file.
  void give_back(int64_t kept) {
    if (place - released_words < kept) return;
    const uintptr_t page = 4096;
    const uintptr_t from = ((uintptr_t)(in->words + released_words) + page - 1) / page * page;
    const uintptr_t to = (uintptr_t)(in->words + place) / page * page;
    if (to > from) madvise((void *)from, to - from, MADV_DONTNEED);
    released_words = place;
  }

  double seconds(int64_t corrected) const { return double(corrected) * in->rate + in->zero; }
  double seconds() const { return seconds(now); }

  // The run's numbers for the rank's own; -1 where the file names what was never defined.
  int32_t node(uint32_t own) const { return own < (uint64_t)in->node_count ? in->nodes[own] : -1; }
  int32_t comm(uint32_t own) const { return own < (uint64_t)in->comm_count ? in->comms[own] : -1; }
  int32_t place_in(uint32_t own) const {
    return own < (uint64_t)in->comm_count ? in->places[own] : -1;
  }
  int32_t window(uint32_t own) const {
    return own < (uint64_t)in->window_count ? in->windows[own] : -1;
  }
  int32_t window_number(uint32_t own) const {
    return own < (uint64_t)in->window_count ? in->window_numbers[own] : -1;
  }
};
