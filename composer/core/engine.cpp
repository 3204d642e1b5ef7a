#include "composer/core/engine.h"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include <c10/util/SmallVector.h>

#include "composer/core/call_watcher.h"
#include "composer/core/error.h"
#include "composer/core/exchange_watcher.h"
#include "composer/core/run.h"
#include "composer/core/state.h"

namespace composer {
namespace {

bool needs_dataloader(Event event) {
  return event != Event::INIT && event != Event::BEFORE_LOAD && event != Event::AFTER_LOAD &&
         event != Event::EVAL_STANDALONE_START && event != Event::EVAL_STANDALONE_END;
}

// Pairs of events: algorithms undo at the second what they did at the first, such as exchanging weights.
constexpr std::array kScopes = {std::pair(Event::EVAL_BEFORE_ALL, Event::EVAL_AFTER_ALL),
                                std::pair(Event::EVAL_START, Event::EVAL_END),
                                std::pair(Event::EVAL_STANDALONE_START, Event::EVAL_STANDALONE_END),
                                std::pair(Event::PREDICT_START, Event::PREDICT_END)};
const std::pair<Event, Event>* scope_of(Event event) {
  const auto it = std::ranges::find_if(
      kScopes, [event](const auto& scope) { return scope.first == event || scope.second == event; });
  return it == kScopes.end() ? nullptr : &*it;
}

// Calls an algorithm. If it listens to both events of the scope, the run's ExchangeWatcher makes the call.
void apply(const Plugin<Algorithm>& plugin, Event event, const std::pair<Event, Event>* scope, State& state,
           Logger& logger) {
  const auto run = [&] { plugin.object->apply(event, state, logger); };
  const bool acts_at_both = scope && plugin.events.contains(scope->first) && plugin.events.contains(scope->second);
  auto* const watcher = acts_at_both && state.run ? dynamic_cast<ExchangeWatcher*>(&*state.run) : nullptr;
  watcher ? watcher->exchange(run) : run();
}

// Moves the algorithms with this placement to the front or the back; the others keep their order.
Pass placement_pass(Placement placement) {
  return [placement](Event event, std::vector<Plugin<Algorithm>>& algorithms) {
    // On reversed events, moves them to the other end, because the reversal follows.
    const bool to_front = (placement == Placement::FIRST) != is_reversed(event);
    std::ranges::stable_partition(algorithms, [&](const Plugin<Algorithm>& plugin) {
      return (plugin.object->placement() == placement) == to_front;
    });
  };
}

void reverse_after(Event event, std::vector<Plugin<Algorithm>>& algorithms) {
  if (is_reversed(event)) std::ranges::reverse(algorithms);
}

// Losses are mixed after all targets, so the algorithms must be in this order, too.
void check_mixing(const std::vector<Plugin<Algorithm>>& algorithms) {
  const Plugin<Algorithm>* interpolating = nullptr;
  for (const auto& plugin : algorithms) {
    const bool interpolates = plugin.object->interpolates_loss();
    if (interpolating && interpolates)
      throw ConfigError("algorithms: ", interpolating->name, " and ", plugin.name,
                        " both have interpolate_loss; set it for the last one only");
    if (interpolating && plugin.object->mixes_targets())
      throw ConfigError("algorithms: ", interpolating->name, " has interpolate_loss, and ", plugin.name,
                        ", which mixes targets, comes after it; give ", interpolating->name, " last");
    if (interpolates) interpolating = &plugin;
  }
}

void insert(std::vector<Pass>& passes, Pass pass, int index) {
  if (!pass) throw ConfigError("Engine: an empty algorithm pass was given");
  if (index < -1) throw ConfigError("Engine: the index of an algorithm pass must be >= -1, got ", index);
  const auto at = std::min(static_cast<std::size_t>(index), passes.size());  // -1 becomes the largest number
  passes.insert(passes.begin() + static_cast<std::ptrdiff_t>(at), std::move(pass));
}

// Detects whether a tensor of a batch was changed in place, by libtorch's version counters. Does not keep the tensors,
// so their memory is free as soon as an algorithm has replaced them.
class BatchVersions {
 public:
  explicit BatchVersions(const Batch& batch) {
    for (const auto& [name, tensor] : batch)
      if (tensor.defined() && !tensor.is_inference() && tensor.unsafeGetTensorImpl()->version_counter().enabled())
        add(name, tensor.unsafeGetTensorImpl()->version_counter());
  }
  void check() const {
    for (const Counted& counted : tensors_)
      if (counted.counter.current_version() != counted.version)
        throw DataError("\"", counted.name, "\" of the batch was changed in place, which may change the data set and ",
                        "what metrics are measured on; replace it: state.batch.set(\"", counted.name, "\", changed)");
  }

