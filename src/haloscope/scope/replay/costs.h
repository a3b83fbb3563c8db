// What calls of MPI usually take, by kind and size, learnt from a trace.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "events.h"

namespace costs {

enum Kind { NOTHING = -1, RECEIVE = 0, EXCHANGE = 1, WAIT = 2, SEND = 3, COLLECTIVE = 4 };
constexpr int kKinds = COLLECTIVE + HS_OPERATIONS;
constexpr int kSizes = 65;  // bytes: none, 1, up to 2, 4, 8, ...

// Durations by powers of two of a nanosecond.
class Durations {
 public:
  void add(double seconds) {
    const int bin = seconds < 1e-9 ? 0 : std::min(kBins - 1, std::ilogb(seconds * 1e9) + 1);
    counts_[bin]++;
    sums_[bin] += seconds;
  }
  bool empty() const { return part(1) == kBins; }
  // The mean without what is more than kFar bins (16 times) above the median.
  double mean() const {
    int64_t count = 0;
    double sum = 0;
    for (int bin = 0; bin < std::min(kBins, part(0.5) + kFar + 1); bin++)
      count += counts_[bin], sum += sums_[bin];
    return count ? sum / (double)count : 0;
  }
  // Seconds of all beyond what the fastest tenth takes.
  double excess() const {
    double sum = 0;
    const double fast = least();
    for (int bin = 0; bin < kBins; bin++) sum += std::max(0.0, sums_[bin] - fast * (double)counts_[bin]);
    return sum;
  }
  // What the fastest tenth takes.
  double least() const {
    const int bin = part(0.1);
    return bin < kBins ? sums_[bin] / (double)counts_[bin] : 0;
  }

 private:
  static constexpr int kBins = 64, kFar = 4;
  // The bin below or in which this part of all is.
  int part(double share) const {
    int64_t all = 0, below = 0;
    for (int64_t count : counts_) all += count;
    for (int bin = 0; all && bin < kBins; bin++)
      if ((double)(below += counts_[bin]) >= share * (double)all) return bin;
    return kBins;
  }
  int64_t counts_[kBins] = {};
  double sums_[kBins] = {};
};

struct Usual {
  double own = 0;       // seconds of a call that does not wait
  double transfer = 0;  // of one that waits, from what it waits for to its end
  double least = 0;     // of a call that does not wait and is not kept from its core either
};

class Table {
 public:
  int64_t eager_most = -1;             // largest message whose send ended before there was a receive
  int64_t waiting_least = INT64_MAX;   // smallest whose send ended only after

  // Whether sends of this size wait for their receives (rendezvous).
  bool waits(int64_t bytes) const { return bytes > eager_most && bytes >= waiting_least; }
  void add(int kind, uint64_t bytes, bool waited, double seconds) {
    (waited ? waited_ : ready_)[index(kind, bytes)].add(seconds);
  }
  void settle() {
    usual_.resize(ready_.size());
    for (size_t i = 0; i < usual_.size(); i++)
      usual_[i] = {ready_[i].mean(), waited_[i].mean(), ready_[i].least()};
    // Where no such call waited, or none did not, the other is the best that is known.
    for (size_t i = 0; i < usual_.size(); i++) {
      if (waited_[i].empty()) usual_[i].transfer = usual_[i].own;
      if (ready_[i].empty()) usual_[i].own = 0, usual_[i].least = waited_[i].least();
    }
  }
  // Seconds of calls that need not wait beyond what the fastest of their kind take.
  double excess() const {
    double sum = 0;
    for (const Durations &one : ready_) sum += one.excess();
    return sum;
  }
  Usual usual(int kind, uint64_t bytes) const {
    return kind < 0 ? Usual() : usual_[index(kind, bytes)];
  }

 private:
  static size_t index(int kind, uint64_t bytes) {
    const int size = bytes == 0 ? 0 : 64 - __builtin_clzll(bytes);
    return (size_t)(kind * kSizes + size);
  }
  std::vector<Durations> ready_ = std::vector<Durations>(kKinds * kSizes);
  std::vector<Durations> waited_ = std::vector<Durations>(kKinds * kSizes);
  std::vector<Usual> usual_;
};

}  // namespace costs
