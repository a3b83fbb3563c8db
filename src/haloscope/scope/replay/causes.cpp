// From waits to what caused them: delay costs, the critical path, imbalance.
//
// A wait of v that c caused is explained by what c did longer than v since the two were last at
// the same point in time: per call path d = max(0, t_c - t_v), times without waits. A share
// s = min(1, w / (sum d + W)) of it is the short-term cost of each call path of c; the rest goes
// to the waits W of c in that interval, whose causers are charged in turn (long-term costs).
// Boehme, Geimer, Arnold, Voigtlaender, Wolf: Identifying the root causes of wait states in
// large-scale parallel applications, ACM Trans. Parallel Computing 3 (2016) 11.
// Critical path and imbalance: Boehme, de Supinski, Geimer, Schulz, Wolf: Scalable critical-path
// based performance analysis, IPDPS 2012.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>

#include "decoder.h"
#include "found.h"
#include "team.h"

namespace {

// A point in time that two locations had in common: where each entered the call in which they met,
// when that was, and when they met.
struct Common {
  Position at[2];
  double time[2] = {-1e300, -1e300};
  double met = -1e300;
};

struct Share {
  int32_t node;
  double seconds;
};

struct Explained {  // shares of a wait: who holds them, how many, from where on
  int32_t thread = 0, count = 0;
  int64_t first = 0;
};

// When two locations last met by a message that one of them waited for.
class PairsMet {
 public:
  Common &get(int32_t low, int32_t high) {
    const uint64_t key = (uint64_t)(uint32_t)low << 32 | (uint32_t)high;
    uint64_t place = mix(key);
    while (slots_[place] >= 0) {
      if (keys_[slots_[place]] == key) return met_[slots_[place]];
      place = (place + 1) & (slots_.size() - 1);
    }
    slots_[place] = (int32_t)keys_.size();
    keys_.push_back(key);
    met_.emplace_back();
    if (keys_.size() * 2 > slots_.size()) {
      slots_.assign(slots_.size() * 4, -1);
      for (size_t i = 0; i < keys_.size(); i++) {
        uint64_t p = mix(keys_[i]);
        while (slots_[p] >= 0) p = (p + 1) & (slots_.size() - 1);
        slots_[p] = (int32_t)i;
      }
    }
    return met_.back();
  }

 private:
  std::vector<int32_t> slots_ = std::vector<int32_t>(1024, -1);
  std::vector<uint64_t> keys_;
  std::vector<Common> met_;
  uint64_t mix(uint64_t key) const {
    uint64_t h = key * 0x9e3779b97f4a7c15ull;
    return (h ^ h >> 29) & (slots_.size() - 1);
  }
};

// Time by call path in a stretch of a location's events.
struct Scratch {
  std::vector<double> seconds;
  std::vector<int32_t> touched;
  explicit Scratch(int64_t nodes) : seconds(nodes, 0.0) {}
  void add(int32_t node, double amount) {
    if (node < 0) return;
    if (seconds[node] == 0.0) touched.push_back(node);
    seconds[node] += amount;
  }
  void clear() {
    for (int32_t node : touched) seconds[node] = 0.0;
    touched.clear();
  }
};

struct Causes {
  const RunInput *run;
  Found *found;
  struct Met {
    double enter, met;
    int32_t number, place;
  };
  std::vector<std::vector<Met>> met;  // synchronisations of each location, in order
  std::vector<size_t> cursors;
  std::vector<int32_t> around;  // of each wait: its causer's waits until then

  // Time by call path from one place to another (its event excluded), in seconds. Lengths of time
  // are those of the location's own clock, so that corrections of clocks do not change them.
  void gather(int32_t location, Position from, int64_t to, Scratch &out) const {
    Walk walk{from.place, from.ticks, from.ticks, -1, true};
    const LocationInput &in = run->locations[location];
    const Marks &marks = found->marks[location];
    const auto first = std::lower_bound(marks.places.begin(), marks.places.end(), from.place);
    const auto last = std::upper_bound(first, marks.places.end(), to);
    if (last - first > 1) {
      const size_t a = first - marks.places.begin(), b = last - marks.places.begin() - 1;
      walk_to(in, marks.places[a], walk, out);
      const int64_t *old = marks.sums.data() + marks.starts[a];
      const int64_t *now = marks.sums.data() + marks.starts[b];
      const int64_t known = marks.count(a);
      for (int64_t k = 0; k < marks.count(b); k++) {
        const int64_t spent = now[k] - (k < known ? old[k] : 0);
        if (spent > 0) out.add(marks.active[k], double(spent) * in.rate);
      }
      walk = {marks.places[b], marks.ticks[b], marks.ticks[b], marks.currents[b], false};
    }
    walk_to(in, to, walk, out);
    if (to < in.count) {  // what was entered last goes on until the event there
      Decoder d;
      d.open_at(in, to, walk.ticks);
      if (d.next()) out.add(walk.current, double(d.ticks - walk.last) * in.rate);
    }
  }

