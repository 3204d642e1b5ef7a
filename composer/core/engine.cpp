#include "composer/core/engine.h"

#include <algorithm>
#include <exception>

#include "composer/core/error.h"
#include "composer/core/state.h"

namespace composer {
namespace {

bool needs_dataloader(Event event) {
  return event != Event::INIT && event != Event::BEFORE_LOAD && event != Event::AFTER_LOAD &&
         event != Event::EVAL_STANDALONE_START && event != Event::EVAL_STANDALONE_END;
}

// Moves the algorithms of that placement to the front or the back, the others keep their order.
Pass placing(Placement placement) {
  return [placement](Event event, std::vector<Plugin<Algorithm>>& algorithms) {
    // before the reversal: the other end
    const bool to_front = (placement == Placement::FIRST) != is_reversed(event);
    std::ranges::stable_partition(algorithms, [&](const Plugin<Algorithm>& plugin) {
      return (plugin.object->placement() == placement) == to_front;
    });
  };
}

void reverse_after(Event event, std::vector<Plugin<Algorithm>>& algorithms) {
  if (is_reversed(event)) std::ranges::reverse(algorithms);
}

}  // namespace

Engine::Engine(State& state, Logger& logger, Algorithms algorithms, Callbacks callbacks, Loggers loggers,
               const std::vector<AlgorithmPass>& passes)
    : state_(state),
      logger_(logger),
      algorithms_(algorithms.list()),
      passes_{placing(Placement::FIRST), placing(Placement::LAST), reverse_after} {
  const auto interpolating = std::ranges::count_if(
      algorithms_, [](const Plugin<Algorithm>& plugin) { return plugin.object->interpolates_loss(); });
  if (interpolating > 1) warn(join("Engine: ", interpolating, " algorithms interpolate the loss; use one at a time"));
  try {
    for (const auto& [object, name, events] : loggers.list()) open({object, name, events});
    logger_count_ = callbacks_.size();
    for (const auto& plugin : callbacks.list()) open(plugin);
    for (const auto& [pass, index] : passes) register_pass(pass, index);
  } catch (...) {
    for (auto& plugin : callbacks_) plugin.object->open_ = false;
    throw;
  }
  make_table();
}

Engine::~Engine() { close(); }

void Engine::open(Plugin<Callback> plugin) {
  if (plugin.object->open_)
    throw ConfigError("Engine: this ", plugin.name,
                      " is in a trainer that is still open; close that trainer first, or make another one");
  plugin.object->open_ = true;
  callbacks_.push_back(std::move(plugin));
}

void Engine::register_pass(Pass pass, int index) {
  if (!pass) throw ConfigError("Engine: an empty algorithm pass was given");
  if (index < -1) throw ConfigError("Engine: the index of an algorithm pass must be >= -1, got ", index);
  const auto at = std::min(static_cast<std::size_t>(index), passes_.size());  // -1 becomes the largest
  passes_.insert(passes_.begin() + static_cast<std::ptrdiff_t>(at), std::move(pass));
  make_table();
}

void Engine::make_table() {
  listening_ = {};
  for (int i = 0; i < kEventCount; ++i) {
    const auto event = static_cast<Event>(i);
    Listeners& listeners = table_.at(i);
    listeners = {};
    std::ranges::copy_if(algorithms_, std::back_inserter(listeners.algorithms),
                         [event](const auto& plugin) { return plugin.events.contains(event); });
    for (const Pass& pass : passes_) pass(event, listeners.algorithms);
    for (const auto& plugin : listeners.algorithms)
      listeners.trace_keys.push_back(join("algorithm_traces/", plugin.name, "/Event.", name(event)));

    const auto first_callback = callbacks_.begin() + static_cast<std::ptrdiff_t>(logger_count_);
    const auto add = [&](auto from, auto to) {
      std::copy_if(from, to, std::back_inserter(listeners.callbacks),
                   [event](const auto& plugin) { return plugin.events.contains(event); });
    };
    if (event == Event::INIT) add(callbacks_.begin(), first_callback);
    add(first_callback, callbacks_.end());
    if (event != Event::INIT) add(callbacks_.begin(), first_callback);
    if (!listeners.algorithms.empty() || !listeners.callbacks.empty()) listening_.insert(event);
  }
}

void Engine::check(Event event) const {
  if (closed_) throw Error("Engine: ", to_string(event), " after close(); make a new Trainer");
  if (needs_dataloader(event) && !state_.has_dataloader)
    throw ConfigError("Engine: ", to_string(event), " needs a dataloader, and the state has none");
}

void Engine::dispatch(Event event) {
  check(event);
  Listeners& listeners = table_[static_cast<std::size_t>(event)];
  if (event == Event::INIT) {
    run_callbacks(event, listeners);
    run_algorithms(event, listeners);
  } else {
    run_algorithms(event, listeners);
    run_callbacks(event, listeners);
  }
}

void Engine::run_algorithms(Event event, Listeners& listeners) {
  std::vector<LogEntry> traces;  // allocates only if somebody wants traces
  for (std::size_t i = 0; i < listeners.algorithms.size(); ++i) {
    const auto& [algorithm, name, events] = listeners.algorithms[i];
    listeners.called = i + 1;
    try {
      if (!algorithm->match(event, state_)) continue;
      algorithm->apply(event, state_, logger_);
    } catch (...) {
      rethrow(event, name);
    }
    const std::string& key = listeners.trace_keys[i];
    const bool traced = std::ranges::any_of(traces, [&](const LogEntry& trace) { return trace.key == key; });
    if (logger_.wants_traces() && !traced) traces.push_back({key, std::int64_t{1}});
  }
  if (!traces.empty()) logger_.log_traces(traces);
}

void Engine::unwind(Event opens, Event closes) {
  const Listeners& opened = table_[static_cast<std::size_t>(opens)];
  const auto has_seen = [&](const Plugin<Algorithm>& plugin) {
    const auto end = opened.algorithms.begin() + static_cast<std::ptrdiff_t>(opened.called);
    return !plugin.events.contains(opens) || std::any_of(opened.algorithms.begin(), end, [&](const auto& other) {
      return other.object == plugin.object;
    });
  };
  for (const auto& plugin : table_[static_cast<std::size_t>(closes)].algorithms) {
    try {
      if (has_seen(plugin) && plugin.object->match(closes, state_)) plugin.object->apply(closes, state_, logger_);
    } catch (const std::exception& error) {
      warn(join(plugin.name, " failed at ", to_string(closes), ", after another error: ", describe(error)));
    } catch (...) {
      warn(join(plugin.name, " failed at ", to_string(closes), ", after another error"));
    }
  }
}

void Engine::run_callbacks(Event event, Listeners& listeners) {
  for (const auto& [callback, name, events] : listeners.callbacks) {
    try {
      callback->run_event(event, state_, logger_);
    } catch (...) {
      if (event == Event::INIT) forget_after(*callback);
      rethrow(event, name);
    }
  }
}

// At INIT callbacks are called in the order in which they are listed: those after this one have seen nothing, so there
// is nothing that they could close.
void Engine::forget_after(const Callback& callback) {
  const auto failed =
      std::ranges::find_if(callbacks_, [&](const auto& plugin) { return plugin.object.get() == &callback; });
  for (auto plugin = failed + 1; plugin != callbacks_.end(); ++plugin) plugin->object->open_ = false;
  callbacks_.erase(failed + 1, callbacks_.end());
}

void Engine::rethrow(Event event, const std::string& who) const {
  std::throw_with_nested(RunError(who, " failed at ", to_string(event), ", epoch ", state_.timestamp.epoch, ", batch ",
                                  state_.timestamp.batch));
}

void Engine::close() {
  if (std::exchange(closed_, true)) return;
  listening_ = EventSet::all();
  std::vector<const Plugin<Callback>*> closed;
  for (const auto& plugin : callbacks_) {
    plugin.object->open_ = false;
    try {
      plugin.object->close(state_, logger_);
      closed.push_back(&plugin);
    } catch (const std::exception& error) {
      warn(join(plugin.name, " failed in close(): ", describe(error)));
    } catch (...) {
      warn(join(plugin.name, " failed in close()"));
    }
  }
  for (const Plugin<Callback>* plugin : closed) {
    try {
      plugin->object->post_close();
    } catch (const std::exception& error) {
      warn(join(plugin->name, " failed in post_close(): ", describe(error)));
    } catch (...) {
      warn(join(plugin->name, " failed in post_close()"));
    }
  }
}

}  // namespace composer