 private:
  struct Counted {
    std::string name;
    c10::VariableVersion counter;
    std::uint32_t version;
  };
  void add(const std::string& name, const c10::VariableVersion& counter) {
    tensors_.push_back({name, counter, counter.current_version()});
  }
  c10::SmallVector<Counted, 4> tensors_;
};

}  // namespace

ExchangeWatcher::~ExchangeWatcher() = default;

Engine::Engine(State& state, Logger& logger, Algorithms algorithms, Callbacks callbacks, Loggers loggers,
               const std::vector<AlgorithmPass>& passes)
    : state_(state),
      logger_(logger),
      algorithms_(algorithms.list()),
      callbacks_(callbacks.list()),
      passes_{placement_pass(Placement::FIRST), placement_pass(Placement::LAST), reverse_after} {
  for (const auto& [object, name, events, interfaces] : loggers.list())
    loggers_.push_back({object, name, events, interfaces});
  check_mixing(algorithms_);
  for (const auto& [pass, index] : passes) insert(passes_, pass, index);
  find_watchers();
  set_table(make_table(passes_));
  open_.reserve(kScopes.size() * algorithms_.size());
  try {
    for (const auto& plugin : algorithms_) acquire_lease(plugin);
    for (const auto& plugin : callbacks_) acquire_lease(plugin);
    for (const auto& plugin : loggers_) acquire_lease(plugin);
  } catch (...) {
    release_leases();
    throw;
  }
}

Engine::Engine(State& state, Logger& logger, const Engine& other, ForTrial)
    : state_(state), logger_(logger), passes_(other.passes_) {
  std::ranges::copy_if(other.algorithms_, std::back_inserter(algorithms_),
                       [](const auto& plugin) { return plugin.object->takes_part_in_trials(); });
  set_table(make_table(passes_));
}

Engine::~Engine() { close(); }

void Engine::find_watchers() {
  watchers_.clear();
  for (const auto* plugins : {&callbacks_, &loggers_})
    for (const auto& plugin : *plugins)
      if (plugin.interfaces.call_watcher) watchers_.push_back(plugin.interfaces.call_watcher);
}

template <class Base>
void Engine::acquire_lease(const Plugin<Base>& plugin) {
  const Engine*& holder = plugin.object->lease_.holder_;
  if (holder == this)
    throw ConfigError("Engine: the same ", plugin.name, " object was given twice; give it once, or make another one");
  if (holder)
    throw ConfigError("Engine: this ", plugin.name,
                      " is in a trainer that is still open; close that trainer first, or make another one");
  holder = this;
}

void Engine::release_leases() {
  const auto let_go = [this](const auto& plugins) {
    for (const auto& plugin : plugins)
      if (const Engine*& holder = plugin.object->lease_.holder_; holder == this) holder = nullptr;
  };
  let_go(algorithms_);
  let_go(callbacks_);
  let_go(loggers_);
}

std::vector<Plugin<Callback>> Engine::callbacks() const {
  std::vector<Plugin<Callback>> all = loggers_;
  all.insert(all.end(), callbacks_.begin(), callbacks_.end());
  return all;
}

void Engine::register_pass(Pass pass, int index) {
  std::vector<Pass> passes = passes_;
  insert(passes, std::move(pass), index);
  std::unique_ptr<Table> table = make_table(passes);
  passes_ = std::move(passes);
  if (dispatching_ == 0)
    set_table(std::move(table));
  else
    next_ = std::move(table);
}

std::unique_ptr<Engine::Table> Engine::make_table(const std::vector<Pass>& passes) const {
  auto table = std::make_unique<Table>();
  for (int i = 0; i < kEventCount; ++i) {
    const auto event = static_cast<Event>(i);
    Listeners& listeners = table->listeners.at(i);
    const auto listens = [event](const auto& plugin) { return plugin.events.contains(event); };
    std::ranges::copy_if(algorithms_, std::back_inserter(listeners.algorithms), listens);
    for (const Pass& pass : passes) pass(event, listeners.algorithms);
    for (const auto& plugin : listeners.algorithms)
      listeners.trace_keys.push_back(join("algorithm_traces/", plugin.name, "/Event.", name(event)));

    const bool loggers_first = event == Event::INIT;
    std::ranges::copy_if(loggers_first ? loggers_ : callbacks_, std::back_inserter(listeners.callbacks), listens);
    std::ranges::copy_if(loggers_first ? callbacks_ : loggers_, std::back_inserter(listeners.callbacks), listens);
    if (!listeners.algorithms.empty()) table->heard_by_algorithms.insert(event);
    if (!listeners.callbacks.empty()) table->heard_by_callbacks.insert(event);
  }
  return table;
}

void Engine::set_table(std::unique_ptr<Table> table) {
  table_ = std::move(table);
  ++generation_;
  listening_ = EventSet::all();
  if (closed_ || !watchers_.empty()) return;
  listening_ = {};
  for (int i = 0; i < kEventCount; ++i)
    if (const auto event = static_cast<Event>(i); listens(event)) listening_.insert(event);
}

void Engine::check(Event event) const {
  if (closed_) throw Error("Engine: ", to_string(event), " after close(); make a new Trainer");
  if (needs_dataloader(event) && !state_.has_dataloader)
    throw ConfigError("Engine: ", to_string(event), " needs a dataloader, and the state has none");
}

// Keeps the table unchanged while its listeners are called.
class Engine::Dispatching {
 public:
  explicit Dispatching(Engine& engine) : engine_(engine) { ++engine_.dispatching_; }
  ~Dispatching() {
    if (--engine_.dispatching_ == 0 && engine_.next_) engine_.set_table(std::move(engine_.next_));
  }
  Dispatching(const Dispatching&) = delete;
  Dispatching& operator=(const Dispatching&) = delete;

