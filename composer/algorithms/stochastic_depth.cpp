#include "composer/algorithms/stochastic_depth.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/model.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/surgery/layer.h"

namespace composer::algorithms {
namespace {

std::vector<Option<StochasticDepthOptions>> stochastic_depth_options() {
  using O = StochasticDepthOptions;
  const auto is_share = [](Time time) {
    return time.unit() == TimeUnit::DURATION && time.as_double() >= 0 && time.as_double() <= 1;
  };
  return all_options(option("stochastic_method", &O::stochastic_method,
                            {{"block", StochasticMethod::BLOCK}, {"sample", StochasticMethod::SAMPLE}}),
                     option("drop_rate", &O::drop_rate).from_to(0, 1),
                     option("drop_distribution", &O::drop_distribution,
                            {{"linear", DropDistribution::LINEAR}, {"uniform", DropDistribution::UNIFORM}}),
                     option("drop_warmup", &O::drop_warmup)
                         .must("be a share of the run from 0dur to 1dur", is_share)
                         .refuses({"1ep", "-0.1dur", "1.1dur"}));
}

void check_stochastic_depth(const StochasticDepthOptions& options) {
  static const auto described = stochastic_depth_options();  // described once for all batches
  check(options, described, "StochasticDepth: ", "");
  if (options.drop_warmup > 0 && options.stochastic_method == StochasticMethod::SAMPLE)
    throw ConfigError("StochasticDepth: drop_warmup must be 0dur with stochastic_method sample, got ",
                      to_string(options.drop_warmup));
}

// Collects blocks; a block that occurs in several places counts once.
void collect(torch::nn::Module& module, std::vector<ResidualBlock*>& blocks) {
  for (const auto& child : bare(module).children()) {
    if (!child) continue;
    auto* const block = dynamic_cast<ResidualBlock*>(&bare(*child));
    if (block && std::ranges::find(blocks, block) == blocks.end()) blocks.push_back(block);
    collect(*child, blocks);
  }
}

}  // namespace

std::size_t stochastic_depth(torch::nn::Module& model, const StochasticDepthOptions& options, double scale) {
  check_stochastic_depth(options);
  std::vector<ResidualBlock*> blocks;
  collect(model, blocks);
  const auto how =
      options.stochastic_method == StochasticMethod::BLOCK ? ResidualBlock::Drop::BATCH : ResidualBlock::Drop::SAMPLE;
  const auto number = static_cast<double>(blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const double share =
        options.drop_distribution == DropDistribution::LINEAR ? static_cast<double>(i + 1) / number : 1;
    blocks[i]->set_drop(share * options.drop_rate * scale, how);
  }
  return blocks.size();
}

StochasticDepth::StochasticDepth(StochasticDepthOptions options) : options_(options) {
  check_stochastic_depth(options_);
}

// AFTER_FORWARD prevents CUDA graphs, which would repeat the choices of the batch in which they were captured: none is
// captured if an algorithm listens between forward and backward.
EventSet StochasticDepth::events() const {
  if (warms_up())
    // Events before BATCH_START are needed because another algorithm may run the model at AFTER_DATALOADER.
    return {Event::INIT,      Event::AFTER_LOAD, Event::FIT_START,     Event::EPOCH_START,  Event::BATCH_START,
            Event::BATCH_END, Event::EVAL_START, Event::PREDICT_START, Event::AFTER_FORWARD};
  if (options_.stochastic_method == StochasticMethod::BLOCK) return {Event::INIT, Event::AFTER_FORWARD};
  return {Event::INIT};
}

bool StochasticDepth::match(Event event, const State&) const { return event != Event::AFTER_FORWARD; }

void StochasticDepth::apply(Event event, State& state, Logger& logger) {
  if (event == Event::INIT) {
    state_ = &state;
    scale_ = warms_up() ? 0 : 1;
    const std::size_t blocks = stochastic_depth(*state.model, options_, scale_);
    if (blocks == 0)
      warn("StochasticDepth: has no effect: no module of the model derives from composer::ResidualBlock");
    logger.log_metrics({{"stochastic_depth/num_stochastic_layers", static_cast<std::int64_t>(blocks)}});
    return;
  }
  const double warmup = options_.drop_warmup.as_double();
  const double scale = state.max_duration ? std::min(1.0, state.elapsed_duration() / warmup) : 1;
  set_scale(state, scale);
  if (event == Event::BATCH_START) logger.log_metrics({{"stochastic_depth/drop_rate", options_.drop_rate * scale}});
}

void StochasticDepth::set_scale(State& state, double scale) {
  if (std::exchange(scale_, scale) != scale) stochastic_depth(*state.model, options_, scale);
}

// Rates follow from the timestamp; they are visited so that a trial of training can undo its changes.
void StochasticDepth::visit_state(StateVisitor& visit) {
  if (!warms_up() || (visit.is_loading() && !visit.has("scale"))) return;
  double scale = scale_;
  visit("scale", scale);
  if (visit.is_loading() && state_) set_scale(*state_, scale);
}

StateDict StochasticDepth::local_hparams() const { return describe(options_, stochastic_depth_options()); }

namespace entries {

Entry<Algorithms> stochastic_depth() {
  return entry<StochasticDepth>("stochastic_depth", "Drops blocks of residual nets at random",
                                stochastic_depth_options());
}

}  // namespace entries
}  // namespace composer::algorithms
