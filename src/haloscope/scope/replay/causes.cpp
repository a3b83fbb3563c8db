// From waits to what caused them: delay costs, the critical path, imbalance.
//
// A wait of v that c caused is explained by what c did longer than v since the two were last at
// the same point in time: per call path d = max(0, t_c - t_v), times without waits. A share
// s = min(1, w / (sum d + W)) of it is the short-term cost of each call path of c; the rest goes
// to the waits W of c in that interval, whose causers are charged in turn (long-term costs).
// Boehme, Geimer, Arnold, Voigtlaender, Wolf: Identifying the root causes of wait states in
// large-scale parallel applications, ACM Trans. Parallel Computing 3 (2016) 11.
//
// Meetings and costs go through the waits in the order of their ends, forwards and backwards, and
// take little time a wait; what lies in between, time by call path, is looked up by all threads.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "channels.h"
#include "team.h"
#include "timeline.h"

namespace {

// A point in time that two locations had in common: where each entered the call in which they met,
// when that was, and when they met.
struct Common {
  int64_t at[2] = {0, 0};
  double time[2] = {-1e300, -1e300};
  double met = -1e300;
};

struct __attribute__((packed)) Share {
  int32_t node;
  double seconds;
};

// What a wait is explained by: what its causer did longer, and where that waited itself.
struct Explained {
  double whole = 0;         // seconds of both
  int64_t first_share = 0;  // of its chunk's
  int64_t first_wait = 0;
  int32_t shares = 0, waits = 0;
};

// When two locations last met by a message that one of them waited for.
struct LastMeeting {
  Common common;  // the lower location's first
  int32_t wait = -1;
};

class Causes {
 public:
  Causes(const RunInput *run, WaitAnalysis *analysis)
      : run_(run), analysis_(analysis), waits_(analysis->waits.get()), count_(analysis->wait_count()) {}

  // Charges what waits cost to who caused them; returns the part of the waiting time that is
  // explained. Stretches of no more than `budget` words in all are looked at.
  double costs(double budget) {
    const double least = threshold();
    order_ = in_time_order(count_, [&](int64_t i) { return waits_[i].end; });
    meet(least);
    if (work_ > budget) keep_longest(budget);
    double kept = 0;
    for (int32_t i : chosen_) kept += length(i);
    std::vector<int32_t>().swap(order_);
    explain_all();
    std::vector<int32_t>().swap(since_);
    std::vector<int32_t>().swap(around_);
    charge();
    return asked_ > 0 ? kept / asked_ : 1.0;
  }

 private:
  struct Met {
    double enter;
    int32_t number, place;
  };
  static constexpr int64_t kChunk = 1024;  // waits that a thread explains at a time

  double length(int64_t i) const { return waits_[i].end - waits_[i].begin; }

  // Waits that are worth an explanation: the longest, which make up nearly all of the time.
  double threshold() const {
    constexpr double kShare = 0.999;
    // Counted in bins of a power of two each: exact order does not matter here.
    double bins[128] = {0}, sum = 0;
    for (int64_t i = 0; i < count_; i++) {
      const float rounded = (float)length(i);
      bins[std::min(127, std::max(0, 64 + std::ilogb(std::max(rounded, 1e-18f))))] += rounded;
      sum += length(i);
    }
    double below = 0;
    int bin = 0;
    while (bin < 127 && below + bins[bin] <= (1 - kShare) * sum) below += bins[bin++];
    return std::ldexp(1.0, bin - 64);
  }