  struct Walk {
    int64_t place, ticks, last;
    int32_t current;
    bool fresh;  // what is entered is not known before the first ENTER
  };

  // Events up to a place that has been decoded before: they fit.
  void walk_to(const LocationInput &in, int64_t to, Walk &w, Scratch &out) const {
    while (w.place < to) {
      const uint64_t word = in.words[w.place];
      const int kind = (int)(word & 63);
      if (kind == HS_EVENT_TIME) {
        w.ticks = (int64_t)(word >> 6);
        w.place++;
        continue;
      }
      w.ticks += (int64_t)((word >> 6) & HS_MOST_DELTA);
      w.place += 1 + kFurther[kind];
      if (kind != HS_EVENT_ENTER && kind != HS_EVENT_LEAVE && kind != HS_EVENT_PAUSE &&
          kind != HS_EVENT_RESUME)
        continue;
      const uint32_t own = (uint32_t)(word >> 32);
      const int32_t node =
          kind == HS_EVENT_ENTER && own < (uint64_t)in.node_count ? in.nodes[own] : -1;
      if (w.fresh) {
        w.current = node >= 0 ? run->node_entered[node] : -1;
        w.last = w.ticks;
        w.fresh = false;
      }
      if (kind != HS_EVENT_RESUME) out.add(w.current, double(w.ticks - w.last) * in.rate);
      w.last = w.ticks;
      if (kind == HS_EVENT_ENTER) w.current = node;
      else if (kind == HS_EVENT_LEAVE && w.current >= 0) w.current = run->node_entered[w.current];
    }
  }

  // The same between two times on the run's clock.
  void gather_between(int32_t location, Position from, double begin, double end,
                      Scratch &out) const {
    Decoder d;
    d.open_at(run->locations[location], from.place, from.ticks);
    int32_t current = -1;
    double last = begin;
    bool first = true, paused = false;
    while (d.next()) {
      const double now = d.seconds();
      if (first) {
        last = std::max(begin, now);
        first = false;
        if (d.kind == HS_EVENT_ENTER && d.node(d.payload) >= 0)
          current = run->node_entered[d.node(d.payload)];
      }
      if (std::min(now, end) > last) {
        if (!paused) out.add(current, std::min(now, end) - last);
        last = std::min(now, end);
      }
      if (now >= end) return;
      if (d.kind == HS_EVENT_ENTER) current = d.node(d.payload);
      else if (d.kind == HS_EVENT_LEAVE) current = current >= 0 ? run->node_entered[current] : -1;
      else if (d.kind == HS_EVENT_PAUSE || d.kind == HS_EVENT_RESUME) paused = d.kind == HS_EVENT_PAUSE;
    }
  }

  // Waits of a location that begin in [from, to): numbers in found->waits, looked for around one.
  std::pair<int64_t, int64_t> waits_between(int32_t location, double from, double to,
                                            int64_t around) const {
    const std::vector<Wait> &waits = found->waits;
    const int64_t first = found->wait_starts[location], past = found->wait_starts[location + 1];
    int64_t b = std::min(std::max(around, first), past);
    while (b < past && waits[b].begin < to) b++;
    while (b > first && waits[b - 1].begin >= to) b--;
    int64_t a = b;
    while (a > first && waits[a - 1].begin >= from) a--;
    return {a, b};
  }

  int32_t place_of(const Synchronisation &s, int32_t location) const {
    const int32_t rank = run->locations[location].rank;
    const int32_t *members = run->comm_members + run->comm_starts[s.comm];
    const int32_t count = (int32_t)s.locations.size();
    if (rank < count && members[rank] == rank) return s.locations[rank] == location ? rank : -1;
    for (int32_t i = 0; i < count; i++)
      if (s.locations[i] == location) return i;
    return -1;
  }

