// The critical path of a run, and the imbalance that it shows.
//
// Boehme, de Supinski, Geimer, Schulz, Wolf: Scalable critical-path based performance analysis,
// IPDPS 2012. Backwards from the rank that enters MPI_Finalize last: along the rank to its last
// wait, from there to the causer, and so on.
#pragma once
#include <algorithm>
#include <vector>

#include "timeline.h"

class CriticalPath {
 public:
  CriticalPath(const RunInput *run, WaitAnalysis *analysis)
      : run(run), analysis(analysis), waits(analysis->waits.get()), timeline(run, analysis) {}

  // Fills it and the imbalance in; returns its length in seconds.
  double find() {
    int32_t location = -1;
    for (int32_t i = 0; i < run->location_count; i++)
      if (run->locations[i].count > 0 && !run->locations[i].is_stream &&
          (location < 0 || std::make_pair(analysis->finalised[i], analysis->ends[i]) >
                               std::make_pair(analysis->finalised[location], analysis->ends[location])))
        location = i;
    if (location < 0) return 0;
    struct Segment {
      int32_t location;
      double begin, end;
      int64_t from;  // place
    };
    std::vector<Segment> path;
    std::vector<int64_t> next(run->location_count);  // waits before this number are still ahead
    for (int32_t i = 0; i < run->location_count; i++) next[i] = analysis->wait_starts[i + 1];
    double time = analysis->ends[location], length = 0;
    for (;;) {
      int64_t k = next[location] - 1;
      while (k >= analysis->wait_starts[location] && (waits[k].end > time || waits[k].cause < 0)) k--;
      next[location] = k;
      if (k < analysis->wait_starts[location]) {
        next[location] = analysis->wait_starts[location];
        path.push_back({location, analysis->begins[location], time, 0});
        length += std::max(0.0, time - analysis->begins[location]);
        break;
      }
      const Wait &w = waits[k];
      path.push_back({location, w.end, time, (int64_t)w.at});
      length += time - w.end;
      time = w.end;
      location = w.cause;
    }
    Seconds spent(run->node_count);
    std::vector<double> on_path(run->node_count, 0.0);
    for (const Segment &s : path) {
      gather_between(s.location, s.from, s.begin, s.end, spent);
      for (int32_t node : spent.touched) {
        analysis->at(s.location, node)[CRITICAL_PATH] += spent.seconds[node];
        on_path[node] += spent.seconds[node];
      }
      spent.clear();
    }
    // Beyond the mean of all ranks; on the locations that it passes, by their part of it.
    double ranks = 0;
    std::vector<double> worked(run->node_count, 0.0);
    int32_t last_rank = -1;
    for (int32_t i = 0; i < run->location_count; i++) {
      if (run->locations[i].count == 0 || run->locations[i].is_stream) continue;
      ranks += run->locations[i].rank != last_rank;
      last_rank = run->locations[i].rank;
      for (int32_t n = 0; n < run->node_count; n++) worked[n] += analysis->at(i, n)[TIME];
      for (int64_t k = analysis->wait_starts[i]; k < analysis->wait_starts[i + 1]; k++)
        worked[waits[k].node] -= waits[k].end - waits[k].begin;
    }
    for (int32_t n = 0; n < run->node_count; n++) {
      const double beyond = on_path[n] - worked[n] / std::max(1.0, ranks);
      if (beyond <= 0 || on_path[n] <= 0) continue;
      for (int32_t i = 0; i < run->location_count; i++)
        analysis->at(i, n)[IMBALANCE] += beyond * analysis->at(i, n)[CRITICAL_PATH] / on_path[n];
    }
    return length;
  }

 private:
  struct Seconds {  // by node, and which nodes have any
    std::vector<double> seconds;
    std::vector<int32_t> touched;
    explicit Seconds(int64_t nodes) : seconds(nodes, 0.0) {}
    void add(int32_t node, double amount) {
      if (node < 0 || amount == 0) return;
      if (seconds[node] == 0.0) touched.push_back(node);
      seconds[node] += amount;
    }
    void clear() {
      for (int32_t node : touched) seconds[node] = 0.0;
      touched.clear();
    }
  };

  // Time by call path between two times on the run's clock.
  void gather_between(int32_t location, int64_t from, double begin, double end,
                      Seconds &out) const {
    Decoder d;
    d.open_at(run->locations[location], from, timeline.ticks_before(location, from));
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

  const RunInput *run;
  WaitAnalysis *analysis;
  const Wait *waits;
  Timeline timeline;
};
