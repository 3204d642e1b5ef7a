#include "composer/dist/watchdog.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <poll.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "composer/core/error.h"
#include "composer/dist/position.h"

namespace composer::dist {
namespace {

using std::chrono::milliseconds;

FailureDetector::Time now() {
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now().time_since_epoch());
}

std::vector<std::uint8_t> bytes(std::string_view text) { return {text.begin(), text.end()}; }
std::string text(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// Prints the message and ends the process. Neither a lock of the main thread nor a full pipe can keep it from ending.
[[noreturn]] void exit_by_force(const std::string& message) {
  pollfd out{STDERR_FILENO, POLLOUT, 0};
  if (poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) != 0) {
    const std::string line = message.substr(0, 500) + "\n";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  }
  _exit(Watchdog::kExitStatus);
}

}  // namespace

struct Watchdog::State {
  explicit State(Setup given)
      : setup(std::move(given)), detector(setup.rules, setup.rank, setup.size, setup.store_rank, now()) {
    for (int rank = 0; rank < setup.size; ++rank) keys.push_back(beat_key(rank));
    keys.push_back(kVerdictKey);
  }

  void talk_to_store();
  void one_turn(std::unique_lock<std::mutex>& lock);
  void supervise();
  void wake_talker() {
    ++wishes;
    changed.notify_all();
  }

  const Setup setup;
  Position position;
  std::vector<std::string> keys;

  mutable std::mutex mutex;  // guards all fields below
  std::condition_variable changed;
  FailureDetector detector;
  int wishes = 0;  // number of turns that were asked for before their time
  bool stop = false, talker_ended = false;
};

void Watchdog::State::one_turn(std::unique_lock<std::mutex>& lock) try {
  const FailureDetector::Turn turn = detector.turn(position.text(), setup.calls());
  lock.unlock();
  c10d::Store& store = *setup.store;
  store.set(keys[static_cast<std::size_t>(setup.rank)], bytes(turn.beat));
  if (turn.proposal) store.compareSet(kVerdictKey, bytes(kNoVerdict), bytes(*turn.proposal));
  std::vector<std::string> values;
  for (const std::vector<std::uint8_t>& value : store.multiGet(keys)) values.push_back(text(value));
  const std::string verdict = values.back();
  values.pop_back();
  lock.lock();
  detector.heard(now(), values, verdict);
} catch (const std::exception& error) {
  const std::string why = describe(error);
  if (!lock.owns_lock()) lock.lock();
  detector.store_failed(now(), why.substr(0, std::min<std::size_t>(why.find('\n'), 300)));
}

void Watchdog::State::talk_to_store() {
  std::unique_lock lock(mutex);
  while (!stop && detector.needs_turns()) {
    const int answered = wishes;
    one_turn(lock);
    changed.notify_all();
    changed.wait_for(lock, detector.pause(), [&] { return stop || wishes != answered; });
  }
  talker_ended = true;
  changed.notify_all();
}

void Watchdog::State::supervise() {
  const milliseconds tick = std::min(milliseconds(100), setup.rules.dead_after / 20);
  std::unique_lock lock(mutex);
  while (!stop) {
    const FailureDetector::Action action = detector.tick(now());
    if (action == FailureDetector::Action::ABORT) {
      lock.unlock();
      setup.abort();
      lock.lock();
      changed.notify_all();
    }
    if (action == FailureDetector::Action::EXIT)
      exit_by_force(composer::join("libcomposer: rank ", setup.rank,
                                   " is ended, since its main thread did not end: ", detector.verdict()->text));
    changed.wait_for(lock, tick);
  }
}

Watchdog::Watchdog(Setup setup) : state_(std::make_shared<State>(std::move(setup))) {
  std::thread([state = state_] { state->talk_to_store(); }).detach();
  supervisor_ = std::thread([state = state_.get()] { state->supervise(); });
}

Watchdog::~Watchdog() {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  state.changed.wait_for(lock, state.setup.rules.dead_after + std::chrono::seconds(1),
                         [&] { return !state.detector.verdict() || state.detector.may_end(); });
  state.stop = true;
  state.changed.notify_all();
  lock.unlock();
  supervisor_.join();
  lock.lock();
  const auto ended = [&] { return state.talker_ended; };
  if (state.changed.wait_for(lock, milliseconds(200), ended) || !state.setup.store_sockets) return;
  lock.unlock();
  state.setup.store_sockets->shut_down();  // the talker waits for an answer of a store that gives none
  lock.lock();
  state.changed.wait_for(lock, milliseconds(500), ended);
}

void Watchdog::at(std::string_view event, std::int64_t epoch, std::int64_t batch) noexcept {
  state_->position.set(event, epoch, batch);
}

std::optional<Verdict> Watchdog::wait_for_verdict() {
  std::unique_lock lock(state_->mutex);
  FailureDetector& detector = state_->detector;
  const FailureDetector::Time until = detector.awake() + detector.patience();
  while (!detector.verdict() && detector.awake() < until)
    state_->changed.wait_for(lock, state_->setup.rules.dead_after / 20);  // the supervisor moves the clock
  if (detector.verdict()) detector.take();
  return detector.verdict();
}

void Watchdog::timed_out() {
  const std::lock_guard lock(state_->mutex);
  state_->detector.timed_out();
  state_->wake_talker();
}

void Watchdog::fail(const std::string& why) {
  std::unique_lock lock(state_->mutex);
  FailureDetector& detector = state_->detector;
  detector.fail(why.substr(0, 1000), state_->position.text());
  state_->wake_talker();
  state_->changed.wait_for(lock, std::chrono::seconds(2),
                           [&] { return detector.verdict().has_value() || !detector.needs_turns(); });
  // The process may be about to end, and with it the store that it serves, so this waits until the others know the
  // verdict.
  state_->changed.wait_for(lock, state_->setup.rules.dead_after,
                           [&] { return !detector.verdict() || detector.may_end(); });
}

bool Watchdog::leave(milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  FailureDetector& detector = state_->detector;
  detector.leave();
  state_->wake_talker();
  state_->changed.wait_for(lock, limit, [&] { return detector.verdict().has_value() || detector.has_left(); });
  return detector.has_left();
}

std::string Watchdog::positions() const {
  const std::lock_guard lock(state_->mutex);
  return state_->detector.positions();
}

}  // namespace composer::dist
