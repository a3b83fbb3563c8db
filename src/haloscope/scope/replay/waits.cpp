// Goes through all ranks' events side by side and finds what waited for what.
//
// Ranks are shared out to threads. In turns every thread decodes a stretch of its ranks' events
// (writing down sends, receives and collectives), then matches what has arrived for its ranks,
// then goes through calls whose messages are all matched, in order, and computes their waits.
// Decoding never waits for another rank, so that threads meet three times a stretch and not once
// a message; what is written down is dropped as soon as it has been used, so that a trace of any
// length fits into memory. All sums of a location are made by one thread in the order of its
// events: the result does not depend on the number of threads.
//
// Definitions: Geimer et al., Concurrency and Computation 22 (2010) 702, and the pattern
// descriptions of the Scalasca family; point-to-point synchronisation and Early Scan: Wylie et
// al., EuroPVM/MPI 2007. B is the enter, E the leave of a call.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "decoder.h"
#include "found.h"
#include "team.h"

namespace {

constexpr int kSizes = 66;
constexpr int kLateSendersKept = 64;  // late messages that a later one may turn out to precede
constexpr size_t kMostHeld = 65536;  // receives of a rank that wait for ones posted before them
constexpr int64_t kNone = -1;
constexpr double kEver = 1e300;

enum Family : int32_t { MESSAGE = 0, POST_START = 1, POST_COMPLETE = 2, COMPLETE_WAIT = 3 };

struct Send {
  double enter, receive_enter = 0, last_access = 0;
  uint64_t bytes;
  Position at;
  int64_t next = kNone;
  int32_t node, location, receiver, comm, tag, family;
  int32_t receive_location = -1, receive_node = -1;
  Position receive_at;
  bool matched = false, cancelled = false, used = false, queued = false;
};

struct Receive {
  double posted, enter = 0, leave = 0;
  double send_enter = 0, last_access = 0;
  Position posted_at;
  int64_t next = kNone, order = 0;  // order: in which it was posted
  int32_t location, posted_location, sender, comm, tag, family, posted_node, together = 1;
  int32_t send_location = -1, send_node = -1;
  Position send_at;
  bool matched = false, used = false;
};

// A call that completed messages.
struct Call {
  double enter, leave;
  Position at;
  int64_t first_receive, first_done;
  int32_t receives, dones, node, location;
  bool test, empty;
};

struct Collective {
  double enter, leave;
  uint64_t sent, received;
  int64_t instance;
  Position at;
  int32_t comm, place, operation, root, node, location;
};

// What the owner of a communicator hears of one member's call.
struct Arrival {
  int32_t comm, place, operation, location, node;
  uint32_t root;
  int64_t instance;
  double enter, leave;
  bool contributes, has_payload;
  Position at;
};

struct Access {  // the last access of a rank to a target's window before a fence
  int32_t comm, target;
  int64_t instance;
  double time;
};

struct Instance {
  int32_t arrived = 0, operation = 0;
  int32_t last = -1, last_sender = -1, root_place = -1;  // places
  double max_enter = -1e300, min_leave = 1e300, max_sender = -1e300, max_leave = -1e300;
  std::vector<double> enters;
  std::vector<int32_t> locations, nodes;
  std::vector<Position> positions;
  std::vector<uint8_t> contributes;
  std::vector<std::pair<int32_t, double>> accesses;
  int32_t number = -1;  // of its Synchronisation
  bool complete = false;
  std::atomic<int32_t> left{0};
};

struct Communicator {
  int32_t size = 0, present = 0;
  int64_t base = 0;
  std::deque<std::unique_ptr<Instance>> instances;
  Instance *at(int64_t number) {
    const int64_t index = number - base;
    return index >= 0 && index < (int64_t)instances.size() ? instances[index].get() : nullptr;
  }
};

// Records with numbers that stay while the front is dropped.
template <class T>
struct Window {
  std::vector<T> items;
  int64_t base = 0, head = 0;  // items before head are done with
  int64_t end() const { return base + (int64_t)items.size(); }
  T &operator[](int64_t number) { return items[number - base]; }
  bool holds(int64_t number) const { return number >= base && number < end(); }
  int64_t push(const T &item) {
    items.push_back(item);
    return end() - 1;
  }
  void drop_before(int64_t number) {
    const int64_t count = std::min(number, end()) - base;
    if (count <= 0 || (count < 256 && count * 2 < (int64_t)items.size())) return;
    items.erase(items.begin(), items.begin() + count);
    base += count;
  }
};

struct Channel {
  int32_t sender, comm, tag, family;
  int64_t first_send = kNone, last_send = kNone, first_receive = kNone, last_receive = kNone;
};

// Channels of a receiver: open addressing on sender, communicator, tag and family.
struct Channels {
  std::vector<int32_t> slots = std::vector<int32_t>(64, -1);
  std::vector<Channel> list;
  static uint64_t mix(int32_t sender, int32_t comm, int32_t tag, int32_t family) {
    uint64_t h = (uint64_t)(uint32_t)sender * 0x9e3779b97f4a7c15ull;
    h ^= ((uint64_t)(uint32_t)comm << 32 | (uint32_t)tag) * 0xc2b2ae3d27d4eb4full;
    h += (uint64_t)family * 0x165667b19e3779f9ull;
    return h ^ h >> 29;
  }
  Channel &get(int32_t sender, int32_t comm, int32_t tag, int32_t family) {
    uint64_t place = mix(sender, comm, tag, family) & (slots.size() - 1);
    while (slots[place] >= 0) {
      Channel &found = list[slots[place]];
      if (found.sender == sender && found.comm == comm && found.tag == tag &&
          found.family == family)
        return found;
      place = (place + 1) & (slots.size() - 1);
    }
    slots[place] = (int32_t)list.size();
    list.push_back({sender, comm, tag, family});
    if (list.size() * 2 > slots.size()) {
      slots.assign(slots.size() * 4, -1);
      for (size_t i = 0; i < list.size(); i++) {
        uint64_t p = mix(list[i].sender, list[i].comm, list[i].tag, list[i].family);
        p &= slots.size() - 1;
        while (slots[p] >= 0) p = (p + 1) & (slots.size() - 1);
        slots[p] = (int32_t)i;
      }
    }
    return list.back();
  }
};

struct Request {
  double enter = 0;
  int64_t send = kNone, order = -1;
  int32_t node = -1;
  Position at;
  int32_t location = -1;
  bool open = false;
};

// Requests by the rank's own numbers: a table for small ones, which tracers give out first.
struct Requests {
  std::vector<Request> small;
  std::unordered_map<uint64_t, Request> large;
  Request &at(uint64_t number) {
    if (number < (1u << 20)) {
      if (number >= small.size()) small.resize(std::max<size_t>(64, number * 2 + 1));
      return small[number];
    }
    return large[number];
  }
  void close(uint64_t number) {
    if (number < (1u << 20)) at(number).open = false;
    else large.erase(number);
  }
};

struct LateMessage {
  double send_enter, amount;
  int32_t sender, node, location;
};

struct PairTable {
  std::vector<int32_t> slots = std::vector<int32_t>(64, -1);
  std::vector<Pair> list;
  Pair &get(int32_t node, int32_t sender, int32_t receiver) {
    auto mix = [](int32_t n, int32_t s) {
      uint64_t h = (uint64_t)(uint32_t)s * 0x9e3779b97f4a7c15ull + (uint64_t)(uint32_t)n * 0xc2b2ae3d27d4eb4full;
      return h ^ h >> 31;
    };
    uint64_t place = mix(node, sender) & (slots.size() - 1);
    while (slots[place] >= 0) {
      Pair &found = list[slots[place]];
      if (found.node == node && found.sender == sender) return found;
      place = (place + 1) & (slots.size() - 1);
    }
    slots[place] = (int32_t)list.size();
    list.push_back({node, sender, receiver, 0, 0, 0, 0, 0, 0});
    if (list.size() * 2 > slots.size()) {
      slots.assign(slots.size() * 4, -1);
      for (size_t i = 0; i < list.size(); i++) {
        uint64_t p = mix(list[i].node, list[i].sender) & (slots.size() - 1);
        while (slots[p] >= 0) p = (p + 1) & (slots.size() - 1);
        slots[p] = (int32_t)i;
      }
    }
    return list.back();
  }
};

struct Lock {
  int32_t window, target, location, lock_node, unlock_node;
  bool exclusive;
  Position lock_at, unlock_at;
  double lock_enter, lock_leave, unlock_enter, unlock_leave;
};

// What a call has told of itself between its ENTER and its LEAVE.
struct Visit {
  int64_t enter = 0;
  Position at;
  std::vector<int64_t> receives, dones;  // numbers of the rank's receives and sends
  int64_t accessed = -1;                 // comm, target of a put or get
  int32_t accessed_window = -1, messages = 0, filled = 0, depth = 0;
  bool open = false, collective = false;
  Collective call;
};

struct LocationState {
  Decoder decoder;
  std::vector<int32_t> stack = std::vector<int32_t>(64);
  int32_t depth = 0;
  Visit visit;
  int64_t last = 0, first = 0;
  int32_t current = -1;
  bool started = false, ended = false, looked = false;
  int64_t next_mark = INT64_MAX;
  int64_t given_back = 0;  // words whose pages have been given back
  double *values = nullptr;
  std::vector<int64_t> ticks;  // exclusive, by node
};

struct RankState {
  std::vector<int32_t> locations;
  Window<Send> sends;
  Window<Receive> receives;
  Window<Call> calls;
  Window<int64_t> taken, dones;  // numbers of receives and sends, in the order of their calls
  Window<Collective> collectives;
  std::vector<int64_t> instances;  // next one of each of the rank's own communicators
  std::unordered_map<int32_t, std::vector<int32_t>> start_groups, post_groups;  // by window
  std::unordered_map<int32_t, double> last_access;                  // by window
  std::unordered_map<int64_t, double> accesses;                     // comm, target: last leave
  std::vector<std::pair<int64_t, double>> fence_accesses;
  std::vector<Lock> open_locks, locks;
  int64_t matched_to = 0;     // receives that have been looked at for matching
  Window<uint8_t> posted;     // receives by the order of posting: 1 while they are open
  std::vector<int64_t> held;  // receives completed before others that were posted earlier
  Requests requests;
  Channels channels;
  PairTable pairs;
  std::vector<LateMessage> late;
  double latest_late = -1e300;
  std::deque<Wait> waits;
};

struct SendNote {
  int32_t sender, receiver;
  int64_t number;
};

struct Replay {
  const RunInput *run;
  Found *found;
  int threads;
  bool keep_causes, stream = false;
  std::vector<LocationState> locations;
  std::vector<RankState> ranks;
  std::vector<Communicator> comms;
  std::vector<int> owner;                              // thread of a rank
  std::vector<std::vector<std::vector<SendNote>>> mail;  // [from thread][to thread]
  std::vector<std::vector<std::vector<Arrival>>> arrivals;
  std::vector<std::vector<std::vector<Access>>> access_mail;
  std::vector<std::vector<int64_t>> sizes;             // by thread
  std::vector<int64_t> events, broken, unknown, scans, synchronising;

