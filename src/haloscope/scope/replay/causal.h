// What the causal replays share: ranks that run side by side in one thread, each until it needs
// what another has not done yet; messages matched as MPI does; instances of collectives.
//
// A model (logical_clock.cpp, whatif.cpp) handles one event after the other and says whether the
// rank can go on. What it computes depends on what happened before what, never on the order in
// which ranks are run. Ranks are run by their times, earliest first, so that what is on its way
// stays as little as it was in the program.
#pragma once
#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <queue>
#include <vector>

#include "channels.h"
#include "run.h"

namespace causal {

enum class Step { GO_ON, BLOCKED };

// ---- events of one or several locations that share a clock, in the order of time ----

class Stream {
 public:
  void add(const LocationInput &location, int64_t number) {
    Decoder decoder;
    decoder.open(location);
    parts_.push_back(decoder);
    numbers_.push_back(number);
    alive_.push_back(1);
  }
  bool empty() const { return parts_.empty(); }
  bool next() {
    if (parts_.size() == 1) return parts_[0].next();
    if (!begun_) {
      begun_ = true;
      for (size_t i = 0; i < parts_.size(); i++) alive_[i] = parts_[i].next();
      return choose();
    }
    if (!alive_[at_]) return false;
    alive_[at_] = parts_[at_].next();
    if (alive_[at_] && tick(at_) <= limit_) return true;
    return choose();
  }
  Decoder &now() { return parts_[at_]; }
  size_t part() const { return at_; }  // of this stream
  int64_t location() const { return numbers_[at_]; }
  size_t parts() const { return parts_.size(); }
  int64_t words() const {
    int64_t sum = 0;
    for (const Decoder &part : parts_) sum += part.in->count;
    return sum;
  }
  void give_back(int64_t kept) {
    for (Decoder &part : parts_) part.give_back(kept);
  }
  bool is_broken(size_t part) const { return parts_[part].broken; }

 private:
  int64_t tick(size_t part) const { return parts_[part].in->epoch + parts_[part].ticks; }
  bool choose() {
    size_t best = parts_.size();
    limit_ = INT64_MAX;
    for (size_t i = 0; i < parts_.size(); i++) {
      if (!alive_[i]) continue;
      if (best == parts_.size()) best = i;
      else if (tick(i) < tick(best)) limit_ = tick(best), best = i;
      else limit_ = std::min(limit_, tick(i));
    }
    if (best == parts_.size()) return false;
    at_ = best;
    return true;
  }
  std::vector<Decoder> parts_;
  std::vector<int64_t> numbers_;
  std::vector<uint8_t> alive_;
  size_t at_ = 0;
  int64_t limit_ = 0;
  bool begun_ = false;
};

// Sender, channel and size of a posted receive. MPI matches in the order in which receives are
// posted, but a trace names the message only at completion: so a second decoder runs ahead by at
// most kFar words at a time.
struct Promise {
  bool known = false;
  uint32_t sender = HS_NOBODY;
  uint64_t channel = 0, bytes = 0;
};

class Foresight {
 public:
  // The stream stands at an IRECV; returns its completion.
  Promise at_post(Stream &stream) {
    if (coming_.empty()) {
      ahead_ = stream;
      open_.clear();
      post(ahead_.now().payload);
    }
    for (int64_t steps = 0; !coming_.front().known && steps < kFar && ahead_.next(); steps++) {
      const Decoder &d = ahead_.now();
      if (d.kind == HS_EVENT_IRECV) post(d.payload);
      else if (d.kind == HS_EVENT_IRECV_DONE) close(d.words[2], {true, d.payload, d.words[0], size_of(d)});
      else if (d.kind == HS_EVENT_CANCELLED) close(d.payload, {true, HS_NOBODY, 0, 0});
      else if (d.kind == HS_EVENT_SKIPPED && d.words[2] < HS_NOBODY) close(d.words[2], over(d));
    }
    const Promise promise = coming_.front();
    coming_.pop_front();
    first_++;
    return promise;
  }