  // The last synchronisation of both before a time on the clock of the first. Asked in the order
  // of time, so that the cursor only goes forward.
  void last_met(int32_t a, int32_t b, double before, Common &out) {
    const auto &list = met[a];
    size_t &cursor = cursors[a];
    while (cursor < list.size() && list[cursor].enter < before) cursor++;
    constexpr size_t kTries = 16;
    for (size_t k = cursor; k > 0 && cursor - k < kTries; k--) {
      const Met &m = list[k - 1];
      const Synchronisation &s = found->synchronisations[m.number];
      const int32_t place = place_of(s, b);
      if (place < 0) continue;
      out.at[0] = s.positions[m.place];
      out.at[1] = s.positions[place];
      out.time[0] = s.enters[m.place];
      out.time[1] = s.enters[place];
      out.met = m.met;
      return;
    }
  }

  // What the causer of a wait did longer than who waits, since they last met.
  Explained explain(int64_t number, const Common &c, Scratch &scratch, Scratch &own, int thread,
                    std::deque<Share> &shares) const {
    const std::vector<Wait> &waits = found->waits;
    const Wait &w = waits[number];
    gather(w.cause, c.at[1], w.cause_at.place, scratch);
    gather(w.location, c.at[0], w.at.place, own);
    const auto [a, b] = waits_between(w.cause, c.time[1], w.end, around[number]);
    for (int64_t k = a; k < b; k++) scratch.add(waits[k].node, waits[k].begin - waits[k].end);
    const auto [e, f] = waits_between(w.location, c.time[0], w.begin, number);
    for (int64_t k = e; k < f; k++) own.add(waits[k].node, waits[k].begin - waits[k].end);
    Explained answer{thread, 0, (int64_t)shares.size()};
    std::sort(scratch.touched.begin(), scratch.touched.end());
    scratch.touched.erase(std::unique(scratch.touched.begin(), scratch.touched.end()), scratch.touched.end());
    for (int32_t node : scratch.touched) {
      const double d = std::max(0.0, scratch.seconds[node]) - std::max(0.0, own.seconds[node]);
      if (d > 0) shares.push_back({node, d});
    }
    answer.count = (int32_t)((int64_t)shares.size() - answer.first);
    scratch.clear();
    own.clear();
    return answer;
  }

  // Numbers of all waits by their ends; each location's are in that order already.
  std::vector<int32_t> by_end() const {
    const std::vector<Wait> &waits = found->waits;
    std::vector<int32_t> order(waits.size());
    for (size_t i = 0; i < order.size(); i++) order[i] = (int32_t)i;
    auto earlier = [&](int32_t a, int32_t b) {
      return waits[a].end != waits[b].end ? waits[a].end < waits[b].end : a < b;
    };
    std::vector<int64_t> edges = found->wait_starts;
    while (edges.size() > 2) {
      std::vector<int64_t> next;
      for (size_t k = 0; k + 2 < edges.size(); k += 2) {
        std::inplace_merge(order.begin() + edges[k], order.begin() + edges[k + 1],
                           order.begin() + edges[k + 2], earlier);
        next.push_back(edges[k]);
      }
      if (edges.size() % 2 == 0) next.push_back(edges[edges.size() - 2]);
      next.push_back(edges.back());
      edges.swap(next);
    }
    return order;
  }

  // Waits that are worth an explanation: the longest, which make up nearly all of the time.
  double threshold() const {
    constexpr double kShare = 0.999;
    std::vector<float> lengths;
    double sum = 0;
    for (const Wait &w : found->waits) {
      lengths.push_back((float)(w.end - w.begin));
      sum += w.end - w.begin;
    }
    // Counted in bins of a power of two each: exact order does not matter here.
    double bins[128] = {0};
    for (float length : lengths) bins[std::min(127, std::max(0, 64 + std::ilogb(std::max(length, 1e-18f))))] += length;
    double below = 0;
    int bin = 0;
    while (bin < 127 && below + bins[bin] <= (1 - kShare) * sum) below += bins[bin++];
    return std::ldexp(1.0, bin - 64);
  }

