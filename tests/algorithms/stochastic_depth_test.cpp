#include "composer/algorithms/stochastic_depth.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/models/resnet_cifar.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"
#include "tests/support/warnings.h"

namespace composer::test::stochastic_depth_test {
namespace {

namespace nn = torch::nn;
using algorithms::DropDistribution;
using algorithms::stochastic_depth;
using algorithms::StochasticDepth;
using algorithms::StochasticMethod;

struct Block final : ResidualBlock {
  Block() { register_module("line", line); }
  at::Tensor branch(const at::Tensor& x) override { return line->forward(x); }
  nn::Linear line{4, 4};
};

struct Blocks {
  std::vector<std::shared_ptr<Block>> list;
  nn::Sequential body;
  explicit Blocks(int number) {
    for (int i = 0; i < number; ++i) body->push_back(list.emplace_back(std::make_shared<Block>()));
    body->push_back(nn::Linear(4, 3));
  }
  std::vector<double> rates() const {
    std::vector<double> all;
    for (const auto& block : list) all.push_back(block->drop_rate());
    return all;
  }
};

bool near(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::abs(a[i] - b[i]) > 1e-12) return false;
  return true;
}

TrainerOptions options_for(const Blocks& blocks, const StochasticDepth& algorithm) {
  TrainerOptions with = tiny_options();
  with.model = std::make_shared<models::Classifier>(blocks.body, models::ClassifierOptions{.num_classes = 3});
  with.max_duration = "2ep";
  with.seed = 7;
  with.algorithms = {algorithm};
  return with;
}

TEST_CASE("stochastic_depth gives later blocks larger rates, or all blocks the same") {
  Blocks blocks(4);
  CHECK(stochastic_depth(*blocks.body, {.drop_rate = 0.4}) == 4);
  CHECK(near(blocks.rates(), {0.1, 0.2, 0.3, 0.4}));
  stochastic_depth(*blocks.body, {.drop_rate = 0.4, .drop_distribution = DropDistribution::UNIFORM});
  CHECK(near(blocks.rates(), {0.4, 0.4, 0.4, 0.4}));
  stochastic_depth(*blocks.body, {.drop_rate = 0.4}, 0.5);
  CHECK(near(blocks.rates(), {0.05, 0.1, 0.15, 0.2}));
}

TEST_CASE("stochastic_depth finds the blocks of the library's ResNets") {
  CHECK(stochastic_depth(*models::resnet_cifar({.depth = 20})) == 9);
}

TEST_CASE("The drop rates rise during the warm-up, reach their targets, and are logged") {
  Blocks blocks(2);
  std::map<std::int64_t, std::vector<double>> seen;
  TrainerOptions with = options_for(blocks, StochasticDepth({.drop_rate = 0.4, .drop_warmup = "0.5dur"}));
  with.max_duration = "8ba";
  with.callbacks.add(At([&](Event event, const State& state) {
    if (event == Event::BATCH_START) seen[state.timestamp.batch] = blocks.rates();
  }));
  const auto logger = std::make_shared<loggers::InMemoryLogger>();
  with.loggers.add(logger);
  Trainer trainer(std::move(with));
  CHECK(near(blocks.rates(), {0, 0}));
  trainer.fit();
  CHECK(near(seen[0], {0, 0}));
  CHECK(near(seen[2], {0.1, 0.2}));
  for (const std::int64_t batch : {4, 5, 7}) CHECK(near(seen[batch], {0.2, 0.4}));
  CHECK(logger->most_recent("stochastic_depth/drop_rate").number() == doctest::Approx(0.4));
  CHECK(logger->most_recent("stochastic_depth/num_stochastic_layers").number() == 2);
}

TEST_CASE("find_lr() leaves the drop rates of a warm-up as they were") {
  Blocks blocks(2);
  TrainerOptions with = options_for(blocks, StochasticDepth({.drop_rate = 0.4, .drop_warmup = "1dur"}));
  with.max_duration = "8ba";
  Trainer trainer(std::move(with));
  trainer.find_lr({.num_batches = 5});
  CHECK(near(blocks.rates(), {0, 0}));
  trainer.fit();
  CHECK(near(blocks.rates(), {0.2, 0.4}));
  trainer.state().max_duration = "32ba";
  trainer.find_lr({.num_batches = 5});
  CHECK(near(blocks.rates(), {0.2, 0.4}));
}

TEST_CASE("A run with StochasticDepth that is cut off and resumed ends with the weights of one that is not") {
  for (const auto& [method, warmup] : {std::pair{StochasticMethod::BLOCK, Time("0.75dur")},
                                       {StochasticMethod::BLOCK, Time("0dur")},
                                       {StochasticMethod::SAMPLE, Time("0dur")}})
    check_cut_and_resumed(
        [&] {
          at::manual_seed(5);
          return options_for(Blocks(3), StochasticDepth({.stochastic_method = method,
                                                         .drop_rate = 0.5,
                                                         .drop_distribution = DropDistribution::UNIFORM,
                                                         .drop_warmup = warmup}));
        },
        3);
}

TEST_CASE("StochasticDepth warns if the model has no residual block") {
  const Warnings warnings;
  TrainerOptions with = tiny_options();
  with.algorithms = {StochasticDepth()};
  Trainer trainer(std::move(with));
  CHECK(warnings.say("StochasticDepth: has no effect"));
}

TEST_CASE("StochasticDepth refuses rates and warm-ups that are none") {
  CHECK_THROWS_WITH_AS(StochasticDepth({.drop_rate = 1.2}), "StochasticDepth: drop_rate must be from 0 to 1, got 1.2",
                       ConfigError);
  CHECK_THROWS_AS(StochasticDepth({.drop_rate = std::nan("")}), ConfigError);
  CHECK_THROWS_WITH_AS(StochasticDepth({.drop_warmup = "1ep"}), doctest::Contains("drop_warmup must be a share"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(StochasticDepth({.stochastic_method = StochasticMethod::SAMPLE, .drop_warmup = "0.1dur"}),
                       "StochasticDepth: drop_warmup must be 0dur with stochastic_method sample, got 0.1dur",
                       ConfigError);
}

}  // namespace
}  // namespace composer::test::stochastic_depth_test
