#include "composer/algorithms/alibi.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/model.h"
#include "composer/core/state.h"
#include "composer/surgery/layer.h"
#include "composer/surgery/position_bias.h"
#include "composer/util/share_of.h"

namespace composer::algorithms {
namespace {

std::vector<Option<AlibiOptions>> alibi_options() {
  using O = AlibiOptions;
  return all_options(
      option("max_sequence_length", &O::max_sequence_length).example("32").at_least(1).worded("be at least 1"),
      option("train_sequence_length_scaling", &O::train_sequence_length_scaling)
          .must("be above 0 and at most 1", [](double share) { return share > 0 && share <= 1; })
          .refuses({"0", "1.1"}),
      option("input_key", &O::input_key).not_empty());
}

// [1, heads, T, T]
at::Tensor by_distance(std::int64_t heads, std::int64_t tokens) {
  const at::Tensor slopes = at::tensor(alibi_head_slopes(heads), at::kDouble).view({1, heads, 1, 1});
  const at::Tensor place = at::arange(tokens, at::kDouble);
  return slopes * (place.view({1, tokens}) - place.view({tokens, 1})).abs_().neg_();
}

// The bias of a model. Keeps the tensors that it has made, for lengths up to powers of two, so that all layers share
// them and CUDA graphs find them at the same address.
class Bias {
 public:
  Bias(std::int64_t heads, bool causal, std::int64_t max_tokens)
      : heads_(heads), causal_(causal), max_tokens_(max_tokens) {}

  at::Tensor operator()(std::int64_t tokens, const at::Tensor& like) {
    const auto fits = [&](const at::Tensor& one) {
      return one.size(2) >= tokens && one.device() == like.device() && one.scalar_type() == like.scalar_type();
    };
    auto found = std::ranges::find_if(made_, fits);
    if (found == made_.end()) found = made_.insert(made_.end(), make(tokens, like));
    return found->narrow(2, 0, tokens).narrow(3, 0, tokens);
  }

 private:
  at::Tensor make(std::int64_t tokens, const at::Tensor& like) const {
    const c10::InferenceMode normal(false);  // because training uses it as well
    std::int64_t size = 64;
    while (size < tokens) size *= 2;
    size = std::max(std::min(size, max_tokens_), tokens);
    at::Tensor bias = by_distance(heads_, size);
    if (causal_)
      bias.masked_fill_(at::ones({size, size}, at::kBool).triu_(1), -std::numeric_limits<double>::infinity());
    return bias.to(like.device(), like.scalar_type());
  }

  std::int64_t heads_;
  bool causal_;
  std::int64_t max_tokens_;
  std::vector<at::Tensor> made_;
};

std::size_t replace_positions(torch::nn::Module& module, std::int64_t max_tokens) {
  std::size_t replaced = 0;
  if (auto* const model = dynamic_cast<LearnsPositions*>(&bare(module))) {
    const auto bias = std::make_shared<Bias>(model->attention_heads(), model->is_causal(), max_tokens);
    replaced += model->set_position_bias(
        [bias](std::int64_t tokens, const at::Tensor& like) { return (*bias)(tokens, like); }, max_tokens);
  }
  for (const auto& child : bare(module).children())
    if (child) replaced += replace_positions(*child, max_tokens);
  if (auto* const layer = dynamic_cast<LayerImpl*>(&module)) layer->refresh();
  return replaced;
}

bool learns_positions(const torch::nn::Module& module) {
  if (dynamic_cast<const LearnsPositions*>(&bare(module))) return true;
  return std::ranges::any_of(bare(module).children(),
                             [](const auto& child) { return child && learns_positions(*child); });
}

}  // namespace

std::vector<double> alibi_head_slopes(std::int64_t heads) {
  if (heads < 1) throw ConfigError("alibi_head_slopes: heads must be at least 1, got ", heads);
  const auto powers = [](std::int64_t of, std::int64_t number, std::int64_t step) {
    std::vector<double> slopes;
    slopes.reserve(static_cast<std::size_t>(number));
    for (std::int64_t i = 0; i < number; ++i)
      slopes.push_back(std::exp2(-8.0 * static_cast<double>(1 + step * i) / static_cast<double>(of)));
    return slopes;
  };
  std::int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  std::vector<double> slopes = powers(power, power, 1);
  const std::vector<double> more = powers(2 * power, heads - power, 2);
  slopes.insert(slopes.end(), more.begin(), more.end());
  return slopes;
}

at::Tensor alibi_bias(std::int64_t heads, std::int64_t tokens, bool causal) {
  if (tokens < 0) throw ConfigError("alibi_bias: tokens must be >= 0, got ", tokens);
  if (!causal) return by_distance(heads, tokens).to(at::kFloat);
  const at::Tensor slopes = at::tensor(alibi_head_slopes(heads), at::kDouble).view({heads, 1, 1});
  return (slopes * at::arange(tokens, at::kDouble)).to(at::kFloat);
}

std::size_t alibi(torch::nn::Module& model, const AlibiOptions& options) {
  check(options, alibi_options(), "Alibi: ", "");
  return replace_positions(model, options.max_sequence_length);
}

Batch alibi_cut_sequences(const Batch& batch, double scaling, const std::string& input_key) {
  const at::Tensor& tokens = batch.at(input_key);
  if (tokens.dim() != 2) throw ConfigError("Alibi: needs tokens [N, T]; \"", input_key, "\" is ", tokens.sizes());
  const std::int64_t length = tokens.size(1);
  const std::int64_t part = util::share_of(length, scaling);
  if (part < 1 || length % part != 0)
    throw DataError("Alibi: sequences of ", length, " tokens cannot be cut into parts of ", part,
                    " (train_sequence_length_scaling is ", scaling, ")");
  Batch cut;
  for (const auto& [name, tensor] : batch) {
    if (tensor.sizes() != tokens.sizes())
      throw ConfigError("Alibi: \"", name, "\" is ", tensor.sizes(), " and \"", input_key, "\" ", tokens.sizes(),
                        ", so sequences cannot be cut; set train_sequence_length_scaling to 1");
    cut.set(name, tensor.reshape({-1, part}));
  }
  return cut;
}

Alibi::Alibi(AlibiOptions options) : options_(checked("Alibi", std::move(options), alibi_options())) {}

bool Alibi::match(Event event, const State&) const {
  return event == Event::INIT || (has_effect_ && options_.train_sequence_length_scaling < 1);
}

void Alibi::apply(Event event, State& state, Logger&) {
  if (event == Event::INIT) {
    // Another trainer may have replaced the positions of this model before.
    has_effect_ = alibi(*state.model, options_) > 0 || learns_positions(*state.model);
    if (!has_effect_)
      warn("Alibi: has no effect: no module of the model derives from composer::LearnsPositions and has positions");
    return;
  }
  state.batch = alibi_cut_sequences(state.batch, options_.train_sequence_length_scaling, options_.input_key);
}

StateDict Alibi::local_hparams() const { return describe(options_, alibi_options()); }

namespace entries {

Entry<Algorithms> alibi() {
  return entry<Alibi, AlibiOptions>("alibi", "Lets attention see distances instead of positions", alibi_options());
}

}  // namespace entries
}  // namespace composer::algorithms
