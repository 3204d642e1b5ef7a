#include <algorithm>
#include <optional>

#include <ATen/ATen.h>

#include "benchmarks/bench.h"
#include "benchmarks/contender/fused_update.h"
#include "benchmarks/ranked/loops.h"
#include "composer/dist/data_parallel.h"
#include "composer/dist/sharded.h"
#include "composer/dist/world.h"

namespace composer::bench {
namespace {

dist::DataParallel::Named named_parameters(const torch::nn::Module& network) {
  dist::DataParallel::Named named;
  for (const auto& item : network.named_parameters()) named.emplace_back(item.key(), item.value());
  return named;
}

dist::DataParallel::Named named_buffers(const torch::nn::Module& network) {
  dist::DataParallel::Named named;
  for (const auto& item : network.named_buffers()) named.emplace_back(item.key(), item.value());
  return named;
}

double now() { return microseconds(CLOCK_MONOTONIC) * 1e-6; }

class HandLoopOnRanks final : public HandLoop {
 public:
  HandLoopOnRanks(Workload workload, Reduction reduction, std::shared_ptr<dist::World> world)
      : workload_(std::move(workload)),
        reduction_(reduction),
        world_(std::move(world)),
        order_(workload_.input.size(0)) {
    if (workload_.has_images()) workload_.input = normalized(workload_.input);
  }

  void start() override {
    net_ = fresh_net(workload_);
    const torch::nn::Module& network = *net_.model;
    parameters_ = network.parameters();
    if (has_parallel())
      parallel_.emplace(world_, named_parameters(network), named_buffers(network),
                        dist::DataParallelOptions{.gradients_in_bf16 = reduction_ == Reduction::IN_BF16});
    std::vector<at::Tensor> own = parameters_;
    if (has_shares()) {
      sharded_.emplace(world_, named_parameters(network));
      std::erase_if(own, [&](const at::Tensor& parameter) { return !sharded_->is_own(parameter); });
    }
    update_.emplace(workload_.update, own);
    rows_ = order_.epoch(0);
  }

  void run(std::int64_t steps) override {
    for (std::int64_t i = 0; i < steps; ++i) {
      forward();
      backward();
      update();
    }
  }

  nlohmann::ordered_json phases(std::int64_t steps) override;

  const torch::nn::Module& network() const override { return *net_.model; }
  std::int64_t data_bytes() const override {
    return static_cast<std::int64_t>(workload_.input.nbytes() + workload_.target.nbytes());
  }

 private:
  bool has_parallel() const {
    return reduction_ == Reduction::OVERLAPPED || reduction_ == Reduction::IN_BF16 ||
           reduction_ == Reduction::ZERO_STAGE_1;
  }
  bool has_shares() const { return reduction_ == Reduction::ZERO_STAGE_1 || reduction_ == Reduction::ZERO_STAGE_2; }

  // Returns this rank's slice of the next batch of all ranks.
  at::Tensor next_rows() {
    const std::int64_t own = workload_.batch_size, all = own * world_->size();
    if (at_ + all > rows_.numel()) rows_ = order_.epoch(++epoch_), at_ = 0;
    const at::Tensor rows = rows_.narrow(0, at_ + own * world_->rank(), own);
    at_ += all;
    return rows;
  }

  void forward() {
    const at::Tensor rows = next_rows();
    if (parallel_) parallel_->before_forward();
    loss_ = loss_of(net_.forward(workload_.input.index_select(0, rows)), workload_.target.index_select(0, rows));
  }

  void backward() {
    if (parallel_) parallel_->before_backward({loss_});
    loss_.backward();
    loss_.reset();
    if (parallel_) parallel_->after_backward();
    if (reduction_ == Reduction::AFTER) average_in_one(*world_, parameters_);
    if (reduction_ == Reduction::ZERO_STAGE_2) sharded_->reduce_gradients();
  }

  void update() {
    update_->step();
    if (!sharded_) return;
    // Frees the gradients of other ranks' shares.
    for (const at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
    sharded_->exchange();
  }

  Workload workload_;
  Reduction reduction_;
  std::shared_ptr<dist::World> world_;
  Order order_;
  Net net_;
  std::vector<at::Tensor> parameters_;
  std::optional<dist::DataParallel> parallel_;
  std::optional<dist::Sharded> sharded_;
  std::optional<FusedUpdate> update_;
  at::Tensor rows_, loss_;
  std::int64_t epoch_ = 0, at_ = 0;
};

nlohmann::ordered_json HandLoopOnRanks::phases(std::int64_t steps) {
  const std::size_t count = parameters_.size();
  std::vector<double> forward_s, backward_s, update_s;
  std::vector<std::vector<double>> arrivals(count);
  double began = 0;
  std::vector<unsigned> hooks;
  hooks.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    hooks.push_back(parameters_[i].register_hook(
        [&arrivals, &began, i](const at::Tensor& /*gradient*/) { arrivals[i].push_back(now() - began); }));
  for (std::int64_t step = 0; step < steps; ++step) {
    const double before = now();
    forward();
    began = now();
    backward();
    const double after = now();
    update();
    forward_s.push_back(began - before);
    backward_s.push_back(after - began);
    update_s.push_back(now() - after);
  }
  for (std::size_t i = 0; i < count; ++i) parameters_[i].remove_hook(hooks[i]);

  std::vector<std::pair<double, std::size_t>> sorted;
  for (std::size_t i = 0; i < count; ++i)
    if (!arrivals[i].empty()) sorted.emplace_back(median(arrivals[i]), i);
  std::ranges::sort(sorted);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& [seconds, i] : sorted) list.push_back({parameters_[i].nbytes(), seconds});
  return {{"forward_s", median(forward_s)},
          {"backward_s", median(backward_s)},
          {"update_s", median(update_s)},
          {"arrivals", list}};
}

}  // namespace

std::unique_ptr<HandLoop> hand_loop(Workload workload, Reduction reduction, std::shared_ptr<dist::World> world) {
  return std::make_unique<HandLoopOnRanks>(std::move(workload), reduction, std::move(world));
}

}  // namespace composer::bench
