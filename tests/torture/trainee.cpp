// What `composer torture` kills: some seconds of training in which everything has a memory. Writes checkpoints/ and
// log.jsonl below the folder it is started in, and goes on from them.
//
//   trainee [--epochs 30] [--threads 1] [--workers 0] [--microbatch 0] [--precision fp32] [--uploads PLACE]
//           [--zero 0] [--parts 0]
//
// --uploads saves to a URI, or to a folder of this name as to a bucket. Checkpoints then wait in staging/.
// --zero 1 or 2 divides the optimizer among the ranks that a launcher has started; with --parts 1 each saves its part.
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "composer/algorithms/gradient_clipping.h"
#include "composer/algorithms/label_smoothing.h"
#include "composer/algorithms/mixup.h"
#include "composer/callbacks/early_stopper.h"
#include "composer/callbacks/lr_monitor.h"
#include "composer/callbacks/speed_monitor.h"
#include "composer/core/callback.h"
#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/data/in_memory.h"
#include "composer/data/map_style.h"
#include "composer/formats/weights.h"
#include "composer/loggers/json_lines_logger.h"
#include "composer/models/classifier.h"
#include "composer/optim/adam.h"
#include "composer/optim/named_optimizer.h"
#include "composer/optim/reduce_on_plateau.h"
#include "composer/optim/schedulers.h"
#include "composer/trainer/trainer.h"
#include "composer/util/checksum.h"

namespace composer {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kFeatures = 64, kClasses = 10, kSamples = 1600;

struct Settings {
  std::int64_t epochs = 30, threads = 1, workers = 0, microbatch = 0, zero = 0, parts = 0;
  std::string precision = "fp32", uploads;
};

Settings settings_of(int argc, char** argv) {
  std::map<std::string, std::string> given = {{"--epochs", "30"},    {"--threads", "1"},      {"--workers", "0"},
                                              {"--microbatch", "0"}, {"--precision", "fp32"}, {"--uploads", ""},
                                              {"--zero", "0"},       {"--parts", "0"}};
  for (int i = 1; i + 1 < argc; i += 2) given.at(argv[i]) = argv[i + 1];
  return {std::stoll(given["--epochs"]),  std::stoll(given["--threads"]),
          std::stoll(given["--workers"]), std::stoll(given["--microbatch"]),
          std::stoll(given["--zero"]),    std::stoll(given["--parts"]),
          given["--precision"],           given["--uploads"]};
}

// Points around the centre of their class, always the same.
Batch points(std::int64_t samples, double phase) {
  const at::Tensor target = at::arange(samples, at::kLong).remainder(kClasses);
  const at::Tensor noise = at::sin(at::arange(samples * kFeatures, at::kDouble) * 1.7 + phase).view({samples, -1});
  const at::Tensor centre = at::cos(at::arange(kClasses * kFeatures, at::kDouble) * 2.3).view({kClasses, -1});
  return {{"input", (centre.index_select(0, target) * 0.2 + noise).to(at::kFloat)}, {"target", target}};
}

struct Points {
  Batch all = points(kSamples, 0);
  std::int64_t size() const { return kSamples; }
  data::Sample get(std::int64_t index, RandomStream random) const {
    const auto flipped = static_cast<double>(random.uniform() < 0.5 ? -1 : 1);
    data::Sample sample;
    sample.set("input", all["input"][index] * flipped);
    sample.set("target", all["target"][index]);
    return sample;
  }
};

std::shared_ptr<Loader> loader_of(std::int64_t workers) {
  if (workers > 0) return data::map_style(Points(), {.batch_size = 30, .shuffle = true, .num_workers = workers});
  return data::in_memory(points(kSamples, 0), {.batch_size = 30, .shuffle = true});
}

// Logs what a batch was computed from and what came of it, to the bit: where two runs part, this says at what.
class Fingerprints final : public Callback {
 public:
  void batch_start(const State& state, Logger& logger) override {
    const auto& optimizer = dynamic_cast<const optim::NamedOptimizer&>(*state.optimizer);
    std::vector<at::Tensor> weights, memory;
    for (const auto& [name, weight] : state_dict(*state.model)) weights.push_back(weight);
    for (const optim::StateTensor& one : optimizer.state_tensors()) memory.push_back(one.tensor);
    logger.log_metrics({{"bits/weights", bits(weights)}, {"bits/optimizer", bits(memory)}});
  }
  void after_forward(const State& state, Logger& logger) override {
    logger.log_metrics({{"bits/input", bits({state.batch["input"]})}, {"bits/outputs", bits({state.outputs.only()})}});
  }
  void after_backward(const State& state, Logger& logger) override {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& weight : state.model->parameters()) gradients.push_back(weight.grad());
    logger.log_metrics({{"bits/gradients", bits(gradients)}});
  }