  static double as_seconds(const LocationState &l, int64_t ticks) {
    return double(ticks) * l.decoder.in->rate + l.decoder.in->zero;
  }

  static int bucket(uint64_t bytes) {
    return bytes == 0 ? 0 : bytes == 1 ? 1 : 65 - __builtin_clzll(bytes - 1);
  }

  inline void charge(LocationState &l, int64_t now) {
    if (l.current >= 0 && now > l.last) l.ticks[l.current] += now - l.last;
    l.last = now;
  }

  int64_t post(int thread, RankState &r, const Send &send) {
    const int64_t number = r.sends.push(send);
    const uint32_t to = (uint32_t)send.receiver;
    if (to < (uint32_t)run->rank_count && !ranks[to].locations.empty())
      mail[thread][owner[to]].push_back({locations[send.location].decoder.in->rank, (int32_t)to, number});
    return number;
  }

  void await(LocationState &l, int32_t location, RankState &r, Receive receive) {
    receive.location = location;
    if (receive.posted_location < 0) {
      receive.posted_location = location;
      receive.order = r.posted.push(1);
    }
    l.visit.receives.push_back(r.receives.push(receive));
  }

  // One event of a location, which its decoder has found.
  inline void take(int thread, int32_t index, LocationState &l, RankState &r) {
    Decoder &d = l.decoder;
    const int64_t now = d.now;
    if (__builtin_expect(!l.started, 0)) {
      l.started = true;
      l.first = l.last = now;
    }
    switch (d.kind) {
      case HS_EVENT_ENTER: {
        const int32_t node = d.node(d.payload);
        charge(l, now);
        if (__builtin_expect(l.depth == (int32_t)l.stack.size(), 0)) l.stack.resize(2 * l.depth);
        l.stack[l.depth++] = l.current;
        l.current = node;
        if (__builtin_expect(node < 0, 0)) { unknown[thread]++; break; }
        double &visits = l.values[node * (int64_t)SLOTS + VISITS];
        if (__builtin_expect(visits == 0, 0) && keep_causes) found->marks[index].active.push_back(node);
        visits += 1;
        const int32_t role = run->node_roles[node];
        if (role >= ROLE_MPI && role <= ROLE_RMA_SYNC && !l.visit.open) {
          Visit &v = l.visit;
          v.open = true;
          v.enter = now;
          v.at = {d.start, d.ticks - (int64_t)((d.in->words[d.start] >> 6) & HS_MOST_DELTA)};
          v.receives.clear();
          v.dones.clear();
          v.accessed = -1;
          v.messages = v.filled = 0;
          v.collective = false;
          v.depth = l.depth;
        }
        break;
      }
      case HS_EVENT_LEAVE: {
        charge(l, now);
        if (l.depth == 0) break;
        if (l.visit.open && l.visit.depth == l.depth) close_visit(thread, index, l, r, now);
        l.current = l.stack[--l.depth];
        if (__builtin_expect(d.place >= l.next_mark, 0)) mark(index, l);
        break;
      }
      default:
        other(thread, index, l, r, now);
    }
  }

  void mark(int32_t index, LocationState &l) {
    Marks &m = found->marks[index];
    m.places.push_back(l.decoder.place);
    m.ticks.push_back(l.decoder.ticks);
    m.currents.push_back(l.current);
    m.starts.push_back((int64_t)m.sums.size());
    for (int32_t node : m.active) m.sums.push_back(l.ticks[node]);
    // As far apart as keeps them small beside the events.
    l.next_mark = l.decoder.place + std::max(Marks::kWords, 2 * (int64_t)m.active.size());
  }

