// What a prediction is asked, what it answers, and what it keeps of messages, calls and locations.
#pragma once
#include "causal.h"

// ---- what calls of MPI usually take, by kind and size, learnt from a trace ----

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

extern "C" {
enum Change : int32_t { NO_EMPTY = 1, BALANCED = 2, FASTER = 3, IDEAL = 4, NETWORK = 5 };

enum NodeFlag : uint8_t {
  SCALED = 1,       // computing that the change is to
  OPENS = 2,        // an outermost visit of its region
  SYNCHRONOUS = 4,  // sends that always wait for their receive
  KEPT = 8,         // MPI_Init and MPI_Finalize: no network changes them
};

// What recording costs a rank, in seconds: part of a call's time as the trace shows it (within), or
// of the time after it (beyond).
struct Recording {
  double call_within, call_beyond;
  double before_within, before_beyond;  // of each event that stands before what MPI does
  double after_within, after_beyond;    // of each that stands after it
};

struct Settings {
  int32_t change;
  const uint8_t *flags;  // by node
  double factor;         // FASTER: on the time of computing
  double latency, bandwidth;
  const Recording *recording;  // by rank; null where it is not known
};

struct Prediction {
  double measured, baseline, predicted;
  double unrecorded_gain;  // baseline - predicted of a run that is not recorded; NaN: not known
  double excess;    // part of all ranks' time: calls that took longer than the fastest of their kind
  double *by_rank;  // end of each rank with the change, since the run's begin; NaN: no events
  int64_t events, forced, unmatched_sends, unmatched_receives, empty_messages, emptied_calls,
      tests, one_sided, least_visits, most_visits;
};
}

namespace {

using causal::Flow;
using causal::Request;
using causal::Step;

struct Moment {
  double t = 0, b = 0, c = 0;
  Moment later(double seconds) const { return {t + seconds, b + seconds, c + seconds}; }
  void raise(const Moment &other) {
    t = std::max(t, other.t), b = std::max(b, other.b), c = std::max(c, other.c);
  }
};
const Moment kNever{-INFINITY, -INFINITY, -INFINITY};

struct Sent {
  Moment at;
  double arrives = 0;  // NETWORK
  double entered = 0, left = NAN;  // of the call that completes it, as measured
  uint64_t bytes = 0;
  int32_t receiver = -1;
  int kind = costs::NOTHING;  // of that call, where nothing was received in it
};

struct Entry {
  struct Summary {
    std::vector<std::pair<double, Moment>> steps;  // latest of all who had entered by a time
    Moment all = kNever;
    bool made = false;
  };
  Moment begin;
  uint64_t sent = 0, received = 0;
};

struct Dependence {
  Moment on;
  double bytes = 0;
  bool empty = false, reply = false;  // reply: of a send, on its receive
};

struct Recorded {  // seconds that recording takes
  double within = 0, beyond = 0;
  void add(const Recorded &other) { within += other.within, beyond += other.beyond; }
};

struct Frame {  // of a call of MPI
  int32_t node = -1, role = 0, inner = 0;  // inner: visits within that are not MPI
  int32_t operation = 0, members = 0;      // of a collective
  int32_t full = 0, empty = 0;             // parts of messages
  int kind = costs::NOTHING;
  Moment begin;
  size_t dependences = 0, sends = 0;       // where its own begin
  uint64_t bytes = 0;
  bool receives = false;
  Recorded all, of_empty;                  // of all its events, of those of empty messages
};

struct Line : causal::Unit {
  int64_t location = 0;
  Moment now;
  double first = 0, link_free = -INFINITY;
  int32_t node = -1;
  bool begun = false, uses_mpi = false;
  struct {
    double b = 0, c = 0;
  } owed;  // recording, to be taken off the time that comes
  std::vector<Frame> frames;
  std::vector<Dependence> dependences;
  std::vector<int32_t> sends;  // whose replies the call may need
  size_t replied = 0;
  int32_t message = -1;        // that it is blocked on
  int64_t blocked_in = -1;     // instance that it is blocked on
  int64_t visit = -1;          // BALANCED
  double factor = 1, extra = 0;
  double time() { return now.t; }
};

struct Visits {  // BALANCED, of a line: seconds of computing in each visit
  std::vector<double> seconds;
};

}  // namespace