  // Since when: for each wait the last meeting of its two locations before it.
  void meet(double least) {
    list_synchronisations();
    since_.assign(count_, kNever);
    around_.assign(count_, 0);
    Table<LastMeeting> messages;  // by the two locations, the lower one first
    std::vector<int64_t> until = analysis_->wait_starts;
    for (int32_t i : order_) {
      const Wait &w = waits_[i];
      until[w.location]++;
      if (w.cause < 0) continue;
      around_[i] = (int32_t)until[w.cause];
      Common common;
      since_[i] = last_synchronisation(w.location, w.cause, w.begin, common);
      const bool swapped = w.cause < w.location;
      LastMeeting &last = messages.get({(uint32_t)std::min(w.location, w.cause), (uint32_t)std::max(w.location, w.cause)});
      if (last.common.time[swapped] > common.time[0]) {
        common = last.common;
        if (swapped) std::swap(common.at[0], common.at[1]);
        since_[i] = last.wait;
      }
      asked_ += length(i);
      if (length(i) >= least) {
        chosen_.push_back(i);
        work_ += words_of(w, common);
      }
      if (!w.together) {
        last.common.at[swapped] = (int64_t)w.at;
        last.common.at[!swapped] = (int64_t)w.cause_at;
        last.common.time[swapped] = w.begin;
        last.common.time[!swapped] = w.end;
        last.common.met = w.end;
        last.wait = i;
      }
    }
    met_.clear();
  }

  static double words_of(const Wait &w, const Common &common) {
    return double((int64_t)w.at - common.at[0] + (int64_t)w.cause_at - common.at[1]);
  }

  // Where stretches add up to too much, the short waits are left without an explanation.
  void keep_longest(double budget) {
    std::vector<int32_t> longest = chosen_;
    std::sort(longest.begin(), longest.end(), [&](int32_t a, int32_t b) {
      const double u = length(a), v = length(b);
      return u != v ? u > v : a < b;
    });
    double work = 0;
    size_t n = 0;
    for (; n < longest.size() && work < budget; n++) work += words_of(waits_[longest[n]], common_of(longest[n]));
    std::vector<uint8_t> is_kept(count_, 0);
    for (size_t k = 0; k < n; k++) is_kept[longest[k]] = 1;
    chosen_.erase(std::remove_if(chosen_.begin(), chosen_.end(), [&](int32_t i) { return !is_kept[i]; }), chosen_.end());
  }

  void list_synchronisations() {
    met_.assign(run_->location_count, {});
    cursors_.assign(run_->location_count, 0);
    for (size_t n = 0; n < analysis_->synchronisations.size(); n++) {
      const Synchronisation &s = analysis_->synchronisations[n];
      for (size_t place = 0; place < s.locations.size(); place++)
        if (s.locations[place] >= 0)
          met_[s.locations[place]].push_back({s.enters[place], (int32_t)n, (int32_t)place});
    }
    auto earlier = [](const Met &x, const Met &y) {
      return x.enter != y.enter ? x.enter < y.enter : x.number < y.number;
    };
    for (auto &list : met_)
      if (!std::is_sorted(list.begin(), list.end(), earlier)) std::sort(list.begin(), list.end(), earlier);
  }

  // What since_ holds: the number of a wait, kNever, or below that a synchronisation.
  static constexpr int32_t kNever = -1;

  int32_t place_of(const Synchronisation &s, int32_t location) const {
    const int32_t rank = run_->locations[location].rank;
    const int32_t *members = run_->comm_members + run_->comm_starts[s.comm];
    const int32_t count = (int32_t)s.locations.size();
    if (rank < count && members[rank] == rank) return s.locations[rank] == location ? rank : -1;
    for (int32_t i = 0; i < count; i++)
      if (s.locations[i] == location) return i;
    return -1;
  }

  static Common common_of(const Synchronisation &s, int32_t a, int32_t b) {  // places
    return {{s.places[a], s.places[b]}, {s.enters[a], s.enters[b]}, s.met};
  }

  // The last synchronisation of both before a time on the clock of the first. Asked in the order
  // of time, so that the cursor only goes forward.
  int32_t last_synchronisation(int32_t a, int32_t b, double before, Common &out) {
    const auto &list = met_[a];
    size_t &cursor = cursors_[a];
    while (cursor < list.size() && list[cursor].enter < before) cursor++;
    constexpr size_t kTries = 16;
    for (size_t k = cursor; k > 0 && cursor - k < kTries; k--) {
      const Met &m = list[k - 1];
      const Synchronisation &s = analysis_->synchronisations[m.number];
      const int32_t place = place_of(s, b);
      if (place < 0) continue;
      out = common_of(s, m.place, place);
      return kNever - 1 - m.number;
    }
    return kNever;
  }

