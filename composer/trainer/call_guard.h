#pragma once
#include <exception>
#include <functional>
#include <optional>
#include <utility>

#include "composer/kernels/products.h"
#include "composer/trainer/calls.h"
#include "composer/trainer/fit.h"
#include "composer/trainer/fit_history.h"
#include "composer/trainer/process_scope.h"
#include "composer/trainer/process_state.h"
#include "composer/trainer/tuning.h"
#include "composer/util/own_random.h"

namespace composer {

struct State;
class Engine;
class Logger;
class Ranks;

// Surrounds the calls of a trainer: checks which calls are allowed, sets up the process while a call runs, and handles
// errors.
class CallGuard {
 public:
  struct Needs {
    Calls& calls;
    const Ranks& ranks;
    const State& state;
    const Engine& engine;
    Logger& logger;
    const ProcessState& process;
    const Tuning& tuning;
    FitHistory& fits;
    std::optional<Fit>& fit;
    std::function<void()> abandon_fit;  // called after an error
  };
  explicit CallGuard(Needs needs) : needs_(std::move(needs)) {}

  // Throws an error that names the call.
  void require_open(const char* call) const;
  void require_fit(const char* call) const;

  // Runs `call` with the trainer's settings of the process. An exception leaves as a RunError with the place where it
  // happened, after the loggers have written their records, because the program may be about to end.
  template <class F>
  auto run(F&& call);
  // Like the above, for a part of a fit. An error also ends the fit.
  template <class F>
  auto train(F&& part);

 private:
  [[noreturn]] void throw_located() const;  // rethrows the exception that is being handled
  void tell_watchers(const std::exception_ptr& error) const noexcept;

  Needs needs_;
};

template <class F>
auto CallGuard::run(F&& call) {
  if (needs_.fit && !needs_.calls.busy()) needs_.fit->move_here();
  const Flag in_call = needs_.calls.begin();
  const ProcessScope in_force(needs_.process.settings, needs_.fit.has_value());
  const RandomScope draws(needs_.process.random);
  std::optional<kernels::ProductScope> multiplies;
  if (needs_.tuning.decides_products()) multiplies.emplace(needs_.process.products);
  try {
    return call();
  } catch (...) {
    needs_.fits.failed = true;
    throw_located();
  }
}

template <class F>
auto CallGuard::train(F&& part) {
  try {
    return run(part);
  } catch (const std::exception& error) {
    needs_.fits.ended_by = error.what();
    needs_.abandon_fit();
    throw;
  }
}

}  // namespace composer
