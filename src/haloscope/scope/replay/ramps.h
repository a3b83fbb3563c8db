// Corrections of a clock as knots: ramps that lead up to jumps, as far as limits allow.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "run.h"

// An event that may be shifted by `shift` ticks at most.
struct Limit {
  int64_t tick;
  double shift;
};

// Shift at a tick; `place` is the knot passed last, and ticks do not go back.
inline double value_at(const std::vector<Knot> &knots, size_t &place, int64_t tick) {
  if (knots.empty()) return 0;
  while (place + 1 < knots.size() && knots[place + 1].tick <= tick) place++;
  const Knot &a = knots[place];
  if (tick <= a.tick || place + 1 >= knots.size()) return (double)a.shift;
  const Knot &b = knots[place + 1];
  return a.shift + double(tick - a.tick) / double(b.tick - a.tick) * double(b.shift - a.shift);
}

// The ramp that leads up to one jump: vertices from its upper end to the left, then a line of the
// least slope down to nothing. Asked from right to left.
class Ramp {
 public:
  bool active = false;

  // The steepest parts come last: of all ramps that grow steeper and respect the limits from the
  // tick `begin` on, this is the highest, the lower convex hull of the limits and the jump's end.
  void lead_to(int64_t tick, int64_t shift, int64_t begin, const std::vector<Limit> &limits,
               double slope) {
    slope_ = slope;
    active = true;
    vertices_.clear();
    auto first = std::lower_bound(limits.begin(), limits.end(), begin,
                                  [](const Limit &limit, int64_t at) { return limit.tick < at; });
    auto add = [&](Limit point) {
      while (vertices_.size() >= 2 && !turns(vertices_[vertices_.size() - 2], vertices_.back(), point))
        vertices_.pop_back();
      vertices_.push_back(point);
    };
    for (; first != limits.end() && first->tick < tick; ++first)
      if (first->shift < double(shift)) add(*first);
    add({tick, (double)shift});
    std::reverse(vertices_.begin(), vertices_.end());
    size_t kept = 1;
    while (kept < vertices_.size() && steepness(vertices_[kept], vertices_[kept - 1]) > slope) kept++;
    vertices_.resize(kept);
    rewind();
  }
  void rewind() { at_ = 0; }
  // The next vertex to the left of a tick; none: INT64_MIN.
  int64_t next_vertex(int64_t before) {
    while (at_ < vertices_.size() && vertices_[at_].tick >= before) at_++;
    return at_ < vertices_.size() ? vertices_[at_].tick : INT64_MIN;
  }
  double value(int64_t tick) {
    while (at_ + 1 < vertices_.size() && vertices_[at_ + 1].tick >= tick) at_++;
    size_t i = std::min(at_, vertices_.size() - 1);
    if (i > 0 && vertices_[i].tick < tick) i--;
    const Limit &right = vertices_[i];
    const double slope = i + 1 < vertices_.size() ? steepness(vertices_[i + 1], right) : slope_;
    return right.shift - slope * double(right.tick - tick);
  }
  // Where it comes down to nothing.
  int64_t foot() const {
    return vertices_.back().tick - (int64_t)std::ceil(vertices_.back().shift / slope_);
  }

 private:
  static double steepness(const Limit &left, const Limit &right) {
    return (right.shift - left.shift) / double(right.tick - left.tick);
  }
  static bool turns(const Limit &a, const Limit &b, const Limit &c) {
    return steepness(a, b) < steepness(b, c);
  }
  std::vector<Limit> vertices_;
  size_t at_ = 0;
  double slope_ = 1;
};

// The ramp up to a jump, with the limits to the left as far as it is above the other jumps: the
// search goes twice as far back each time.
inline void lead_up(Ramp &ramp, const std::vector<Knot> &jumps, size_t jump,
                    const std::vector<Limit> &limits, double slope) {
  const Knot &top = jumps[jump];
  for (size_t far = 16;; far *= 2) {
    const size_t last = jump > far ? jump - far : 0;
    const bool whole = last == 0;
    const int64_t foot = top.tick - (int64_t)std::ceil(double(top.shift) / slope);
    ramp.lead_to(top.tick, top.shift, whole ? foot : jumps[last].tick, limits, slope);
    if (whole) return;
    for (size_t i = jump; i-- > last;)
      if (jumps[i].tick < top.tick && ramp.value(jumps[i].tick) < (double)jumps[i].shift) {
        ramp.rewind();
        return;
      }
  }
}

// Knots with a ramp before each jump (two knots of one tick). Limits are sorted, one a tick.
inline std::vector<Knot> with_ramps(const std::vector<Knot> &jumps, const std::vector<Limit> &limits,
                                    double slope) {
  std::vector<Knot> knots;  // from right to left
  if (jumps.empty()) return knots;
  Ramp ramp;
  auto put = [&](int64_t tick, double shift) {
    const int64_t whole = (int64_t)std::llround(shift);
    if (!knots.empty() && knots.back().tick == tick && knots.back().shift == whole) return;
    knots.push_back({tick, whole});
  };
  put(jumps.back().tick, (double)jumps.back().shift);
  for (size_t i = jumps.size() - 1; i-- > 0;) {
    const Knot &left = jumps[i], &right = jumps[i + 1];
    if (left.tick == right.tick) {
      if (!ramp.active || ramp.value(right.tick) <= (double)right.shift)
        lead_up(ramp, jumps, i + 1, limits, slope);
      continue;
    }
    const double fall = double(right.shift - left.shift) / double(right.tick - left.tick);
    auto flat = [&](int64_t tick) { return left.shift + fall * double(tick - left.tick); };
    int64_t before = right.tick;
    while (ramp.active && before > left.tick) {
      const double above = ramp.value(before) - flat(before);
      const int64_t tick = std::max(ramp.next_vertex(before), left.tick);
      const double ramped = ramp.value(tick);
      if (ramped < flat(tick)) {  // they cross; from here to the left the jumps' own is higher
        const double part = above / (above + flat(tick) - ramped);
        const int64_t cross = before - (int64_t)std::ceil(part * double(before - tick));
        // Two knots: one in their middle could lift steep ramps above a limit.
        const double share = double(cross + 1 - tick) / double(before - tick);
        if (cross + 1 < before) put(cross + 1, ramped + share * (above + flat(before) - ramped));
        if (cross > left.tick && cross < before) put(cross, std::ceil(flat(cross)));
        ramp.active = false;
      } else {
        put(tick, ramped);
      }
      before = tick;
    }
    if (!ramp.active) put(left.tick, (double)left.shift);
  }
  if (ramp.active) {
    for (int64_t before = jumps.front().tick;;) {
      const int64_t tick = ramp.next_vertex(before);
      if (tick == INT64_MIN || ramp.value(tick) <= 0) break;
      put(tick, ramp.value(tick));
      before = tick;
    }
    put(ramp.foot(), 0);
  }
  std::reverse(knots.begin(), knots.end());
  return knots;
}
