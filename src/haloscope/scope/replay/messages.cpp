// Table of a trace's messages with their two ends, matched as all replays match them; launches of
// kernels and their execution, too, by their correlation.
#include <exception>
#include <memory>

#include "causal.h"

// A message whose both ends were recorded: MESSAGES of causal.py.
struct __attribute__((packed)) MatchedMessage {
  int32_t sender, receiver;           // locations
  int64_t sent, received;             // ticks
  int64_t send_number, receive_number;  // among the ends of messages of their locations
  uint64_t bytes;                     // as sent
  int32_t comm;
  uint32_t tag;
};

namespace {

constexpr int32_t kLaunches = -2;  // stands for a communicator

struct End {
  int64_t tick = 0, number = 0, next = kNone, left = 1;
  uint64_t bytes = 0;
  int32_t location = -1;
  bool skipped = false;
};

// An end of the rank that is being read. A posted receive has its place here before it is known.
struct OwnEnd {
  End end;
  uint32_t peer = HS_NOBODY, tag = 0;
  int32_t comm = -1;
  bool sent = false, known = false;
};

class MessageTable {
 public:
  std::vector<MatchedMessage> messages;
  std::vector<int64_t> ends;  // of each location
  int64_t sends = 0, receives = 0;  // that were recorded, without launches

  MessageTable(const RunInput &run, int64_t most) : ends(run.location_count, 0), run_(run), most_(most) {
    for (int64_t first = 0, past; first < run.location_count && sends <= most; first = past) {
      const int32_t rank = run.locations[first].rank;
      causal::Stream stream;
      for (past = first; past < run.location_count && run.locations[past].rank == rank; past++)
        if (run.locations[past].count > 0) stream.add(run.locations[past], past);
      if (!stream.empty() && rank >= 0 && rank < run.rank_count) read(rank, stream);
    }
    if (sends > most) messages.clear();
  }

 private:
  void read(int32_t rank, causal::Stream &stream) {
    own_.clear();
    requests_.clear();
    while (sends <= most_ && stream.next()) take(stream.now(), stream.location(), rank);
    for (const OwnEnd &one : own_) {
      if (!one.known || one.peer >= (uint32_t)run_.rank_count) continue;
      if (one.sent) join(rank, one.peer, one, sends_, receives_, true);
      else join(one.peer, rank, one, receives_, sends_, false);
    }
  }

  void join(uint32_t sender, uint32_t receiver, const OwnEnd &one, std::vector<End> &side,
            std::vector<End> &other_side, bool is_sent) {
    const Key key = channel_key(sender, receiver, one.comm, one.tag);
    Channel &channel = channels_.get(key);
    End own = one.end;
    meet(own, is_sent ? channel.receives : channel.sends, other_side, [&](int64_t, const End &other) {
      if (own.skipped || other.skipped) return;
      const End &send = is_sent ? own : other, &receive = is_sent ? other : own;
      messages.push_back({send.location, receive.location, send.tick, receive.tick, send.number,
                          receive.number, send.bytes, one.comm, one.tag});
    });
    if (own.left > 0) {
      side.push_back(own);
      wait_in(is_sent ? channel.sends : channel.receives, side, (int64_t)side.size() - 1);
    }
    if (channel.is_empty()) channels_.erase(key);
  }

