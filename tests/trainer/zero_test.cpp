// The optimizer's work and state, and gradients, divided among ranks: they train what one process trains.
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>

#include "composer/algorithms/ema.h"
#include "composer/algorithms/freeze_until.h"
#include "composer/algorithms/gradient_clipping.h"
#include "composer/algorithms/layer_freezing.h"
#include "composer/algorithms/sam.h"
#include "composer/algorithms/swa.h"
#include "composer/callbacks/checkpoint_saver.h"
#include "composer/callbacks/optimizer_monitor.h"
#include "composer/core/error.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/optim/optimizer.h"
#include "composer/optim/schedulers.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/trainer/zero_runs.h"

namespace composer::test::zero_test {
namespace {

using algorithms::ClippingType;
using dist::test::results_in_ranks;

using Change = std::function<void(TrainerOptions&)>;
struct Case {
  const char* name;
  Change change;
};

// Puts another last layer into the model in the middle of the run, and tells the optimizer.
class NewHead final : public Algorithm {
 public:
  EventSet events() const override { return {Event::EPOCH_END}; }
  void apply(Event, State& state, Logger&) override {
    if (std::exchange(done_, true)) return;
    torch::nn::Linear now(kHidden, 3);
    now->to(at::kDouble);
    if (state.rank == 0) {  // the others are to get it from rank 0
      const at::NoGradGuard no_grad;
      now->weight.copy_(at::cos(at::arange(3 * kHidden, at::kDouble)).view({3, kHidden}));
      now->bias.zero_();
    }
    auto& net = *state.model->children().front()->as<ZeroNet>();
    auto& optimizer = dynamic_cast<optim::NamedOptimizer&>(*state.optimizer);
    optimizer.replace_parameter(net.head->weight, now->weight);
    optimizer.replace_parameter(net.head->bias, now->bias);
    net.head = net.replace_module("head", now);
  }

