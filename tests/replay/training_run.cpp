#include "tests/replay/training_run.h"

#include <map>
#include <set>

#include <ATen/ATen.h>
#include <c10/core/DefaultDtype.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "composer/algorithms/gradient_clipping.h"
#include "composer/algorithms/label_smoothing.h"
#include "composer/algorithms/mixup.h"
#include "composer/metrics/classification.h"
#include "composer/metrics/loss_metrics.h"
#include "composer/models/classifier.h"
#include "composer/util/loss.h"
#include "tests/replay/algorithms_training.h"
#include "tests/replay/make_optimizer.h"
#include "tests/replay/program.h"
#include "tests/replay/training_augmentations.h"
#include "tests/replay/training_surgery.h"

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
  const auto name = config.at("model").get<std::string>();
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

using AddAlgorithm = void (*)(Algorithms& list, const Json& o, RandomLog& log);

void add_label_smoothing(Algorithms& list, const Json& o, RandomLog&) {
  require_known(o, "LabelSmoothing", {"class", "smoothing"});
  const algorithms::LabelSmoothingOptions x;
  list.add(algorithms::LabelSmoothing({.smoothing = o.value("smoothing", x.smoothing)}));
}

void add_mixup(Algorithms& list, const Json& o, RandomLog& log) {
  require_known(o, "MixUp", {"class", "alpha", "interpolate_loss"});
  algorithms::MixUpOptions x;
  x.alpha = o.value("alpha", x.alpha);
  x.interpolate_loss = o.value("interpolate_loss", x.interpolate_loss);
  x.draw = [alpha = x.alpha, &log](std::int64_t samples) { return next_mixup(log, alpha, samples); };
  list.add(algorithms::MixUp(x));
}

void add_gradient_clipping(Algorithms& list, const Json& o, RandomLog&) {
  require_known(o, "GradientClipping", {"class", "clipping_type", "clipping_threshold"});
  static const std::map<std::string, algorithms::ClippingType> types = {
      {"norm", algorithms::ClippingType::NORM},
      {"value", algorithms::ClippingType::VALUE},
      {"adaptive", algorithms::ClippingType::ADAPTIVE}};
  list.add(algorithms::GradientClipping({.clipping_type = types.at(o.at("clipping_type")),
                                         .clipping_threshold = o.at("clipping_threshold"),
                                         .min_weight_norm = 0}));
}

}  // namespace

algorithms::MixUpDraw next_mixup(RandomLog& log, double alpha, std::int64_t samples) {
  const double mixing = algorithms::gen_mixing_coef(alpha, [&](double a, double b) {
    return log.next("np.random.beta", {a, b}).get<double>();
  });
  const auto order = log.next("torch.randperm", {samples}).get<std::vector<std::int64_t>>();
  return {mixing, at::tensor(order, at::kLong)};
}

void require_known(const Json& arguments, const char* what, const std::set<std::string>& known) {
  for (const auto& [name, value] : arguments.items())
    if (!known.contains(name)) throw Unsupported{std::string(what) + " " + name};
}

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
          .optimizer = make_optimizer(config.at("optimizer"), *model),
          .train = data_of(config, data, ""),
          .eval = data_of(config, data, "_eval"),
          .batch_size = config.value("batch_size", batch_size)};
}

const Json& RandomLog::next(const std::string& fn, const Json& args) {
  if (finished()) throw std::runtime_error("more random choices are made than were recorded");
  const Json& drawn = log_[next_++];
  if (drawn.at("fn") != fn || drawn.at("args") != args)
    throw std::runtime_error("recorded was " + drawn.dump() + ", asked for is " + fn + " " + args.dump());
  return drawn.at("value");
}

Algorithms make_training_algorithms(const Json& config, RandomLog& log) {
  static const std::map<std::string, AddAlgorithm> known = {
      {"LabelSmoothing", add_label_smoothing}, {"MixUp", add_mixup}, {"GradientClipping", add_gradient_clipping}};
  Algorithms list;
  for (const Json& one : config.value("algorithms", Json::array())) {
    if (is_surgery(one) || add_training_algorithm(list, one) || add_augmentation(list, one, log) ||
        add_no_op_model(list, one))
      continue;
    const auto found = known.find(one.at("class"));
    if (found == known.end()) throw Unsupported{"algorithm " + one.at("class").get<std::string>()};
    found->second(list, one, log);
  }
  return list;
}

}  // namespace composer::replay
