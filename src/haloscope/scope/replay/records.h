// What the wait-state replay writes down while it decodes: messages, calls, collectives, and the
// tables in which they are found again.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <unordered_set>
#include <unordered_map>
#include <vector>

#include "channels.h"
#include "run.h"
#include "wait_analysis.h"

enum Family : int32_t { MESSAGE = 0, POST_START = 1, POST_COMPLETE = 2, COMPLETE_WAIT = 3 };

// Places (`at`, `..._at`) are those of the ENTER of a call in its location's words. `skipped` messages
// were not recorded, `left` of them are without a partner; they only keep others in their order.
// Pairs that are `unsure` may be the wrong ones: no waits are computed from them.
struct Send {
  double enter = 0, receive_enter = 0, last_access = 0;
  uint64_t bytes = 0;
  int64_t at = 0, receive_at = 0;
  int64_t next = kNone;
  int32_t node = -1, location = -1, receiver = -1, comm = -1, tag = 0, family = MESSAGE;
  int32_t receive_location = -1, receive_node = -1;
  int64_t left = 1;
  bool matched = false, cancelled = false, used = false, queued = false;
  bool skipped = false, unsure = false;
};

struct Receive {
  double posted = 0, enter = 0, leave = 0;
  double send_enter = 0, last_access = 0;
  int64_t posted_at = 0, send_at = 0;
  int64_t next = kNone, order = 0;  // order: in which it was posted
  int32_t location = -1, posted_location = -1, posted_node = -1, sender = -1, comm = -1, tag = 0;
  int32_t family = MESSAGE, together = 1, send_location = -1, send_node = -1;
  int64_t left = 1;
  int32_t node = -1;  // that completes it
  bool matched = false, used = false;
  bool skipped = false, unsure = false, size_unknown = false;
};

// A call that completed messages.
struct Call {
  double enter, leave;
  int64_t at;
  int64_t first_receive, first_done;
  int32_t receives, dones, node, location;
  bool test, empty;
};

struct Collective {
  double enter, leave;
  uint64_t sent, received;
  int64_t instance;
  int64_t at;
  int32_t comm, place, operation, root, node, location;
};

// A member's call, as the owner of the communicator gets it.
struct Arrival {
  int32_t comm, place, operation, location, node;
  uint32_t root;
  int64_t instance;
  double enter, leave;
  bool contributes, has_payload;
  int64_t at;
  int64_t skipped = 0;  // instances from there on that this member took part in unrecorded
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
  std::vector<int64_t> at;  // where they enter
  std::vector<uint8_t> contributes;
  std::vector<std::pair<int32_t, double>> accesses;
  int32_t number = -1;  // of its Synchronisation
  bool complete = false, skipped = false;  // skipped: by some member
  std::atomic<int32_t> left{0};
};

