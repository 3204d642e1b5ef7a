// A loop like those of libtorch's examples: a data set of single samples, transforms, a loader, torch::optim, and a
// read of the loss in each step.
#include <cmath>
#include <optional>
#include <stdexcept>

#include <ATen/ATen.h>
#include <torch/data.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "benchmarks/contender/loops.h"

namespace composer::bench {
namespace {

class Samples : public torch::data::Dataset<Samples> {
 public:
  Samples(at::Tensor inputs, at::Tensor targets) : inputs_(std::move(inputs)), targets_(std::move(targets)) {}
  torch::data::Example<> get(std::size_t index) override {
    const auto i = static_cast<std::int64_t>(index);
    return {inputs_[i], targets_[i]};
  }
  torch::optional<std::size_t> size() const override { return static_cast<std::size_t>(inputs_.size(0)); }

 private:
  at::Tensor inputs_, targets_;
};

// Like torch's RandomSampler, with the order that all contenders share.
class SharedSampler : public torch::data::samplers::Sampler<> {
 public:
  explicit SharedSampler(std::int64_t samples) : order_(samples) {}
  void reset(torch::optional<std::size_t> /*new_size*/ = torch::nullopt) override {
    rows_ = order_.epoch(++epoch_);
    next_ = 0;
  }
  torch::optional<std::vector<std::size_t>> next(std::size_t batch_size) override {
    const std::int64_t count = std::min(static_cast<std::int64_t>(batch_size), rows_.numel() - next_);
    if (count == 0) return torch::nullopt;
    const auto* rows = rows_.const_data_ptr<std::int64_t>() + next_;
    next_ += count;
    return std::vector<std::size_t>(rows, rows + count);
  }
  void save(torch::serialize::OutputArchive& /*archive*/) const override {}
  void load(torch::serialize::InputArchive& /*archive*/) override {}

 private:
  Order order_;
  at::Tensor rows_;
  std::int64_t epoch_ = -1, next_ = 0;
};

template <class Dataset>
class LikeTheExamples : public Loop {
 public:
  LikeTheExamples(const Workload& workload, Dataset dataset, std::int64_t data_bytes)
      : data_bytes_(data_bytes),
        update_(workload.update),
        make_net_([make = workload.make] { return fresh_net({.make = make}); }),
        loader_(torch::data::make_data_loader(
            std::move(dataset), SharedSampler(workload.input.size(0)),
            torch::data::DataLoaderOptions(static_cast<std::size_t>(workload.batch_size)).drop_last(true))) {}

  void start() override {
    net_ = make_net_();
    const auto parameters = net_.model->parameters();
    if (update_ == Update::ADAMW) {
      optimizer_ = std::make_unique<torch::optim::AdamW>(parameters,
                                                         torch::optim::AdamWOptions(kAdamLr).weight_decay(kAdamDecay));
    } else {
      optimizer_ = std::make_unique<torch::optim::SGD>(
          parameters, torch::optim::SGDOptions(kSgdLr).momentum(kSgdMomentum).weight_decay(kSgdDecay));
    }
    next_.emplace(loader_->begin());
  }

  void run(std::int64_t steps) override {
    for (std::int64_t i = 0; i < steps; ++i) {
      auto& batch = **next_;
      optimizer_->zero_grad();
      at::Tensor loss = loss_of(net_.forward(batch.data), batch.target);
      if (std::isnan(loss.item<float>())) throw std::runtime_error("the loss is not a number");
      loss.backward();
      optimizer_->step();
      if (++*next_ == loader_->end()) next_.emplace(loader_->begin());
    }
  }

  const torch::nn::Module& network() const override { return *net_.model; }
  std::int64_t data_bytes() const override { return data_bytes_; }

 private:
  using DataLoader = torch::data::StatelessDataLoader<Dataset, SharedSampler>;
  std::int64_t data_bytes_;
  Update update_;
  std::function<Net()> make_net_;
  Net net_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<DataLoader> loader_;
  std::optional<torch::data::Iterator<torch::data::Example<>>> next_;
};

template <class Dataset>
std::unique_ptr<Loop> loop_over(const Workload& workload, Dataset dataset, std::int64_t data_bytes) {
  return std::make_unique<LikeTheExamples<Dataset>>(workload, std::move(dataset), data_bytes);
}

}  // namespace

std::unique_ptr<Loop> like_the_examples(Workload workload) {
  using torch::data::transforms::Normalize;
  using torch::data::transforms::Stack;
  const bool images = workload.has_images();
  if (images) workload.input = workload.input.to(at::kFloat).div_(255);  // like libtorch's own MNIST data set
  // The shape that Normalize needs.
  if (workload.input.dim() == 2 && images) workload.input = workload.input.view({-1, 1, 28, 28});
  Samples samples(workload.input, workload.target);
  const auto bytes = static_cast<std::int64_t>(workload.input.nbytes() + workload.target.nbytes());
  if (!images) return loop_over(workload, samples.map(Stack<>()), bytes);
  return loop_over(workload, samples.map(Normalize<>(kMean, kStddev)).map(Stack<>()), bytes);
}

}  // namespace composer::bench
