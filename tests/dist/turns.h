#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <semaphore>
#include <thread>
#include <vector>

namespace composer::dist::simulation {

// Threads that take turns on a simulated clock: one runs at a time, until it sleeps, and the next is the one that wakes
// up first. What they do depends on the times that they sleep for alone.
class Turns {
 public:
  using Time = std::chrono::milliseconds;

  Turns() = default;
  ~Turns();
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // A thread that begins at the time. Before run().
  void start(Time at, std::function<void()> body);
  // The thread throws Killed out of its sleep at the time, or out of the first one after that.
  void kill(std::size_t thread, Time at) { threads_[thread]->killed_at = at; }
  // Runs until all have ended.
  void run();

  // For the threads.
  struct Killed {};
  Time now() const { return now_; }
  void sleep(Time time);

 private:
  struct Thread {
    std::jthread thread;
    std::binary_semaphore turn{0};
    Time killed_at = Time::max();
  };
  struct Wake {
    Time at;
    std::uint64_t order;
    std::size_t thread;
    bool operator<(const Wake& other) const { return at != other.at ? at > other.at : order > other.order; }
  };
  void give_turn();
  void wake(std::size_t thread, Time at);

  std::vector<std::unique_ptr<Thread>> threads_;
  std::priority_queue<Wake> wakes_;
  std::uint64_t order_ = 0;
  std::size_t current_ = 0;
  Time now_{0};
  std::binary_semaphore all_ended_{0};
};

}  // namespace composer::dist::simulation