 private:
  static constexpr int64_t kFar = 1 << 16;
  static uint64_t size_of(const Decoder &d) {
    return (d.words[1] & HS_BYTES_UNKNOWN) == HS_BYTES_UNKNOWN ? 1 : d.words[1];
  }
  static Promise over(const Decoder &d) {
    if (!(d.words[1] & HS_SKIPPED_RECEIVED) || d.words[1] & HS_SKIPPED_UNSURE) return {true, HS_NOBODY, 0, 0};
    return {true, d.payload, d.words[0], 1};
  }
  void post(uint32_t request) {
    open_.get({request, 0}) = first_ + (int64_t)coming_.size();
    coming_.emplace_back();
  }
  void close(uint64_t request, const Promise &promise) {
    const int64_t *number = open_.find({(uint32_t)request, 0});
    if (!number) return;
    if (*number >= first_) coming_[*number - first_] = promise;
    open_.erase({(uint32_t)request, 0});
  }
  Stream ahead_;
  std::deque<Promise> coming_;
  int64_t first_ = 0;
  Table<int64_t> open_;
};

// ---- messages: a send and a posted receive that have met are one ----

enum MessageState : uint8_t { SENT = 1, POSTED = 2, RECEIVER_DONE = 4, SENDER_DONE = 8 };

template <class Send, class Post>
struct Message {
  Send send;
  Post post;
  int64_t next = kNone, left = 1;
  int32_t receiver_waits = -1, sender_waits = -1;  // units
  uint8_t state = 0;
  bool unseen = false;  // its other side was not recorded
  bool skipped = false;
};

template <class Send, class Post>
class Messages {
 public:
  using One = Message<Send, Post>;
  One &operator[](int64_t number) { return pool_[number]; }

  int32_t send(const Key &channel, const Send &send) {
    const int32_t number = enter(channel, SENT);
    pool_[number].send = send;
    return number;
  }
  int32_t post(const Key &channel, const Post &post) {
    const int32_t number = enter(channel, POSTED);
    pool_[number].post = post;
    return number;
  }
  // One side needs the message no more.
  void done(int32_t number, MessageState side) {
    One &one = pool_[number];
    if (one.state & side) return;
    one.state |= side;
    if ((one.state & (RECEIVER_DONE | SENDER_DONE)) != (RECEIVER_DONE | SENDER_DONE)) return;
    if ((one.state & (SENT | POSTED)) != (SENT | POSTED)) return;  // still in its queue
    free_.push_back(number);
  }
  // Skips messages of which one side was not recorded; `wake` gets each unit that waits for them.
  template <class Wake>
  void skip(const Key &key, MessageState side, int64_t count, Wake wake) {
    One own;
    own.state = side;
    own.skipped = true;
    own.left = std::min(count, kMostSkipped);
    Channel &channel = channels_.get(key);
    meet(own, partners(channel, side), *this, [&](int64_t number, One &other) {
      if (other.skipped) {
        give_back(number, other);
        return;
      }
      other.state |= side;
      other.unseen = true;
      wake(other.receiver_waits);
      wake(other.sender_waits);
      done((int32_t)number, side == SENT ? SENDER_DONE : RECEIVER_DONE);
    });
    if (own.left > 0) wait_in(of(channel, side), *this, fresh(own));
    if (channel.is_empty()) channels_.erase(key);
  }
  // Sends that nobody has received, once all is done.
  int64_t unmatched() {
    int64_t count = 0;
    for (const One &one : pool_)
      if ((one.state & SENT) && !(one.state & POSTED) && !one.skipped) count++;
    return count;
  }

 private:
  static Queue &of(Channel &channel, MessageState side) { return side == SENT ? channel.sends : channel.receives; }
  static Queue &partners(Channel &channel, MessageState side) { return of(channel, side == SENT ? POSTED : SENT); }

