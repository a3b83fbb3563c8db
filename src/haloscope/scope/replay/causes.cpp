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
#include <unordered_map>

#include "decoder.h"
#include "found.h"
#include "team.h"

namespace {

struct Common {  // a point in time that two locations had in common
  Position at[2];
  double time[2] = {-1e300, -1e300};
};

struct Share {
  int32_t node;
  double seconds;
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
  std::vector<std::vector<int32_t>> met;  // synchronisations of each location, in order

  // From one place to another (its event excluded), between two times.
  void gather(int32_t location, Position from, int64_t to, double begin, double end, double sign,
              Scratch &out) const {
    const LocationInput &in = run->locations[location];
    Decoder d;
    d.open_at(in, from.place, from.ticks);
    int32_t current = -1;
    double last = begin;
    bool first = true, paused = false;
    while (d.next()) {
      const double now = std::min(d.seconds(), end);
      if (first) {
        last = std::max(begin, d.seconds());
        first = false;
        if (d.kind == HS_EVENT_ENTER && d.node(d.payload) >= 0) current = run->node_entered[d.node(d.payload)];
      }
      if (d.kind == HS_EVENT_ENTER || d.kind == HS_EVENT_LEAVE || d.kind == HS_EVENT_PAUSE ||
          d.kind == HS_EVENT_RESUME || d.start >= to || d.seconds() >= end) {
        if (now > last) {
          if (!paused) out.add(current, sign * (now - last));
          last = now;
        }
        if (d.start >= to || d.seconds() >= end) return;
        if (d.kind == HS_EVENT_ENTER) current = d.node(d.payload);
        else if (d.kind == HS_EVENT_LEAVE) current = current >= 0 ? run->node_entered[current] : -1;
        else paused = d.kind == HS_EVENT_PAUSE;
      }
    }
  }

