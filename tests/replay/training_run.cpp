#include "tests/replay/training_run.h"

#include <algorithm>
#include <map>

#include <ATen/ATen.h>
#include <c10/core/DefaultDtype.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "composer/formats/weights.h"
#include "composer/metrics/classification.h"
#include "composer/metrics/loss_metrics.h"
#include "composer/models/classifier.h"
#include "composer/optim/named_optimizer.h"
#include "composer/optim/optimizer.h"
#include "composer/util/loss.h"
#include "tests/replay/algorithms.h"

namespace composer::replay {
namespace {

namespace nn = torch::nn;

nn::Sequential make_net(const std::string& name) {
  if (name == "mlp") return nn::Sequential(nn::Linear(16, 32), nn::ReLU(), nn::Linear(32, 10));
  if (name == "mlp_bn") return nn::Sequential(nn::Linear(16, 24), nn::BatchNorm1d(24), nn::Tanh(), nn::Linear(24, 10));
  if (name != "conv") throw Unsupported{"model " + name};
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 8, 3).padding(1)), nn::BatchNorm2d(8), nn::ReLU(),
                        nn::Conv2d(nn::Conv2dOptions(8, 12, 3).stride(2).padding(1).bias(false)), nn::BatchNorm2d(12),
                        nn::ReLU(), nn::MaxPool2d(2), nn::AdaptiveAvgPool2d(1), nn::Flatten(), nn::Linear(12, 10));
}

// Composer's cross entropy weighs batches alike; a difference that metrics.json is about.
models::ClassifierOptions classifier_options() {
  return {.num_classes = 10,
          .val_metrics = Metrics(metrics::CrossEntropy({.mean_of_batches = true}),
                                 metrics::MulticlassAccuracy({.num_classes = 10}))};
}

// A classifier that returns its loss in one of the forms that a trainer takes.
class RecordedModel final : public models::Classifier {
 public:
  RecordedModel(const nn::Sequential& net, std::string loss_mode)
      : Classifier(net, classifier_options()), loss_mode_(std::move(loss_mode)) {}

  Losses loss(const Outputs& outputs, const Batch& batch) override {
    if (loss_mode_.empty()) return Classifier::loss(outputs, batch);
    const at::Tensor& logits = outputs.only();
    if (loss_mode_ == "vector") return soft_cross_entropy(logits, batch.at("target"), {.reduction = Reduction::NONE});
    const at::Tensor ce = soft_cross_entropy(logits, batch.at("target"));
    const at::Tensor l2 = 0.01 * logits.square().mean();
    if (loss_mode_ == "total") return {{"ce", ce}, {"l2", l2}, {"total", ce + l2}};
    if (loss_mode_ == "parts") return {{"ce", ce}, {"l2", l2}};
    if (loss_mode_ == "tuple") return {{"loss0", ce}, {"loss1", l2}};
    throw Unsupported{"loss_mode " + loss_mode_};
  }

 private:
  std::string loss_mode_;
};

std::shared_ptr<Model> make_model(const Json& config, const Context::Tensors& data) {
  const std::string name = config.at("model");
  auto model = std::make_shared<RecordedModel>(make_net(name), config.value("loss_mode", ""));
  const at::NoGradGuard no_grad;
  const std::string prefix = "init." + name + ".", module = "module.";
  for (auto& item : model->named_parameters()) item.value().copy_(data.at(prefix + item.key().substr(module.size())));
  for (auto& item : model->named_buffers()) item.value().copy_(data.at(prefix + item.key().substr(module.size())));
  return model;
}

Batch data_of(const Json& config, const Context::Tensors& data, const std::string& suffix) {
  const std::string prefix = config.at("model") == "conv" ? "data.conv." : "data.mlp.";
  at::Tensor x = data.at(prefix + "x" + suffix), y = data.at(prefix + "y" + suffix);
  if (suffix.empty() && config.contains("num_samples")) {
    const std::int64_t samples = config["num_samples"];
    x = x.narrow(0, 0, samples), y = y.narrow(0, 0, samples);
  }
  if (config.value("binary_labels", false)) y = y.ge(5).to(at::kLong);
  return {{"input", x.to(c10::get_default_dtype_as_scalartype()).contiguous()}, {"target", y.contiguous()}};
}

}  // namespace

TrainingRun make_training_run(const Json& c, const Context& context) {
  const Json& config = c.at("config");
  require_known(config, "configuration",
                {"model", "dtype", "optimizer", "schedulers", "algorithms", "batch_size", "num_samples", "max_duration",
                 "device_train_microbatch_size", "eval", "loss_mode", "save_optimizer_state",
                 "step_schedulers_every_batch", "binary_labels"});
  const Context::Tensors& data = context.tensors("training_data");
  const std::int64_t batch_size = config.at("model") == "conv" ? 8 : 16;
  const std::shared_ptr<Model> model = make_model(config, data);
  replace_modules_of(c, context, *model);
  return {.model = model,
          .optimizer = make_optimizer(config.at("optimizer"), optim::parameters_of(*model)),
          .train = data_of(config, data, ""),
          .eval = data_of(config, data, "_eval"),
          .batch_size = config.value("batch_size", batch_size)};
}

Algorithms make_training_algorithms(const Json& config, RandomLog& log) {
  Algorithms list;
  for (const Json& one : config.value("algorithms", Json::array())) {
    if (is_surgery(one) || add_augmentation(list, one, log)) continue;
    Settings settings = settings_of(one);
    if (one.at("class") == "GradientClipping") settings["min_weight_norm"] = "0";  // as Composer
    list.add(make_algorithm(one.at("class"), settings));
  }
  return list;
}

bool has_algorithm(const Json& c, const std::string& name) {
  if (!c.contains("config")) return false;
  return std::ranges::any_of(c["config"].value("algorithms", Json::array()),
                             [&](const Json& one) { return one.at("class") == name; });
}

Json final_json(const Json& config, const Model& model, const torch::optim::Optimizer& optimizer) {
  Json weights = Json::object(), states = Json::object(), groups = Json::array();
  std::map<const void*, std::string> names;
  for (const auto& item : model.named_parameters()) names[item.value().unsafeGetTensorImpl()] = item.key();
  for (const auto& [name, tensor] : state_dict(model)) weights[name] = tensor_json(tensor);
  for (const auto& group : optimizer.param_groups()) {
    groups.push_back(Json::array());
    for (const at::Tensor& parameter : group.params())
      groups.back().push_back(names.at(parameter.unsafeGetTensorImpl()));
  }
  if (config.value("save_optimizer_state", false))
    for (const auto& [parameter, key, tensor] : dynamic_cast<const optim::NamedOptimizer&>(optimizer).state_tensors())
      states[parameter + "." + key] = tensor_json(key == "step" ? tensor.to(at::kDouble) : tensor);
  return {{"final", weights},
          {"optimizer", states},
          {"optimizer_parameters_at_end", groups},
          {"optimizer_class_at_end", class_name(typeid(optimizer))}};
}

}  // namespace composer::replay
