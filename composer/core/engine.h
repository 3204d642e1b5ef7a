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

// Reorders the algorithms of one event. Called when the table of listeners is made, not during training.
using Pass = std::function<void(Event event, std::vector<Plugin<Algorithm>>& algorithms)>;

// A pass and its position among the other passes. The engine's own passes are at 0 (Placement::FIRST), 1
// (Placement::LAST) and 2 (reversal on the events whose name begins with AFTER_). -1, or a position beyond the last
// pass, means the end.
struct AlgorithmPass {
  AlgorithmPass(Pass given, int at = -1) : pass(std::move(given)), index(at) {}
  Pass pass;
  int index;
};

// Calls the listeners of each event: the algorithms, then the callbacks, then the loggers. At INIT the order is
// loggers, callbacks, algorithms, because a logger must be open before anything is logged. The listeners and their
// order are determined at registration: an event without listeners costs one load and one branch. If a listener throws,
// the error leaves run_event nested in a RunError with the event, the listener's name, the epoch and the batch, and
// later listeners are not called. Algorithms at an event that closes an evaluation or a prediction are an exception:
// each of them is called, and the first error is thrown. If an algorithm changes a tensor of state.batch in place, that
// is also such an error (see Algorithm).
class COMPOSER_EXPORT Engine {
 public:
  // Throws ConfigError if an object is listed twice, or is in another trainer that is still open.
  Engine(State& state, Logger& logger, Algorithms algorithms, Callbacks callbacks, Loggers loggers,
         const std::vector<AlgorithmPass>& passes = {});
  // Runs the algorithms and passes of another engine, which still owns them, on another state.
  struct ForTrial {};
  Engine(State& state, Logger& logger, const Engine& other, ForTrial);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Does nothing if the event has no listeners. Otherwise throws Error after close(), and ConfigError if the event
  // needs a loader and the state has none.
  void run_event(Event event) {
    if (listening_.contains(event)) dispatch(event);
  }
  // Like run_event(), for the algorithms alone.
  void run_algorithms_alone(Event event) {
    if (listening_.contains(event)) dispatch(event, /*alone=*/true);
  }

  // Called after an error between `opens` and `closes`. Calls the algorithms that have seen `opens` at `closes`, so
  // that what they opened is closed. Their exceptions become warnings.
  void unwind(Event opens, Event closes);

  // The name of an algorithm that has seen an event which opens an evaluation or a prediction, and not yet the event
  // which closes it; it may have exchanged the weights. nullptr: there is none.
  const std::string* open_algorithm() const;

  // If this is called during an event, the pass takes effect at the end of that event.
  void register_pass(Pass pass, int index = -1);

  // The events that algorithms listen to, and those that callbacks or loggers listen to. They change only with the
  // generation.
  EventSet heard_by_algorithms() const { return table_->heard_by_algorithms; }
  EventSet heard_by_callbacks() const { return table_->heard_by_callbacks; }
  bool listens(Event event) const {
    return table_->heard_by_algorithms.contains(event) || table_->heard_by_callbacks.contains(event);
  }
  std::uint64_t generation() const { return generation_; }

  // Closes callbacks, then loggers, each even if others throw. A second call does nothing.
  void close();
  bool closed() const { return closed_; }

  // Whether the callback is in a trainer that is open.
  static bool is_in_use(const Callback& callback) { return callback.lease_.holder_ != nullptr; }
  // Loggers first, as in Composer's state.callbacks.
  std::vector<Plugin<Callback>> callbacks() const;
  const std::vector<Plugin<Algorithm>>& algorithms() const { return algorithms_; }

 private:
  struct Listeners {
    std::vector<Plugin<Algorithm>> algorithms;
    std::vector<std::string> trace_keys;  // one for each of `algorithms`
    std::vector<Plugin<Callback>> callbacks;
  };
  struct Table {
    std::array<Listeners, kEventCount> listeners;
    EventSet heard_by_algorithms, heard_by_callbacks;
  };
  class Dispatching;
  class WatchedCall;
  // An algorithm that has seen the event which opens an evaluation or a prediction, and must see the one that closes
  // it.
  struct Open {
    Event by;
    const Algorithm* algorithm;
  };

  void find_watchers();
  template <class Base>
  void acquire_lease(const Plugin<Base>& plugin);
  void release_leases();
  std::unique_ptr<Table> make_table(const std::vector<Pass>& passes) const;
  void set_table(std::unique_ptr<Table> table);
  void drop_plugins_after(const Callback& callback);
  void dispatch(Event event, bool alone = false);
  void check(Event event) const;
  void run_algorithms(Event event, Listeners& listeners);
  void run_callbacks(Event event, Listeners& listeners);
  [[noreturn]] void rethrow(Event event, const std::string& who) const;
  void remove_open(Event opens);
  void keep_first_error(std::exception_ptr& first, Event event, const std::string& who) const;

  State& state_;
  Logger& logger_;
  std::vector<Plugin<Algorithm>> algorithms_;
  std::vector<Plugin<Callback>> callbacks_, loggers_;
  std::vector<CallWatcher*> watchers_;  // callbacks and loggers that are CallWatchers
  std::vector<Pass> passes_;            // the engine's and the user's, in the order in which they run
  std::unique_ptr<Table> table_;
  std::unique_ptr<Table> next_;  // replaces table_ as soon as no event is being dispatched
  EventSet listening_;           // events with listeners; once closed, all events, so that dispatch() throws
  std::uint64_t generation_ = 0;
  int dispatching_ = 0;  // number of events being dispatched; they may be nested
  std::vector<Open> open_;
  bool closed_ = false;
};

}  // namespace composer
