#include "tests/replay/training_noise.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "composer/core/model.h"
#include "composer/core/state.h"
#include "composer/optim/any_optimizer.h"
#include "tests/replay/reference_optimizer.h"
#include "tests/replay/training_run.h"

namespace composer::replay {
namespace {

bool is_single(const Json& c) { return c["config"].value("dtype", "fp64") == "fp32"; }

class BiasRecorder final : public Callback {
 public:
  explicit BiasRecorder(BiasPath& path) : path_(path) {}

  void batch_start(const State& state, Logger&) override {
    note_value(state);
    path_.rates.push_back(optim::learning_rates(*state.optimizer).front());
  }
  void after_train_batch(const State& state, Logger&) override {
    double largest = 0;
    for (const auto& item : state.model->named_parameters()) {
      const at::Tensor& gradient = item.value().grad();
      if (!gradient.defined()) continue;
      if (item.key() == kNoisyBias)
        path_.gradients.push_back(gradient.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true));
      else
        largest = std::max(largest, gradient.abs().max().item<double>());
    }
    path_.largest.push_back(largest);
  }
  void fit_end(const State& state, Logger&) override { note_value(state); }

 private:
  void note_value(const State& state) {
    for (const auto& item : state.model->named_parameters())
      if (item.key() == kNoisyBias)
        path_.values.push_back(item.value().detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true));
  }
  BiasPath& path_;
};

// A thousand roundings of the largest gradient: far more than the sums have, far less than any real gradient.
void require_noise(const BiasPath& path, bool single) {
  const double rounding = single ? 1.2e-7 : 2.3e-16;
  for (std::size_t batch = 0; batch < path.gradients.size(); ++batch) {
    const double gradient = path.gradients[batch].abs().max().item<double>();
    if (gradient <= 1000 * rounding * path.largest.at(batch)) continue;
    throw std::runtime_error("the gradient of " + std::string(kNoisyBias) + " at batch " + std::to_string(batch) +
                             " is " + std::to_string(gradient) + ", which is more than rounding errors");
  }
}

// The bias along the formula of its optimizer.
ReferenceOptimizer follow(const BiasPath& path, const Json& c) {
  ReferenceOptimizer optimizer(c["config"].at("optimizer"), path.values.at(0));
  for (std::size_t batch = 0; batch < path.gradients.size(); ++batch) {
    optimizer.step(path.gradients[batch], path.rates.at(batch));
    const auto difference =
        first_difference(tensor_json(optimizer.value()), tensor_json(path.values.at(batch + 1)), tolerance_of(c));
    if (difference)
      throw std::runtime_error(std::string(kNoisyBias) + " after batch " + std::to_string(batch) +
                               " is not what the optimizer makes of its gradients: " + *difference);
  }
  return optimizer;
}

bool differs_notably(const Json& recorded, const Json& ours) {
  return first_difference(recorded, ours, {.relative = 0, .absolute = 1e-10}).has_value();
}

constexpr const char* kEvaluation[] = {"eval_history", "final_eval_metrics"};

}  // namespace

Tolerance tolerance_of(const Json& c) { return is_single(c) ? Tolerance{1e-5, 1e-6} : Tolerance{1e-10, 1e-14}; }

bool has_noisy_bias(const Json& c) { return c["config"].at("model") == "conv" || c["config"]["model"] == "mlp_bn"; }

std::shared_ptr<Callback> record_bias(BiasPath& path) { return std::make_shared<BiasRecorder>(path); }

void replace_noise(Json& expected, const Json& c, const Context& context, const BiasPath& path) {
  require_noise(path, is_single(c));
  const ReferenceOptimizer optimizer = follow(path, c);
  const Json bias = tensor_json(optimizer.value());
  // As small here as there, it changes nothing; a plain loop does not know all algorithms.
  if (!is_single(c) && !first_difference(expected["final"][kNoisyBias], bias, {.relative = 0, .absolute = 1e-14}))
    return;
  const bool evaluation = is_single(c) || differs_notably(expected["final"][kNoisyBias], bias);
  const Json plain = train_by_hand(c, context, {.bias = &path});
  expected["final"][kNoisyBias] = bias;
  expected["final"][kShiftedMean] = plain["final"][kShiftedMean];
  for (const auto& [name, tensor] : optimizer.state())
    if (const std::string key = std::string(kNoisyBias) + "." + name; expected["optimizer"].contains(key))
      expected["optimizer"][key] = tensor_json(tensor);
  for (const char* key : kEvaluation)
    if (evaluation && expected.contains(key)) expected[key] = plain.at(key);
}

Json without_noise(Json result, const Json& c) {
  if (!has_noisy_bias(c)) return result;
  for (const char* name : {kNoisyBias, kShiftedMean}) result["final"].erase(name);
  for (const char* key : kEvaluation) result.erase(key);
  Json kept = Json::object();
  for (const auto& [key, value] : result["optimizer"].items())
    if (!key.starts_with(std::string(kNoisyBias) + ".")) kept[key] = value;
  result["optimizer"] = kept;
  return result;
}

}  // namespace composer::replay
