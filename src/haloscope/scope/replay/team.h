// Threads that do one thing together and meet now and then. They sleep while they wait: on a busy
// machine, or with more threads than cores, spinning would cost more than the work itself.
#pragma once
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

// What a replay tells of its end.
enum Failure : int { NONE = 0, NO_MEMORY = 1, NO_THREADS = 2 };

// The system starts no more threads; no work was begun.
struct ThreadRefused : std::exception {};

class Team {
 public:
  explicit Team(int size) : size_(size) {}

  // Runs `work(thread)` on all threads; the calling one is number 0. Throws what one of them has
  // thrown, or ThreadRefused, when all have ended.
  void run(const std::function<void(int)> &work) {
    std::vector<std::thread> others;
    const auto part = [&](int thread) {
      try {
        await_all();
        work(thread);
      } catch (...) {
        stop(std::current_exception());
      }
    };
    try {
      others.reserve(size_ - 1);
      for (int thread = 1; thread < size_; thread++) others.emplace_back(part, thread);
    } catch (const std::exception &) {
      stop(std::make_exception_ptr(ThreadRefused()));
    }
    begin();
    part(0);
    for (std::thread &one : others) one.join();
    if (failure_) std::rethrow_exception(failure_);
  }

  // Returns when all have called it; `alone` is run by the last to arrive, before the others go on.
  template <class Alone>
  void meet(Alone alone) {
    std::unique_lock<std::mutex> lock(mutex_);
    const long round = round_;
    if (failure_) std::rethrow_exception(failure_);
    if (++arrived_ == size_) {
      alone();
      arrived_ = 0;
      round_++;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&] { return round_ != round || failure_; });
      if (round_ == round) std::rethrow_exception(failure_);
    }
  }
  void meet() {
    meet([] {});
  }

 private:
  void begin() {
    std::lock_guard<std::mutex> lock(mutex_);
    begun_ = true;
    changed_.notify_all();
  }
  void await_all() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return begun_; });
    if (failure_) std::rethrow_exception(failure_);
  }
  void stop(std::exception_ptr why) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_) failure_ = why;
    changed_.notify_all();
  }

  const int size_;
  bool begun_ = false;  // all threads are there, or one could not be started
  int arrived_ = 0;
  long round_ = 0;
  std::exception_ptr failure_;  // the first one
  std::mutex mutex_;
  std::condition_variable changed_;
};

// How a replay that ended with an exception failed; to be called where it is caught.
inline Failure failure() {
  try {
    throw;
  } catch (const ThreadRefused &) {
    return NO_THREADS;
  } catch (...) {
    return NO_MEMORY;
  }
}
