// The loops of the trainer: plain, with callbacks, and tuned.
#include <optional>

#include <ATen/CPUGeneratorImpl.h>

#include "benchmarks/contender/loops.h"
#include "composer/callbacks/lr_monitor.h"
#include "composer/callbacks/nan_monitor.h"
#include "composer/callbacks/speed_monitor.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/trainer/trainer.h"
#include "composer/util/own_random.h"

namespace composer::bench {
namespace {

Callbacks ten_callbacks() {
  using callbacks::LRMonitor;
  using callbacks::NaNMonitor;
  using callbacks::SpeedMonitor;
  return {SpeedMonitor(), LRMonitor(), NaNMonitor(), SpeedMonitor({.window_size = 10}), LRMonitor(), NaNMonitor(),
          SpeedMonitor(), LRMonitor(), NaNMonitor(), SpeedMonitor({.window_size = 50})};
}

// Within a fit a trainer draws from its own generators; this stores its generator for the CPU, to seed it.
class TakeGenerator final : public Callback {
 public:
  explicit TakeGenerator(at::Generator& taken) : taken_(taken) {}
  void fit_start(const State&, Logger&) override { taken_ = current_generator(at::kCPU); }

 private:
  at::Generator& taken_;
};

class Trained : public Loop {
 public:
  Trained(Workload workload, TrainedOptions options)
      : options_(options), workload_(std::move(workload)), loader_(make_loader(workload_, options.tune)) {
    data_bytes_ = static_cast<std::int64_t>(workload_.input.nbytes() + workload_.target.nbytes());
    workload_.input.reset();  // the loader has the samples, possibly in another layout
    workload_.target.reset();
  }

  void start() override {
    net_ = fresh_net(workload_);
    Callbacks callbacks = options_.callbacks ? ten_callbacks() : Callbacks();
    callbacks.add(TakeGenerator(random_));
    trainer_.emplace(TrainerOptions{
        .model = net_.model,
        .train_dataloader = loader_,
        .optimizer = workload_.update == Update::ADAMW
                         ? optim::adamw({.lr = kAdamLr, .weight_decay = kAdamDecay})
                         : optim::sgd({.lr = kSgdLr, .momentum = kSgdMomentum, .weight_decay = kSgdDecay}),
        .max_duration = "1000000000ba",
        .callbacks = std::move(callbacks),
        .loggers = options_.callbacks ? Loggers{loggers::InMemoryLogger()} : Loggers(),
        .device = at::Device(at::kCPU),
        .precision = options_.allow_bf16 ? Precision::AMP_BF16 : Precision::FP32,
        .tune = options_.tune,
        .tune_cache = "/dev/null"});
    trainer_->begin();
  }

  void run(std::int64_t steps) override {
    random_.set_current_seed(at::detail::getDefaultCPUGenerator().current_seed());  // draws like the other contenders
    const std::int64_t until = trainer_->state().timestamp.batch + steps;
    while (trainer_->state().timestamp.batch < until) trainer_->step();
  }

  const torch::nn::Module& network() const override { return *net_.model; }
  std::int64_t data_bytes() const override { return data_bytes_; }
  std::vector<std::string> notes() const override { return trainer_->tuning(); }

 private:
  TrainedOptions options_;
  Workload workload_;
  std::shared_ptr<Loader> loader_;
  std::int64_t data_bytes_ = 0;
  Net net_;
  at::Generator random_;
  std::optional<Trainer> trainer_;
};

}  // namespace

std::unique_ptr<Loop> trained(Workload workload, TrainedOptions options) {
  return std::make_unique<Trained>(std::move(workload), options);
}

}  // namespace composer::bench
