#include "composer/util/background_queue.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <random>
#include <string>

#include "tests/support/doctest.h"
#include "tests/support/in_child.h"

namespace composer::util::background_queue_test {
namespace {

using namespace std::chrono_literals;
using Queue = BackgroundQueue<int>;

// Closed, it stops the thread that passes through it.
class Gate {
 public:
  bool pass(std::chrono::seconds limit = 3600s) {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    return changed_.wait_for(lock, limit, [this] { return open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait_for_visitor() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_ > 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int waiting_ = 0;
};

std::vector<int> numbers(int from, int to) {
  std::vector<int> all(static_cast<std::size_t>(to - from));
  std::iota(all.begin(), all.end(), from);
  return all;
}

// What is handled of 0 to 9 if the handler hangs in the first while 1 to 9 arrive and three may wait.
std::vector<int> handled_when_full(FullQueue when_full, std::uint64_t& dropped) {
  Gate gate;
  std::vector<int> handled;
  Queue queue(
      [&](std::span<int> messages) {
        gate.pass();
        handled.insert(handled.end(), messages.begin(), messages.end());
      },
      {.delay = 0s, .capacity = 3, .when_full = when_full});
  queue.send(0);
  gate.wait_for_visitor();
  for (int i = 1; i < 10; ++i) queue.send(i);
  dropped = queue.dropped();
  gate.open();
  CHECK(queue.sync());
  return handled;
}

TEST_CASE("A full queue drops the newest or the oldest messages, as it was told, and counts them") {
  std::uint64_t dropped = 0;
  CHECK(handled_when_full(FullQueue::DROP_NEWEST, dropped) == std::vector{0, 1, 2, 3});
  CHECK(dropped == 6);
  CHECK(handled_when_full(FullQueue::DROP_OLDEST, dropped) == std::vector{0, 7, 8, 9});
  CHECK(dropped == 6);
}

TEST_CASE("A queue whose handler hangs ends within its limit, and its thread ends once the handler returns") {
  const auto gate = std::make_shared<Gate>();
  const auto calls = std::make_shared<std::atomic<int>>(0);
  std::weak_ptr<Gate> alive = gate;
  {
    Queue queue(
        [gate, calls](std::span<int>) {
          ++*calls;
          gate->pass();
        },
        {.delay = 0s, .capacity = 5}, [calls] { *calls += 100; });
    queue.send(0);
    gate->wait_for_visitor();
    queue.send(1);
    CHECK_FALSE(queue.sync(1ms));
    CHECK_FALSE(queue.end(1ms));
    CHECK(queue.abandoned() == 2);
  }
  gate->open();
  while (alive.use_count() > 1) std::this_thread::yield();  // until the thread has let go of its handler
  CHECK(*calls == 1);
}

TEST_CASE("A limit of infinite seconds is waited for") {
  Gate gate;
  Queue queue([&](std::span<int>) { gate.pass(); }, {.delay = 0s});
  queue.send(0);
  std::jthread other([&] {
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // sync() waits meanwhile
    gate.open();
  });
  CHECK(queue.sync(Queue::Duration(INFINITY)));
}

TEST_CASE("The destructor of a queue handles what waits, then calls finish once on its thread") {
  std::vector<int> handled;
  {
    Queue queue([&](std::span<int> messages) { handled.insert(handled.end(), messages.begin(), messages.end()); },
                {.delay = 3600s}, [&] { handled.push_back(-1); });
    for (int i = 0; i < 3; ++i) queue.send(i);
  }
  CHECK(handled == std::vector{0, 1, 2, -1});
}

TEST_CASE("A message that takes long to be destroyed does not make the sender wait") {
  Gate gate;
  bool opened = false;
  {
    BackgroundQueue<std::shared_ptr<void>> queue([](std::span<std::shared_ptr<void>>) {}, {.delay = 0s});
    queue.send(std::shared_ptr<void>(&gate, [&](void*) { opened = gate.pass(10s); }));
    gate.wait_for_visitor();
    queue.send(nullptr);
    gate.open();
  }
  CHECK(opened);
}

TEST_CASE("Many messages, or half of what the queue takes, do not wait for its delay") {
  for (const std::size_t capacity : {std::size_t{10}, std::size_t{1} << 16}) {
    const std::size_t many = capacity == 10 ? 5 : 4096;
    std::atomic<std::size_t> handled = 0;
    Queue queue([&](std::span<int> messages) { handled += messages.size(); }, {.delay = 3600s, .capacity = capacity});
    for (std::size_t i = 0; i < many; ++i) queue.send(0);
    while (handled < many) std::this_thread::yield();
    queue.send(0);
    CHECK(handled == many);
  }
}

TEST_CASE("A queue told to hurry handles messages at once, but not again before the pause has passed") {
  std::atomic<std::size_t> handled = 0;
  Queue queue([&](std::span<int> messages) { handled += messages.size(); }, {.delay = 3600s});
  const auto wait_for = [&](std::size_t count) {
    while (handled < count) std::this_thread::yield();
  };
  queue.send(0);
  queue.hurry(3600s);
  wait_for(1);
  queue.send(0);
  queue.hurry(3600s);
  for (int i = 0; i < 10'000; ++i) std::this_thread::yield();
  CHECK(handled == 1);
  queue.hurry(1ms);
  wait_for(2);
  queue.hurry();  // nothing waits
  queue.send(0);
  for (int i = 0; i < 10'000; ++i) std::this_thread::yield();
  CHECK(handled == 2);
}

TEST_CASE("After a fork, the child's queue refuses messages and ends without a thread") {
  Queue queue([](std::span<int>) {}, {.delay = 0s});
  queue.send(1);
  const int status = test::status_of_child([&] {
    try {
      queue.send(2);
    } catch (const Error&) {
      if (queue.sync() && queue.end(0s) && queue.end(0s)) return;
    }
    throw Error("it did not refuse");
  });
  CHECK(test::ended_well(status));
}

// A random program of one sender against a handler that is slow at random.
void run_program(std::mt19937& random) {
  const auto draw = [&random](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  const auto capacity = static_cast<std::size_t>(1 + draw(6));
  const auto when_full = static_cast<FullQueue>(draw(3));
  const int fails_at = draw(4) == 0 ? draw(30) : -1;
  std::vector<int> handled;
  std::size_t longest = 0;
  std::minstd_rand slow(random());
  int sent = 0;
  bool failed = false;
  std::uint64_t dropped = 0;
  {
    Queue queue(
        [&](std::span<int> messages) {
          longest = std::max(longest, messages.size());
          for (const int message : messages) {
            if (message == fails_at) throw Error("the handler failed");
            for (unsigned turns = slow() % 4; turns > 0; --turns) std::this_thread::yield();
            handled.push_back(message);
          }
        },
        {.delay = draw(2) * 1us, .capacity = capacity, .when_full = when_full});
    for (int steps = draw(60); steps > 0 && !failed; --steps) {
      try {
        const int what = draw(10);
        if (what == 0) {
          queue.sync();
          if (when_full == FullQueue::WAIT) CHECK(handled == numbers(0, sent));
          if (sent > 0 && when_full == FullQueue::DROP_OLDEST) CHECK(handled.back() == sent - 1);
        } else if (what == 1) {
          queue.hurry();
        } else if (what == 2) {
          std::this_thread::yield();
        } else {
          queue.send(int{sent});
          ++sent;
        }
      } catch (const Error&) {
        failed = true;
      }
    }
    dropped = queue.dropped();
  }
  CHECK(longest <= capacity);
  CHECK(std::ranges::is_sorted(handled));
  CHECK(std::ranges::adjacent_find(handled) == handled.end());
  CHECK(std::ranges::find(handled, fails_at) == handled.end());
  if (fails_at >= 0) {  // which may have been dropped
    if (failed || when_full == FullQueue::WAIT)
      CHECK(std::ranges::all_of(handled, [&](int message) { return message < fails_at; }));
    return;
  }
  CHECK_FALSE(failed);
  CHECK(handled.size() + dropped == static_cast<std::size_t>(sent));
  if (when_full == FullQueue::WAIT) CHECK(handled == numbers(0, sent));
  if (sent > 0 && when_full == FullQueue::DROP_NEWEST) CHECK(handled.front() == 0);
  if (sent > 0 && when_full == FullQueue::DROP_OLDEST) CHECK(handled.back() == sent - 1);
}

TEST_CASE("Random programs of a queue lose, repeat and reorder nothing beyond what they report") {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    run_program(random);
  }
}

}  // namespace
}  // namespace composer::util::background_queue_test
