#pragma once
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/algorithm.h"
#include "composer/core/export.h"
#include "composer/core/time.h"

namespace torch::nn {
class Module;
}

namespace composer::algorithms {

struct FreezeUntilOptions {
  std::vector<std::string> parameters = {"*"};  // wildcards for the names of the parameters that are frozen
  std::vector<std::string> except = {};  // wildcards for parameters that are trained from the start, such as the head;
                                         // required with the default of `parameters`
  OptionalTime until = {};      // time from which the parameters are trained, in ep, ba, sp, tok or dur; unset: never
  bool keep_statistics = true;  // keep frozen batch norms in evaluation mode, with the running statistics they have
};

// Leaves parameters as they are until a time, and trains them from then on: fine-tuning begins with a new head, and the
// rest of the network follows. Runs after other algorithms, so that the names are those of the model that they have
// made. Throws ConfigError: from the constructor for options, at INIT for a pattern that fits no parameter, or only
// those that another FreezeUntil of the same trainer has frozen.
class COMPOSER_EXPORT FreezeUntil final : public Algorithm {
 public:
  explicit FreezeUntil(FreezeUntilOptions options = {});
  StateDict local_hparams() const override;
  EventSet events() const override { return {Event::INIT, Event::FIT_START, Event::BATCH_START}; }
  void visit_state(StateVisitor& visit) override;
  Placement placement() const override { return Placement::LAST; }
  bool match(Event event, const State& state) const override;
  void apply(Event event, State& state, Logger& logger) override;

 private:
  struct Claim;
  void find_in(State& state);
  void freeze(bool frozen);

  FreezeUntilOptions options_;
  bool frozen_ = false;
  // Those that were trained when the trainer was made.
  std::shared_ptr<const Claim> claim_;  // the parameters
  std::vector<std::shared_ptr<torch::nn::Module>> batch_norms_;
};

}  // namespace composer::algorithms
