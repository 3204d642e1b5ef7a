#pragma once
#include <array>
#include <functional>
#include <vector>

#include "composer/core/event.h"
#include "composer/core/export.h"
#include "composer/core/plugins.h"

namespace composer {

struct State;

// Reorders the algorithms of one event. Runs when the table is made, not while it trains.
using Pass = std::function<void(Event event, std::vector<Plugin<Algorithm>>& algorithms)>;

// A pass and where it goes among the others: those of the engine are at 0 (Placement::FIRST), 1 (Placement::LAST) and
// 2 (reversal on the events whose name begins with AFTER_). -1, or beyond the last: at the end.
struct AlgorithmPass {
  AlgorithmPass(Pass given, int at = -1) : pass(std::move(given)), index(at) {}
  Pass pass;
  int index;
};

// Calls, at each event, the algorithms, then the callbacks, then the loggers that listen to it; at INIT loggers, then
// callbacks, then algorithms, because a logger must be open before anybody can log. Who listens, in which order, is
// worked out at registration: an event without listeners costs one load and one branch. What a listener throws leaves
// run_event nested in a RunError that says which event, who, epoch and batch; the listeners after it are not called.
class COMPOSER_EXPORT Engine {
 public:
  // Opens the callbacks and loggers. Throws ConfigError if one of them is in another trainer that is still open.
  Engine(State& state, Logger& logger, Algorithms algorithms, Callbacks callbacks, Loggers loggers,
         const std::vector<AlgorithmPass>& passes = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Throws Error after close(), and ConfigError if this event needs a loader that nobody has set.
  void run_event(Event event) {
    if (listening_.contains(event)) dispatch(event);
  }

  // After an error between `opens` and `closes`: the algorithms that have seen the first see the second, so that what
  // they opened is closed. What they throw is a warning.
  void unwind(Event opens, Event closes);

  void register_pass(Pass pass, int index = -1);

  // Closes callbacks and loggers, each whatever the others do; again: does nothing.
  void close();
  bool closed() const { return closed_; }

  // In the order of Composer's state.callbacks: loggers first.
  const std::vector<Plugin<Callback>>& callbacks() const { return callbacks_; }
  const std::vector<Plugin<Algorithm>>& algorithms() const { return algorithms_; }

 private:
  struct Listeners {
    std::vector<Plugin<Algorithm>> algorithms;
    std::vector<std::string> trace_keys;  // beside algorithms
    std::size_t called = 0;               // so many of the algorithms, the last time
    std::vector<Plugin<Callback>> callbacks;
  };

  void open(Plugin<Callback> plugin);
  void forget_after(const Callback& callback);
  void make_table();
  void dispatch(Event event);
  void check(Event event) const;
  void run_algorithms(Event event, Listeners& listeners);
  void run_callbacks(Event event, Listeners& listeners);
  [[noreturn]] void rethrow(Event event, const std::string& who) const;

  State& state_;
  Logger& logger_;
  std::vector<Plugin<Algorithm>> algorithms_;
  std::vector<Plugin<Callback>> callbacks_;
  std::size_t logger_count_ = 0;  // callbacks_ begins with so many loggers
  std::vector<Pass> passes_;      // of the engine and of the user, in the order in which they run
  std::array<Listeners, kEventCount> table_;
  EventSet listening_;  // events with listeners; all of them once closed, so that dispatch() can complain
  bool closed_ = false;
};

}  // namespace composer