  double *values_here(LocationState &l) {
    return l.current >= 0 ? l.values + l.current * (int64_t)SLOTS : nullptr;
  }

  Send new_send(LocationState &l, int32_t index, uint32_t to, int32_t comm, uint32_t tag,
                uint64_t bytes, int32_t family) {
    Send s;
    s.enter = as_seconds(l, l.visit.enter);
    s.bytes = bytes;
    s.at = l.visit.at;
    s.node = l.current;
    s.location = index;
    s.receiver = (int32_t)to;
    s.comm = comm;
    s.tag = (int32_t)tag;
    s.family = family;
    return s;
  }

  Receive new_receive(LocationState &l, uint32_t from, int32_t comm, uint32_t tag,
                      int32_t family) {
    Receive m;
    m.posted = as_seconds(l, l.visit.enter);
    m.posted_at = l.visit.at;
    m.posted_node = l.current;
    m.posted_location = -1;
    m.sender = (int32_t)from;
    m.comm = comm;
    m.tag = (int32_t)tag;
    m.family = family;
    return m;
  }

  void count_sent(int thread, LocationState &l, uint64_t bytes) {
    double *v = values_here(l);
    v[MESSAGES_SENT] += 1;
    v[EMPTY_SENT] += bytes == 0;
    v[BYTES_SENT] += double(bytes);
    sizes[thread][l.current * (int64_t)kSizes + bucket(bytes)]++;
    l.visit.messages++;
    l.visit.filled += bytes > 0;
  }

  void count_received(LocationState &l, uint64_t bytes) {
    double *v = values_here(l);
    v[MESSAGES_RECEIVED] += 1;
    v[EMPTY_RECEIVED] += bytes == 0;
    v[BYTES_RECEIVED] += double(bytes);
    l.visit.messages++;
    l.visit.filled += bytes > 0;
  }

  void other(int thread, int32_t index, LocationState &l, RankState &r, int64_t now) {
    Decoder &d = l.decoder;
    if (d.kind == HS_EVENT_PAUSE) {
      charge(l, now);
      return;
    }
    if (d.kind == HS_EVENT_RESUME) {
      l.last = now;  // time in between belongs to nothing
      return;
    }
    if (l.current < 0 || !l.visit.open) return;  // what belongs to no call says nothing
    Visit &v = l.visit;
    const uint64_t *w = d.words;
    const bool is_message = d.kind == HS_EVENT_SEND || d.kind == HS_EVENT_ISEND ||
                            d.kind == HS_EVENT_RECV || d.kind == HS_EVENT_IRECV_DONE;
    if (is_message && d.payload == HS_NOBODY) return;
    switch (d.kind) {
      case HS_EVENT_SEND:
      case HS_EVENT_ISEND: {
        const uint64_t bytes = w[1] & 0xffffffffffffull;
        count_sent(thread, l, bytes);
        Send s = new_send(l, index, d.payload, d.comm((uint32_t)w[0]), (uint32_t)(w[0] >> 32), bytes, MESSAGE);
        const int64_t number = post(thread, r, s);
        if (d.kind == HS_EVENT_SEND) {
          v.dones.push_back(number);
        } else {
          Request &q = r.requests.at(w[2]);
          q.open = true;
          q.send = number;
        }
        break;
      }
      case HS_EVENT_ISEND_DONE: {
        Request &q = r.requests.at(d.payload);
        if (q.open && q.send != kNone && r.sends.holds(q.send)) {
          v.messages++;
          v.filled += r.sends[q.send].bytes > 0;
          v.dones.push_back(q.send);
        }
        r.requests.close(d.payload);
        break;
      }
      case HS_EVENT_RECV: {
        const uint64_t bytes = w[1] & 0xffffffffffffull;
        count_received(l, bytes);
        await(l, index, r, new_receive(l, d.payload, d.comm((uint32_t)w[0]), (uint32_t)(w[0] >> 32), MESSAGE));
        break;
      }
      case HS_EVENT_IRECV: {
        Request &q = r.requests.at(d.payload);
        q.open = true;
        q.send = kNone;
        q.enter = as_seconds(l, v.enter);
        q.node = l.current;
        q.at = v.at;
        q.location = index;
        q.order = r.posted.push(1);
        break;
      }
      case HS_EVENT_IRECV_DONE: {
        const uint64_t bytes = w[1] & 0xffffffffffffull;
        count_received(l, bytes);
        Receive m = new_receive(l, d.payload, d.comm((uint32_t)w[0]), (uint32_t)(w[0] >> 32), MESSAGE);
        Request &q = r.requests.at(w[2]);
        if (q.open) {
          m.posted = q.enter;
          m.posted_at = q.at;
          m.posted_node = q.node;
          m.posted_location = q.location;
          m.order = q.order;
        }
        r.requests.close(w[2]);
        await(l, index, r, m);
        break;
      }
      case HS_EVENT_CANCELLED: {
        Request &q = r.requests.at(d.payload);
        if (q.open && q.send != kNone && r.sends.holds(q.send)) r.sends[q.send].cancelled = true;
        if (q.open && q.send == kNone && r.posted.holds(q.order)) r.posted[q.order] = 0;
        r.requests.close(d.payload);
        break;
      }
      case HS_EVENT_COLLECTIVE: {
        Collective &c = v.call;
        v.collective = false;
        c.comm = d.comm(d.payload);
        c.place = d.place_in(d.payload);
        c.operation = (int32_t)(w[0] & 0xffffffff);
        c.root = (int32_t)(w[0] >> 32);
        c.sent = w[1];
        c.received = w[2];
        if (d.payload >= r.instances.size()) {
          if (c.comm < 0) { unknown[thread]++; break; }
          r.instances.resize(d.payload + 1, 0);
        }
        c.instance = r.instances[d.payload]++;
        v.collective = c.comm >= 0 && c.place >= 0;  // between two groups there is no pattern
        break;
      }
      case HS_EVENT_ICOLLECTIVE: {
        if (d.comm(d.payload) < 0) { unknown[thread]++; break; }
        if (d.payload >= r.instances.size()) r.instances.resize(d.payload + 1, 0);
        r.instances[d.payload]++;
        double *values = values_here(l);
        values[COLLECTIVES] += 1;
        values[BYTES_COLLECTIVE] += double(w[1]) + double(w[2]);
        // An operation that every member starts but none waits in keeps its number.
        if (d.place_in(d.payload) >= 0)
          skip_instance(thread, d.comm(d.payload), d.place_in(d.payload), r.instances[d.payload] - 1,
                        index, as_seconds(l, v.enter), v.at);
        break;
      }
      case HS_EVENT_PUT:
      case HS_EVENT_GET: {
        values_here(l)[BYTES_RMA] += double(w[1]);
        const int32_t comm = d.window((uint32_t)w[0]);
        v.accessed_window = (int32_t)w[0];
        v.accessed = comm >= 0 ? (int64_t)comm << 32 | d.payload : -1;
        break;
      }
      case HS_EVENT_POST:
      case HS_EVENT_START: {
        const int32_t comm = d.window(d.payload);
        if (comm < 0 || w[0] >= (uint64_t)d.in->group_count) { unknown[thread]++; break; }
        const uint32_t number = (uint32_t)d.window_number(d.payload);  // in place of a tag
        std::vector<int32_t> group(d.in->group_members + d.in->group_starts[w[0]],
                                   d.in->group_members + d.in->group_starts[w[0] + 1]);
        for (int32_t other : group) {
          if (d.kind == HS_EVENT_POST) {
            post(thread, r, new_send(l, index, (uint32_t)other, comm, number, 1, POST_START));
            post(thread, r, new_send(l, index, (uint32_t)other, comm, number, 1, POST_COMPLETE));
          } else {
            await(l, index, r, new_receive(l, (uint32_t)other, comm, number, POST_START));
          }
        }
        (d.kind == HS_EVENT_POST ? r.post_groups : r.start_groups)[(int32_t)d.payload] = group;
        v.messages += d.kind == HS_EVENT_START;
        v.filled += d.kind == HS_EVENT_START;
        break;
      }
      case HS_EVENT_COMPLETE:
      case HS_EVENT_WAIT: {
        const int32_t comm = d.window(d.payload);
        if (comm < 0) { unknown[thread]++; break; }
        const bool complete = d.kind == HS_EVENT_COMPLETE;
        const uint32_t number = (uint32_t)d.window_number(d.payload);
        for (int32_t other : (complete ? r.start_groups : r.post_groups)[(int32_t)d.payload]) {
          if (complete) {
            Send s = new_send(l, index, (uint32_t)other, comm, number, 1, COMPLETE_WAIT);
            const auto last = r.last_access.find((int32_t)d.payload);
            s.last_access = last == r.last_access.end() ? s.enter : last->second;
            post(thread, r, s);
            await(l, index, r, new_receive(l, (uint32_t)other, comm, number, POST_COMPLETE));
          } else {
            await(l, index, r, new_receive(l, (uint32_t)other, comm, number, COMPLETE_WAIT));
          }
        }
        v.messages++;
        v.filled++;
        break;
      }
      case HS_EVENT_LOCK: {
        Lock k{};
        k.window = d.window_number(d.payload);
        k.target = (int32_t)(uint32_t)w[0];
        k.exclusive = w[0] >> 32;
        k.location = index;
        k.lock_node = l.current;
        k.lock_at = v.at;
        k.lock_enter = as_seconds(l, v.enter);
        k.lock_leave = as_seconds(l, now);
        r.open_locks.push_back(k);
        break;
      }
      case HS_EVENT_UNLOCK: {
        const int32_t window = d.window_number(d.payload);
        for (size_t i = 0; i < r.open_locks.size(); i++) {
          if (r.open_locks[i].window != window || r.open_locks[i].target != (int32_t)(uint32_t)w[0]) continue;
          Lock k = r.open_locks[i];
          k.unlock_node = l.current;
          k.unlock_at = v.at;
          k.unlock_enter = as_seconds(l, v.enter);
          k.unlock_leave = as_seconds(l, now);
          r.locks.push_back(k);
          r.open_locks.erase(r.open_locks.begin() + i);
          break;
        }
        break;
      }
      default: break;
    }
  }