  // Waits of a location that begin in [from, to): numbers in found->waits.
  std::pair<int64_t, int64_t> waits_between(int32_t location, double from, double to) const {
    const auto first = found->waits.begin() + found->wait_starts[location];
    const auto last = found->waits.begin() + found->wait_starts[location + 1];
    auto before = [](const Wait &w, double t) { return w.begin < t; };
    const auto a = std::lower_bound(first, last, from, before);
    const auto b = std::lower_bound(a, last, to, before);
    return {a - found->waits.begin(), b - found->waits.begin()};
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

  // The last synchronisation of both before a time on the clock of the first.
  bool last_met(int32_t a, int32_t b, double before, Common &out) const {
    const auto &list = met[a];
    int tries = 0;
    auto it = std::partition_point(list.begin(), list.end(), [&](int32_t n) {
      const Synchronisation &s = found->synchronisations[n];
      const int32_t p = place_of(s, a);
      return p >= 0 && s.enters[p] < before;
    });
    while (it != list.begin() && tries++ < 16) {
      --it;
      const Synchronisation &s = found->synchronisations[*it];
      const int32_t pa = place_of(s, a), pb = place_of(s, b);
      if (pa < 0 || pb < 0) continue;
      out.at[0] = s.positions[pa];
      out.at[1] = s.positions[pb];
      out.time[0] = s.enters[pa];
      out.time[1] = s.enters[pb];
      return true;
    }
    return false;
  }

  // What the causer of a wait did longer than who waits, since they last met.
  void explain(int64_t number, const Common &c, Scratch &scratch, Scratch &own,
               std::vector<Share> &delays) const {
    const std::vector<Wait> &waits = found->waits;
    const Wait &w = waits[number];
    gather(w.cause, c.at[1], w.cause_at.place, -1e300, 1e300, 1.0, scratch);
    gather(w.location, c.at[0], w.at.place, -1e300, 1e300, 1.0, own);
    const auto [a, b] = waits_between(w.cause, c.time[1], w.end);
    for (int64_t k = a; k < b; k++) scratch.add(waits[k].node, waits[k].begin - waits[k].end);
    const auto [e, f] = waits_between(w.location, c.time[0], w.begin);
    for (int64_t k = e; k < f; k++) own.add(waits[k].node, waits[k].begin - waits[k].end);
    for (int32_t node : scratch.touched) {
      const double d = std::max(0.0, scratch.seconds[node]) - std::max(0.0, own.seconds[node]);
      if (d > 1e-9) delays.push_back({node, d});
    }
    std::sort(delays.begin(), delays.end(),
              [](const Share &x, const Share &y) { return x.node < y.node; });
    scratch.clear();
    own.clear();
  }

  double costs(double budget) {
    std::vector<Wait> &waits = found->waits;
    const int64_t count = (int64_t)waits.size();
    met.assign(run->location_count, {});
    for (size_t n = 0; n < found->synchronisations.size(); n++)
      for (int32_t location : found->synchronisations[n].locations)
        if (location >= 0) met[location].push_back((int32_t)n);
    for (int32_t a = 0; a < run->location_count; a++)
      std::sort(met[a].begin(), met[a].end(), [&](int32_t x, int32_t y) {
        const Synchronisation &s = found->synchronisations[x], &t = found->synchronisations[y];
        const double u = s.enters[place_of(s, a)], v = t.enters[place_of(t, a)];
        return u != v ? u < v : x < y;
      });
    std::vector<int64_t> order(count);
    for (int64_t i = 0; i < count; i++) order[i] = i;
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return waits[a].end != waits[b].end ? waits[a].end < waits[b].end : a < b;
    });
    // Since when: in the order of time.
    std::vector<Common> since(count);
    std::unordered_map<int64_t, Common> messages;
    for (int64_t i : order) {
      const Wait &w = waits[i];
      if (w.cause < 0) continue;
      Common best;
      last_met(w.location, w.cause, w.begin, best);
      const bool swapped = w.cause < w.location;
      const int64_t key = (int64_t)std::min(w.location, w.cause) << 32 | std::max(w.location, w.cause);
      const auto found_message = messages.find(key);
      if (found_message != messages.end()) {
        const Common &m = found_message->second;
        if (m.time[swapped] > best.time[0]) {
          best.at[0] = m.at[swapped];
          best.at[1] = m.at[!swapped];
          best.time[0] = m.time[swapped];
          best.time[1] = m.time[!swapped];
        }
      }
      since[i] = best;
      if (w.collective < 0) {
        Common m;
        m.at[swapped] = w.at;
        m.at[!swapped] = w.cause_at;
        m.time[swapped] = w.begin;
        m.time[!swapped] = w.end;
        messages[key] = m;
      }
    }
    // Where stretches add up to too much, the short waits are left without an explanation.
    std::vector<int64_t> chosen;
    double work = 0, asked = 0, kept = 0;
    for (int64_t i = 0; i < count; i++)
      if (waits[i].cause >= 0) {
        chosen.push_back(i);
        work += double(waits[i].at.place - since[i].at[0].place + waits[i].cause_at.place - since[i].at[1].place);
        asked += waits[i].end - waits[i].begin;
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
    std::vector<std::vector<Share>> delays(count);
    std::atomic<size_t> taken{0};
    Team team(std::max(1, run->threads));
    team.run([&](int) {
      Scratch scratch(run->node_count), own(run->node_count);
      for (;;) {
        const size_t first = taken.fetch_add(64), past = std::min(chosen.size(), first + 64);
        if (first >= past) break;
        for (size_t n = first; n < past; n++) explain(chosen[n], since[chosen[n]], scratch, own, delays[chosen[n]]);
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
      for (const Share &d : delays[i]) sum += d.seconds;
      const auto [a, b] = waits_between(w.cause, since[i].time[1], w.end);
      for (int64_t k = a; k < b; k++)
        if (waits[k].end <= w.end && k != i) waited += waits[k].end - waits[k].begin;
      if (sum + waited <= 0) continue;
      const double s = std::min(1.0, (w.end - w.begin) / (sum + waited));
      const double l = std::min(1.0, inherited[i] / (sum + waited));
      for (const Share &d : delays[i]) {
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
          (location < 0 || found->ends[i] > found->ends[location]))
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
      gather(s.location, s.from, INT64_MAX, s.begin, s.end, 1.0, scratch);
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
