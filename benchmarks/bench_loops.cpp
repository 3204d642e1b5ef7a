// Is training with the trainer faster than the loop that one writes with libtorch?
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <torch/data.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include "benchmarks/bench.h"
#include "composer/callbacks/lr_monitor.h"
#include "composer/callbacks/nan_monitor.h"
#include "composer/callbacks/speed_monitor.h"
#include "composer/core/error.h"
#include "composer/data/in_memory.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/models/mnist_cnn.h"
#include "composer/models/resnet_cifar.h"
#include "composer/trainer/trainer.h"
#include "composer/util/tune_process.h"

namespace composer::bench {
namespace {

constexpr double kMean = 0.2860, kStddev = 0.3530;
constexpr double kLr = 1e-3, kDecay = 1e-2;

struct Task {
  std::string name;
  std::function<std::shared_ptr<models::Classifier>()> make;
  bool flat;
  std::int64_t batch_size;
  int rounds, calls;
};

std::shared_ptr<models::Classifier> mlp() {
  torch::nn::Sequential net(torch::nn::Linear(784, 32), torch::nn::ReLU(), torch::nn::Linear(32, 10));
  return std::make_shared<models::Classifier>(net,
                                              models::ClassifierOptions{.num_classes = 10, .train_metrics = Metrics()});
}

std::vector<Task> tasks() {
  return {
      {"mlp 784-32-10, batch 32", mlp, true, 32, 40, 200},
      {"mnist_cnn, batch 64", [] { return models::mnist_cnn(); }, false, 64, 12, 4},
      {"resnet20, batch 128", [] { return models::resnet_cifar({.depth = 20, .in_channels = 1}); }, false, 128, 6, 1}};
}

// Random data with the shapes of Fashion-MNIST.
struct Images {
  explicit Images(const Task& task) {
    at::manual_seed(1);
    constexpr std::int64_t kCount = 8192;
    bytes = at::randint(256, {kCount, 1, 28, 28}, at::kByte);
    target = at::randint(10, {kCount}, at::kLong);
    if (task.flat) bytes = bytes.view({kCount, 784});
  }
  at::Tensor bytes, target;
};

at::Tensor normalized(const at::Tensor& bytes) { return bytes.to(at::kFloat).div_(255).sub_(kMean).div_(kStddev); }

// Written like the programs among PyTorch's C++ examples: a data set of single samples, transforms, torch::optim, and a
// read of the loss now and then.
class LikeTheExamples {
 public:
  explicit LikeTheExamples(const Task& task)
      : flat_(task.flat),
        model_(task.make()),
        optimizer_(model_->parameters(), torch::optim::AdamWOptions(kLr).weight_decay(kDecay)),
        loader_(torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
            Samples(Images(task))
                .map(torch::data::transforms::Normalize<>(kMean, kStddev))
                .map(torch::data::transforms::Stack<>()),
            torch::data::DataLoaderOptions(static_cast<std::size_t>(task.batch_size)).drop_last(true))),
        next_(loader_->begin()) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i, ++done_) {
      if (next_ == loader_->end()) next_ = loader_->begin();
      auto& batch = *next_;
      optimizer_.zero_grad();
      const at::Tensor output = model_->forward({{"input", flat_ ? batch.data.flatten(1) : batch.data}}).only();
      at::Tensor loss = at::cross_entropy_loss(output, batch.target);
      loss.backward();
      optimizer_.step();
      if (done_ % 10 == 0) last_loss_ = loss.item<float>();
      ++next_;
    }
  }

 private:
  class Samples : public torch::data::Dataset<Samples> {
   public:
    explicit Samples(const Images& images)
        : images_(images.bytes.view({-1, 1, 28, 28}).to(at::kFloat).div_(255)), targets_(images.target) {}
    torch::data::Example<> get(std::size_t index) override {
      const auto i = static_cast<std::int64_t>(index);
      return {images_[i], targets_[i]};
    }
    torch::optional<std::size_t> size() const override { return static_cast<std::size_t>(images_.size(0)); }

   private:
    at::Tensor images_, targets_;
  };
  using Dataset = torch::data::datasets::MapDataset<
      torch::data::datasets::MapDataset<Samples, torch::data::transforms::Normalize<>>,
      torch::data::transforms::Stack<>>;

  bool flat_;
  std::shared_ptr<models::Classifier> model_;
  torch::optim::AdamW optimizer_;
  std::unique_ptr<torch::data::StatelessDataLoader<Dataset, torch::data::samplers::RandomSampler>> loader_;
  torch::data::Iterator<torch::data::Example<>> next_;
  std::int64_t done_ = 0;
  float last_loss_ = 0;
};