  // The message that a send or receive belongs to: that of its partner, where there is one.
  int32_t enter(const Key &key, MessageState side) {
    Channel &channel = channels_.get(key);
    One own;
    own.state = side;
    int64_t number = kNone;
    meet(own, partners(channel, side), *this, [&](int64_t other_number, One &other) {
      if (other.skipped) {
        own.state = (uint8_t)(SENT | POSTED | (side == SENT ? RECEIVER_DONE : SENDER_DONE));
        own.unseen = true;
        give_back(other_number, other);
      } else {
        other.state |= side;
        number = other_number;
      }
    });
    const bool waits = own.left > 0;
    if (number == kNone) number = fresh(own);
    if (waits) wait_in(of(channel, side), *this, number);
    if (channel.is_empty()) channels_.erase(key);
    return (int32_t)number;
  }
  int32_t fresh(const One &one) {
    if (free_.empty()) {
      pool_.push_back(one);
      return (int32_t)pool_.size() - 1;
    }
    const int32_t number = free_.back();
    free_.pop_back();
    pool_[number] = one;
    return number;
  }
  void give_back(int64_t number, One &skipped) {
    if (skipped.left > 0) return;
    skipped = One();
    free_.push_back((int32_t)number);
  }
  std::vector<One> pool_;
  std::vector<int32_t> free_;
  Table<Channel> channels_;
};

// ---- collectives: the n-th of a communicator on each of its members belong together ----

enum class Flow { NONE, ALL_TO_ALL, ONE_TO_ALL, ALL_TO_ONE, UPWARDS, LOOSE };

// How data flow for sure. LOOSE: operations that may bring their members together but need not
// (an MPI_Alltoallv may carry nothing between two ranks), so that only what was seen is taken.
inline Flow flow_of(uint32_t operation) {
  switch (operation) {
    case HS_OP_BARRIER: case HS_OP_ALLREDUCE: case HS_OP_ALLGATHER: case HS_OP_ALLGATHERV:
    case HS_OP_ALLTOALL: case HS_OP_REDUCE_SCATTER: case HS_OP_REDUCE_SCATTER_BLOCK:
      return Flow::ALL_TO_ALL;
    case HS_OP_BROADCAST: case HS_OP_SCATTER: case HS_OP_SCATTERV: return Flow::ONE_TO_ALL;
    case HS_OP_REDUCE: case HS_OP_GATHER: case HS_OP_GATHERV: return Flow::ALL_TO_ONE;
    case HS_OP_SCAN: case HS_OP_EXSCAN: return Flow::UPWARDS;
    case HS_OP_ALLTOALLV: case HS_OP_ALLTOALLW: case HS_OP_NEIGHBOUR: case HS_OP_INIT:
    case HS_OP_FINALIZE: case HS_OP_CREATE: case HS_OP_FENCE:
      return Flow::LOOSE;
    default: return Flow::NONE;
  }
}

template <class Entry>
struct Instance {
  uint32_t operation = 0, root = HS_NOBODY;  // root: a rank of the world
  int32_t arrived = 0, taken = 0, missing = 0;
  int32_t root_place = -1;
  int32_t lowest_missing = 0;   // all places below have arrived or never will
  std::vector<Entry> entries;   // by place
  std::vector<uint8_t> here;    // by place
  std::vector<uint8_t> skipped; // by place: took part unrecorded; empty where nobody did
  std::vector<int32_t> waiting; // units
  typename Entry::Summary summary; // a model's own
};

template <class Entry>
class Collectives {
 public:
  using One = Instance<Entry>;