  void skip_instance(int thread, int32_t comm, int32_t place, int64_t instance, int32_t location,
                     double enter, Position at) {
    arrivals[thread][comm % threads].push_back({comm, place, HS_OP_NEIGHBOUR, location, -1, HS_NOBODY,
                                                instance, enter, enter, false, false, at});
    Collective c{};
    c.enter = c.leave = enter;
    c.instance = instance;
    c.comm = comm;
    c.place = place;
    c.operation = HS_OP_NEIGHBOUR;
    c.root = -1;
    c.node = -1;
    c.location = location;
    ranks[locations[location].decoder.in->rank].collectives.push(c);
  }

  void close_visit(int thread, int32_t index, LocationState &l, RankState &r, int64_t now) {
    Visit &v = l.visit;
    v.open = false;
    const double enter = as_seconds(l, v.enter), leave = as_seconds(l, now);
    if (v.accessed >= 0) r.accesses[v.accessed] = r.last_access[v.accessed_window] = leave;
    const int32_t receives = (int32_t)v.receives.size(), dones = (int32_t)v.dones.size();
    if (receives || dones) {
      const int32_t role = l.current >= 0 ? run->node_roles[l.current] : 0;
      const bool empty = v.messages > 0 && v.filled == 0;
      r.calls.push({enter, leave, v.at, r.taken.end(), r.dones.end(), receives, dones, l.current,
                    index, role == ROLE_TEST, empty});
      for (int64_t number : v.receives) {
        Receive &m = r.receives[number];
        m.enter = enter;
        m.leave = leave;
        m.together = receives;
        r.taken.push(number);
      }
      for (int64_t number : v.dones) r.dones.push(number);
    }
    if (v.messages > 0 && v.filled == 0 && l.current >= 0)
      l.values[l.current * (int64_t)SLOTS + P2P_SYNCHRONISATION] += leave - enter;
    if (v.collective && l.current >= 0) {
      Collective &c = v.call;
      c.enter = enter;
      c.leave = leave;
      c.at = v.at;
      c.node = l.current;
      c.location = index;
      double *values = l.values + l.current * (int64_t)SLOTS;
      values[COLLECTIVES] += 1;
      values[BYTES_COLLECTIVE] += double(c.sent) + double(c.received);
      const bool payload = c.sent + c.received > 0;
      const bool root = (uint32_t)c.root == (uint32_t)l.decoder.in->rank;
      bool contributes = c.sent > 0;
      if (c.operation == HS_OP_REDUCE || c.operation == HS_OP_GATHER || c.operation == HS_OP_GATHERV)
        contributes = contributes && !root;
      if (c.operation == HS_OP_FINALIZE) found->finalised[index] = enter;
      r.collectives.push(c);
      arrivals[thread][c.comm % threads].push_back({c.comm, c.place, c.operation, index, c.node,
                                                    (uint32_t)c.root, c.instance, enter, leave,
                                                    contributes, payload, v.at});
      if (c.operation == HS_OP_FENCE) {
        for (auto it = r.accesses.begin(); it != r.accesses.end();) {
          if ((int32_t)(it->first >> 32) == c.comm) {
            access_mail[thread][c.comm % threads].push_back({c.comm, (int32_t)(uint32_t)it->first, c.instance, it->second});
            it = r.accesses.erase(it);
          } else {
            ++it;
          }
        }
      }
    }
  }

  // Decode a rank's events until a time; false when all of them are through.
  bool decode(int thread, int32_t rank, double until, int64_t most) {
    RankState &r = ranks[rank];
    int64_t count = 0;
    bool more = false;
    if (r.locations.size() == 1) {
      const int32_t index = r.locations[0];
      LocationState &l = locations[index];
      if (l.ended) return false;
      const double edge = (until - l.decoder.in->zero) / l.decoder.in->rate;
      for (;;) {
        if (!l.decoder.next()) { end(thread, index, l, r); break; }
        take(thread, index, l, r);
        count++;
        if ((double(l.decoder.now) >= edge || count >= most) && !l.visit.open) { more = true; break; }
      }
    } else {
      for (;;) {  // threads of one rank share requests and order: the earliest event comes first
        int32_t first = -1;
        for (int32_t index : r.locations) {
          LocationState &l = locations[index];
          if (l.ended) continue;
          if (!l.looked) {
            if (!l.decoder.next()) { end(thread, index, l, r); continue; }
            l.looked = true;
          }
          if (first < 0 || l.decoder.seconds() < locations[first].decoder.seconds()) first = index;
        }
        if (first < 0) break;
        LocationState &l = locations[first];
        if (l.decoder.seconds() >= until) {
          bool open = false;
          for (int32_t index : r.locations) open |= locations[index].visit.open && !locations[index].ended;
          if (!open) { more = true; break; }
        }
        take(thread, first, l, r);
        l.looked = false;
        count++;
      }
    }
    events[thread] += count;
    return more;
  }

