// Messages of a channel meet in order: its n-th send and its n-th receive. Of all replays and tables
// this alone matches messages.
//
// A channel is a sender, a receiver, a communicator and a tag. Records of sends and of receives have
// `left`, how many are without a partner; `skipped`, true of a number that was not recorded; and
// `next`, the number of the next record of their queue.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

constexpr int64_t kNone = -1;

// ---- a table with open addressing, from which one can erase ----

inline uint64_t mixed(uint64_t a, uint64_t b) {
  uint64_t h = a * 0x9e3779b97f4a7c15ull ^ (b + 0x632be59bd9b4e019ull) * 0xc2b2ae3d27d4eb4full;
  h ^= h >> 32;
  return h * 0xd6e8feb86659fd93ull ^ h >> 29;
}

struct Key {
  uint64_t a = 0, b = 0;
  bool operator==(const Key &other) const { return a == other.a && b == other.b; }
};

template <class Value>
class Table {
 public:
  Value *find(const Key &key) {
    for (uint64_t at = home(key);; at = (at + 1) & mask_) {
      if (!used_[at]) return nullptr;
      if (slots_[at].first == key) return &slots_[at].second;
    }
  }
  Value &get(const Key &key) {  // made where there is none
    if (Value *existing = find(key)) return *existing;
    if ((count_ + 1) * 3 > (mask_ + 1) * 2) grow();
    uint64_t at = home(key);
    while (used_[at]) at = (at + 1) & mask_;
    used_[at] = 1;
    slots_[at] = {key, Value()};
    count_++;
    return slots_[at].second;
  }
  void erase(const Key &key) {
    uint64_t hole = home(key);
    while (used_[hole] && !(slots_[hole].first == key)) hole = (hole + 1) & mask_;
    if (!used_[hole]) return;
    for (uint64_t at = (hole + 1) & mask_; used_[at]; at = (at + 1) & mask_) {
      const uint64_t wanted = home(slots_[at].first);
      if (((at - wanted) & mask_) >= ((at - hole) & mask_)) {
        slots_[hole] = slots_[at];
        hole = at;
      }
    }
    used_[hole] = 0;
    count_--;
  }
  void clear() {
    std::fill(used_.begin(), used_.end(), 0);
    count_ = 0;
  }
  uint64_t size() const { return count_; }

 private:
  uint64_t home(const Key &key) const { return mixed(key.a, key.b) & mask_; }
  void grow() {
    std::vector<std::pair<Key, Value>> slots(slots_.size() * 2);
    std::vector<uint8_t> used(used_.size() * 2, 0);
    slots.swap(slots_);
    used.swap(used_);
    mask_ = slots_.size() - 1;
    for (size_t i = 0; i < slots.size(); i++) {
      if (!used[i]) continue;
      uint64_t at = home(slots[i].first);
      while (used_[at]) at = (at + 1) & mask_;
      used_[at] = 1;
      slots_[at] = slots[i];
    }
  }
  uint64_t mask_ = 15, count_ = 0;
  std::vector<std::pair<Key, Value>> slots_ = std::vector<std::pair<Key, Value>>(16);
  std::vector<uint8_t> used_ = std::vector<uint8_t>(16, 0);
};

// ---- queues ----

// Records that wait for partners, in order.
struct Queue {
  int64_t first = kNone, last = kNone;
};

struct Channel {
  Queue sends, receives;
  bool is_empty() const { return sends.first == kNone && receives.first == kNone; }
};

inline Key channel_key(uint32_t sender, uint32_t receiver, int32_t comm, uint64_t tag) {
  return {(uint64_t)sender << 32 | receiver, (uint64_t)(uint32_t)comm << 32 | (uint32_t)tag};
}

// A record meets those of the other side that wait: `pair(number, other)` is called for each of its
// partners. Others that are `over(other)` wait in vain and leave the queue.
template <class Record, class Others, class Pair, class Over>
inline void meet(Record &own, Queue &waiting, Others &others, Pair pair, Over over) {
  while (waiting.first != kNone && own.left > 0) {
    const int64_t number = waiting.first;
    auto &other = others[number];
    if (over(other)) {
      waiting.first = other.next;
      continue;
    }
    const int64_t count = own.skipped && other.skipped ? std::min(own.left, other.left) : 1;
    own.left -= count;
    other.left -= count;
    if (other.left == 0) waiting.first = other.next;
    pair(number, other);
  }
}
template <class Record, class Others, class Pair>
inline void meet(Record &own, Queue &waiting, Others &others, Pair pair) {
  meet(own, waiting, others, pair, [](const auto &) { return false; });
}

// A record that has met all partners there are waits behind those of its own side.
template <class Records>
inline void wait_in(Queue &queue, Records &records, int64_t number) {
  records[number].next = kNone;
  if (queue.first == kNone) queue.first = number;
  else records[queue.last].next = number;
  queue.last = number;
}