  void open(const RunInput &run, const std::vector<int32_t> &units_of_rank) {
    run_ = &run;
    comms_ = std::vector<Comm>(run.comm_count);
    next_.assign(run.comm_count ? run.comm_starts[run.comm_count] : 0, 0);
    present_.assign(next_.size(), 0);
    for (int64_t comm = 0; comm < run.comm_count; comm++)
      for (int32_t i = run.comm_starts[comm]; i < run.comm_starts[comm + 1]; i++) {
        const int32_t rank = run.comm_members[i];
        present_[i] = rank >= 0 && rank < run.rank_count && units_of_rank[rank] > 0;
        comms_[comm].present += present_[i];
      }
  }
  int32_t size(int32_t comm) const {
    return run_->comm_starts[comm + 1] - run_->comm_starts[comm];
  }
  int32_t rank(int32_t comm, int32_t place) const {
    return run_->comm_members[run_->comm_starts[comm] + place];
  }
  // The next instance of this member; -1 for a communicator that this file does not explain.
  int64_t enter(int32_t comm, int32_t place, uint32_t operation, uint32_t root, const Entry &entry) {
    if (comm < 0 || place < 0 || comm >= run_->comm_count || place >= size(comm)) return -1;
    const int32_t start = run_->comm_starts[comm];
    Comm &c = comms_[comm];
    if (!present_[start + place]) return -1;
    const int64_t number = next_[start + place]++;
    const auto [position, is_fresh] = c.instances.try_emplace(number);
    One &one = position->second;
    if (is_fresh) {
      one.entries.resize(size(comm));
      one.here.assign(size(comm), 0);
      one.missing = c.present;
      for (const Skip &skip : c.skips)
        if (skip.from <= number && number < skip.to) miss(start, one, skip.place);
      look(start, one);
    }
    if (one.arrived == 0) one.operation = operation, one.root = root;
    one.entries[place] = entry;
    one.here[place] = 1;
    one.arrived++;
    one.missing--;
    if ((uint32_t)rank(comm, place) == one.root) one.root_place = place;
    look(start, one);
    return number;
  }
  // This member took part in the next instances, unrecorded. `changed` gets those that exist.
  template <class Function>
  void skip(int32_t comm, int32_t place, int64_t count, Function changed) {
    if (comm < 0 || place < 0 || comm >= run_->comm_count || place >= size(comm)) return;
    const int32_t start = run_->comm_starts[comm];
    if (count > kMostSkipped || next_[start + place] > kMostInstances) return;
    Comm &c = comms_[comm];
    const Skip skip{next_[start + place], next_[start + place] + count, place};
    next_[start + place] = skip.to;
    if (c.skips.size() >= c.skips_kept) {
      int64_t low = INT64_MAX;
      for (int32_t i = 0; i < size(comm); i++)
        if (present_[start + i]) low = std::min(low, next_[start + i]);
      const auto over = [low](const Skip &one) { return one.to <= low; };
      c.skips.erase(std::remove_if(c.skips.begin(), c.skips.end(), over), c.skips.end());
      c.skips_kept = std::max<size_t>(64, 2 * c.skips.size());
    }
    c.skips.push_back(skip);
    for (auto at = c.instances.lower_bound(skip.from); at != c.instances.end() && at->first < skip.to; ++at) {
      miss(start, at->second, place);
      look(start, at->second);
      changed(at->second);
    }
    drop(c);
  }
  One &at(int32_t comm, int64_t number) { return comms_[comm].instances.find(number)->second; }
  // Whether all that this member needs is there.
  bool enough(const One &one, int32_t place) const {
    switch (flow_of(one.operation)) {
      case Flow::NONE: return true;
      case Flow::ONE_TO_ALL: return one.root_place >= 0 || one.missing == 0;
      case Flow::ALL_TO_ONE: return one.root_place != place || one.missing == 0;
      case Flow::UPWARDS: return one.lowest_missing >= place;
      default: return one.missing == 0;
    }
  }
  // A member has left; what all have left is dropped.
  void leave(int32_t comm, int64_t number) {
    at(comm, number).taken++;
    drop(comms_[comm]);
  }
  template <class Function>
  void for_each(Function function) {  // of what has not been dropped
    for (int32_t comm = 0; comm < (int32_t)comms_.size(); comm++)
      for (auto &one : comms_[comm].instances) function(comm, one.second);
  }
  // Counts no more on members whose ranks have ended. True where there were some.
  bool bury(int32_t comm, const std::vector<int32_t> &live) {
    Comm &c = comms_[comm];
    const int32_t start = run_->comm_starts[comm];
    bool any = false;
    for (int32_t place = 0; place < size(comm); place++) {
      if (!present_[start + place] || live[rank(comm, place)] > 0) continue;
      present_[start + place] = 0;
      c.present--;
      any = true;
      for (auto &[number, one] : c.instances)
        one.missing -= !one.here[place] && (one.skipped.empty() || !one.skipped[place]);
    }
    for (auto &[number, one] : c.instances) look(start, one);
    drop(c);
    return any;
  }