  void end(int thread, int32_t index, LocationState &l, RankState &r) {
    l.ended = true;
    broken[thread] += l.decoder.broken;
    found->open[index] = l.depth;
    if (l.visit.open) close_visit(thread, index, l, r, l.last);
  }

  static void match(Send &s, Receive &m) {
    s.matched = m.matched = true;
    s.receive_enter = m.posted;
    s.receive_location = m.posted_location;
    s.receive_node = m.posted_node;
    s.receive_at = m.posted_at;
    m.send_enter = s.enter;
    m.send_location = s.location;
    m.send_node = s.node;
    m.send_at = s.at;
    m.last_access = s.last_access;
  }

  void note_pair(RankState &to, int32_t receiver, const Send &s, const Receive &m, int32_t sender) {
    if (s.family != MESSAGE || s.node < 0) return;
    Pair &p = to.pairs.get(s.node, sender, receiver);
    p.messages++;
    p.empty += s.bytes == 0;
    p.bytes += (int64_t)s.bytes;
    p.seconds += std::max(0.0, m.leave - std::max(s.enter, m.enter));
    p.receive_seconds += (m.leave - m.enter) / m.together;
  }

  // Messages of a channel go to receives in the order in which these were posted, not completed.
  void match_receives(RankState &r, int32_t rank, bool all) {
    auto earlier = [&](int64_t a, int64_t b) { return r.receives[a].order < r.receives[b].order; };
    if (!std::is_sorted(r.held.begin(), r.held.end(), earlier))
      std::sort(r.held.begin(), r.held.end(), earlier);
    while (r.posted.head < r.posted.end() && !r.posted[r.posted.head]) r.posted.head++;
    const size_t forced = all ? r.held.size() : r.held.size() > kMostHeld ? r.held.size() / 2 : 0;
    size_t done = 0;
    for (; done < r.held.size(); done++) {
      const int64_t number = r.held[done];
      Receive &m = r.receives[number];
      if (done >= forced && m.order >= r.posted.head) break;
      Channel &c = r.channels.get(m.sender, m.comm, m.tag, m.family);
      RankState &source = ranks[m.sender];
      while (c.first_send != kNone && source.sends[c.first_send].cancelled) {
        source.sends[c.first_send].queued = false;
        c.first_send = source.sends[c.first_send].next;
      }
      if (c.first_send != kNone && c.first_receive == kNone) {
        Send &s = source.sends[c.first_send];
        c.first_send = s.next;
        match(s, m);
        note_pair(r, rank, s, m, m.sender);
      } else {
        m.next = kNone;
        if (c.first_receive == kNone) c.first_receive = number;
        else r.receives[c.last_receive].next = number;
        c.last_receive = number;
      }
    }
    r.held.erase(r.held.begin(), r.held.begin() + done);
    r.posted.drop_before(r.posted.head);
  }

  // A receive that ends after `until` waits: what cancels its sender's message may still come.
  void match_mail(int thread, double until) {
    for (int from = 0; from < threads; from++) {
      auto &box = mail[from][thread];
      for (const SendNote &note : box) {
        RankState &source = ranks[note.sender], &target = ranks[note.receiver];
        Send &s = source.sends[note.number];
        if (s.cancelled) continue;
        Channel &c = target.channels.get(note.sender, s.comm, s.tag, s.family);
        // A receive may already wait for it.
        if (c.first_receive != kNone) {
          Receive &m = target.receives[c.first_receive];
          c.first_receive = m.next;
          match(s, m);
          note_pair(target, note.receiver, s, m, note.sender);
        } else {
          s.next = kNone;
          s.queued = true;
          if (c.first_send == kNone) c.first_send = note.number;
          else source.sends[c.last_send].next = note.number;
          c.last_send = note.number;
        }
      }
      box.clear();
    }
    for (int32_t rank = 0; rank < run->rank_count; rank++) {
      if (owner[rank] != thread) continue;
      RankState &r = ranks[rank];
      for (; r.matched_to < r.receives.end(); r.matched_to++) {
        const Receive &m = r.receives[r.matched_to];
        if (m.leave > until) break;
        if (r.posted.holds(m.order)) r.posted[m.order] = 0;
        if (!missing(m.sender)) r.held.push_back(r.matched_to);
      }
      match_receives(r, rank, until == kEver);
    }
    for (int from = 0; from < threads; from++) {
      for (const Access &a : access_mail[from][thread])
        instance_of(a.comm, a.instance)->accesses.push_back({a.target, a.time});
      access_mail[from][thread].clear();
    }
    for (int from = 0; from < threads; from++) {
      for (const Arrival &a : arrivals[from][thread]) arrive(thread, a);
      arrivals[from][thread].clear();
    }
  }

  Instance *instance_of(int32_t comm, int64_t number) {
    Communicator &c = comms[comm];
    while (number >= c.base + (int64_t)c.instances.size()) {
      c.instances.push_back(std::make_unique<Instance>());
      Instance &i = *c.instances.back();
      i.left = c.present;
      i.enters.assign(c.size, -1e300);
      i.locations.assign(c.size, -1);
      i.nodes.assign(c.size, -1);
      i.positions.resize(c.size);
      i.contributes.assign(c.size, 0);
    }
    return c.at(number);
  }

  void arrive(int thread, const Arrival &a) {
    Communicator &c = comms[a.comm];
    if (a.place < 0 || a.place >= c.size || a.instance < c.base) { unknown[thread]++; return; }
    Instance &i = *instance_of(a.comm, a.instance);
    if (i.locations[a.place] >= 0) { unknown[thread]++; return; }
    i.operation = a.operation;
    i.enters[a.place] = a.enter;
    i.locations[a.place] = a.location;
    i.nodes[a.place] = a.node;
    i.positions[a.place] = a.at;
    i.contributes[a.place] = a.contributes;
    const bool always = a.operation == HS_OP_BARRIER || a.operation == HS_OP_INIT ||
                        a.operation == HS_OP_FINALIZE || a.operation == HS_OP_FENCE;
    const int32_t *members = run->comm_members + run->comm_starts[a.comm];
    const bool is_root = (uint32_t)members[a.place] == a.root;
    if (is_root) i.root_place = a.place;
    if ((always || a.contributes) && a.enter > i.max_enter) { i.max_enter = a.enter; i.last = a.place; }
    if (a.contributes && !is_root && a.enter > i.max_sender) { i.max_sender = a.enter; i.last_sender = a.place; }
    i.min_leave = std::min(i.min_leave, a.leave);
    i.max_leave = std::max(i.max_leave, a.leave);
    if (++i.arrived == c.present) i.complete = true;
  }

