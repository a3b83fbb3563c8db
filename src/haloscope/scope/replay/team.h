// Threads that do one thing together and meet now and then. They sleep while they wait: on a busy
// machine, or with more threads than cores, spinning would cost more than the work itself.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

class Team {
 public:
  explicit Team(int size) : size_(size) {}

  // Runs `work(thread)` on all threads; the calling one is number 0.
  void run(const std::function<void(int)> &work) {
    std::vector<std::thread> others;
    for (int thread = 1; thread < size_; thread++) others.emplace_back(work, thread);
    work(0);
    for (std::thread &one : others) one.join();
  }

  // Returns when all have called it; `alone` is run by the last to arrive, before the others go on.
  template <class Alone>
  void meet(Alone alone) {
    std::unique_lock<std::mutex> lock(mutex_);
    const long round = round_;
    if (++arrived_ == size_) {
      alone();
      arrived_ = 0;
      round_++;
      all_here_.notify_all();
    } else {
      all_here_.wait(lock, [&] { return round_ != round; });
    }
  }
  void meet() {
    meet([] {});
  }

 private:
  const int size_;
  int arrived_ = 0;
  long round_ = 0;
  std::mutex mutex_;
  std::condition_variable all_here_;
};
