// With virtual shards, weights do not depend on the number of ranks to the last bit.
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "composer/algorithms/ema.h"
#include "composer/algorithms/gradient_clipping.h"
#include "composer/algorithms/sam.h"
#include "composer/core/error.h"
#include "tests/support/folder.h"
#include "tests/trainer/fits_in_ranks.h"

namespace composer::test::virtual_shards_test {
namespace {

using dist::test::results_in_ranks;

// With statistics and random numbers of its own.
std::shared_ptr<Model> model_with_dropout() {
  torch::manual_seed(3);
  torch::nn::Sequential layers(torch::nn::Linear(4, 16), torch::nn::BatchNorm1d(16), torch::nn::Dropout(0.3),
                               torch::nn::Linear(16, 3));
  models::ClassifierOptions options{.num_classes = 3};
  options.train_metrics = Metrics();
  return std::make_shared<models::Classifier>(layers, options);
}

TrainerOptions sharded_options(std::int64_t samples = 43) {
  static std::mutex mutex;  // initial weights, also those that are replaced, come from the process's one generator
  const std::lock_guard lock(mutex);
  TrainerOptions options = tiny_options();
  options.model = model_with_dropout();
  options.train_dataloader = data::in_memory(tiny_data(samples), {.batch_size = 16, .shuffle = true});
  options.optimizer = optim::sgd({.lr = 0.1, .momentum = 0.9});
  options.seed = 17;
  options.max_duration = "5ep";
  options.distributed.virtual_shards = 4;
  return options;
}

struct Bits {
  at::Tensor weights, buffers, loss;
  bool operator==(const Bits& other) const {
    return at::equal(weights, other.weights) && at::equal(buffers, other.buffers) && at::equal(loss, other.loss);
  }
};

Bits bits_of(Trainer& trainer) {
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : trainer.state().model->buffers()) buffers.push_back(buffer.to(at::kDouble).flatten());
  return {weights_of(trainer).clone(), buffers.empty() ? at::zeros(0) : at::cat(buffers).clone(),
          trainer.state().batch_loss.at("total").clone()};
}

Bits run(TrainerOptions options, std::shared_ptr<dist::World> world) {
  options.world = std::move(world);
  Trainer trainer(std::move(options));
  trainer.fit();
  return bits_of(trainer);
}

void check_equal(const std::function<TrainerOptions()>& options) {
  use_threads_here(1);
  const Bits alone = run(options(), dist::World::alone());
  for (const int size : {2, 4}) {
    CAPTURE(size);
    for (const Bits& rank : results_in_ranks(size, [&](const auto& world) { return run(options(), world); })) {
      CHECK(at::equal(rank.weights, alone.weights));
      CHECK(at::equal(rank.buffers, alone.buffers));
      CHECK(at::equal(rank.loss, alone.loss));
    }
  }
}

TEST_CASE("Four virtual shards give 1, 2 and 4 ranks equal bits, also of batch norms and dropout") {
  check_equal([] { return sharded_options(); });
}

TEST_CASE("A last batch with fewer samples than virtual shards gives 1, 2 and 4 ranks equal bits") {
  check_equal([] {
    TrainerOptions options = sharded_options(35);
    options.model = tiny_model();  // a batch norm trains no shard of one sample
    return options;
  });
}

TEST_CASE("Clipping, EMA and SAM give 1, 2 and 4 ranks with virtual shards equal bits") {
  const std::vector<std::pair<const char*, std::function<Algorithms()>>> cases = {
      {"clipping", [] { return Algorithms(algorithms::GradientClipping({.clipping_threshold = 0.1})); }},
      {"EMA", [] { return Algorithms(algorithms::EMA({.half_life = "3ba"})); }},
      {"SAM", [] { return Algorithms(algorithms::SAM({.interval = 2})); }},
      {"all", [] {
         return Algorithms(algorithms::GradientClipping({.clipping_threshold = 0.1}),
                           algorithms::EMA({.half_life = "3ba"}), algorithms::SAM({.interval = 2}));
       }}};
  for (const auto& [name, list] : cases) {
    CAPTURE(std::string(name));
    check_equal([&] {
      TrainerOptions options = sharded_options();
      options.algorithms = list();
      return options;
    });
  }
}

TEST_CASE("A run of virtual shards goes on with another number of ranks, equal to the bit") {
  use_threads_here(1);
  const Bits straight = run(sharded_options(), dist::World::alone());
  for (const auto& [before, after] : {std::pair(4, 2), std::pair(2, 1), std::pair(1, 4)}) {
    CAPTURE(before);
    CAPTURE(after);
    const Folder folder;
    const auto options = [&](const WorldPointer& world) {
      TrainerOptions options = sharded_options();
      options.world = world;
      options.save_folder = folder.path().string();
      options.save_interval = "1ba";
      options.run_name = "elastic";
      return options;
    };
    results_in_ranks(before, [&](const WorldPointer& world) {
      TrainerOptions first = options(world);
      first.max_duration = "7ba";
      Trainer trainer(std::move(first));
      trainer.fit();
      return 0;
    });
    const auto ended = results_in_ranks(after, [&](const WorldPointer& world) {
      Trainer trainer(options(world));
      CHECK(trainer.state().timestamp.batch == 7);
      trainer.fit();
      return bits_of(trainer);
    });
    for (const Bits& rank : ended) CHECK(rank == straight);
  }
}

TEST_CASE("Virtual shards that ranks cannot divide, or that do not fit other options, are errors") {
  struct Case {
    std::int64_t shards;
    std::function<void(TrainerOptions&)> change;
    const char* text;
  };
  const std::vector<Case> cases = {
      {3, [](TrainerOptions&) {}, "distributed.virtual_shards: must be a power of two"},
      {1, [](TrainerOptions&) {}, "distributed.virtual_shards: must be a power of two that is a multiple of"},
      {4, [](TrainerOptions& options) { options.device_train_microbatch_size = 2; }, "device_train_microbatch_size"},
      {4, [](TrainerOptions& options) { options.distributed.split_batches = false; }, "needs split_batches"}};
  for (const Case& wrong : cases) {
    CAPTURE(wrong.shards);
    check_refused(
        wrong.text,
        [&](TrainerOptions& options, int) {
          options.distributed.virtual_shards = wrong.shards;
          wrong.change(options);
        },
        [] { return sharded_options(); });
  }
}

}  // namespace
}  // namespace composer::test::virtual_shards_test
