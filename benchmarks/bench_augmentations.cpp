// What do algorithms that change batches cost, as a share of a step of a CNN and of a residual net?
#include <memory>
#include <string>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "benchmarks/bench.h"
#include "composer/algorithms/registry.h"
#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/data/in_memory.h"
#include "composer/models/mnist_cnn.h"
#include "composer/models/resnet_cifar.h"
#include "composer/optim/optimizer.h"
#include "composer/trainer/trainer.h"

namespace composer::bench {
namespace {

constexpr std::int64_t kBatchSize = 64, kBatches = 10;

struct Task {
  std::string name;
  std::shared_ptr<Model> model;
  std::int64_t channels, side;
  int rounds, calls;
};

Batch images(const Task& task) {
  at::manual_seed(1);
  return {{"input", at::rand({kBatchSize * kBatches, task.channels, task.side, task.side})},
          {"target", at::randint(10, {kBatchSize * kBatches}, at::kLong)}};
}

// Trains the model; each call trains one batch.
class Steps {
 public:
  explicit Steps(const Task& task)
      : trainer_({.model = task.model,
                  .train_dataloader = data::in_memory(images(task), {.batch_size = kBatchSize, .seed = 17}),
                  .optimizer = optim::sgd({.lr = 0.01, .momentum = 0.9}),
                  .max_duration = "1000000000ba",
                  .device = at::Device(at::kCPU),
                  .seed = 17}) {
    trainer_.begin();
  }
  void run(int steps) {
    const std::int64_t until = trainer_.state().timestamp.batch + steps;
    while (trainer_.state().timestamp.batch < until) trainer_.step();
  }

 private:
  Trainer trainer_;
};

// Lets an algorithm change a batch, as it does at one event of each step.
class Changes {
 public:
  Changes(const Task& task, const std::string& name, Event event, const Settings& settings = {})
      : algorithm_(algorithms::registry().find(name).make(settings).list().front().object),
        event_(event),
        logger_(state_, {}) {
    state_.seed = 17;
    state_.max_duration = Time("1000000000ba");
    const Batch all = images(task);
    batch_ = {{"input", all["input"].narrow(0, 0, kBatchSize)}, {"target", all["target"].narrow(0, 0, kBatchSize)}};
  }
  void run(int batches) {
    for (int i = 0; i < batches; ++i) {
      state_.batch = batch_;
      state_.timestamp = state_.timestamp.to_next_batch();
      algorithm_->apply(event_, state_, logger_);
    }
  }

 private:
  State state_;
  std::shared_ptr<Algorithm> algorithm_;
  Event event_;
  Logger logger_;
  Batch batch_;
};

void measure(Report& report, const Task& task, int threads) {
  const std::string group =
      task.name + ", batch 64, " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
  if (!report.wants(group)) return;
  at::set_num_threads(threads);
  Steps steps(task);
  std::vector<Contender> contenders = {{"a step", [&](int calls) { steps.run(calls); }}};
  const auto add = [&](const std::string& name, Event event) {
    const auto changes = std::make_shared<Changes>(task, name, event);
    contenders.push_back({name, [changes](int calls) { changes->run(calls); }});
  };
  for (const char* name : {"cutout", "colout", "progressive_resizing", "randaugment", "augmix"})
    add(name, Event::AFTER_DATALOADER);
  for (const char* name : {"cutmix", "mixup"}) add(name, Event::BEFORE_FORWARD);
  report.compare(group, contenders, task.rounds, task.calls);
}

void measure(const Options& options) {
  Report report(options);
  const int all_threads = at::get_num_threads();
  for (const int threads : all_threads > 1 ? std::vector{1, all_threads} : std::vector{1}) {
    measure(report, {"mnist_cnn", models::mnist_cnn(), 1, 28, 12, 5}, threads);
    measure(report, {"resnet20", models::resnet_cifar({.depth = 20}), 3, 32, 6, 1}, threads);
  }
  report.write();
}

}  // namespace
}  // namespace composer::bench

int main(int argc, char** argv) { composer::bench::measure(composer::bench::parse(argc, argv)); }
