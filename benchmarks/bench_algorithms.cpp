// What do algorithms that change the model, the step or the weights cost, as a share of a step of training?
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "benchmarks/bench.h"
#include "composer/algorithms/registry.h"
#include "composer/data/in_memory.h"
#include "composer/models/gpt.h"
#include "composer/models/mnist_cnn.h"
#include "composer/models/resnet_cifar.h"
#include "composer/optim/optimizer.h"
#include "composer/trainer/trainer.h"

namespace composer::bench {
namespace {

constexpr std::int64_t kBatches = 10;

struct Task {
  std::string name;
  std::function<std::shared_ptr<Model>()> model;
  std::int64_t batch_size;
  Batch data;  // kBatches batches
  int calls;   // number of steps in a round
  Precision precision = Precision::FP32;
  std::vector<std::pair<std::string, Settings>> algorithms = {};
};

Batch images(std::int64_t samples, std::int64_t channels, std::int64_t side) {
  at::manual_seed(1);
  return {{"input", at::rand({samples, channels, side, side})}, {"target", at::randint(10, {samples}, at::kLong)}};
}

Batch texts(std::int64_t samples, std::int64_t length) {
  at::manual_seed(1);
  const at::Tensor tokens = at::randint(1000, {samples, length}, at::kLong);
  return {{"input_ids", tokens}, {"target", tokens.roll(-1, 1)}};
}

// Each call trains one batch.
class Steps {
 public:
  Steps(const Task& task, const Algorithms& algorithms) : trainer_(options(task, algorithms)) { trainer_.begin(); }
  void run(int steps) {
    const std::int64_t until = trainer_.state().timestamp.batch + steps;
    while (trainer_.state().timestamp.batch < until) trainer_.step();
  }

 private:
  static TrainerOptions options(const Task& task, const Algorithms& algorithms) {
    at::manual_seed(1);
    TrainerOptions options{.model = task.model()};
    options.train_dataloader = data::in_memory(task.data, {.batch_size = task.batch_size, .seed = 17});
    options.optimizer = optim::sgd({.lr = 0.01, .momentum = 0.9});
    options.algorithms = algorithms;
    options.max_duration = "1000000000ba";
    options.device = at::Device(at::kCPU);
    options.precision = task.precision;
    options.seed = 17;
    options.handle_signals = false;
    return options;
  }

  Trainer trainer_;
};

std::vector<Task> tasks() {
  const std::vector<std::pair<std::string, Settings>> any = {
      {"ema", {}},
      {"sam", {}},
      {"gradient_clipping", {{"clipping_threshold", "1"}}},
      {"gradient_clipping", {{"clipping_type", "adaptive"}, {"clipping_threshold", "0.01"}}}};
  const std::vector<std::pair<std::string, Settings>> of_images = {
      {"label_smoothing", {}},
      {"selective_backprop", {{"start", "0"}, {"end", "1"}, {"interrupt", "0"}}},
      {"blurpool", {}},
      {"weight_standardization", {}},
      {"channels_last", {}}};
  Task cnn{.name = "mnist_cnn, batch 64",
           .model = [] { return models::mnist_cnn(); },
           .batch_size = 64,
           .data = images(64 * kBatches, 1, 28),
           .calls = 3,
           .algorithms = any};
  cnn.algorithms.insert(cnn.algorithms.end(),
                        {{"squeeze_excite", {{"min_channels", "32"}, {"latent_channels", "0.25"}}},
                         {"factorize", {{"min_features", "128"}, {"latent_features", "32"}}},
                         {"gyro_dropout", {}},
                         {"no_op_model", {}}});
  cnn.algorithms.insert(cnn.algorithms.end(), of_images.begin(), of_images.end());
  Task resnet{.name = "resnet20, batch 64",
              .model = [] { return models::resnet_cifar(); },
              .batch_size = 64,
              .data = images(64 * kBatches, 3, 32),
              .calls = 1,
              .algorithms = any};
  resnet.algorithms.insert(resnet.algorithms.end(),
                           {{"swa", {{"swa_start", "0dur"}, {"update_interval", "1ba"}}},
                            {"squeeze_excite", {{"min_channels", "16"}, {"latent_channels", "0.25"}}},
                            {"stochastic_depth", {{"stochastic_method", "block"}}},
                            {"stochastic_depth", {{"stochastic_method", "sample"}}},
                            {"factorize", {{"min_channels", "32"}}},
                            {"ghost_batchnorm", {}}});
  resnet.algorithms.insert(resnet.algorithms.end(), of_images.begin(), of_images.end());
  Task gpt{.name = "gpt, 2 layers of 128, batch 8 of 256 tokens",
           .model =
               [] {
                 return models::gpt({.vocabulary = 1000, .sequence_length = 256, .width = 128, .depth = 2, .heads = 4});
               },
           .batch_size = 8,
           .data = texts(8 * kBatches, 256),
           .calls = 2,
           .algorithms = any};
  gpt.algorithms.insert(gpt.algorithms.end(),
                        {{"alibi", {{"max_sequence_length", "256"}, {"train_sequence_length_scaling", "1"}}},
                         {"alibi", {{"max_sequence_length", "256"}}},
                         {"gated_linear_units", {}},
                         {"factorize", {{"min_features", "128"}, {"latent_features", "32"}}}});
  Task short_gpt = gpt;
  short_gpt.name += ", amp_bf16";
  short_gpt.precision = Precision::AMP_BF16;
  short_gpt.algorithms = {{"low_precision_layernorm", {}}};
  return {std::move(cnn), std::move(resnet), std::move(gpt), std::move(short_gpt)};
}

std::string label(const std::string& name, const Settings& settings) {
  std::string text;
  for (const auto& [option, value] : settings) text += (text.empty() ? " (" : ", ") + option + " " + value;
  return name + (text.empty() ? "" : text + ")");
}

void measure(const Options& options) {
  Report report(options);
  const int all_threads = at::get_num_threads();
  for (const Task& task : tasks()) {
    for (const int threads : all_threads > 1 ? std::vector{1, all_threads} : std::vector{1}) {
      const std::string group = task.name + ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
      if (!report.wants(group)) continue;
      at::set_num_threads(threads);
      Steps plain(task, {});
      std::vector<Contender> contenders = {{"a step", [&](int calls) { plain.run(calls); }}};
      for (const auto& [name, settings] : task.algorithms) {
        const auto steps = std::make_shared<Steps>(task, algorithms::registry().find(name).make(settings));
        contenders.push_back({label(name, settings), [steps](int calls) { steps->run(calls); }});
      }
      report.compare(group, contenders, 9, task.calls);
    }
  }
  report.write();
}

}  // namespace
}  // namespace composer::bench

int main(int argc, char** argv) { composer::bench::measure(composer::bench::parse(argc, argv)); }
