#include <optional>

#include <ATen/ATen.h>

#include "benchmarks/ranked/loops.h"
#include "composer/trainer/trainer.h"

namespace composer::bench {
namespace {

class TrainerLoop final : public Loop {
 public:
  TrainerLoop(Workload workload, TrainerWorld world) : world_(std::move(world)), workload_(std::move(workload)) {
    data_bytes_ = static_cast<std::int64_t>(workload_.input.nbytes() + workload_.target.nbytes());
    workload_.batch_size *= world_.size;  // the batch of a loader is that of all ranks
    loader_ = make_loader(workload_, /*channels_last=*/false);
  }

  void start() override {
    net_ = fresh_net(workload_);
    trainer_.emplace(TrainerOptions{
        .model = net_.model,
        .train_dataloader = loader_,
        .optimizer = workload_.update == Update::ADAMW
                         ? optim::adamw({.lr = kAdamLr, .weight_decay = kAdamDecay})
                         : optim::sgd({.lr = kSgdLr, .momentum = kSgdMomentum, .weight_decay = kSgdDecay}),
        .max_duration = "1000000000ba",
        .device = at::Device(at::kCPU),
        .world = world_.given,
        .distributed = world_.options});
    trainer_->begin();
  }

  void run(std::int64_t steps) override {
    const std::int64_t until = trainer_->state().timestamp.batch + steps;
    while (trainer_->state().timestamp.batch < until) trainer_->step();
  }

  const torch::nn::Module& network() const override { return *net_.model; }
  std::int64_t data_bytes() const override { return data_bytes_; }

 private:
  TrainerWorld world_;
  Workload workload_;
  std::shared_ptr<Loader> loader_;
  std::int64_t data_bytes_ = 0;
  Net net_;
  std::optional<Trainer> trainer_;
};

}  // namespace

std::unique_ptr<Loop> trainer_loop(Workload workload, TrainerWorld world) {
  return std::make_unique<TrainerLoop>(std::move(workload), std::move(world));
}

}  // namespace composer::bench
