#pragma once
#include <cstddef>
#include <cstdint>

#include "composer/core/algorithm.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/time.h"
#include "composer/surgery/residual_block.h"

namespace torch::nn {
class Module;
}

namespace composer::algorithms {

enum class StochasticMethod : std::uint8_t {
  BLOCK,   // for all samples of a microbatch together, which saves the block's time
  SAMPLE,  // for each sample separately
};
enum class DropDistribution : std::uint8_t {
  LINEAR,  // for block i of n, counted from 1: drop_rate * i / n
  UNIFORM  // drop_rate for every block
};

struct StochasticDepthOptions {
  StochasticMethod stochastic_method = StochasticMethod::BLOCK;  // BLOCK: drop a block for all samples of a microbatch,
                                                                 // which saves its time; SAMPLE: for each separately
  double drop_rate = 0.2;                                        // largest probability of dropping a block, 0 to 1
  DropDistribution drop_distribution = DropDistribution::LINEAR;  // LINEAR: drop_rate * i / n for block i of n, counted
                                                                  // from 1; UNIFORM: drop_rate for all
  Time drop_warmup = "0dur";  // share of the run in which the probabilities rise from 0; only with BLOCK
};

// Sets the drop rates of the model's residual blocks (surgery/residual_block.h), times `scale` (0 to 1), in the order
// of registration. Returns the number of blocks. Throws ConfigError for invalid options.
COMPOSER_EXPORT std::size_t stochastic_depth(torch::nn::Module& model, const StochasticDepthOptions& options = {},
                                             double scale = 1);

// Calls stochastic_depth() at INIT and, during the warm-up, before each batch: residual blocks are dropped at random in
// training (arXiv:1603.09382). Weights and their names do not change. Without a max_duration there is no warm-up.
class COMPOSER_EXPORT StochasticDepth final : public Algorithm {
 public:
  explicit StochasticDepth(StochasticDepthOptions options = {});  // throws ConfigError
  explicit StochasticDepth(EmptyOptions) : StochasticDepth(StochasticDepthOptions()) {}
  StateDict local_hparams() const override;
  EventSet events() const override;
  bool match(Event event, const State& state) const override;
  void apply(Event event, State& state, Logger& logger) override;
  bool required_on_load() const override { return true; }
  void visit_state(StateVisitor& visit) override;

 private:
  bool warms_up() const { return options_.drop_warmup.as_double() > 0; }
  void set_scale(State& state, double scale);

  StochasticDepthOptions options_;
  double scale_ = 0;        // scale of the blocks' current rates
  State* state_ = nullptr;  // the trainer's state, from INIT on
};

}  // namespace composer::algorithms
