#pragma once
#include <cstdint>
#include <string>

#include "composer/core/algorithm.h"
#include "composer/core/export.h"
#include "composer/surgery/replace.h"

namespace composer {

// The base of algorithms that replace modules of the model. They do so at INIT. The trainer then makes the optimizer
// from the parameters that the model has, or adapts an existing optimizer (optim/refit.h). Logs the replacements as the
// table surgery/<name>. Warns if nothing was replaced, if modules in typed members could not be replaced, and, once, if
// a new module is not called in the first batches.
class COMPOSER_EXPORT SurgeryAlgorithm : public Algorithm {
 public:
  static constexpr std::int64_t kWatchedBatches = 20;

  ~SurgeryAlgorithm() override;
  EventSet events() const final { return {Event::INIT, Event::BATCH_END}; }
  bool match(Event event, const State& state) const final;
  void apply(Event event, State& state, Logger& logger) final;
  bool required_on_load() const override { return true; }

 protected:
  explicit SurgeryAlgorithm(std::string name);
  // Replaces modules of state.model, at INIT.
  virtual Replacements operate(State& state) const = 0;
  // Logs numbers that describe the replacements.
  virtual void log(const Replacements& done, Logger& logger) const = 0;
  // Completes the warning "no module was replaced: there is ...".
  virtual std::string nothing_found() const = 0;

 private:
  void operate_on(State& state, Logger& logger);
  void watch();

  std::string name_;
  Replacements done_;
  std::int64_t batches_left_ = 0;  // batches until the new modules must have been called
};

}  // namespace composer