 private:
  static std::string bits(const std::vector<at::Tensor>& tensors) {
    util::Checksum sum;
    for (const at::Tensor& tensor : tensors) {
      const at::Tensor memory = tensor.contiguous();
      sum.update(memory.const_data_ptr(), memory.nbytes());
    }
    return sum.text();
  }
};

std::shared_ptr<Model> model() {
  at::manual_seed(5);
  constexpr std::int64_t kWidth = 256;
  nn::Sequential net(nn::Linear(kFeatures, kWidth), nn::BatchNorm1d(kWidth), nn::ReLU(), nn::Dropout(0.2),
                     nn::Linear(kWidth, kWidth), nn::BatchNorm1d(kWidth), nn::ReLU(), nn::Linear(kWidth, kClasses));
  return std::make_shared<models::Classifier>(net, models::ClassifierOptions{.num_classes = kClasses});
}

std::string save_folder_of(const std::string& uploads) {
  if (uploads.empty()) return "checkpoints";
  return uploads.find("://") == std::string::npos ? "file://" + std::filesystem::absolute(uploads).string() : uploads;
}

TrainerOptions options_of(const Settings& settings) {
  TrainerOptions options{.model = model(), .train_dataloader = loader_of(settings.workers)};
  options.eval_dataloader = data::in_memory(points(200, 0.3), {.batch_size = 64, .shuffle = false});
  options.eval_interval = "15ba";
  options.optimizer = optim::adamw({.lr = 0.003, .weight_decay = 0.01});
  options.schedulers = {
      optim::cosine_annealing_with_warmup({.t_warmup = "30ba"}),
      optim::reduce_on_plateau(
          {.monitor = "MulticlassAccuracy", .better = Better::HIGHER, .factor = 0.7, .patience = "40ba"})};
  options.max_duration = Time(settings.epochs, TimeUnit::EPOCH);
  options.algorithms = {algorithms::MixUp(), algorithms::LabelSmoothing(),
                        algorithms::GradientClipping({.clipping_threshold = 1})};
  options.callbacks = {
      std::make_shared<Fingerprints>(), callbacks::SpeedMonitor({.window_size = 7}), callbacks::LRMonitor(),
      callbacks::EarlyStopper({.monitor = "MulticlassAccuracy", .dataloader_label = "eval", .patience = "1000ba"})};
  options.loggers = {loggers::JsonLinesLogger({.path = "log.jsonl"})};
  options.seed = 7;
  options.precision = parse_precision(settings.precision);
  options.device_train_microbatch_size = settings.microbatch;
  options.run_name = "trainee";
  options.device = at::Device(at::kCPU);
  options.save_folder = save_folder_of(settings.uploads);
  options.save_staging_folder = "staging";
  options.save_interval = "12ba";
  options.save_num_checkpoints_to_keep = 3;
  options.distributed.zero_stage = settings.zero;
  options.distributed.sharded_checkpoints = settings.parts == 1;
  return options;
}

int train(int argc, char** argv) {
  try {
    const Settings settings = settings_of(argc, argv);
    at::set_num_threads(static_cast<int>(settings.threads));
    Trainer trainer(options_of(settings));
    std::cout << (trainer.resumed_from().empty() ? "begins" : "goes on from " + trainer.resumed_from()) << ", with "
              << at::get_num_threads() << " threads and " << at::get_cpu_capability() << '\n'
              << std::flush;  // before it is killed
    trainer.fit();
    trainer.close();
    return trainer.interrupted_by() ? 128 + trainer.interrupted_by() : 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << describe(error) << '\n';
    return 1;
  }
}

}  // namespace
}  // namespace composer

int main(int argc, char** argv) { return composer::train(argc, argv); }