 private:
  struct Skip {
    int64_t from, to;
    int32_t place;
  };
  struct Comm {
    int32_t present = 0;
    std::map<int64_t, One> instances;  // by number
    std::vector<Skip> skips;
    size_t skips_kept = 64;
  };
  void miss(int32_t start, One &one, int32_t place) const {
    if (!present_[start + place]) return;
    if (one.skipped.empty()) one.skipped.assign(one.here.size(), 0);
    one.skipped[place] = 1;
    one.missing--;
  }
  void look(int32_t start, One &one) const {
    const int32_t count = (int32_t)one.here.size();
    while (one.lowest_missing < count &&
           (one.here[one.lowest_missing] || !present_[start + one.lowest_missing] ||
            (!one.skipped.empty() && one.skipped[one.lowest_missing])))
      one.lowest_missing++;
  }
  void drop(Comm &c) {
    for (auto first = c.instances.begin(); first != c.instances.end() && first->second.missing == 0 &&
                                           first->second.taken == first->second.arrived;)
      first = c.instances.erase(first);
  }
  const RunInput *run_ = nullptr;
  std::vector<Comm> comms_;
  std::vector<int64_t> next_;     // by communicator and place
  std::vector<uint8_t> present_;  // by communicator and place: has events that are still to come
};

// ---- what runs: a rank, or a location of it ----

struct Unit {
  Stream stream;
  Foresight foresight;
  int32_t number = 0, rank = 0;
  bool pending = false;  // its event could not be handled yet
  bool blocked = false, granted = false, ended = false;
  int32_t provider = -1;                 // rank that it waits for
  int32_t comm = -1, place = -1;         // or communicator whose members it waits for, and its own
};

// Runs `model.handle(unit)` for every event of every unit. Units have `time()`, a double.
template <class Model, class AUnit>
class Replay {
 public:
  std::vector<AUnit> units;
  std::vector<int32_t> units_of_rank, live;  // by rank: all, and those that have not ended
  int64_t events = 0, forced = 0, broken = 0;

  AUnit &add(int32_t rank) {
    units.emplace_back();
    units.back().number = (int32_t)units.size() - 1;
    units.back().rank = rank;
    units_of_rank[rank]++;
    return units.back();
  }

  // The unit cannot go on before `rank` has. False where it has to, as that is not to come.
  bool wait_for(AUnit &unit, int32_t rank) {
    if (unit.granted) return unit.granted = false;
    if (gave_up_ || rank < 0 || rank >= (int32_t)live.size() || live[rank] == 0) return false;
    unit.provider = rank;
    unit.comm = -1;
    return unit.blocked = true;
  }
  bool wait_in(AUnit &unit, int32_t comm, int32_t place) {
    if (unit.granted) return unit.granted = false;
    if (gave_up_) return false;
    unit.provider = -1;
    unit.comm = comm;
    unit.place = place;
    return unit.blocked = true;
  }
  void wake(int32_t number) {
    if (number < 0 || !units[number].blocked) return;
    units[number].blocked = false;
    queue_.push({units[number].time(), number});
  }

