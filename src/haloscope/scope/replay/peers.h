// Processes that replay one run together, and the parcels of bytes that they send each other.
#pragma once
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <type_traits>
#include <vector>

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
