// training.json: the bias before a batch norm.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "composer/core/model.h"
#include "composer/core/state.h"
#include "composer/formats/weights.h"
#include "composer/optim/named_optimizer.h"
#include "composer/util/loss.h"
#include "tests/replay/training_run.h"

namespace composer::replay {
namespace {

bool is_single(const Json& c) { return c["config"].value("dtype", "fp64") == "fp32"; }

at::Tensor tensor_of(const Model& model, const std::string& name) {  // undefined if there is none
  for (const auto& [found, tensor] : state_dict(model))
    if (found == name) return tensor.detach();
  return {};
}

at::Tensor in_double(const at::Tensor& tensor) { return tensor.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true); }

class BiasRecorder final : public Callback {
 public:
  BiasRecorder(BiasPath& path, const TrainingRun& run) : path_(path), model_(run.model), eval_(run.eval) {}

  void batch_start(const State& state, Logger&) override {
    note_value();
    path_.rates.push_back(optim::learning_rates(*state.optimizer).front());
    if (const at::Tensor mean = tensor_of(*model_, kShiftedMean); mean.defined() && !path_.shifted_mean.defined())
      path_.shifted_mean = in_double(mean);
  }
  // What the layer gives for the microbatch moves the running mean.
  void before_forward(const State& state, Logger&) override {
    const at::Tensor weight = tensor_of(*model_, "module.0.weight"), bias = tensor_of(*model_, kNoisyBias);
    if (!weight.defined() || !bias.defined() || !path_.shifted_mean.defined()) return;
    const at::Tensor x = state.batch.at("input"), out = weight.dim() == 4
                                                            ? at::conv2d(x, weight, bias, 1, 1).mean({0, 2, 3})
                                                            : at::linear(x, weight, bias).mean(0);
    path_.shifted_mean = 0.9 * path_.shifted_mean + 0.1 * out.to(at::kDouble);
  }
  void after_train_batch(const State&, Logger&) override {
    double largest = 0;
    for (const auto& item : std::as_const(*model_).named_parameters()) {
      const at::Tensor& gradient = item.value().grad();
      if (!gradient.defined()) continue;
      if (item.key() == kNoisyBias)
        path_.gradients.push_back(in_double(gradient));
      else
        largest = std::max(largest, gradient.abs().max().item<double>());
    }
    path_.largest.push_back(largest);
  }
  void eval_end(const State& state, Logger&) override {
    const at::NoGradGuard no_grad;
    double cross_entropy = 0, correct = 0, batches = 0;
    const std::int64_t samples = eval_.front().size(0);
    for (std::int64_t begin = 0; begin < samples; begin += 20, ++batches) {
      const at::Tensor target = eval_.at("target").slice(0, begin, begin + 20);
      const at::Tensor logits =
          model_->forward({{"input", eval_.at("input").slice(0, begin, begin + 20)}, {"target", target}}).only();
      cross_entropy += soft_cross_entropy(logits, target).item<double>();
      correct += logits.argmax(1).eq(target).sum().item<double>();
    }
    const auto accuracy = static_cast<float>(correct / static_cast<double>(samples));
    path_.eval_history["metrics/eval/CrossEntropy"].push_back({state.timestamp.batch, cross_entropy / batches});
    path_.eval_history["metrics/eval/MulticlassAccuracy"].push_back({state.timestamp.batch, accuracy});
  }
  void fit_end(const State&, Logger&) override { note_value(); }

 private:
  void note_value() {
    if (const at::Tensor bias = tensor_of(*model_, kNoisyBias); bias.defined()) path_.values.push_back(in_double(bias));
  }

  BiasPath& path_;
  std::shared_ptr<Model> model_;
  Batch eval_;
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

// The bias as the optimizer moves it by its gradients alone, and what the optimizer then keeps of it, by key.
std::pair<at::Tensor, Json> follow(const BiasPath& path, const Json& c) {
  at::Tensor bias = path.values.at(0).clone();
  const auto optimizer = make_optimizer(c["config"].at("optimizer"), {{kNoisyBias, bias}});
  for (std::size_t batch = 0; batch < path.gradients.size(); ++batch) {
    bias.mutable_grad() = path.gradients[batch].clone();
    optim::set_learning_rate(*optimizer, 0, path.rates.at(batch));
    optimizer->step();
    const auto difference =
        first_difference(tensor_json(bias), tensor_json(path.values.at(batch + 1)), tolerance_of(c));
    if (difference)
      throw std::runtime_error(std::string(kNoisyBias) + " after batch " + std::to_string(batch) +
                               " is not what the optimizer makes of its gradients: " + *difference);
  }
  Json state = Json::object();
  for (const auto& [parameter, key, tensor] : dynamic_cast<const optim::NamedOptimizer&>(*optimizer).state_tensors())
    if (key != "step") state[parameter + "." + key] = tensor_json(tensor);
  return {bias, state};
}

bool differs_notably(const Json& recorded, const Json& ours) {
  return first_difference(recorded, ours, {.relative = 0, .absolute = 1e-10}).has_value();
}

constexpr const char* kEvaluation[] = {"eval_history", "final_eval_metrics"};

}  // namespace

Tolerance tolerance_of(const Json& c) { return is_single(c) ? Tolerance{1e-5, 1e-6} : Tolerance{1e-10, 1e-14}; }

bool has_noisy_bias(const Json& c) { return c["config"].at("model") == "conv" || c["config"]["model"] == "mlp_bn"; }

std::shared_ptr<Callback> record_bias(BiasPath& path, const TrainingRun& run) {
  return std::make_shared<BiasRecorder>(path, run);
}

void replace_noise(Json& expected, const Json& c, const BiasPath& path) {
  require_noise(path, is_single(c));
  const auto [value, state] = follow(path, c);
  const Json bias = tensor_json(value);
  // As small here as there, it changes nothing.
  if (!is_single(c) && !first_difference(expected["final"][kNoisyBias], bias, {.relative = 0, .absolute = 1e-14}))
    return;
  const bool evaluation = is_single(c) || differs_notably(expected["final"][kNoisyBias], bias);
  expected["final"][kNoisyBias] = bias;
  expected["final"][kShiftedMean] = tensor_json(path.shifted_mean);
  for (const auto& [key, tensor] : state.items())
    if (expected["optimizer"].contains(key)) expected["optimizer"][key] = tensor;
  if (!evaluation || !expected.contains("eval_history")) return;
  expected["eval_history"] = path.eval_history;
  for (const auto& [key, history] : path.eval_history.items())
    expected["final_eval_metrics"][key.substr(key.rfind('/') + 1)] = history.back()[1];
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