  void run(Model &model) {
    live = units_of_rank;
    int64_t words = 0, locations = 0;
    for (const AUnit &unit : units) words += unit.stream.words(), locations += unit.stream.parts();
    kept_ = words_kept(words, locations);
    for (AUnit &unit : units) queue_.push({0.0, unit.number});
    for (;;) {
      while (!queue_.empty()) {
        AUnit &unit = units[queue_.top().second];
        queue_.pop();
        advance(model, unit);
      }
      if (!release(model)) return;
    }
  }

 private:
  static constexpr int kTurn = 2048;         // events before another unit gets its turn
  static constexpr int64_t kMostForced = 10000;

  void advance(Model &model, AUnit &unit) {
    unit.stream.give_back(kept_);
    for (int turn = 0; turn < kTurn; turn++) {
      if (!unit.pending) {
        if (!unit.stream.next()) {
          unit.ended = true;
          live[unit.rank]--;
          for (size_t i = 0; i < unit.stream.parts(); i++) broken += unit.stream.is_broken(i);
          model.end(unit);
          return;
        }
        events++;
      }
      unit.pending = model.handle(unit) == Step::BLOCKED;
      if (unit.pending) return;
      unit.granted = false;
    }
    queue_.push({unit.time(), unit.number});
  }

  // All units are blocked or have ended: lets those go on that wait in vain, as what they wait for
  // has ended. Where there are none, the trace contradicts itself, and the earliest goes on.
  bool release(Model &model) {
    std::vector<int32_t> comms;
    for (const AUnit &unit : units)
      if (unit.blocked && unit.comm >= 0) comms.push_back(unit.comm);
    std::sort(comms.begin(), comms.end());
    comms.erase(std::unique(comms.begin(), comms.end()), comms.end());
    std::vector<int32_t> buried;
    for (int32_t comm : comms)
      if (model.bury(comm)) buried.push_back(comm);
    int32_t earliest = -1;
    bool any = false;
    for (AUnit &unit : units) {
      if (!unit.blocked) continue;
      if (unit.comm >= 0 ? std::binary_search(buried.begin(), buried.end(), unit.comm)
                         : live[unit.provider] == 0) {
        unit.granted = unit.comm < 0;
        any = true;
        wake(unit.number);
      } else if (earliest < 0 || unit.time() < units[earliest].time()) {
        earliest = unit.number;
      }
    }
    if (any) return true;
    if (earliest < 0) return false;
    if (++forced >= kMostForced) gave_up_ = true;
    units[earliest].granted = true;
    wake(earliest);
    return true;
  }

  struct Later {
    bool operator()(const std::pair<double, int32_t> &a, const std::pair<double, int32_t> &b) const {
      return a.first != b.first ? a.first > b.first : a.second > b.second;
    }
  };
  std::priority_queue<std::pair<double, int32_t>, std::vector<std::pair<double, int32_t>>, Later>
      queue_;
  bool gave_up_ = false;
  int64_t kept_ = 0;  // words of a location that stay in memory
};

// ---- what the models share: requests, messages and collectives as a trace numbers them ----

struct Request {
  int32_t message = -1, comm = -1, place = -1;
  int64_t instance = -1;
  uint64_t bytes = 0;
  bool sends = false;
};

template <class Model, class AUnit, class Send, class Post, class Entry>
class Matcher {
 public:
  bool bury(int32_t comm) { return collectives_.bury(comm, replay_.live); }

 protected:
  explicit Matcher(const RunInput &run) : run_(run), requests_(run.rank_count) {
    replay_.units_of_rank.assign(run.rank_count, 0);
  }
  static Key key_of(uint64_t number) { return {(uint32_t)number, 0}; }
  const Request *request_of(const AUnit &u, uint64_t number) {
    return requests_[u.rank].find(key_of(number));
  }
  Request &request(const AUnit &u, uint64_t number) { return requests_[u.rank].get(key_of(number)); }
  void forget(const AUnit &u, uint64_t number) { requests_[u.rank].erase(key_of(number)); }

