// Several ranks train what one process trains with the batches of all.
#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/optimizer.h>

#include "composer/algorithms/ema.h"
#include "composer/algorithms/gradient_clipping.h"
#include "composer/core/error.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/metrics/classification.h"
#include "composer/metrics/loss_metrics.h"
#include "tests/trainer/fits_in_ranks.h"

namespace composer::test::ranks_test {
namespace {

using dist::test::results_in_ranks;

// In double, so that rounding is far below any mistake.
Batch data_in_double(std::int64_t samples, std::int64_t from = 0) {
  const at::Tensor x = at::sin(at::arange(from * 4, (from + samples) * 4, at::kDouble) * 1.7).view({samples, 4});
  return {{"input", x}, {"target", at::arange(from, from + samples, at::kLong).remainder(3)}};
}

std::shared_ptr<Model> model_in_double(bool train_metrics = true) {
  std::shared_ptr<Model> model = tiny_model(train_metrics);
  model->to(at::kDouble);
  return model;
}

TrainerOptions double_options(std::int64_t samples, std::int64_t batch_size) {
  TrainerOptions options = tiny_options();
  options.model = model_in_double();
  options.train_dataloader = data::in_memory(data_in_double(samples), {.batch_size = batch_size, .shuffle = true});
  options.seed = 17;
  options.max_duration = "3ep";
  return options;
}

struct Case {
  const char* name;
  std::function<TrainerOptions()> options;
};

std::vector<Case> cases() {
  return {{"equal slices", [] { return double_options(32, 8); }},
          {"a last batch with fewer samples than ranks", [] { return double_options(17, 8); }},
          {"slices of unequal sizes", [] { return double_options(30, 10); }},
          {"microbatches",
           [] {
             TrainerOptions options = double_options(30, 10);
             options.device_train_microbatch_size = 2;
             return options;
           }},
          {"microbatches that all reduce",
           [] {
             TrainerOptions options = double_options(32, 16);
             options.device_train_microbatch_size = 2;
             options.distributed.ddp_sync_strategy = dist::SyncStrategy::MULTI_AUTO_SYNC;
             return options;
           }},
          {"one reduction after backward",
           [] {
             TrainerOptions options = double_options(30, 10);
             options.distributed.ddp_sync_strategy = dist::SyncStrategy::FORCED_SYNC;
             return options;
           }},
          {"clipped gradients and EMA",
           [] {
             TrainerOptions options = double_options(30, 10);
             options.algorithms = {algorithms::GradientClipping({.clipping_threshold = 0.05}),
                                   algorithms::EMA({.half_life = "3ba"})};
             return options;
           }},
          {"two evaluators",
           [] {
             TrainerOptions options = double_options(30, 10);
             options.eval_dataloader = {data::in_memory(data_in_double(11, 5), {.batch_size = 5, .shuffle = false}),
                                        data::in_memory(data_in_double(7, 9), {.batch_size = 3, .shuffle = false})};
             return options;
           }},
          {"Adam", [] {
             TrainerOptions options = double_options(18, 6);
             options.optimizer = optim::adamw({.lr = 0.01});
             return options;
           }}};
}

TEST_CASE("Several ranks train and measure what one process does with the same batches") {
  for (const Case& tried : cases()) {
    CAPTURE(tried.name);
    const FitResult alone = result_of_fit(tried.options(), dist::World::alone());
    for (const int size : {2, 4}) {
      CAPTURE(size);
      const std::vector<FitResult> ranks =
          results_in_ranks(size, [&](const WorldPointer& world) { return result_of_fit(tried.options(), world); });
      for (const FitResult& rank : ranks) {
        CHECK(at::equal(rank.weights, ranks.front().weights));
        check_same(rank, alone);
      }
    }
  }
}

// One layer under two names.
struct Tied : torch::nn::Module {
  Tied() {
    register_module("first", layer);
    register_module("second", layer);
    register_module("last", last);
    const at::NoGradGuard no_grad;
    layer->weight.copy_(at::cos(at::arange(16, at::kFloat)).view({4, 4}));
    last->weight.copy_(at::sin(at::arange(12, at::kFloat)).view({3, 4}));
    for (const auto& linear : {layer, last}) linear->bias.zero_();
  }
  at::Tensor forward(const at::Tensor& x) { return last->forward(layer->forward(layer->forward(x).tanh()).tanh()); }

