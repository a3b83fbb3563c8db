// What a prediction is asked, what it answers, and what it keeps of messages, calls and locations.
#pragma once
#include "causal.h"
#include "costs.h"

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

struct Request {
  int32_t message = -1, comm = -1, place = -1;
  int64_t instance = -1;
  uint64_t bytes = 0;
  bool sends = false;
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
