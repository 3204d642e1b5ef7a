// A loop by hand: floats in memory, one gather per batch, libtorch's fused update, no reads on the host.
#include <optional>

#include <ATen/ATen.h>

#include "benchmarks/contender/fused_update.h"
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
    update_.emplace(workload_.update, net_.model->parameters());
    rows_ = order_.epoch(0);
  }

  void run(std::int64_t steps) override {
    for (std::int64_t i = 0; i < steps; ++i) {
      if (at_ + workload_.batch_size > rows_.numel()) rows_ = order_.epoch(++epoch_), at_ = 0;
      const at::Tensor rows = rows_.narrow(0, at_, workload_.batch_size);
      at_ += workload_.batch_size;
      const at::Tensor output = net_.forward(workload_.input.index_select(0, rows));
      loss_of(output, workload_.target.index_select(0, rows)).backward();
      update_->step();
    }
  }

  const torch::nn::Module& network() const override { return *net_.model; }
  std::int64_t data_bytes() const override {
    return static_cast<std::int64_t>(workload_.input.nbytes() + workload_.target.nbytes());
  }

 private:
  Workload workload_;
  Order order_;
  Net net_;
  std::optional<FusedUpdate> update_;
  at::Tensor rows_;
  std::int64_t epoch_ = 0, at_ = 0;
};

}  // namespace

std::unique_ptr<Loop> by_hand(Workload workload) { return std::make_unique<ByHand>(std::move(workload)); }

}  // namespace composer::bench
