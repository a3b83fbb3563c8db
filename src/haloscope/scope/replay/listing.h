// Wait states as results list them.
#pragma once
#include <cmath>
#include <functional>

#include "wait_analysis.h"
#include "time_order.h"

struct __attribute__((packed)) ListedWait {  // WAITS of result.py
  int32_t metric, node, location, cause, cause_node, delay_node;
  double begin, end;
};

// The longest waits, at most `most` (at least one), in the order of their begins. Of equally long
// ones the first: which others were left out before makes no difference. `delay_node` is the number
// of the wait until name_delays() is called.
inline void list_waits(const WaitAnalysis &analysis, int64_t most, const int32_t *metrics, ListedWait *out) {
  const Wait *waits = analysis.waits.get();
  const int64_t count = analysis.wait_count();
  auto length = [&](int64_t i) { return waits[i].end - waits[i].begin; };
  std::vector<int32_t> chosen;
  if (count > most) {
    std::vector<double> lengths(count);
    for (int64_t i = 0; i < count; i++) lengths[i] = length(i);
    std::nth_element(lengths.begin(), lengths.begin() + (most - 1), lengths.end(), std::greater<double>());
    const double least = lengths[most - 1];
    int64_t equal = most;
    for (int64_t i = 0; i < most - 1; i++) equal -= lengths[i] > least;
    chosen.reserve(most);
    for (int64_t i = 0; i < count; i++)
      if (length(i) > least || (length(i) == least && equal-- > 0)) chosen.push_back((int32_t)i);
  }
  const int64_t kept = count > most ? (int64_t)chosen.size() : count;
  auto number = [&](int64_t k) -> int64_t { return count > most ? chosen[k] : k; };
  const std::vector<int32_t> order = in_time_order(kept, [&](int64_t k) { return waits[number(k)].begin; });
  for (int64_t n = 0; n < kept; n++) {
    const int64_t at = number(order[n]);
    const Wait &w = waits[at];
    out[n] = {metrics[w.slot], w.node, w.location, w.cause, w.cause_node, (int32_t)at, w.begin, w.end};
  }
}

// Puts the call path that is charged most for each into the place of the wait's number.
inline void name_delays(const WaitAnalysis &analysis, int64_t count, ListedWait *listed) {
  for (int64_t n = 0; n < count; n++)
    listed[n].delay_node = analysis.charged.empty() ? -1 : analysis.charged[listed[n].delay_node];
}