  // Calls and collectives of a rank whose partners are all known, in order.
  void settle(int thread, int32_t rank, bool last) {
    RankState &r = ranks[rank];
    for (; r.calls.head < r.calls.end(); r.calls.head++) {
      const Call &call = r.calls[r.calls.head];
      if (!last) {
        bool ready = true;
        for (int32_t i = 0; i < call.receives && ready; i++) {
          const Receive &m = r.receives[r.taken[call.first_receive + i]];
          ready = m.matched || missing(m.sender);
        }
        for (int32_t i = 0; i < call.dones && ready; i++) {
          const Send &s = r.sends[r.dones[call.first_done + i]];
          ready = s.matched || s.cancelled || missing(s.receiver);
        }
        if (!ready) break;
      }
      settle_call(r, call);
      for (int32_t i = 0; i < call.dones; i++) r.sends[r.dones[call.first_done + i]].used = true;
      for (int32_t i = 0; i < call.receives; i++) r.receives[r.taken[call.first_receive + i]].used = true;
      r.taken.head = call.first_receive + call.receives;
      r.dones.head = call.first_done + call.dones;
    }
    for (; r.collectives.head < r.collectives.end(); r.collectives.head++) {
      const Collective &c = r.collectives[r.collectives.head];
      Instance *i = comms[c.comm].at(c.instance);
      if (i != nullptr && !i->complete && !last) break;
      if (i != nullptr) {
        if (i->complete) settle_collective(thread, r, c, *i);
        i->left--;
      }
    }
  }

  bool missing(int32_t rank) const {
    return (uint32_t)rank >= (uint32_t)run->rank_count || ranks[rank].locations.empty();
  }

  void log(RankState &r, const Wait &wait) { r.waits.push_back(wait); }

  void settle_call(RankState &r, const Call &call) {
    if (call.test || call.node < 0) {
      note_order(r, call);
      return;
    }
    double longest[4] = {0, 0, 0, 0};
    const Receive *latest[4] = {nullptr, nullptr, nullptr, nullptr};
    for (int32_t i = 0; i < call.receives; i++) {
      const Receive &m = r.receives[r.taken[call.first_receive + i]];
      if (!m.matched) continue;
      const double wait = std::min(m.send_enter, call.leave) - call.enter;
      if (wait > longest[m.family]) { longest[m.family] = wait; latest[m.family] = &m; }
    }
    double blocked = 0;
    const Send *blocked_send = nullptr;
    for (int32_t i = 0; i < call.dones; i++) {
      const Send &s = r.sends[r.dones[call.first_done + i]];
      if (!s.matched || s.family != MESSAGE || s.receive_enter >= call.leave) continue;
      const double wait = s.receive_enter - call.enter;
      if (wait > blocked) { blocked = wait; blocked_send = &s; }
    }
    double *values = found->at(call.location, call.node);
    const Receive *late = latest[MESSAGE];
    if (late != nullptr && longest[MESSAGE] >= blocked) {
      if (!call.empty) {
        values[LATE_SENDER] += longest[MESSAGE];
        values[LATE_SENDERS] += 1;
      }
      log(r, {call.empty ? P2P_SYNCHRONISATION : LATE_SENDER, call.node, call.location, late->send_node, late->send_location, -1,
              call.enter, call.enter + longest[MESSAGE], call.at, late->send_at});
    } else if (blocked_send != nullptr) {
      if (!call.empty) {
        values[LATE_RECEIVER] += blocked;
        values[LATE_RECEIVERS] += 1;
      }
      log(r, {call.empty ? P2P_SYNCHRONISATION : LATE_RECEIVER, call.node, call.location, blocked_send->receive_node,
              blocked_send->receive_location, -1, call.enter, call.enter + blocked, call.at,
              blocked_send->receive_at});
    }
    for (int family : {POST_START, POST_COMPLETE, COMPLETE_WAIT}) {
      const Receive *m = latest[family];
      if (m == nullptr) continue;
      const int slot = family == COMPLETE_WAIT ? EARLY_WAIT : LATE_POST;
      values[slot] += longest[family];
      if (family == COMPLETE_WAIT)
        values[LATE_COMPLETE] += std::min(longest[family], std::max(0.0, m->send_enter - std::max(m->last_access, call.enter)));
      log(r, {slot, call.node, call.location, m->send_node, m->send_location, -1, call.enter,
              call.enter + longest[family], call.at, m->send_at});
    }
    note_order(r, call);
    if (late != nullptr && longest[MESSAGE] >= blocked && !call.empty) {
      if ((int)r.late.size() >= kLateSendersKept) r.late.erase(r.late.begin());
      r.late.push_back({late->send_enter, longest[MESSAGE], late->sender, call.node, call.location});
      r.latest_late = std::max(r.latest_late, late->send_enter);
    }
  }

  // A message that arrives now but was sent before one that was waited for earlier.
  void note_order(RankState &r, const Call &call) {
    if (r.late.empty()) return;
    for (int32_t i = 0; i < call.receives; i++) {
      const Receive &m = r.receives[r.taken[call.first_receive + i]];
      if (!m.matched || m.family != MESSAGE || m.send_enter >= r.latest_late) continue;
      for (size_t k = 0; k < r.late.size();) {
        if (r.late[k].send_enter > m.send_enter) {
          double *values = found->at(r.late[k].location, r.late[k].node);
          values[r.late[k].sender == m.sender ? WRONG_ORDER_SAME : WRONG_ORDER_DIFFERENT] += r.late[k].amount;
          r.late.erase(r.late.begin() + k);
        } else {
          k++;
        }
      }
      r.latest_late = -1e300;
      for (const LateMessage &one : r.late) r.latest_late = std::max(r.latest_late, one.send_enter);
    }
  }

  void settle_collective(int thread, RankState &r, const Collective &c, Instance &i) {
    const int32_t size = comms[c.comm].size;
    if (size < 2 || c.node < 0) return;
    double *values = found->at(c.location, c.node);
    const double B = c.enter, E = c.leave;
    const double until_last = std::min(i.max_enter, E) - B;
    const double completion = E - std::max({i.min_leave, std::min(i.max_enter, E), B});
    const bool payload = c.sent + c.received > 0;
    auto wait = [&](int slot, double amount, int32_t place) {
      if (amount <= 0 || place < 0 || place == c.place) return;
      values[slot] += amount;
      log(r, {slot, c.node, c.location, i.nodes[place], i.locations[place], i.number, B, B + amount,
              c.at, i.positions[place]});
    };
    switch (c.operation) {
      case HS_OP_BARRIER:
        wait(WAIT_AT_BARRIER, until_last, i.last);
        values[BARRIER_COMPLETION] += completion;
        break;
      case HS_OP_ALLREDUCE: case HS_OP_ALLGATHER: case HS_OP_ALLGATHERV: case HS_OP_ALLTOALL:
      case HS_OP_ALLTOALLV: case HS_OP_ALLTOALLW: case HS_OP_REDUCE_SCATTER:
      case HS_OP_REDUCE_SCATTER_BLOCK:
        if (!payload || i.last < 0) break;
        wait(WAIT_AT_NXN, until_last, i.last);
        values[NXN_COMPLETION] += completion;
        break;
      case HS_OP_BROADCAST: case HS_OP_SCATTER: case HS_OP_SCATTERV:
        if (!payload || i.root_place < 0 || i.root_place == c.place) break;
        wait(LATE_BROADCAST, std::min(i.enters[i.root_place], E) - B, i.root_place);
        break;
      case HS_OP_REDUCE: case HS_OP_GATHER: case HS_OP_GATHERV:
        if (!payload || i.root_place != c.place || i.last_sender < 0) break;
        wait(EARLY_REDUCE, std::min(i.max_sender, E) - B, i.last_sender);
        break;
      case HS_OP_SCAN: case HS_OP_EXSCAN: {
        if (!payload) break;
        int32_t latest = -1;
        for (int32_t place = 0; place < c.place; place++)
          if (i.contributes[place] && (latest < 0 || i.enters[place] > i.enters[latest])) latest = place;
        const double lower = latest < 0 ? B : i.enters[latest];
        wait(EARLY_SCAN, std::min(lower, E) - B, latest);
        values[SCAN_COMPLETION] += std::max(0.0, E - std::max(B, lower));
        if (c.place == 0) {
          scans[thread]++;
          synchronising[thread] += i.min_leave >= i.max_enter;
        }
        break;
      }
      case HS_OP_INIT:
        values[INIT_COMPLETION] += completion;
        break;
      case HS_OP_FINALIZE:
        wait(WAIT_AT_FINALIZE, until_last, i.last);
        break;
      case HS_OP_FENCE: {
        wait(WAIT_AT_FENCE, until_last, i.last);
        double latest = -1e300;
        for (const auto &[target, time] : i.accesses)
          if (target == locations[c.location].decoder.in->rank) latest = std::max(latest, time);
        if (until_last > 0) values[EARLY_FENCE] += std::max(0.0, std::min(std::min(latest, E), B + until_last) - B);
        break;
      }
      default: break;
    }
  }