// Written for speed: floats in memory, one gather per batch, libtorch's fused kernel, no loader, no reads on the host.
class TunedByHand {
 public:
  explicit TunedByHand(const Task& task) : model_(task.make()), size_(task.batch_size) {
    const Images images(task);
    images_ = normalized(images.bytes);
    targets_ = images.target;
    for (const at::Tensor& parameter : model_->parameters()) {
      parameters_.push_back(parameter);
      means_.push_back(at::zeros_like(parameter));
      squares_.push_back(at::zeros_like(parameter));
      steps_.push_back(at::zeros({}));
    }
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      if (at_ + size_ > images_.size(0) || !order_.defined()) order_ = at::randperm(images_.size(0)), at_ = 0;
      const at::Tensor rows = order_.narrow(0, at_, size_);
      at_ += size_;
      const at::Tensor output = model_->forward({{"input", images_.index_select(0, rows)}}).only();
      at::cross_entropy_loss(output, targets_.index_select(0, rows)).backward();
      const at::NoGradGuard no_grad;
      gradients_.clear();
      for (std::size_t p = 0; p < parameters_.size(); ++p) {
        gradients_.push_back(parameters_[p].grad());
        *steps_[p].mutable_data_ptr<float>() += 1;
      }
      at::_fused_adamw_(parameters_, gradients_, means_, squares_, {}, steps_, kLr, 0.9, 0.999, kDecay, 1e-8, false,
                        false);
      for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
    }
  }

 private:
  std::shared_ptr<models::Classifier> model_;
  std::int64_t size_, at_ = 0;
  at::Tensor images_, targets_, order_;
  std::vector<at::Tensor> parameters_, gradients_, means_, squares_, steps_;
};

class Trained {
 public:
  Trained(const Task& task, Callbacks callbacks, Loggers loggers, Precision precision, bool tune)
      : trainer_({.model = task.make(),
                  .train_dataloader = loader_of(task, tune),
                  .optimizer = optim::adamw({.lr = kLr, .weight_decay = kDecay}),
                  .max_duration = "1000000000ba",
                  .callbacks = std::move(callbacks),
                  .loggers = std::move(loggers),
                  .device = at::Device(at::kCPU),
                  .precision = precision,
                  .tune = tune,
                  .tune_cache = "/dev/null"}) {
    trainer_.begin();
    for (const std::string& line : trainer_.tuning()) std::printf("  tuned: %s\n", line.c_str());
  }

  void run(int steps) {
    const std::int64_t until = trainer_.state().timestamp.batch + steps;
    while (trainer_.state().timestamp.batch < until) trainer_.step();
  }

 private:
  static std::shared_ptr<Loader> loader_of(const Task& task, bool tune) {
    const Images images(task);
    return data::in_memory({{"input", images.bytes}, {"target", images.target}},
                           {.batch_size = task.batch_size,
                            .drop_last = true,
                            .normalize = data::Normalize{.mean = {kMean}, .stddev = {kStddev}},
                            .channels_last = tune && !task.flat});
  }

  Trainer trainer_;
};

Callbacks ten_callbacks() {
  using namespace callbacks;
  return {SpeedMonitor(), LRMonitor(), NaNMonitor(), SpeedMonitor({.window_size = 10}), LRMonitor(), NaNMonitor(),
          SpeedMonitor(), LRMonitor(), NaNMonitor(), SpeedMonitor({.window_size = 50})};
}

// Runs with the process tuned for this contender alone.
template <class Loop>
std::function<void(int)> in_tuned_process(Loop& loop) {
  return [&loop](int steps) {
    tune_process();
    loop.run(steps);
    c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), 10);
  };
}

template <class Loop>
std::function<void(int)> of(Loop& loop) {
  return [&loop](int steps) { loop.run(steps); };
}

void measure(const Task& task, Report& report) {
  LikeTheExamples examples(task);
  TunedByHand by_hand(task);
  Trained plain(task, {}, {}, Precision::FP32, false);
  Trained watched(task, ten_callbacks(), {loggers::InMemoryLogger()}, Precision::FP32, false);
  Trained tuned(task, {}, {}, Precision::FP32, true), tuned_bf16(task, {}, {}, Precision::AMP_BF16, true);
  report.compare(task.name,
                 {{"as PyTorch's examples", of(examples)},
                  {"tuned by hand", of(by_hand)},
                  {"trainer", of(plain)},
                  {"trainer, 10 callbacks, logger", of(watched)},
                  {"trainer, tuned", in_tuned_process(tuned)},
                  {"trainer, tuned, bf16 allowed", in_tuned_process(tuned_bf16)}},
                 task.rounds, task.calls);
}

void measure_loops(int argc, char** argv) {
  at::set_num_threads(1);
  Report report(parse(argc, argv));
  for (const Task& task : tasks())
    if (report.wants(task.name)) measure(task, report);
  report.write();
}

}  // namespace
}  // namespace composer::bench

int main(int argc, char** argv) { composer::bench::measure_loops(argc, argv); }