  double costs(double budget) {
    std::vector<Wait> &waits = found->waits;
    const int64_t count = (int64_t)waits.size();
    met.assign(run->location_count, {});
    cursors.assign(run->location_count, 0);
    for (size_t n = 0; n < found->synchronisations.size(); n++) {
      const Synchronisation &s = found->synchronisations[n];
      const double together = *std::max_element(s.enters.begin(), s.enters.end());
      for (size_t place = 0; place < s.locations.size(); place++)
        if (s.locations[place] >= 0)
          met[s.locations[place]].push_back({s.enters[place], together, (int32_t)n, (int32_t)place});
    }
    auto earlier_met = [](const Met &x, const Met &y) {
      return x.enter != y.enter ? x.enter < y.enter : x.number < y.number;
    };
    for (auto &list : met)
      if (!std::is_sorted(list.begin(), list.end(), earlier_met))
        std::sort(list.begin(), list.end(), earlier_met);
    const std::vector<int32_t> order = by_end();
    // Since when: in the order of time.
    std::vector<Common> since(count);
    PairsMet messages;
    around.assign(count, 0);
    std::vector<int64_t> until = found->wait_starts;
    for (int32_t i : order) {
      const Wait &w = waits[i];
      until[w.location]++;
      if (w.cause < 0) continue;
      Common best;
      last_met(w.location, w.cause, w.begin, best);
      const bool swapped = w.cause < w.location;
      Common &m = messages.get(std::min(w.location, w.cause), std::max(w.location, w.cause));
      if (m.time[swapped] > best.time[0]) {
        best.at[0] = m.at[swapped];
        best.at[1] = m.at[!swapped];
        best.time[0] = m.time[swapped];
        best.time[1] = m.time[!swapped];
        best.met = m.met;
      }
      since[i] = best;
      around[i] = (int32_t)until[w.cause];
      if (w.collective < 0) {
        m.at[swapped] = w.at;
        m.at[!swapped] = w.cause_at;
        m.time[swapped] = w.begin;
        m.time[!swapped] = w.end;
        m.met = w.end;
      }
    }
    // Where stretches add up to too much, the short waits are left without an explanation.
    std::vector<int64_t> chosen;
    double work = 0, asked = 0, kept = 0;
    const double least = threshold();
    for (int64_t i = 0; i < count; i++)
      if (waits[i].cause >= 0) {
        asked += waits[i].end - waits[i].begin;
        if (waits[i].end - waits[i].begin < least) continue;
        chosen.push_back(i);
        work += double(waits[i].at.place - since[i].at[0].place + waits[i].cause_at.place - since[i].at[1].place);
      }
    if (work > budget) {
      std::sort(chosen.begin(), chosen.end(), [&](int64_t a, int64_t b) {
        const double u = waits[a].end - waits[a].begin, v = waits[b].end - waits[b].begin;
        return u != v ? u > v : a < b;
      });
      work = 0;
      size_t n = 0;
      for (; n < chosen.size() && work < budget; n++) {
        const int64_t i = chosen[n];
        work += double(waits[i].at.place - since[i].at[0].place + waits[i].cause_at.place - since[i].at[1].place);
      }
      chosen.resize(n);
      std::sort(chosen.begin(), chosen.end());
    }
    for (int64_t i : chosen) kept += waits[i].end - waits[i].begin;
    std::vector<Explained> delays(count);
    std::vector<std::deque<Share>> shares(std::max(1, run->threads));
    std::atomic<size_t> taken{0};
    Team team(std::max(1, run->threads));
    team.run([&](int thread) {
      Scratch scratch(run->node_count), own(run->node_count);
      for (;;) {
        const size_t first = taken.fetch_add(64), past = std::min(chosen.size(), first + 64);
        if (first >= past) break;
        for (size_t n = first; n < past; n++) delays[chosen[n]] = explain(chosen[n], since[chosen[n]], scratch, own, thread, shares[thread]);
      }
    });
    // Costs, backwards in time: a wait hands on what it has been charged with.
    std::vector<uint8_t> is_chosen(count, 0);
    for (int64_t i : chosen) is_chosen[i] = 1;
    std::vector<double> inherited(count, 0.0);
    for (int64_t n = count - 1; n >= 0; n--) {
      const int64_t i = order[n];
      const Wait &w = waits[i];
      if (!is_chosen[i]) continue;
      double sum = 0, waited = 0;
      const Explained &e = delays[i];
      for (int32_t k = 0; k < e.count; k++) sum += shares[e.thread][e.first + k].seconds;
      const auto [a, b] = waits_between(w.cause, since[i].met, w.end, around[i]);
      for (int64_t k = a; k < b; k++)
        if (waits[k].end <= w.end && k != i) waited += waits[k].end - waits[k].begin;
      if (sum + waited <= 0) continue;
      const double s = std::min(1.0, (w.end - w.begin) / (sum + waited));
      const double l = std::min(1.0, inherited[i] / (sum + waited));
      for (int32_t k = 0; k < e.count; k++) {
        const Share &d = shares[e.thread][e.first + k];
        double *values = found->at(w.cause, d.node);
        values[DELAY_SHORT] += s * d.seconds;
        values[DELAY_LONG] += l * d.seconds;
      }
      for (int64_t k = a; k < b; k++)
        if (waits[k].end <= w.end && k != i) inherited[k] += (s + l) * (waits[k].end - waits[k].begin);
    }
    return asked > 0 ? kept / asked : 1.0;
  }