  // Synchronising collectives get a number, by which waits and root causes refer to them.
  void number_instances() {
    for (size_t comm = 0; comm < comms.size(); comm++) {
      Communicator &c = comms[comm];
      if (c.size < 2) continue;
      for (auto &held : c.instances) {
        Instance &i = *held;
        if (!i.complete || i.number >= 0 || !keep_causes) continue;
        const int o = i.operation;
        const bool synchronises = o == HS_OP_BARRIER || o == HS_OP_FENCE || o == HS_OP_INIT || o == HS_OP_FINALIZE ||
                                  (o >= HS_OP_ALLREDUCE && o <= HS_OP_REDUCE_SCATTER_BLOCK && i.last >= 0);
        if (!synchronises) continue;
        i.number = (int32_t)found->synchronisations.size();
        found->synchronisations.push_back({(int32_t)comm, i.locations, i.positions, i.enters});
      }
    }
  }

  void drop(int32_t rank) {
    RankState &r = ranks[rank];
    while (r.receives.head < r.matched_to && r.receives[r.receives.head].used) r.receives.head++;
    r.receives.drop_before(r.receives.head);
    r.taken.drop_before(r.taken.head);
    r.dones.drop_before(r.dones.head);
    r.calls.drop_before(r.calls.head);
    r.collectives.drop_before(r.collectives.head);
    int64_t &head = r.sends.head;
    while (head < r.sends.end()) {
      const Send &s = r.sends[head];
      const bool finished = (s.matched || missing(s.receiver) || (s.cancelled && !s.queued)) &&
                            (s.used || s.cancelled || s.family != MESSAGE);
      if (!finished) break;
      head++;
    }
    r.sends.drop_before(head);
    if (stream)
      for (int32_t index : r.locations) give_back(locations[index]);
  }

  // Pages of a large trace that have been read stay with the system, not with this process.
  static void give_back(LocationState &l) {
    constexpr int64_t kWords = 1 << 19;
    const int64_t place = l.decoder.place;
    if (place - l.given_back < kWords) return;
    const uintptr_t page = 4096, begin = (uintptr_t)(l.decoder.in->words + l.given_back);
    const uintptr_t from = (begin + page - 1) / page * page;
    const uintptr_t to = (uintptr_t)(l.decoder.in->words + place) / page * page;
    if (to > from) madvise((void *)from, to - from, MADV_DONTNEED);
    l.given_back = place;
  }

  // Who has a lock first has it until it enters the unlock at least; where the unlock is over before
  // the other's call is, until then.
  void lock_contention() {
    std::vector<Lock> all;
    for (RankState &r : ranks) all.insert(all.end(), r.locks.begin(), r.locks.end());
    std::sort(all.begin(), all.end(), [](const Lock &a, const Lock &b) {
      if (a.window != b.window) return a.window < b.window;
      if (a.target != b.target) return a.target < b.target;
      return a.lock_leave != b.lock_leave ? a.lock_leave < b.lock_leave : a.location < b.location;
    });
    constexpr size_t kMostBefore = 256;
    for (size_t i = 0; i < all.size(); i++) {
      const Lock &own = all[i];
      double lock_to = own.lock_enter, unlock_to = own.unlock_enter;
      size_t first = i;
      while (first > 0 && all[first - 1].window == own.window && all[first - 1].target == own.target &&
             i - first < kMostBefore)
        first--;
      for (size_t k = first; k < i; k++) {
        const Lock &held = all[k];
        if (held.location == own.location || !(held.exclusive || own.exclusive)) continue;
        auto overlap = [&](double leave, double &done, int32_t node, Position at) {
          const double until = held.unlock_leave <= leave ? held.unlock_leave : held.unlock_enter;
          const double begin = std::max(held.lock_leave, done), end = std::min(leave, until);
          if (end <= begin || node < 0) return;
          done = end;
          found->at(own.location, node)[LOCK_CONTENTION] += end - begin;
          ranks[locations[own.location].decoder.in->rank].waits.push_back(
              {LOCK_CONTENTION, node, own.location, held.unlock_node, held.location, -1, begin, end,
               at, held.unlock_at});
        };
        overlap(own.lock_leave, lock_to, own.lock_node, own.lock_at);
        overlap(own.unlock_leave, unlock_to, own.unlock_node, own.unlock_at);
      }
    }
  }

