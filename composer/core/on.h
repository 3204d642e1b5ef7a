#pragma once
// Makes a callback of a function: .callbacks = {on(Event::BATCH_END, [](const State& state, Logger& logger) {...})}.
#include <concepts>
#include <string>
#include <type_traits>
#include <utility>

#include "composer/core/callback.h"
#include "composer/core/event.h"
#include "composer/core/export.h"

namespace composer {

namespace detail {

// A callback whose event and name are known only at run time.
class COMPOSER_EXPORT EventCallback : public Callback {
 public:
  explicit EventCallback(Event event) : event_(event) {}
  EventSet events() const { return {event_}; }
  std::string name() const;  // "callback on BATCH_END"

 protected:
  Event event_;
};

template <class F>
class FunctionCallback final : public EventCallback {
 public:
  FunctionCallback(Event event, F function) : EventCallback(event), function_(std::move(function)) {}
  void run_event(Event event, const State& state, Logger& logger) override {
    if (event != event_) return;
    if constexpr (std::invocable<F&, const State&, Logger&>)
      function_(state, logger);
    else
      function_(state);
  }

 private:
  F function_;
};

}  // namespace detail

// Calls `function` with (const State&, Logger&), or with (const State&) alone, at this event. The function's captures
// live until the trainer is destroyed. Errors call it "callback on BATCH_END". Checkpoints store nothing of it; if a
// resumed run needs its state, write a class with visit_state().
template <class F>
auto on(Event event, F&& function) {
  using Function = std::decay_t<F>;
  static_assert(std::invocable<Function&, const State&, Logger&> || std::invocable<Function&, const State&>,
                "on(event, function): the function must take (const State&, Logger&) or (const State&)");
  return detail::FunctionCallback<Function>(event, std::forward<F>(function));
}

}  // namespace composer