  // The same point in time again, who waits first.
  Common common_of(int32_t number) const {
    const Wait &w = waits_[number];
    const int32_t since = since_[number];
    if (since == kNever) return {};
    if (since < kNever) {
      const Synchronisation &s = analysis_->synchronisations[kNever - 1 - since];
      return common_of(s, place_of(s, w.location), place_of(s, w.cause));
    }
    const Wait &m = waits_[since];
    Common common{{(int64_t)m.at, (int64_t)m.cause_at}, {m.begin, m.end}, m.end};
    if (m.location != w.location) {
      std::swap(common.at[0], common.at[1]);
      std::swap(common.time[0], common.time[1]);
    }
    return common;
  }

  // Waits of a location that begin in [from, to), looked for around one.
  std::pair<int64_t, int64_t> waits_between(int32_t location, double from, double to, int64_t around) const {
    const int64_t first = analysis_->wait_starts[location], past = analysis_->wait_starts[location + 1];
    int64_t b = std::min(std::max(around, first), past);
    while (b < past && waits_[b].begin < to) b++;
    while (b > first && waits_[b - 1].begin >= to) b--;
    int64_t a = b;
    while (a > first && waits_[a - 1].begin >= from) a--;
    return {a, b};
  }

  struct Desk {  // what a thread works with
    Timeline timeline;
    Spent causer, own;
    std::vector<double> causer_waited, own_waited;  // by node
    std::vector<Share> shares;  // of a chunk
    int64_t share_count = 0;
    Desk(const RunInput *run, const WaitAnalysis *analysis)
        : timeline(run, analysis), causer(run->node_count), own(run->node_count),
          causer_waited(run->node_count, 0.0), own_waited(run->node_count, 0.0) {}
  };

  // Time that the causer of a wait spent beyond the waiting location since their last meeting.
  Explained explain(int32_t number, Desk &desk) const {
    const Wait &w = waits_[number];
    const Common c = common_of(number);
    desk.timeline.between(w.cause, c.at[1], (int64_t)w.cause_at, desk.causer);
    desk.timeline.between(w.location, c.at[0], (int64_t)w.at, desk.own);
    const auto [a, b] = waits_between(w.cause, c.time[1], w.end, around_[number]);
    for (int64_t k = a; k < b; k++) desk.causer_waited[waits_[k].node] += length(k);
    const auto [e, f] = waits_between(w.location, c.time[0], w.begin, number);
    for (int64_t k = e; k < f; k++) desk.own_waited[waits_[k].node] += length(k);
    Explained answer;
    answer.first_share = desk.share_count;
    if ((int64_t)desk.shares.size() < desk.share_count + desk.causer.count() + 1)
      desk.shares.resize(2 * desk.shares.size() + desk.causer.count() + 1);
    const double rate = run_->locations[w.cause].rate, own_rate = run_->locations[w.location].rate;
    desk.causer.for_each([&](int32_t node, int64_t ticks) {
      const double longer = std::max(0.0, double(ticks) * rate - desk.causer_waited[node]) -
                            std::max(0.0, double(desk.own.of(node)) * own_rate - desk.own_waited[node]);
      desk.shares[desk.share_count] = {node, longer};
      desk.share_count += longer > 0;
      answer.whole += std::max(0.0, longer);
    });
    answer.shares = (int32_t)(desk.share_count - answer.first_share);
    // Waits that were over before this one hand on a part of it.
    const auto [g, h] = waits_between(w.cause, c.met, w.end, b);
    answer.first_wait = g;
    answer.waits = (int32_t)(h - g);
    for (int64_t k = g; k < h; k++)
      if (waits_[k].end <= w.end && k != number) answer.whole += length(k);
    for (int64_t k = a; k < b; k++) desk.causer_waited[waits_[k].node] = 0;
    for (int64_t k = e; k < f; k++) desk.own_waited[waits_[k].node] = 0;
    desk.causer.clear();
    desk.own.clear();
    return answer;
  }

