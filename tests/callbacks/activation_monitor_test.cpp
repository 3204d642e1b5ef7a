#include "composer/callbacks/activation_monitor.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/models/classifier.h"
#include "composer/trainer/trainer.h"
#include "composer/util/layer_watch.h"
#include "composer/util/operator_watch.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"

namespace composer::test::activation_monitor_test {
namespace {

namespace nn = torch::nn;
using callbacks::activation_statistics;
using callbacks::ActivationMonitor;

double number(const at::Tensor& tensor) { return tensor.item<double>(); }

TEST_CASE("the statistics of activations are means over the rows of the last dimension") {
  const at::Tensor x = at::tensor({1., 2., 3., 10., 4., 4., 4., 8.}).view({2, 4});
  const auto all = activation_statistics(x);
  const auto first = activation_statistics(x[0]), second = activation_statistics(x[1]);
  CHECK(number(first.kurtosis) == doctest::Approx(2.2304).epsilon(1e-4));
  CHECK(number(first.l2_norm) == doctest::Approx(std::sqrt(114.0)));
  CHECK(number(first.max) == 10);
  CHECK(number(first.average) == 4);
  CHECK(number(all.l2_norm) == doctest::Approx((number(first.l2_norm) + number(second.l2_norm)) / 2));
  CHECK(number(all.kurtosis) == doctest::Approx((number(first.kurtosis) + number(second.kurtosis)) / 2));
  CHECK(number(all.max) == 9);
  CHECK(number(activation_statistics(at::scalar_tensor(-2.0)).l2_norm) == 2);
}

struct Seen {
  std::string layer;
  LayerWatch::Side side;
  at::Tensor tensor;
};

template <class Forward>
std::vector<Seen> watch(const nn::Module& model, Forward forward) {
  std::vector<Seen> seen;
  const LayerWatch watch(model, [&](const std::string& layer, LayerWatch::Side side, const at::Tensor& tensor) {
    seen.push_back({layer, side, tensor.clone()});
  });
  forward();
  return seen;
}

struct Net : nn::Module {
  nn::Embedding words{register_module("words", nn::Embedding(7, 4))};
  nn::Linear plain{register_module("plain", nn::Linear(nn::LinearOptions(4, 5).bias(false)))};
  nn::Conv1d conv{register_module("conv", nn::Conv1d(nn::Conv1dOptions(3, 2, 1)))};
  nn::BatchNorm1d norm{register_module("norm", nn::BatchNorm1d(2))};
  at::Tensor gain{register_parameter("gain", at::full({1}, 2.))};
  at::Tensor forward(const at::Tensor& tokens) { return norm(conv(plain(words(tokens))).relu_()) * gain; }
};

TEST_CASE("layers are recognised by their weights, with what goes in and what comes out before it is written into") {
  const auto net = std::make_shared<Net>();
  const at::Tensor tokens = at::randint(7, {2, 3});
  const auto seen = watch(*net, [&] { net->forward(tokens); });
  std::vector<std::string> order;
  for (const Seen& one : seen) order.push_back(one.layer + (one.side == LayerWatch::Side::INPUT ? " in" : " out"));
  CHECK((order == std::vector<std::string>{"words out", "plain in", "plain out", "conv in", "conv out", "norm in",
                                           "norm out", " in", " out"}));
  const at::Tensor words = net->words(tokens), lines = net->plain(words), convolved = net->conv(lines);
  CHECK(seen.at(0).tensor.equal(words));
  CHECK(seen.at(1).tensor.reshape(-1).equal(words.reshape(-1)));
  CHECK(seen.at(2).tensor.reshape(-1).equal(lines.reshape(-1)));
  CHECK(seen.at(4).tensor.reshape(-1).equal(convolved.reshape(-1)));  // not what relu_ has left
  CHECK(seen.at(5).tensor.equal(convolved.relu()));
}

TEST_CASE("layers are recognised under autocast, which works with copies of their weights") {
  const auto net = std::make_shared<Net>();
  const at::Tensor tokens = at::randint(7, {2, 3});
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const auto seen = watch(*net, [&] { net->forward(tokens); });
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  std::vector<std::string> outputs;
  for (const Seen& one : seen)
    if (one.side == LayerWatch::Side::OUTPUT && (outputs.empty() || outputs.back() != one.layer))
      outputs.push_back(one.layer);
  CHECK((outputs == std::vector<std::string>{"words", "plain", "conv", "norm", ""}));
}

// A forward that has thrown leaves its watch behind until the callback is closed.
TEST_CASE("a watch that is left behind neither stops another one nor hears what that one hears") {
  struct Counts final : OperatorWatch::Listener {
    int begun = 0, ended = 0;
    void begin(const OperatorCall&) override { ++begun; }
    void end(const OperatorCall&) override { ++ended; }
  };
  Counts outer, inner;
  {
    const OperatorWatch left(outer);
    at::ones({1});
    const int before = outer.begun;
    CHECK(before > 0);
    {
      const OperatorWatch second(inner);
      at::ones({1});
    }
    CHECK(outer.begun == before);
    CHECK(inner.begun == before);
    at::ones({1});
    CHECK(outer.begun == 2 * before);
    CHECK(inner.begun == before);
  }
  CHECK(outer.begun == outer.ended);
  at::ones({1});
  CHECK(outer.begun == 2 * inner.begun);
}

std::shared_ptr<loggers::InMemoryLogger> log_of(callbacks::ActivationMonitorOptions options,
                                                std::int64_t microbatch = 0) {
  const auto logger = std::make_shared<loggers::InMemoryLogger>();
  TrainerOptions trainer = tiny_options();
  trainer.callbacks = {ActivationMonitor(std::move(options))};
  trainer.loggers = {logger};
  trainer.device_train_microbatch_size = microbatch;
  Trainer(std::move(trainer)).fit();
  return logger;
}

std::vector<std::int64_t> batches_of(const loggers::InMemoryLogger& log, const std::string& key) {
  std::vector<std::int64_t> batches;
  for (const auto& point : log.get_timeseries(key)) batches.push_back(point.timestamp.batch);
  return batches;
}

TEST_CASE("ActivationMonitor logs what the model computes when it is due, of the first microbatch") {
  for (const std::int64_t microbatch : {0, 2}) {
    const auto log = log_of({.interval = "3ba"}, microbatch);
    for (const char* side : {"input", "output"})
      for (const char* statistic : {"l2_norm", "average", "kurtosis", "max"})
        CHECK((batches_of(*log, join("activations/", statistic, "/module_", side, ".0")) ==
               std::vector<std::int64_t>{0, 3}));
    const at::NoGradGuard no_grad;
    const Batch batch = {{"input", tiny_data(16).at("input").narrow(0, 0, microbatch == 0 ? 4 : microbatch)}};
    const auto expected = activation_statistics(tiny_model()->forward(batch).only());
    CHECK(log->get_timeseries("activations/kurtosis/module_output.0").front().number() ==
          doctest::Approx(number(expected.kurtosis)));
    CHECK(log->get_timeseries("activations/l2_norm/module_output.0").front().number() ==
          doctest::Approx(number(expected.l2_norm)));
  }
  CHECK((batches_of(*log_of({.interval = "1ep"}), "activations/max/module_input.0") == std::vector<std::int64_t>{0}));
}

TEST_CASE("ActivationMonitor is due in batch 0 of a fit after time was reset, also if the fit before had one batch") {
  for (const char* first : {"1ba", "4ba"}) {
    CAPTURE(first);
    const auto logger = std::make_shared<loggers::InMemoryLogger>();
    TrainerOptions options = tiny_options();
    options.callbacks = {ActivationMonitor({.interval = "25ba"})};
    options.loggers = {logger};
    Trainer trainer(std::move(options));
    trainer.fit(Time::parse(first));
    trainer.fit({.duration = "4ba", .reset_time = true});
    CHECK((batches_of(*logger, "activations/max/module_input.0") == std::vector<std::int64_t>{0, 0}));
  }
}

TEST_CASE("ActivationMonitor leaves layers out whose name contains an ignored text") {
  for (const std::string& key : log_of({.interval = "1ep", .ignore_module_types = {"odu"}})->keys())
    CHECK(!key.starts_with("activations/"));
}

TEST_CASE("ActivationMonitor changes nothing of training") {
  const auto weights_after = [](Callbacks callbacks) {
    TrainerOptions options = tiny_options();
    options.callbacks = std::move(callbacks);
    options.loggers = {std::make_shared<loggers::InMemoryLogger>()};
    Trainer trainer(std::move(options));
    trainer.fit();
    return trainer.state().model->parameters();
  };
  const auto with = weights_after({ActivationMonitor({.interval = "1ba"})}), without = weights_after({});
  for (std::size_t i = 0; i < with.size(); ++i) CHECK(with[i].equal(without[i]));
}

TEST_CASE("ActivationMonitor refuses intervals that are neither batches nor epochs, and empty names") {
  CHECK_THROWS_AS(ActivationMonitor({.interval = "3sp"}), ConfigError);
  CHECK_THROWS_AS(ActivationMonitor({.interval = "0ba"}), ConfigError);
  CHECK_THROWS_AS(ActivationMonitor(callbacks::ActivationMonitorOptions{.ignore_module_types = {""}}), ConfigError);
}

}  // namespace
}  // namespace composer::test::activation_monitor_test