  torch::nn::Linear layer{4, 4}, last{4, 3};
};

TEST_CASE("Ranks and virtual shards train a layer that stands under two names as one process does") {
  for (const std::int64_t shards : {0, 4}) {
    CAPTURE(shards);
    const auto options = [&] {
      TrainerOptions options = double_options(30, 10);
      options.model =
          std::make_shared<models::Classifier>(std::make_shared<Tied>(), models::ClassifierOptions{.num_classes = 3});
      options.model->to(at::kDouble);
      options.distributed.virtual_shards = shards;
      return options;
    };
    TrainerOptions plain = options();
    plain.distributed.virtual_shards = 0;
    const FitResult alone = result_of_fit(std::move(plain), dist::World::alone());
    for (const FitResult& rank :
         results_in_ranks(2, [&](const WorldPointer& world) { return result_of_fit(options(), world); }))
      CHECK(at::allclose(rank.weights, alone.weights, 0, 1e-12));
  }
}

// The batches of all ranks, one after another, as one process would get them.
class Joined final : public Loader {
 public:
  explicit Joined(std::vector<std::shared_ptr<Loader>> loaders) : loaders_(std::move(loaders)) {}
  void seek(std::int64_t epoch, std::int64_t batch) override {
    for (const auto& loader : loaders_)
      if (batch < *loader->num_batches()) loader->seek(epoch, batch);
    batch_ = batch;
  }
  std::optional<Batch> next() override {
    std::vector<at::Tensor> inputs, targets;
    for (const auto& loader : loaders_)
      if (batch_ < *loader->num_batches()) {
        const Batch batch = *loader->next();
        inputs.push_back(batch.at("input"));
        targets.push_back(batch.at("target"));
      }
    ++batch_;
    if (inputs.empty()) return std::nullopt;
    return Batch{{"input", at::cat(inputs)}, {"target", at::cat(targets)}};
  }