  void go(void (*progress)(double)) {
    const int64_t L = run->location_count, N = run->node_count;
    threads = std::max(1, std::min<int>(run->threads, std::max(1, run->rank_count)));
    found->locations = L;
    found->nodes = N;
    found->values.assign(L * N * (int64_t)SLOTS, 0.0);
    found->begins.assign(L, 0);
    found->marks.resize(L);
    found->open.assign(L, 0);
    found->finalised.assign(L, -1e300);
    found->ends.assign(L, 0);
    locations.resize(L);
    ranks = std::vector<RankState>(run->rank_count);
    owner.resize(run->rank_count);
    comms = std::vector<Communicator>(run->comm_count);
    mail.assign(threads, std::vector<std::vector<SendNote>>(threads));
    arrivals.assign(threads, std::vector<std::vector<Arrival>>(threads));
    access_mail.assign(threads, std::vector<std::vector<Access>>(threads));
    sizes.assign(threads, std::vector<int64_t>(N * kSizes, 0));
    for (auto *counts : {&events, &broken, &unknown, &scans, &synchronising}) counts->assign(threads, 0);
    int64_t words = 0, present = 0, seen = 0;
    double begin = 1e300, finish = -1e300;
    for (int64_t i = 0; i < L; i++) {
      const LocationInput &in = run->locations[i];
      locations[i].decoder.open(in);
      locations[i].values = found->at(i, 0);
      locations[i].ticks.assign(N, 0);
      locations[i].ended = in.count == 0;
      if (keep_causes) locations[i].next_mark = Marks::kWords;
      if (in.is_stream || in.rank < 0 || in.rank >= run->rank_count) continue;
      if (in.count > 0) {
        if (ranks[in.rank].locations.empty()) present++;
        ranks[in.rank].locations.push_back((int32_t)i);
        words += in.count;
        Decoder peek;
        peek.open(in);
        if (peek.next()) begin = std::min(begin, peek.seconds());
      }
    }
    for (int32_t rank = 0, n = 0; rank < run->rank_count; rank++) {
      owner[rank] = (int)std::min<int64_t>(threads - 1, (int64_t)n * threads / std::max<int64_t>(1, present));
      n += !ranks[rank].locations.empty();
    }
    for (int64_t c = 0; c < run->comm_count; c++) {
      comms[c].size = run->comm_starts[c + 1] - run->comm_starts[c];
      for (int32_t m = run->comm_starts[c]; m < run->comm_starts[c + 1]; m++)
        comms[c].present += !missing(run->comm_members[m]);
    }
    constexpr int64_t kLarge = 1 << 27;  // words: a GiB
    stream = words > kLarge;
    // Stretches: the first is short, then as long as keeps the wanted number of events in memory.
    const int64_t wanted = std::max<int64_t>(60000, 50 * present);
    const int64_t most = std::max<int64_t>(20000, 4 * wanted / std::max<int64_t>(1, present));
    double stretch = 1e-3, until = begin + stretch;
    std::atomic<bool> more{words > 0};
    std::vector<uint8_t> alive(threads);
    Team team(threads);
    team.run([&](int thread) {
      while (more) {
        bool here = false;
        for (int32_t rank = 0; rank < run->rank_count; rank++)
          if (owner[rank] == thread && !ranks[rank].locations.empty()) here |= decode(thread, rank, until, most);
        alive[thread] = here;
        team.meet();
        const bool last = std::none_of(alive.begin(), alive.end(), [](uint8_t a) { return a; });
        match_mail(thread, last ? kEver : until);
        team.meet([&] { number_instances(); });
        for (int32_t rank = 0; rank < run->rank_count; rank++) {
          if (owner[rank] != thread || ranks[rank].locations.empty()) continue;
          settle(thread, rank, last);
          if (!last) drop(rank);
        }
        team.meet([&] {
          int64_t total = 0;
          for (int t = 0; t < threads; t++) total += events[t];
          const int64_t done = total - seen;
          seen = total;
          const double factor = done > 0 ? double(wanted) / double(done) : 8.0;
          stretch = std::max(1e-6, stretch * std::min(8.0, std::max(0.1, factor)));
          until += stretch;
          more = !last;
          for (Communicator &c : comms)
            while (!c.instances.empty() && c.instances.front()->complete && c.instances.front()->left <= 0) {
              c.instances.pop_front();
              c.base++;
            }
          if (progress) progress(double(total));
        });
      }
    });
    finish_up(finish);
  }

  void finish_up(double finish) {
    const int64_t L = run->location_count, N = run->node_count;
    for (int64_t i = 0; i < L; i++) {
      LocationState &l = locations[i];
      const double rate = l.decoder.in->rate;
      for (int64_t n = 0; n < N; n++) found->at(i, n)[TIME] = double(l.ticks[n]) * rate;
      if (l.started) {
        found->begins[i] = as_seconds(l, l.first);
        found->ends[i] = as_seconds(l, l.last);
        finish = std::max(finish, found->ends[i]);
      }
    }
    lock_contention();
    found->sizes.assign(N * kSizes, 0);
    for (int t = 0; t < threads; t++) {
      for (int64_t k = 0; k < N * kSizes; k++) found->sizes[k] += sizes[t][k];
      found->events += events[t];
      found->broken += broken[t];
      found->unknown += unknown[t];
      found->scans += scans[t];
      found->scans_synchronising += synchronising[t];
    }
    std::vector<int64_t> waits_of(L, 0);
    for (RankState &r : ranks) {
      for (const Wait &w : r.waits) waits_of[w.location]++;
      found->pairs.insert(found->pairs.end(), r.pairs.list.begin(), r.pairs.list.end());
      for (int64_t k = r.sends.base; k < r.sends.end(); k++) {
        const Send &s = r.sends[k];
        found->unmatched_sends += !s.matched && !s.cancelled && s.family == MESSAGE && s.receiver >= 0;
      }
      for (int64_t k = r.receives.base; k < r.receives.end(); k++)
        found->unmatched_receives += !r.receives[k].matched && r.receives[k].family == MESSAGE;
    }
    std::sort(found->pairs.begin(), found->pairs.end(), [](const Pair &a, const Pair &b) {
      return a.node != b.node ? a.node < b.node : a.sender != b.sender ? a.sender < b.sender : a.receiver < b.receiver;
    });
    for (Communicator &c : comms)
      for (auto &i : c.instances) found->incomplete_collectives += i->arrived > 0 && !i->complete;
    found->wait_starts.assign(L + 1, 0);
    for (int64_t i = 0; i < L; i++) found->wait_starts[i + 1] = found->wait_starts[i] + waits_of[i];
    found->waits.resize(found->wait_starts[L]);
    Team team(threads);
    team.run([&](int thread) {
      for (int32_t rank = 0; rank < run->rank_count; rank++)
        if (owner[rank] == thread) hand_over(ranks[rank]);
    });
  }

  void hand_over(RankState &r) {
      std::vector<int64_t> at(r.locations.size());
      for (size_t k = 0; k < at.size(); k++) at[k] = found->wait_starts[r.locations[k]];
      for (const Wait &w : r.waits)
        for (size_t k = 0; k < at.size(); k++)
          if (r.locations[k] == w.location) found->waits[at[k]++] = w;
      std::deque<Wait>().swap(r.waits);
      auto earlier = [](const Wait &a, const Wait &b) { return a.end < b.end; };
      for (int32_t location : r.locations) {
        const auto first = found->waits.begin() + found->wait_starts[location];
        const auto last = found->waits.begin() + found->wait_starts[location + 1];
        if (!std::is_sorted(first, last, earlier)) std::stable_sort(first, last, earlier);
      }
  }
};

}  // namespace

extern "C" {

Found *find_waits(const RunInput *run, int keep_causes, void (*progress)(double)) {
  auto found = std::make_unique<Found>();
  Replay replay;
  replay.run = run;
  replay.found = found.get();
  replay.keep_causes = keep_causes != 0;
  replay.go(progress);
  return found.release();
}

void drop_found(Found *found) { delete found; }

const double *found_values(const Found *f) { return f->values.data(); }
const double *found_begins(const Found *f) { return f->begins.data(); }
const double *found_ends(const Found *f) { return f->ends.data(); }
const int64_t *found_open(const Found *f) { return f->open.data(); }
const int64_t *found_sizes(const Found *f) { return f->sizes.data(); }
const Pair *found_pairs(const Found *f, int64_t *count) {
  *count = (int64_t)f->pairs.size();
  return f->pairs.data();
}
const Wait *found_waits(const Found *f, int64_t *count) {
  *count = (int64_t)f->waits.size();
  return f->waits.data();
}
void found_counts(const Found *f, int64_t *out) {
  const int64_t counts[] = {f->events, f->broken, f->unmatched_sends, f->unmatched_receives,
                            f->incomplete_collectives, f->scans, f->scans_synchronising, f->unknown};
  for (int i = 0; i < 8; i++) out[i] = counts[i];
}
}