  void explain_all() {
    explained_.resize(chosen_.size());
    shares_.resize((chosen_.size() + kChunk - 1) / kChunk);
    std::atomic<int64_t> taken{0};
    Team team(std::max(1, std::min(run_->threads, (int32_t)shares_.size())));
    team.run([&](int) {
      Desk desk(run_, analysis_);
      for (int64_t chunk; (chunk = taken.fetch_add(1)) < (int64_t)shares_.size();) {
        desk.share_count = 0;
        const int64_t first = chunk * kChunk, past = std::min((int64_t)chosen_.size(), first + kChunk);
        for (int64_t n = first; n < past; n++) explained_[n] = explain(chosen_[n], desk);
        shares_[chunk] = std::vector<Share>(desk.shares.begin(), desk.shares.begin() + desk.share_count);
      }
    });
  }

  // Costs, backwards in time: a wait hands on what it has been charged with.
  void charge() {
    std::vector<double> inherited(count_, 0.0);
    analysis_->charged.assign(count_, kNobody);
    for (int64_t n = (int64_t)chosen_.size() - 1; n >= 0; n--) {
      const int32_t i = chosen_[n];
      const Wait &w = waits_[i];
      const Explained &e = explained_[n];
      if (e.whole <= 0) continue;
      const double s = std::min(1.0, length(i) / e.whole);
      const double l = std::min(1.0, inherited[i] / e.whole);
      const Share *shares = shares_[n / kChunk].data() + e.first_share;
      double most = 0;
      for (int32_t k = 0; k < e.shares; k++) {
        if (shares[k].seconds > most) {
          most = shares[k].seconds;
          analysis_->charged[i] = shares[k].node;
        }
        double *values = analysis_->at(w.cause, shares[k].node);
        values[DELAY_SHORT] += s * shares[k].seconds;
        values[DELAY_LONG] += l * shares[k].seconds;
      }
      for (int64_t k = e.first_wait; k < e.first_wait + e.waits; k++) {
        if (waits_[k].end > w.end || k == i) continue;
        inherited[k] += (s + l) * length(k);
        if (length(k) > most) {
          most = length(k);
          analysis_->charged[i] = kAsOf - (int32_t)k;
        }
      }
    }
    // Where most is handed on to another wait, it is what that one is charged to.
    for (int32_t i : chosen_) {
      int32_t &node = analysis_->charged[i];
      if (node <= kAsOf) node = std::max(kNobody, analysis_->charged[kAsOf - node]);
    }
  }

  // WaitAnalysis::charged: a call path, kNobody, or below that a wait until all are known.
  static constexpr int32_t kNobody = -1, kAsOf = -2;

  const RunInput *run_;
  WaitAnalysis *analysis_;
  const Wait *waits_;
  int64_t count_;
  std::vector<std::vector<Met>> met_;  // synchronisations of each location, in order
  std::vector<size_t> cursors_;
  std::vector<int32_t> order_;   // waits by their ends
  std::vector<int32_t> since_;   // of each wait
  std::vector<int32_t> around_;  // of each wait: its causer's waits until then
  std::vector<int32_t> chosen_;  // to explain, by their ends
  std::vector<Explained> explained_;
  std::vector<std::vector<Share>> shares_;  // by chunk of those
  double asked_ = 0, work_ = 0;
};

// The critical path of a run, and the imbalance that it shows.
//
// Boehme, de Supinski, Geimer, Schulz, Wolf: Scalable critical-path based performance analysis,
// IPDPS 2012. Backwards from the rank that enters MPI_Finalize last: along the rank to its last
// wait, from there to the causer, and so on.
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

}  // namespace

extern "C" {

// Fills delay costs, critical path and imbalance in. `out`: length of the critical path, share of
// the waiting time that is explained. Returns how it failed.
int find_causes(const RunInput *run, WaitAnalysis *analysis, double budget, double *out) {
  try {
    out[1] = Causes(run, analysis).costs(budget);
    out[0] = CriticalPath(run, analysis).find();
    return NONE;
  } catch (const std::exception &) {
    return failure();
  }
}
}