 private:
  std::vector<std::shared_ptr<Loader>> loaders_;
  std::int64_t batch_ = 0;
};

TEST_CASE("Ranks with loaders of unequal length and batch size train every sample with its weight") {
  const auto loader = [](int rank) {
    return data::in_memory(data_in_double(5 + 4 * rank, 20 * rank), {.batch_size = 2 + rank, .shuffle = false});
  };
  for (const int size : {2, 4}) {
    CAPTURE(size);
    std::vector<std::shared_ptr<Loader>> loaders;
    for (int rank = 0; rank < size; ++rank) loaders.push_back(loader(rank));
    TrainerOptions joint = double_options(1, 1);
    joint.train_dataloader = std::make_shared<Joined>(loaders);
    joint.max_duration = "2ep";
    const FitResult alone = result_of_fit(std::move(joint), dist::World::alone());
    const std::vector<FitResult> ranks = results_in_ranks(size, [&](const WorldPointer& world) {
      TrainerOptions own = double_options(1, 1);
      own.train_dataloader = loader(world->rank());
      own.distributed.split_batches = false;
      own.max_duration = "2ep";
      return result_of_fit(std::move(own), world);
    });
    for (const FitResult& rank : ranks) {
      CHECK(at::allclose(rank.weights, alone.weights, 0, 1e-12));
      CHECK(rank.metrics == alone.metrics);
      CHECK(rank.timestamp.sample == alone.timestamp.sample);
      CHECK(rank.timestamp.batch == alone.timestamp.batch);
      CHECK(rank.losses.size() == alone.losses.size());
    }
  }
}

TEST_CASE("A stop that one rank asks for ends all ranks after the same batch, with its reason") {
  for (const int asking : {0, 1, 2}) {
    const auto stops = results_in_ranks(3, [&](const WorldPointer& world) {
      TrainerOptions options = double_options(30, 6);
      options.callbacks = {At([&](Event event, const State& state) {
        if (event == Event::BATCH_END && state.timestamp.batch == 2 && state.rank == asking) state.stop.ask("enough");
      })};
      options.world = world;
      Trainer trainer(std::move(options));
      trainer.fit();
      return join(trainer.state().timestamp.batch, ' ', trainer.state().stop.why());
    });
    for (const std::string& stop : stops) CHECK(stop == "2 enough");
  }
}

TEST_CASE("What one rank's options make impossible is an error on all ranks, which names the rank") {
  const auto errors = errors_of_fits(2, [](TrainerOptions& options, int rank) {
    if (rank == 1) options.max_duration = OptionalTime();
  });
  CHECK(errors[0].find("rank 1: max_duration: is required to fit") != std::string::npos);
  CHECK(errors[1].find("max_duration: is required to fit") == 0);
}

TEST_CASE("Only rank 0 logs, unless a logger is for all ranks") {
  class Counter final : public LoggerDestination {
   public:
    explicit Counter(int& count) : count_(count) {}
    void log_metrics(std::span<const LogEntry>, std::int64_t, const State&) override { ++count_; }

   private:
    int& count_;
  };
  const auto counts = results_in_ranks(2, [&](const WorldPointer& world) {
    int count = 0;
    auto memory = std::make_shared<loggers::InMemoryLogger>();
    TrainerOptions options = double_options(8, 4);
    options.loggers = {Counter(count), memory};
    fit_in(world, std::move(options));
    return std::pair(count > 0, !memory->keys().empty());
  });
  CHECK(counts == std::vector{std::pair(true, true), std::pair(false, true)});
}

TEST_CASE("Ranks draw different random numbers, and rank 0 those of one process") {
  const auto drawn = [](const WorldPointer& world) {
    std::vector<float> numbers;
    TrainerOptions options = double_options(8, 4);
    options.callbacks = {At([&](Event event, const State&) {
      if (event == Event::BEFORE_FORWARD) numbers.push_back(at::rand({}).item<float>());
    })};
    fit_in(world, std::move(options));
    return numbers;
  };
  const auto ranks = results_in_ranks(2, drawn);
  CHECK(ranks[0] == drawn(dist::World::alone()));
  CHECK(ranks[1] != ranks[0]);
  CHECK(ranks[1].front() != ranks[1].back());
}

TEST_CASE("After a fit all ranks have the running statistics of rank 0, with an average of weights as well") {
  for (const bool averages : {false, true}) {
    const auto buffers = results_in_ranks(2, [&](const WorldPointer& world) {
      TrainerOptions options = tiny_options();
      at::manual_seed(1);
      options.model = std::make_shared<models::Classifier>(
          torch::nn::Sequential(torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 3)),
          models::ClassifierOptions{.num_classes = 3});
      if (averages) options.algorithms = {algorithms::EMA({.half_life = "3ba"})};
      options.world = world;
      Trainer trainer(std::move(options));
      trainer.fit();
      std::vector<at::Tensor> all;
      for (const at::Tensor& buffer : trainer.state().model->buffers()) all.push_back(buffer.to(at::kFloat).flatten());
      trainer.with_weights(WeightsUse::EXPORT, [&](Model& model) {
        for (const at::Tensor& buffer : model.buffers()) all.push_back(buffer.to(at::kFloat, false, true).flatten());
      });
      return at::cat(all).clone();
    });
    CHECK(buffers[0].equal(buffers[1]));
  }
}

}  // namespace
}  // namespace composer::test::ranks_test
