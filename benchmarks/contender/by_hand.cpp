// Ready floats in memory, one gather a batch, libtorch's fused update, nothing read on the host.
#include <vector>

#include <ATen/ATen.h>

#include "benchmarks/contender/loops.h"

namespace composer::bench {
namespace {

class ByHand : public Loop {
 public:
  explicit ByHand(Workload workload) : workload_(std::move(workload)), order_(workload_.input.size(0)) {
    if (workload_.has_images()) workload_.input = normalized(workload_.input);
  }

  void start() override {
    net_ = fresh_net(workload_);
    for (const at::Tensor& parameter : net_.model->parameters()) {
      parameters_.push_back(parameter);
      first_.push_back(at::zeros_like(parameter));
      if (workload_.update == Update::SGD) continue;
      second_.push_back(at::zeros_like(parameter));
      steps_.push_back(at::zeros({}));
    }
    gradients_.reserve(parameters_.size());
    rows_ = order_.epoch(0);
  }

  void run(std::int64_t steps) override {
    for (std::int64_t i = 0; i < steps; ++i) {
      if (at_ + workload_.batch_size > rows_.numel()) rows_ = order_.epoch(++epoch_), at_ = 0;
      const at::Tensor rows = rows_.narrow(0, at_, workload_.batch_size);
      at_ += workload_.batch_size;
      const at::Tensor output = net_.forward(workload_.input.index_select(0, rows));
      loss_of(output, workload_.target.index_select(0, rows)).backward();
      update();
    }
  }

  const torch::nn::Module& network() const override { return *net_.model; }
  std::int64_t data_bytes() const override {
    return static_cast<std::int64_t>(workload_.input.nbytes() + workload_.target.nbytes());
  }

 private:
  void update() {
    const at::NoGradGuard no_grad;
    gradients_.clear();
    for (const at::Tensor& parameter : parameters_) gradients_.push_back(parameter.grad());
    if (workload_.update == Update::ADAMW) {
      for (const at::Tensor& step : steps_) *step.mutable_data_ptr<float>() += 1;
      at::_fused_adamw_(parameters_, gradients_, first_, second_, {}, steps_, kAdamLr, 0.9, 0.999, kAdamDecay, 1e-8,
                        /*amsgrad=*/false, /*maximize=*/false);
    } else {
      at::_fused_sgd_(parameters_, gradients_, first_, kSgdDecay, kSgdMomentum, kSgdLr, /*dampening=*/0,
                      /*nesterov=*/false, /*maximize=*/false, /*is_first_step=*/is_first_step_);
      is_first_step_ = false;
    }
    for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  }

  Workload workload_;
  Order order_;
  Net net_;
  at::Tensor rows_;
  std::int64_t epoch_ = 0, at_ = 0;
  std::vector<at::Tensor> parameters_, gradients_, first_, second_, steps_;
  bool is_first_step_ = true;
};

}  // namespace

std::unique_ptr<Loop> by_hand(Workload workload) { return std::make_unique<ByHand>(std::move(workload)); }

}  // namespace composer::bench
