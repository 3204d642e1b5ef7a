#include "tests/dist/turns.h"

#include <algorithm>
#include <utility>

namespace composer::dist::simulation {

Turns::~Turns() {
  for (const auto& thread : threads_) thread->killed_at = Time(0);
  if (!wakes_.empty()) run();
}

void Turns::wake(std::size_t thread, Time at) { wakes_.push({at, order_++, thread}); }

void Turns::start(Time at, std::function<void()> body) {
  const std::size_t number = threads_.size();
  threads_.push_back(std::make_unique<Thread>());
  wake(number, at);
  Thread& self = *threads_.back();
  self.thread = std::jthread([this, &self, body = std::move(body)] {
    self.turn.acquire();
    try {
      if (now_ < self.killed_at) body();
    } catch (const Killed&) {  // NOLINT(bugprone-empty-catch): its end
    }
    give_turn();
  });
}

void Turns::run() {
  give_turn();
  all_ended_.acquire();
  for (const auto& thread : threads_) thread->thread.join();
}

void Turns::give_turn() {
  if (wakes_.empty()) return all_ended_.release();
  const Wake next = wakes_.top();
  wakes_.pop();
  now_ = std::max(now_, next.at);
  current_ = next.thread;
  threads_[next.thread]->turn.release();
}

void Turns::sleep(Time time) {
  const std::size_t me = current_;
  Thread& thread = *threads_[me];
  wake(me, std::max(now_, std::min(now_ + time, thread.killed_at)));
  if (wakes_.top().thread == me) {  // goes on without a change of threads
    now_ = wakes_.top().at;
    wakes_.pop();
  } else {
    give_turn();
    thread.turn.acquire();
  }
  if (now_ >= thread.killed_at) throw Killed();
}

}  // namespace composer::dist::simulation