 private:
  Engine& engine_;
};

// Tells the watchers about a call that lasts as long as this object.
class Engine::WatchedCall {
 public:
  WatchedCall(const Engine& engine, Event event, CallWatcher::Kind kind, const std::string& who)
      : watchers_(engine.watchers_) {
    for (CallWatcher* watcher : watchers_) watcher->call_begins(event, kind, who);
  }
  ~WatchedCall() {
    for (CallWatcher* watcher : watchers_) watcher->call_ends();
  }
  WatchedCall(const WatchedCall&) = delete;
  WatchedCall& operator=(const WatchedCall&) = delete;

 private:
  const std::vector<CallWatcher*>& watchers_;
};

void Engine::dispatch(Event event, bool alone) {
  check(event);
  const Dispatching scope(*this);
  for (CallWatcher* watcher : watchers_) watcher->event_begins(event, state_);
  Listeners& listeners = table_->listeners[static_cast<std::size_t>(event)];
  if (event == Event::INIT) {
    run_callbacks(event, listeners);
    run_algorithms(event, listeners);
  } else {
    run_algorithms(event, listeners);
    if (!alone) run_callbacks(event, listeners);
  }
  for (CallWatcher* watcher : watchers_) watcher->event_ends(event, state_);
}

void Engine::run_algorithms(Event event, Listeners& listeners) {
  if (listeners.algorithms.empty()) return;
  std::vector<LogEntry> traces;  // allocates only if traces are wanted
  std::exception_ptr first;      // at an event that closes something, where the remaining algorithms are still called
  const std::pair<Event, Event>* scope = scope_of(event);
  const bool opens = scope && scope->first == event, closes = scope && !opens;
  if (opens) remove_open(event);
  for (std::size_t i = 0; i < listeners.algorithms.size(); ++i) {
    const auto& [algorithm, name, events, interfaces] = listeners.algorithms[i];
    if (opens && events.contains(scope->second)) open_.push_back({event, algorithm.get()});
    try {
      if (!algorithm->match(event, state_)) continue;
      const BatchVersions before(state_.batch);
      const WatchedCall watched(*this, event, CallWatcher::Kind::ALGORITHM, name);
      apply(listeners.algorithms[i], event, scope, state_, logger_);
      before.check();
    } catch (...) {
      if (!closes) rethrow(event, name);
      keep_first_error(first, event, name);
      continue;
    }
    const std::string& key = listeners.trace_keys[i];
    const bool traced = std::ranges::any_of(traces, [&](const LogEntry& trace) { return trace.key == key; });
    if (logger_.wants_traces() && !traced) traces.push_back({key, std::int64_t{1}});
  }
  if (closes) remove_open(scope->first);
  if (!traces.empty()) logger_.log_traces(traces);
  if (first) std::rethrow_exception(first);
}

// Keeps the first error. Later ones become warnings.
void Engine::keep_first_error(std::exception_ptr& first, Event event, const std::string& who) const {
  try {
    rethrow(event, who);
  } catch (const RunError& error) {
    if (first)
      warn(describe(error));
    else
      first = std::current_exception();
  }
}

void Engine::unwind(Event opens, Event closes) {
  const std::pair events(opens, closes);
  const Dispatching scope(*this);
  const auto has_seen = [&](const Plugin<Algorithm>& plugin) {
    return !plugin.events.contains(opens) || std::ranges::any_of(open_, [&](const Open& open) {
      return open.by == opens && open.algorithm == plugin.object.get();
    });
  };
  for (const auto& plugin : table_->listeners[static_cast<std::size_t>(closes)].algorithms) {
    try {
      if (has_seen(plugin) && plugin.object->match(closes, state_)) apply(plugin, closes, &events, state_, logger_);
    } catch (const std::exception& error) {
      warn(join(plugin.name, " failed at ", to_string(closes), ", after another error: ", describe(error)));
    } catch (...) {
      warn(join(plugin.name, " failed at ", to_string(closes), ", after another error"));
    }
  }
  remove_open(opens);
}

const std::string* Engine::open_algorithm() const {
  if (open_.empty()) return nullptr;
  const auto is_open = [this](const auto& plugin) { return plugin.object.get() == open_.back().algorithm; };
  const auto found = std::ranges::find_if(algorithms_, is_open);
  return found == algorithms_.end() ? nullptr : &found->name;
}

void Engine::remove_open(Event opens) {
  std::erase_if(open_, [opens](const Open& open) { return open.by == opens; });
}

void Engine::run_callbacks(Event event, Listeners& listeners) {
  for (const auto& [callback, name, events, interfaces] : listeners.callbacks) {
    try {
      const WatchedCall watched(*this, event, CallWatcher::Kind::CALLBACK, name);
      callback->run_event(event, state_, logger_);
    } catch (...) {
      if (event == Event::INIT) drop_plugins_after(*callback);
      rethrow(event, name);
    }
  }
}

// At INIT, loggers are called first, then callbacks, each in the order of their list. If one fails, the later ones have
// seen nothing, and have nothing to close.
void Engine::drop_plugins_after(const Callback& callback) {
  const auto forget = [this](std::vector<Plugin<Callback>>& plugins, auto from) {
    for (auto plugin = from; plugin != plugins.end(); ++plugin) plugin->object->lease_.holder_ = nullptr;
    plugins.erase(from, plugins.end());
    find_watchers();
  };
  const auto is_this = [&](const auto& plugin) { return plugin.object.get() == &callback; };
  if (const auto failed = std::ranges::find_if(callbacks_, is_this); failed != callbacks_.end())
    return forget(callbacks_, failed + 1);
  forget(callbacks_, callbacks_.begin());
  if (const auto failed = std::ranges::find_if(loggers_, is_this); failed != loggers_.end())
    forget(loggers_, failed + 1);
}

void Engine::rethrow(Event event, const std::string& who) const {
  throw_nested<RunError>(who, " failed at ", to_string(event), ", epoch ", state_.timestamp.epoch, ", batch ",
                         state_.timestamp.batch);
}

void Engine::close() {
  if (std::exchange(closed_, true)) return;
  listening_ = EventSet::all();
  release_leases();
  const auto succeeds = [](const Plugin<Callback>& plugin, const char* call, const auto& run) {
    try {
      run(*plugin.object);
      return true;
    } catch (const std::exception& error) {
      warn(join(plugin.name, " failed in ", call, "(): ", describe(error)));
    } catch (...) {
      warn(join(plugin.name, " failed in ", call, "()"));
    }
    return false;
  };
  std::vector<const Plugin<Callback>*> closed;
  // Callbacks first, so that what they log in close() is still written.
  for (const auto* plugins : {&callbacks_, &loggers_})
    for (const auto& plugin : *plugins)
      if (succeeds(plugin, "close", [this](Callback& callback) { callback.close(state_, logger_); }))
        closed.push_back(&plugin);
  for (const Plugin<Callback>* plugin : closed)
    succeeds(*plugin, "post_close", [](Callback& callback) { callback.post_close(); });
}

}  // namespace composer