struct Communicator {
  int32_t size = 0, present = 0, here = 0;  // here: members that this process replays
  struct Skip {
    int64_t from, to;
    int32_t here;  // 1 for a member that this process replays
  };
  int64_t base = 0;  // all before are done with
  std::map<int64_t, std::unique_ptr<Instance>> instances;
  std::vector<Skip> skips;
  size_t skips_kept = 64;
  std::vector<int64_t> reached;  // next instance of each place, where members skip some
  Instance *at(int64_t number) {
    const auto position = instances.find(number);
    return position == instances.end() ? nullptr : position->second.get();
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
  T &add() {
    items.emplace_back();
    return items.back();
  }
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

struct Request {
  double enter = 0;
  int64_t send = kNone, order = -1;
  int32_t node = -1;
  int64_t at;
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
  int64_t at;  // where the call that waited is entered
  int32_t sender, node, location;
};

// A wait for a message while another, sent earlier, was not received yet.
struct OutOfOrder {
  int64_t at;  // as above
  double amount;
  int32_t location;
  uint8_t slot;  // which of the metrics of wrong order
  std::pair<int32_t, int64_t> key() const { return {location, at}; }
};

struct PairTable {
  Table<int32_t> places;  // in the list, from 1
  std::vector<Pair> list;
  Pair &get(int32_t node, int32_t sender, int32_t receiver) {
    int32_t &place = places.get({(uint32_t)node, (uint32_t)sender});
    if (place == 0) {
      list.push_back({node, sender, receiver, 0, 0, 0, 0, 0, 0});
      place = (int32_t)list.size();
    }
    return list[place - 1];
  }
};

struct Lock {
  int32_t window, target, location, lock_node, unlock_node;
  bool exclusive;
  int64_t lock_at, unlock_at;
  double lock_enter, lock_leave, unlock_enter, unlock_leave;
};

// Records of a call between its ENTER and its LEAVE.
struct Visit {
  int64_t enter = 0, at = 0;
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
  int64_t next_mark = INT64_MAX / 2;  // place
  double *values = nullptr;
  std::vector<NodeTime> nodes;
};

struct RankState {
  std::vector<int32_t> locations;
  Window<Send> sends;         // of a rank that another process replays: those to ranks of this one,
  Window<int64_t> origins;    // and the numbers that they have there
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
  Table<Channel> channels;    // of its receives, by sender, communicator, tag and family
  std::unordered_set<int32_t> unsure_comms;   // of its receives
  std::unordered_set<int64_t> unsure_sends;   // comm, receiver
  PairTable pairs;
  std::vector<LateMessage> late;
  double latest_late = -1e300;
  std::vector<OutOfOrder> out_of_order;
  std::vector<Wait> waits;
};

struct SendNote {
  int32_t sender, receiver;
  int64_t number;
};

// Records of ranks that another process replays.
struct ForeignSend {
  SendNote note;
  Send send;
};

struct ForeignCancel {
  int32_t sender;
  int64_t number;
};

struct ForeignMatch {  // the receive that a message has been given to
  int32_t sender, receive_location, receive_node;
  int64_t number;
  double receive_enter;
  int64_t receive_at;
};

struct Outbox {  // of a thread, for one other process
  std::vector<SendNote> sends;
  std::vector<ForeignCancel> cancels;
  std::vector<ForeignMatch> matches;
};

// ---- processes that replay one run together, and the parcels of bytes that they send each other ----

struct Peers {
  int32_t count = 1, own = 0;
  // Gives each process p the next sizes[p] bytes of `data`. Then sizes[p] is what p has sent here,
  // and what is returned is all of it, one after the other, until the next call. Null: it failed.
  const uint8_t *(*exchange)(int64_t *sizes, const uint8_t *data) = nullptr;
};

// Bytes with records in them, written and read in the same order.
class Parcel {
 public:
  std::vector<uint8_t> bytes;

  template <class T>
  void put(const T &one) { put(&one, 1); }
  template <class T>
  void put(const std::vector<T> &list) {
    put((int64_t)list.size());
    put(list.data(), list.size());
  }

 private:
  template <class T>
  void put(const T *first, size_t count) {
    static_assert(std::is_trivially_copyable<T>::value, "goes as bytes");
    const uint8_t *raw = (const uint8_t *)first;
    bytes.insert(bytes.end(), raw, raw + count * sizeof(T));
  }
};

class ParcelReader {
 public:
  ParcelReader(const uint8_t *data, int64_t size) : at_(data), end_(data + size) {}
  template <class T>
  T one() {
    T object;
    take(&object, 1);
    return object;
  }
  template <class T>
  std::vector<T> list() {
    const int64_t count = one<int64_t>();
    if (count < 0 || count > (end_ - at_) / (int64_t)sizeof(T)) throw std::runtime_error("a parcel is cut");
    std::vector<T> elements(count);
    take(elements.data(), count);
    return elements;
  }

 private:
  const uint8_t *at_, *end_;
  template <class T>
  void take(T *to, int64_t count) {
    const int64_t size = count * (int64_t)sizeof(T);
    if (size > end_ - at_) throw std::runtime_error("a parcel is cut");
    if (size) std::memcpy((void *)to, at_, size);
    at_ += size;
  }
};

// One parcel to each process, and one from each.
inline std::vector<Parcel> exchange(const Peers &peers, const std::vector<Parcel> &parcels) {
  std::vector<int64_t> sizes;
  std::vector<uint8_t> all;
  for (const Parcel &one : parcels) {
    sizes.push_back((int64_t)one.bytes.size());
    all.insert(all.end(), one.bytes.begin(), one.bytes.end());
  }
  const uint8_t *came = peers.exchange(sizes.data(), all.data());
  if (came == nullptr) throw std::runtime_error("the exchange between processes failed");
  std::vector<Parcel> received(peers.count);
  for (int32_t p = 0; p < peers.count; p++) {
    received[p].bytes.assign(came, came + sizes[p]);
    came += sizes[p];
  }
  return received;
}

// Sends each process's parcel, of any size, to the first one: in pieces.
inline std::vector<Parcel> gather(const Peers &peers, const Parcel &own) {
  const int64_t piece = (int64_t(1) << 30) / peers.count;
  std::vector<Parcel> gathered(peers.count);
  for (int64_t done = 0;; done += piece) {
    const int64_t size = (int64_t)own.bytes.size(), next = std::min(size, done + piece);
    std::vector<Parcel> parcels(peers.count);
    for (Parcel &one : parcels) one.put((int64_t)(next < size));  // more to come
    if (done < next) parcels[0].bytes.insert(parcels[0].bytes.end(), own.bytes.begin() + done, own.bytes.begin() + next);
    bool more = false;
    const std::vector<Parcel> came = ::exchange(peers, parcels);
    for (int32_t p = 0; p < peers.count; p++) {
      int64_t flag;
      std::memcpy(&flag, came[p].bytes.data(), sizeof flag);
      more |= flag != 0;
      gathered[p].bytes.insert(gathered[p].bytes.end(), came[p].bytes.begin() + sizeof flag, came[p].bytes.end());
    }
    if (!more) return gathered;
  }
}