  int32_t send(const AUnit &u, const Decoder &d, const Send &send) {
    const int32_t number = messages_.send(
        channel_key(u.rank, d.payload, d.comm((uint32_t)d.words[0]), d.words[0] >> 32), send);
    if (messages_[number].state & POSTED)
      replay_.wake(messages_[number].receiver_waits);
    return number;
  }
  int32_t post(const AUnit &u, const Decoder &d, uint32_t sender, uint64_t channel, const Post &post) {
    return messages_.post(channel_key(sender, u.rank, d.comm((uint32_t)channel), channel >> 32), post);
  }
  // Whether the receive has to wait for its send.
  bool waits_for_send(AUnit &u, Message<Send, Post> &message, uint32_t sender) {
    if (message.state & SENT || !replay_.wait_for(u, (int32_t)sender)) return false;
    message.receiver_waits = u.number;
    return true;
  }

  // Messages or collectives that were not recorded, or a request that is over.
  void skip(const AUnit &u, const Decoder &d) {
    const uint64_t flags = d.words[1];
    const int64_t count = (int64_t)(flags & HS_SKIPPED_COUNT);
    const bool has_request = d.words[2] < HS_NOBODY;
    if (const Request *pending = has_request ? request_of(u, d.words[2]) : nullptr) {
      const Request one = *pending;
      forget(u, d.words[2]);
      if (one.instance >= 0) collectives_.leave(one.comm, one.instance);
      else if (one.message >= 0) messages_.done(one.message, one.sends ? SENDER_DONE : RECEIVER_DONE);
      return;
    }
    if (flags & (HS_SKIPPED_UNSURE | HS_SKIPPED_EPOCH) || count == 0) return;
    const int32_t comm = d.comm((uint32_t)d.words[0]);
    if (flags & (HS_SKIPPED_SENT | HS_SKIPPED_RECEIVED)) {
      if (d.payload >= (uint32_t)run_.rank_count) return;
      const bool sent = flags & HS_SKIPPED_SENT;
      const uint32_t from = sent ? (uint32_t)u.rank : d.payload, to = sent ? d.payload : (uint32_t)u.rank;
      messages_.skip(channel_key(from, to, comm, d.words[0] >> 32), sent ? SENT : POSTED, count,
                     [&](int32_t number) { replay_.wake(number); });
    } else if (!has_request && d.payload == HS_NOBODY) {
      collectives_.skip(comm, d.place_in((uint32_t)d.words[0]), count, [&](auto &one) { wake_members(one); });
    }
  }

  int64_t enter(int32_t comm, int32_t place, const Decoder &d, const Entry &entry) {
    const int64_t instance =
        collectives_.enter(comm, place, (uint32_t)d.words[0], (uint32_t)(d.words[0] >> 32), entry);
    if (instance >= 0) wake_members(collectives_.at(comm, instance));
    return instance;
  }
  // Whether a member has to wait for others before it can leave.
  bool waits_for_members(AUnit &u, Instance<Entry> &one, int32_t comm, int32_t place) {
    if (collectives_.enough(one, place) || !replay_.wait_in(u, comm, place)) return false;
    one.waiting.push_back(u.number);
    return true;
  }
  static bool gives(const Instance<Entry> &one, int32_t place) {
    return one.here[place] && (one.operation == HS_OP_BARRIER || one.entries[place].sent > 0);
  }

  const RunInput &run_;
  std::vector<Table<Request>> requests_;  // by rank
  Messages<Send, Post> messages_;
  Collectives<Entry> collectives_;
  Replay<Model, AUnit> replay_;

 private:
  void wake_members(Instance<Entry> &one) {
    size_t kept = 0;
    for (int32_t number : one.waiting) {
      if (collectives_.enough(one, replay_.units[number].place)) replay_.wake(number);
      else one.waiting[kept++] = number;
    }
    one.waiting.resize(kept);
  }
};

}  // namespace causal