  double critical_path() {
    int32_t location = -1;
    for (int32_t i = 0; i < run->location_count; i++)
      if (run->locations[i].count > 0 && !run->locations[i].is_stream &&
          (location < 0 || std::make_pair(found->finalised[i], found->ends[i]) >
                               std::make_pair(found->finalised[location], found->ends[location])))
        location = i;
    if (location < 0) return 0;
    struct Segment {
      int32_t location;
      double begin, end;
      Position from;
    };
    std::vector<Segment> path;
    std::vector<int64_t> next(run->location_count);  // waits before this number are still ahead
    for (int32_t i = 0; i < run->location_count; i++) next[i] = found->wait_starts[i + 1];
    double time = found->ends[location], length = 0;
    for (;;) {
      int64_t k = next[location] - 1;
      while (k >= found->wait_starts[location] && (found->waits[k].end > time || found->waits[k].cause < 0)) k--;
      next[location] = k;
      if (k < found->wait_starts[location]) {
        next[location] = found->wait_starts[location];
        path.push_back({location, found->begins[location], time, {}});
        length += std::max(0.0, time - found->begins[location]);
        break;
      }
      const Wait &w = found->waits[k];
      path.push_back({location, w.end, time, w.at});
      length += time - w.end;
      time = w.end;
      location = w.cause;
    }
    Scratch scratch(run->node_count);
    std::vector<double> on_path(run->node_count, 0.0);
    for (const Segment &s : path) {
      gather_between(s.location, s.from, s.begin, s.end, scratch);
      for (int32_t node : scratch.touched) {
        found->at(s.location, node)[CRITICAL_PATH] += scratch.seconds[node];
        on_path[node] += scratch.seconds[node];
      }
      scratch.clear();
    }
    // Beyond the mean of all ranks; on the locations that it passes, by their part of it.
    double ranks = 0;
    std::vector<double> worked(run->node_count, 0.0);
    int32_t last_rank = -1;
    for (int32_t i = 0; i < run->location_count; i++) {
      if (run->locations[i].count == 0 || run->locations[i].is_stream) continue;
      ranks += run->locations[i].rank != last_rank;
      last_rank = run->locations[i].rank;
      for (int32_t n = 0; n < run->node_count; n++) worked[n] += found->at(i, n)[TIME];
      for (int64_t k = found->wait_starts[i]; k < found->wait_starts[i + 1]; k++)
        worked[found->waits[k].node] -= found->waits[k].end - found->waits[k].begin;
    }
    for (int32_t n = 0; n < run->node_count; n++) {
      const double beyond = on_path[n] - worked[n] / std::max(1.0, ranks);
      if (beyond <= 0 || on_path[n] <= 0) continue;
      for (int32_t i = 0; i < run->location_count; i++)
        found->at(i, n)[IMBALANCE] += beyond * found->at(i, n)[CRITICAL_PATH] / on_path[n];
    }
    return length;
  }
};

}  // namespace

extern "C" {

// Fills delay costs, critical path and imbalance in. `out`: length of the critical path, share of
// the waiting time that is explained.
void find_causes(const RunInput *run, Found *found, double budget, double *out) {
  Causes causes{run, found, {}};
  out[1] = causes.costs(budget);
  out[0] = causes.critical_path();
}
}
