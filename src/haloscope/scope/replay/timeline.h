// Time by call path that a location has spent between two places in its words: a difference of two
// marks, and a walk from a mark to a place at either end.
#pragma once
#include <vector>

#include "run.h"
#include "wait_analysis.h"

// Ticks by node, and which nodes have been added to. Without branches: a processor cannot
// predict which node comes next.
class Spent {
 public:
  explicit Spent(int64_t nodes) : ticks_(nodes + 1, 0), is_touched_(nodes + 1, 0), touched_(nodes + 2, 0) {}
  void add(int32_t node, int64_t ticks) {  // -1: belongs to none
    const int32_t slot = node + 1;
    ticks_[slot] += ticks;
    touched_[count_] = slot;
    count_ += !is_touched_[slot];
    is_touched_[slot] = 1;
  }
  int64_t of(int32_t node) const { return ticks_[node + 1]; }
  int64_t count() const { return count_; }
  template <class Function>
  void for_each(Function function) const {  // in an order that depends on the events alone
    for (int64_t k = 0; k < count_; k++)
      if (touched_[k] > 0) function(touched_[k] - 1, ticks_[touched_[k]]);
  }
  void clear() {
    for (int64_t k = 0; k < count_; k++) ticks_[touched_[k]] = 0, is_touched_[touched_[k]] = 0;
    count_ = 0;
  }

 private:
  std::vector<int64_t> ticks_;
  std::vector<uint8_t> is_touched_;
  std::vector<int32_t> touched_;
  int64_t count_ = 0;
};

// Ticks of a location until the event at a place: those until a mark, and those after it.
struct Until {
  int64_t place = -1;
  int32_t location = -1;
  int32_t marks = 0;  // before it
  std::vector<std::pair<int32_t, int64_t>> after;  // nodes and ticks
};

// Lengths of time are those of the location's own clock, so that corrections of clocks between a
// mark and a place near it do not change them.
//
// Of a thread: it remembers the places that it was last asked for, since what follows one meeting
// of two locations begins where what came before it ended.
class Timeline {
 public:
  Timeline(const RunInput *run, const WaitAnalysis *analysis)
      : run_(run), analysis_(analysis), walked_(run->node_count), remembered_(kRemembered) {}

  // From the event at one place to the event at another; 0 for the begin.
  void between(int32_t location, int64_t from, int64_t to, Spent &out) {
    if (from >= to) return;
    const Marks &marks = analysis_->marks[location];
    int32_t first_mark = 0;
    if (from > 0) {
      const Until &begin = until(location, from);
      for (const auto &[node, ticks] : begin.after) out.add(node, -ticks);
      first_mark = begin.marks;
    }
    const Until &end = until(location, to);
    for (const auto &[node, ticks] : end.after) out.add(node, ticks);
    if (first_mark == end.marks) return;
    const Mark &last = marks.list[end.marks - 1];
    const int64_t *now = marks.sums.data() + last.first;
    int32_t known = 0;
    if (first_mark > 0) {
      const Mark &first = marks.list[first_mark - 1];
      const int64_t *old = marks.sums.data() + first.first;
      for (; known < first.count; known++) out.add(marks.active[known], now[known] - old[known]);
    }
    for (int32_t k = known; k < last.count; k++) out.add(marks.active[k], now[k]);
  }

  // Ticks before the event at a place, from which a decoder can go on.
  int64_t ticks_before(int32_t location, int64_t place) const {
    const LocationInput &in = run_->locations[location];
    const Marks &marks = analysis_->marks[location];
    size_t m = marks.until(place);
    while (m > 0 && marks.list[m - 1].place > place) m--;
    int64_t at = m > 0 ? marks.list[m - 1].place : 0, ticks = m > 0 ? marks.list[m - 1].ticks : 0;
    while (at < place) {
      const uint64_t word = in.words[at];
      if ((word & 63) == HS_EVENT_TIME) ticks = (int64_t)(word >> 6);
      else ticks += (int64_t)((word >> 6) & HS_MOST_DELTA);
      at += 1 + kFurther[word & 63];
    }
    return ticks;
  }

 private:
  struct Walk {
    int64_t place, ticks, last;
    int32_t current;
  };

  // State after `count` marks.
  static Walk at_mark(const Marks &marks, size_t count) {
    if (count == 0) return {0, 0, 0, -1};
    const Mark &m = marks.list[count - 1];
    return {m.place, m.ticks, m.ticks, m.current};
  }

  const Until &until(int32_t location, int64_t place) {
    const uint64_t key = (uint64_t)place * 0x9e3779b97f4a7c15ull + (uint64_t)(uint32_t)location * 0xc2b2ae3d27d4eb4full;
    Until &remembered = remembered_[(key ^ key >> 29) % kRemembered];
    if (remembered.place == place && remembered.location == location) return remembered;
    const Marks &marks = analysis_->marks[location];
    remembered.place = place;
    remembered.location = location;
    remembered.marks = (int32_t)marks.until(place);
    walk(run_->locations[location], place, at_mark(marks, remembered.marks));
    remembered.after.clear();
    walked_.for_each([&](int32_t node, int64_t ticks) { remembered.after.push_back({node, ticks}); });
    walked_.clear();
    return remembered;
  }

  // On to the event at a place. Events have been decoded before: they fit.
  void walk(const LocationInput &in, int64_t to, Walk w) {
    if (w.place > to) return;  // a mark right after the event
    const int32_t *entered = run_->node_entered;
    if (in.node_count == 0) return;
    while (w.place < to) {
      const uint64_t word = in.words[w.place];
      const int kind = (int)(word & 63);
      if (__builtin_expect(kind == HS_EVENT_TIME, 0)) {
        w.ticks = (int64_t)(word >> 6);
        w.place++;
        continue;
      }
      w.ticks += (int64_t)((word >> 6) & HS_MOST_DELTA);
      w.place += 1 + kFurther[kind];
      if (__builtin_expect(kind != HS_EVENT_RESUME, 1)) walked_.add(w.current, w.ticks - w.last);
      w.last = w.ticks;
      const uint32_t own = (uint32_t)(word >> 32);
      const bool is_known = own < (uint64_t)in.node_count;
      const int32_t named = is_known ? in.nodes[is_known ? own : 0] : -1;
      const int32_t left = w.current < 0 ? -1 : entered[std::max(w.current, 0)];
      w.current = kind == HS_EVENT_ENTER ? named : kind == HS_EVENT_LEAVE ? left : w.current;
    }
    // What was entered last goes on until the event there.
    int64_t at = w.place, ticks = w.ticks;
    while (at < in.count && (in.words[at] & 63) == HS_EVENT_TIME) ticks = (int64_t)(in.words[at++] >> 6);
    if (at >= in.count) return;
    ticks += (int64_t)((in.words[at] >> 6) & HS_MOST_DELTA);
    walked_.add(w.current, ticks - w.last);
  }

  static constexpr size_t kRemembered = 2048;
  const RunInput *run_;
  const WaitAnalysis *analysis_;
  Spent walked_;
  std::vector<Until> remembered_;
};
