#pragma once
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/algorithm.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"

namespace composer::algorithms {

// Moves parameters uphill by a step of length rho along their gradients: w + rho * g / (norm + epsilon), with the L2
// norm of all gradients. Parameters without a gradient do not move. Does not wait for a GPU, and uses the gradients'
// memory. Throws ConfigError for a sparse gradient.
class COMPOSER_EXPORT SharpStep {
 public:
  SharpStep(const std::vector<at::Tensor>& parameters, double rho, double epsilon = 1e-12);
  ~SharpStep();  // moves the parameters back; they are bit-identical then
  SharpStep(const SharpStep&) = delete;
  SharpStep& operator=(const SharpStep&) = delete;

 private:
  std::vector<at::Tensor> moved_, before_;
};

struct SAMOptions {
  double rho = 0.05;          // length of the step uphill, >= 0
  double epsilon = 1e-12;     // added to the norm of the gradients, > 0
  std::int64_t interval = 1;  // one of so many batches is trained with SAM, the others without it; >= 1
};

// Sharpness-aware minimisation (arXiv:2010.01412): the gradients of a step are those at the weights after a step
// uphill, which needs a second pass over the batch. Throws ConfigError from the constructor.
class COMPOSER_EXPORT SAM final : public Algorithm, public StepRule {
 public:
  explicit SAM(SAMOptions options = {});
  explicit SAM(EmptyOptions) : SAM() {}
  StateDict local_hparams() const override;
  EventSet events() const override { return {}; }
  void apply(Event, State&, Logger&) override {}
  StepRule* step_rule() override { return this; }
  void make_gradients(State& state, const Pass& pass) override;

 private:
  SAMOptions options_;
};

}  // namespace composer::algorithms