 private:
  bool done_ = false;
};

Change optimizer(optim::AnyOptimizer factory) {
  return [factory](TrainerOptions& options) { options.optimizer = factory; };
}

template <class Options, class Optimizer>
Change libtorch_optimizer(Options settings) {
  return [settings](TrainerOptions& options) {
    options.optimizer = std::make_shared<Optimizer>(options.model->parameters(), settings);
  };
}

std::vector<Case> optimizers() {
  using libtorch = torch::optim::Adam;
  return {{"SGD with momentum", optimizer(optim::sgd({.lr = 0.1, .momentum = 0.9}))},
          {"AdamW in groups", optimizer(optim::adamw({.lr = 0.02, .groups = {{.match = "*.bias", .lr = 0.1}}}))},
          {"LAMB", optimizer(optim::lamb({.lr = 0.02}))},
          {"Lion", optimizer(optim::lion({.lr = 0.002}))},
          {"RMSprop", optimizer(optim::rmsprop({.lr = 0.002, .momentum = 0.5}))},
          {"Adagrad", optimizer(optim::adagrad({.lr = 0.02}))},
          {"Adafactor", optimizer(optim::adafactor({.lr = 0.02}))},
          {"Muon", optimizer(optim::muon({.lr = 0.02, .adamw_for = {"*head*"}}))},
          {"Adam and SGD combined", optimizer(optim::combined({{"*.net.*", optim::adam({.lr = 0.02})},
                                                               {"*", optim::sgd({.lr = 0.1, .momentum = 0.9})}}))},
          {"libtorch's Adam", libtorch_optimizer<torch::optim::AdamOptions, libtorch>(0.02)}};
}

std::vector<Case> features() {
  return {{"a last batch with fewer samples than ranks",
           [](TrainerOptions& options) {
             auto other = zero_options(0, 17);
             options.train_dataloader = other.train_dataloader;
           }},
          {"schedules",
           [](TrainerOptions& options) {
             options.schedulers = {optim::cosine_annealing_with_warmup({.t_warmup = "2ba"})};
           }},
          {"microbatches", [](TrainerOptions& options) { options.device_train_microbatch_size = 1; }},
          {"clipping by norm",
           [](TrainerOptions& options) {
             options.algorithms = {algorithms::GradientClipping({.clipping_threshold = 0.05})};
           }},
          {"clipping by value",
           [](TrainerOptions& options) {
             options.algorithms = {
                 algorithms::GradientClipping({.clipping_type = ClippingType::VALUE, .clipping_threshold = 0.01})};
           }},
          {"adaptive clipping",
           [](TrainerOptions& options) {
             options.algorithms = {
                 algorithms::GradientClipping({.clipping_type = ClippingType::ADAPTIVE, .clipping_threshold = 0.01})};
           }},
          {"EMA", [](TrainerOptions& options) { options.algorithms = {algorithms::EMA({.half_life = "3ba"})}; }},
          {"SWA",
           [](TrainerOptions& options) {
             options.algorithms = {algorithms::SWA({.swa_start = "1ep", .swa_end = "2ep", .update_interval = "1ba"})};
           }},
          {"frozen parameters",
           [](TrainerOptions& options) { options.model->parameters().front().set_requires_grad(false); }},
          {"layers that freeze",
           [](TrainerOptions& options) { options.algorithms = {algorithms::LayerFreezing({.freeze_start = 0.2})}; }},
          {"parameters that are frozen at first",
           [](TrainerOptions& options) {
             options.algorithms = {algorithms::FreezeUntil({.parameters = {"*.weight"}, .until = "3ba"})};
           }},
          {"a layer that is replaced", [](TrainerOptions& options) { options.algorithms = {NewHead()}; }},
          {"unused parameters", [](TrainerOptions& options) { options.model = zero_model(/*has_unused=*/true); }},
          {"a gradient scaler that finds an overflow in one parameter", [](TrainerOptions& options) {
             options.grad_scaler = optim::GradScalerOptions{.init_scale = 1024};
             options.callbacks = {At([](Event event, const State& state) {
               if (event != Event::AFTER_BACKWARD || state.timestamp.batch != 2) return;
               state.model->parameters().back().mutable_grad().fill_(std::numeric_limits<double>::infinity());
             })};
           }}};
}

void check_as_alone(const Case& tried) {
  CAPTURE(tried.name);
  const auto options = [&](std::int64_t stage) {
    TrainerOptions options = zero_options(stage);
    tried.change(options);
    return options;
  };
  const FitResult alone = result_of_fit(options(0), dist::World::alone());
  struct Way {
    std::int64_t stage;
    int size;
  };
  for (const Way& way : {Way{1, 2}, Way{2, 4}}) {
    CAPTURE(way.stage);
    for (const FitResult& rank : results_in_ranks(
             way.size, [&](const WorldPointer& world) { return result_of_fit(options(way.stage), world); })) {
      check_same(rank, alone);
    }
  }
}

TEST_CASE(
    "Ranks that divide the state and the work of an optimizer train what one process does, with every optimizer") {
  for (const Case& tried : optimizers()) check_as_alone(tried);
}

TEST_CASE("Ranks that divide the optimizer train what one process does, whatever else there is in the run") {
  for (const Case& tried : features()) check_as_alone(tried);
}

TEST_CASE("All ranks have the same weights to the bit, and stage 1 those of ranks that divide nothing") {
  for (const int size : {2, 4}) {
    CAPTURE(size);
    const auto weights = [&](std::int64_t stage) {
      const auto ranks = results_in_ranks(
          size, [&](const WorldPointer& world) { return result_of_fit(zero_options(stage), world).weights; });
      for (const at::Tensor& rank : ranks) CHECK(at::equal(rank, ranks.front()));
      return ranks.front();
    };
    CHECK(at::equal(weights(1), weights(0)));
    weights(2);
  }
}

// What a rank has, in bytes.
struct Bytes {
  std::size_t state = 0, gradients = 0;
};

TEST_CASE("Each of n ranks keeps about 1/n of the optimizer's state, and in stage 2 of the gradients") {
  const auto measure = [](std::int64_t stage, int size) {
    return results_in_ranks(size, [&](const WorldPointer& world) {
      Bytes bytes;
      TrainerOptions options = zero_options(stage);
      options.model = zero_model();
      options.world = world;
      options.callbacks = {At([&](Event event, const State& state) {
        if (event != Event::AFTER_TRAIN_BATCH) return;
        bytes.gradients = 0;
        for (const at::Tensor& parameter : state.model->parameters())
          if (parameter.grad().defined()) bytes.gradients += parameter.grad().nbytes();
      })};
      Trainer trainer(std::move(options));
      trainer.fit();
      const auto& optimizer = dynamic_cast<const optim::NamedOptimizer&>(*trainer.state().optimizer);
      for (const at::Tensor& parameter : trainer.state().model->parameters())
        for (const char* key : {"exp_avg", "exp_avg_sq"})
          if (const at::Tensor tensor = optimizer.state_tensor(parameter, key); tensor.defined())
            bytes.state += tensor.nbytes();
      return bytes;
    });
  };
  const Bytes whole = measure(0, 2).front();
  REQUIRE(whole.gradients > 0);
  REQUIRE(whole.state == 2 * whole.gradients);
  for (const std::int64_t stage : {1, 2})
    for (const int size : {2, 4}) {
      CAPTURE(stage);
      CAPTURE(size);
      Bytes all;
      for (const Bytes& rank : measure(stage, size)) {
        CHECK(rank.state < whole.state * 4 / 3 / static_cast<std::size_t>(size));
        if (stage == 1) CHECK(rank.gradients == whole.gradients);
        if (stage == 2) CHECK(rank.gradients < whole.gradients * 4 / 3 / static_cast<std::size_t>(size));
        all.state += rank.state;
        all.gradients += rank.gradients;
      }
      CHECK(all.state == whole.state);
      if (stage == 2) CHECK(all.gradients == whole.gradients);
    }
}

TEST_CASE("Callbacks see the gradients of all parameters after the step in stage 1") {
  const auto logged = [](std::int64_t stage) {
    return results_in_ranks(2, [&](const WorldPointer& world) {
      auto memory = std::make_shared<loggers::InMemoryLogger>();
      TrainerOptions options = zero_options(stage);
      options.loggers = {memory};
      options.callbacks = {callbacks::OptimizerMonitor(
          {.log_optimizer_metrics = false, .batch_log_interval = 1, .per_parameter = false})};
      fit_in(world, std::move(options));
      std::vector<double> norms;
      for (const auto& point : memory->get_timeseries("l2_norm/grad/global")) norms.push_back(point.number());
      return norms;
    });
  };
  const auto whole = logged(0), divided = logged(1);
  CHECK(whole.front().size() == 12);
  CHECK(divided == whole);
}

TEST_CASE("find_lr leaves no trace of the steps that ranks make together") {
  for (const std::int64_t stage : {1, 2}) {
    CAPTURE(stage);
    const auto weights = [&](bool finds) {
      return results_in_ranks(2, [&](const WorldPointer& world) {
        TrainerOptions options = zero_options(stage);
        options.world = world;
        options.algorithms = {algorithms::GradientClipping({.clipping_threshold = 0.05})};
        Trainer trainer(std::move(options));
        if (finds) trainer.find_lr({.num_batches = 5});
        trainer.fit();
        return weights_of(trainer).clone();
      });
    };
    CHECK(at::equal(weights(true).front(), weights(false).front()));
  }
}

// At AFTER_TRAIN_BATCH, without knowing that gradients may be divided.
class SeesGradients final : public Algorithm {
 public:
  EventSet events() const override { return {Event::AFTER_TRAIN_BATCH}; }
  void apply(Event, State&, Logger&) override {}
};

TEST_CASE("What cannot be combined with ZeRO is an error before the first batch that says what to do") {
  struct Wrong {
    const char* text;
    std::int64_t stage;
    Change change;
  };
  const Folder folder;
  const std::vector<Wrong> rows = {
      {"zero_stage: must be 0, 1 (optimizer state) or 2 (also gradients), got 3; parameters", 3, [](auto&) {}},
      {"zero_stage: must be 0, 1", -1, [](auto&) {}},
      {"does not go with virtual_shards", 2, [](auto& options) { options.distributed.virtual_shards = 2; }},
      {"does not go with gradients_in_bf16", 2, [](auto& options) { options.distributed.gradients_in_bf16 = true; }},
      {"sharded_checkpoints: has no effect", 0, [](auto& options) { options.distributed.sharded_checkpoints = true; }},
      {"2 does not go with SAM", 2, [](auto& options) { options.algorithms = {algorithms::SAM()}; }},
      {"SeesGradients runs at AFTER_TRAIN_BATCH", 2, [](auto& options) { options.algorithms = {SeesGradients()}; }},
      {"OptimizerMonitor: with distributed.zero_stage = 2", 2,
       [](auto& options) { options.callbacks = {callbacks::OptimizerMonitor({.log_optimizer_metrics = false})}; }},
      {"log_optimizer_metrics = false", 1, [](auto& options) { options.callbacks = {callbacks::OptimizerMonitor()}; }},
      {"CheckpointSaver: with distributed.zero_stage", 1,
       [&](auto& options) { options.callbacks = {callbacks::CheckpointSaver({.folder = folder.path()})}; }},
      {"torch::optim::Adagrad may keep state", 1,
       libtorch_optimizer<torch::optim::AdagradOptions, torch::optim::Adagrad>(0.1)},
      {"torch::optim::LBFGS may keep state", 1,
       libtorch_optimizer<torch::optim::LBFGSOptions, torch::optim::LBFGS>(0.1)}};
  for (const Wrong& row : rows) {
    int batches = 0;
    check_refused(
        row.text,
        [&](TrainerOptions& options, int rank) {
          row.change(options);
          if (rank == 0)
            options.callbacks.add(At([&](Event event, const State&) { batches += event == Event::BATCH_START; }));
        },
        [&] { return zero_options(row.stage); });
    CHECK(batches == 0);
  }
}

TEST_CASE("With one process, zero_stage changes nothing") {
  const at::Tensor plain = result_of_fit(zero_options(0), dist::World::alone()).weights;
  for (const std::int64_t stage : {1, 2})
    CHECK(at::equal(result_of_fit(zero_options(stage), dist::World::alone()).weights, plain));
}

}  // namespace
}  // namespace composer::test::zero_test