  void take(const Decoder &d, int64_t location, int32_t rank) {
    OwnEnd one;
    one.end.tick = d.in->epoch + d.ticks;
    one.end.location = (int32_t)location;
    one.peer = d.payload;
    one.known = true;
    switch (d.kind) {
      case HS_EVENT_SEND:
      case HS_EVENT_ISEND:
      case HS_EVENT_RECV:
      case HS_EVENT_IRECV_DONE: {
        one.sent = d.kind == HS_EVENT_SEND || d.kind == HS_EVENT_ISEND;
        one.end.number = ends[location]++;
        one.end.bytes = d.words[1];
        describe(one, d);
        const int64_t posted = d.kind == HS_EVENT_IRECV_DONE ? close(d.words[2]) : kNone;
        one.known = one.peer != HS_NOBODY;
        (one.sent ? sends : receives) += one.known;
        if (posted != kNone && !own_[posted].sent) own_[posted] = one;
        else own_.push_back(one);
        if (d.kind == HS_EVENT_ISEND) open(d.words[2]);
        break;
      }
      case HS_EVENT_IRECV:
        one.known = false;
        own_.push_back(one);
        open(d.payload);
        break;
      case HS_EVENT_ISEND_DONE: close(d.payload); break;
      case HS_EVENT_CANCELLED:
        if (const int64_t posted = close(d.payload); posted != kNone) {
          sends -= own_[posted].sent && own_[posted].known;
          own_[posted].known = false;
        }
        break;
      case HS_EVENT_SKIPPED: skip(one, d); break;
      case HS_EVENT_LAUNCH:
      case HS_EVENT_EXECUTE:
        one.sent = d.kind == HS_EVENT_LAUNCH;
        one.end.number = ends[location]++;
        one.known = !one.sent || d.words[0] <= UINT32_MAX;
        one.tag = one.sent ? (uint32_t)d.words[0] : d.payload;
        one.peer = (uint32_t)rank;
        one.comm = kLaunches;
        own_.push_back(one);
        break;
      default: break;
    }
  }

  // Messages that were not recorded take their turns.
  void skip(OwnEnd &one, const Decoder &d) {
    const uint64_t flags = d.words[1];
    const bool has_request = d.words[2] < HS_NOBODY;
    const int64_t posted = has_request ? close(d.words[2]) : kNone;
    if (has_request && (posted == kNone || own_[posted].sent)) return;
    one.sent = flags & HS_SKIPPED_SENT;
    one.end.left = (int64_t)(flags & HS_SKIPPED_COUNT);
    one.end.skipped = true;
    one.known = flags & (HS_SKIPPED_SENT | HS_SKIPPED_RECEIVED) && one.end.left > 0 &&
                one.end.left <= kMostSkipped && !(flags & (HS_SKIPPED_UNSURE | HS_SKIPPED_EPOCH));
    describe(one, d);
    if (posted != kNone) own_[posted] = one;
    else if (one.known) own_.push_back(one);
  }

  static void describe(OwnEnd &one, const Decoder &d) {
    one.comm = d.comm((uint32_t)d.words[0]);
    one.tag = (uint32_t)(d.words[0] >> 32);
  }
  void open(uint64_t request) { requests_.get({(uint32_t)request, 0}) = (int64_t)own_.size() - 1; }
  int64_t close(uint64_t request) {
    const Key key{(uint32_t)request, 0};
    const int64_t *place = requests_.find(key);
    const int64_t number = place ? *place : kNone;
    requests_.erase(key);
    return number;
  }

  const RunInput &run_;
  const int64_t most_;  // sends
  std::vector<OwnEnd> own_;
  Table<int64_t> requests_;
  std::vector<End> sends_, receives_;  // that have waited for their partners
  Table<Channel> channels_;
};

}  // namespace

extern "C" {

// Null where memory is short. Of a trace with more sends than `most` only counts are known.
void *match_messages(const RunInput *run, int64_t most, int64_t *counts) {
  try {
    auto table = std::make_unique<MessageTable>(*run, most);
    counts[0] = (int64_t)table->messages.size();
    counts[1] = table->sends;
    counts[2] = table->receives;
    return table.release();
  } catch (const std::exception &) {
    return nullptr;
  }
}

void messages_copy(const void *handle, MatchedMessage *messages, int64_t *ends) {
  const MessageTable &table = *(const MessageTable *)handle;
  std::copy(table.messages.begin(), table.messages.end(), messages);
  std::copy(table.ends.begin(), table.ends.end(), ends);
}

void messages_free(void *handle) { delete (MessageTable *)handle; }
}
