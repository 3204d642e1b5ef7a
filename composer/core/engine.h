#pragma once
#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "composer/core/event.h"
#include "composer/core/export.h"
#include "composer/core/plugins.h"

namespace composer {

class CallWatcher;
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
// run_event nested in a RunError that says which event, who, epoch and batch; the listeners after it are not called,
// but for algorithms at an event that closes an evaluation or a prediction: each of them sees it, and the first error
// leaves. An algorithm that changed a tensor of state.batch in place is such an error, too (see Algorithm).
class COMPOSER_EXPORT Engine {
 public:
  // Throws ConfigError if one object is given twice, or is in another trainer that is still open.
  Engine(State& state, Logger& logger, Algorithms algorithms, Callbacks callbacks, Loggers loggers,
         const std::vector<AlgorithmPass>& passes = {});
  // Runs the algorithms and passes of another engine, to which they still belong, on another state.
  struct ForTrial {};
  Engine(State& state, Logger& logger, const Engine& other, ForTrial);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // If anything listens to this event: throws Error after close(), and ConfigError if the event needs a loader and the
  // state has none.
  void run_event(Event event) {
    if (listening_.contains(event)) dispatch(event);
  }
  // The same for the algorithms alone.
  void run_algorithms_alone(Event event) {
    if (listening_.contains(event)) dispatch(event, /*alone=*/true);
  }

  // After an error between `opens` and `closes`: the algorithms that have seen the first see the second, so that what
  // they opened is closed. What they throw is a warning.
  void unwind(Event opens, Event closes);

  // The name of an algorithm that has seen an event which opens an evaluation or a prediction, and not yet the one that
  // closes it: it may have exchanged the weights. nullptr: there is none.
  const std::string* open_algorithm() const;

  // Within an event, it holds from the end of that event on.
  void register_pass(Pass pass, int index = -1);

  // The events that algorithms, and that callbacks or loggers, listen to. They change with the generation only.
  EventSet heard_by_algorithms() const { return table_->heard_by_algorithms; }
  EventSet heard_by_callbacks() const { return table_->heard_by_callbacks; }
  bool listens(Event event) const {
    return table_->heard_by_algorithms.contains(event) || table_->heard_by_callbacks.contains(event);
  }
  std::uint64_t generation() const { return generation_; }

  // Closes callbacks, then loggers, each whatever the others do; again: does nothing.
  void close();
  bool closed() const { return closed_; }

  // In the order of Composer's state.callbacks: loggers first.
  std::vector<Plugin<Callback>> callbacks() const;
  const std::vector<Plugin<Algorithm>>& algorithms() const { return algorithms_; }

 private:
  struct Listeners {
    std::vector<Plugin<Algorithm>> algorithms;
    std::vector<std::string> trace_keys;  // beside algorithms
    std::vector<Plugin<Callback>> callbacks;
  };
  struct Table {
    std::array<Listeners, kEventCount> listeners;
    EventSet heard_by_algorithms, heard_by_callbacks;
  };
  class Dispatching;
  class WatchedCall;
  // An algorithm that has seen the event which opens an evaluation or a prediction, and is to see the one that closes
  // it.
  struct Open {
    Event by;
    const Algorithm* algorithm;
  };

  void find_watchers();
  template <class Base>
  void take(const Plugin<Base>& plugin);
  void release();
  std::unique_ptr<Table> table_of(const std::vector<Pass>& passes) const;
  void use(std::unique_ptr<Table> table);
  void forget_after(const Callback& callback);
  void dispatch(Event event, bool alone = false);
  void check(Event event) const;
  void run_algorithms(Event event, Listeners& listeners);
  void run_callbacks(Event event, Listeners& listeners);
  [[noreturn]] void rethrow(Event event, const std::string& who) const;
  void forget_open(Event opens);
  void note_first(std::exception_ptr& first, Event event, const std::string& who) const;

  State& state_;
  Logger& logger_;
  std::vector<Plugin<Algorithm>> algorithms_;
  std::vector<Plugin<Callback>> callbacks_, loggers_;
  std::vector<CallWatcher*> watchers_;  // among these
  std::vector<Pass> passes_;            // of the engine and of the user, in the order in which they run
  std::unique_ptr<Table> table_;
  std::unique_ptr<Table> next_;  // instead of table_, once no event is being dispatched
  EventSet listening_;           // events with listeners; all of them once closed, so that dispatch() can complain
  std::uint64_t generation_ = 0;
  int dispatching_ = 0;  // events that are being dispatched, one within another
  std::vector<Open> open_;
  bool closed_ = false;
};

}  // namespace composer
