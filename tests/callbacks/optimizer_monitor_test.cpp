#include "composer/callbacks/optimizer_monitor.h"

#include <cmath>
#include <set>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/optim/sgd.h>

#include "composer/core/error.h"
#include "composer/core/on.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/optim/optimizer.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"

namespace composer::optimizer_monitor_test {

using callbacks::OptimizerMonitor;
using callbacks::OptimizerMonitorOptions;

namespace {

// The last value of each key that OptimizerMonitor logs.
std::map<std::string, double> logged(TrainerOptions options, OptimizerMonitorOptions monitor,
                                     const std::string& prefix = "l2_norm/") {
  const auto log = std::make_shared<loggers::InMemoryLogger>();
  options.loggers = {log};
  options.callbacks.add(OptimizerMonitor(monitor));
  Trainer(std::move(options)).fit();
  std::map<std::string, double> values;
  for (const std::string& key : log->keys())
    if (key.starts_with(prefix)) values[key.substr(prefix.size())] = log->most_recent(key).number();
  return values;
}

std::set<std::string> names_in(const std::map<std::string, double>& values) {
  std::set<std::string> names;
  for (const auto& [name, value] : values) names.insert(name);
  return names;
}

// The parameters and gradients of the last batch, as a callback sees them.
struct Seen {
  at::Tensor before, after, gradient;
  auto watch() {
    const auto values = [](const State& state) {
      return state.model->named_parameters()["module.weight"].detach().clone();
    };
    return Callbacks{on(Event::BATCH_START, [this, values](const State& state) { before = values(state); }),
                     on(Event::BATCH_END, [this, values](const State& state) {
                       after = values(state);
                       const at::Tensor grad = state.model->named_parameters()["module.weight"].grad();
                       gradient = grad.defined() ? grad.detach().clone() : grad;
                     })};
  }
};

double l2(const at::Tensor& tensor) { return tensor.to(at::kDouble).norm().item<double>(); }
auto near(double value) { return doctest::Approx(value).epsilon(1e-5); }

}  // namespace

TEST_CASE("OptimizerMonitor logs the norms of what the batch had and changed") {
  TrainerOptions options = test::tiny_options();
  options.optimizer = optim::adamw({.lr = 0.01, .weight_decay = 0.5});
  Seen seen;
  options.callbacks = seen.watch();
  auto values = logged(std::move(options), {.batch_log_interval = 1});
  CHECK(values["grad/module.weight"] == near(l2(seen.gradient)));
  CHECK(values["param/module.weight"] == near(l2(seen.after)));
  CHECK(values["update/module.weight"] == near(l2(seen.before - seen.after)));
  CHECK(values["update/module.weight"] > 0);
  CHECK(names_in(values) == std::set<std::string>{"grad/global", "grad/module.bias", "grad/module.weight",
                                                  "moment/global", "moment/module.bias", "moment/module.weight",
                                                  "param/global", "param/module.bias", "param/module.weight",
                                                  "update/global", "update/module.bias", "update/module.weight"});
  for (const std::string kind : {"grad", "moment", "param", "update"})
    CHECK(values[kind + "/global"] == near(std::hypot(values[kind + "/module.bias"], values[kind + "/module.weight"])));
}

TEST_CASE("OptimizerMonitor logs the moment that the optimizer keeps, if it keeps one") {
  struct Row {
    const char* name;
    optim::AnyOptimizer optimizer;
    bool has_moment;
  };
  for (auto& [name, optimizer, has_moment] :
       {Row{"sgd", optim::sgd({.lr = 0.1}), false}, Row{"momentum", optim::sgd({.lr = 0.1, .momentum = 0.9}), true},
        Row{"adam", optim::adam(), true}, Row{"lion", optim::lion(), true}, Row{"rmsprop", optim::rmsprop(), false}}) {
    CAPTURE(name);
    TrainerOptions options = test::tiny_options();
    options.optimizer = optimizer;
    const auto values = logged(std::move(options), {.batch_log_interval = 2});
    CHECK(values.contains("moment/module.weight") == has_moment);
    CHECK(values.contains("update/module.weight"));
  }
}

TEST_CASE("OptimizerMonitor logs gradients, parameters and updates of libtorch's optimizers") {
  TrainerOptions options = test::tiny_options();
  options.optimizer =
      std::make_shared<torch::optim::SGD>(options.model->parameters(), torch::optim::SGDOptions(0.5).momentum(0.9));
  Seen seen;
  options.callbacks = seen.watch();
  auto values = logged(std::move(options), {.batch_log_interval = 1});
  CHECK(values["update/module.weight"] == near(l2(seen.before - seen.after)));
  CHECK(values["grad/module.weight"] == near(l2(seen.gradient)));
  CHECK_FALSE(values.contains("moment/module.weight"));
}

TEST_CASE("OptimizerMonitor logs every batch_log_interval-th batch") {
  TrainerOptions options = test::tiny_options();
  options.max_duration = "8ba";
  const auto log = std::make_shared<loggers::InMemoryLogger>();
  options.loggers = {log};
  options.callbacks = {OptimizerMonitor({.batch_log_interval = 3})};
  Trainer(std::move(options)).fit();
  const auto series = log->get_timeseries("l2_norm/update/global");
  REQUIRE(series.size() == 2);
  CHECK(series[0].timestamp.batch == 3);
  CHECK(series[1].timestamp.batch == 6);
}

TEST_CASE("OptimizerMonitor logs the gradient of the whole batch when it is split into microbatches") {
  TrainerOptions whole = test::tiny_options(), split = test::tiny_options();
  split.device_train_microbatch_size = 2;
  const auto expected = logged(std::move(whole), {.batch_log_interval = 1});
  for (const auto& [name, value] : logged(std::move(split), {.batch_log_interval = 1})) {
    CAPTURE(name);
    CHECK(value == near(expected.at(name)));
  }
}

TEST_CASE("OptimizerMonitor logs no gradients if the optimizer frees them in the backward pass") {
  TrainerOptions options = test::tiny_options();
  options.optimizer = optim::adam({.step_in_backward = true});
  Seen seen;
  options.callbacks = seen.watch();
  auto values = logged(std::move(options), {.batch_log_interval = 1});
  CHECK_FALSE(values.contains("grad/module.weight"));
  CHECK_FALSE(values.contains("grad/global"));
  CHECK(values["update/module.weight"] == near(l2(seen.before - seen.after)));
  CHECK(values.contains("moment/module.weight"));
}

TEST_CASE("OptimizerMonitor leaves out frozen parameters and those without a gradient") {
  TrainerOptions options = test::tiny_options();
  options.model->named_parameters()["module.bias"].set_requires_grad(false);
  options.model->register_parameter("unused", at::ones({3}));
  const auto values = logged(std::move(options), {.batch_log_interval = 1});
  CHECK(names_in(values) == std::set<std::string>{"grad/global", "grad/module.weight", "param/global",
                                                  "param/module.weight", "update/global", "update/module.weight"});
}

TEST_CASE("OptimizerMonitor logs the norm of a sparse gradient") {
  struct SparseModel final : Model {
    SparseModel() { register_module("table", table); }
    Outputs forward(const Batch& batch) override { return table->forward(batch.at("target")); }
    Losses loss(const Outputs& outputs, const Batch&) override { return outputs.front().pow(2).sum(); }
    torch::nn::Embedding table{torch::nn::EmbeddingOptions(3, 2).sparse(true)};
  };
  TrainerOptions options = test::tiny_options();
  options.model = std::make_shared<SparseModel>();
  options.optimizer = optim::sgd({.lr = 0.001});
  double expected = 0;
  options.callbacks = {on(Event::BATCH_END, [&](const State& state) {
    const at::Tensor gradient = state.model->parameters().front().grad();
    CHECK(gradient.is_sparse());
    expected = l2(gradient.to_dense());
  })};
  const auto values = logged(std::move(options), {.batch_log_interval = 1, .log_cosines = true});
  CHECK(values.at("grad/table.weight") == near(expected));
  CHECK(values.contains("update/table.weight"));
}

TEST_CASE("OptimizerMonitor computes the norms of short floats in float") {
  TrainerOptions options = test::tiny_options();
  options.model->to(at::kHalf);
  options.callbacks = {on(Event::BATCH_END, [](const State& state) {
    for (const at::Tensor& parameter : state.model->parameters()) parameter.mutable_grad().fill_(60000);
  })};
  const auto cast = [](Batch batch) {
    batch.set("input", batch.at("input").to(at::kHalf));
    return batch;
  };
  options.train_dataloader = data::in_memory(cast(test::tiny_data(8)), {.batch_size = 4, .shuffle = false});
  const auto values = logged(std::move(options), {.batch_log_interval = 1});
  CHECK(values.at("param/module.weight") > 0);
  CHECK(values.at("grad/module.bias") == doctest::Approx(std::sqrt(3.) * 60000).epsilon(1e-3));
}

TEST_CASE("Cosines of short floats do not underflow") {
  TrainerOptions options = test::tiny_options();
  options.model->to(at::kHalf);
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : options.model->parameters()) parameter.zero_();
  }
  Batch data = test::tiny_data(8);
  data.set("input", data.at("input").mul(2e-3).to(at::kHalf));  // gradients and updates whose products are below 6e-8
  options.train_dataloader = data::in_memory(data, {.batch_size = 4, .shuffle = false});
  const auto values = logged(std::move(options), {.batch_log_interval = 1, .log_cosines = true}, "cosine/");
  CHECK(values.at("update_grad/module.weight") == doctest::Approx(1).epsilon(1e-2));
}

TEST_CASE("OptimizerMonitor logs only gradients, or only global norms, if asked to") {
  const auto gradients = logged(test::tiny_options(), {.log_optimizer_metrics = false, .batch_log_interval = 1});
  CHECK(names_in(gradients) == std::set<std::string>{"grad/global", "grad/module.bias", "grad/module.weight"});
  const auto global = logged(test::tiny_options(), {.batch_log_interval = 1, .per_parameter = false});
  CHECK(names_in(global) == std::set<std::string>{"grad/global", "param/global", "update/global"});
  CHECK(global.at("grad/global") == near(gradients.at("grad/global")));
}

TEST_CASE("OptimizerMonitor logs the cosines of gradients with updates and moments") {
  const OptimizerMonitorOptions monitor = {.batch_log_interval = 1, .log_cosines = true};
  auto plain = logged(test::tiny_options(), monitor, "cosine/");
  CHECK(names_in(plain) == std::set<std::string>{"update_grad/module.bias", "update_grad/module.weight"});
  CHECK(plain["update_grad/module.weight"] == near(1));  // steepest descent

  TrainerOptions options = test::tiny_options();
  options.optimizer = optim::adam({.lr = 0.01});
  Seen seen;
  options.callbacks = seen.watch();
  auto adam = logged(std::move(options), monitor, "cosine/");
  const at::Tensor update = seen.before - seen.after;
  CHECK(adam["update_grad/module.weight"] ==
        doctest::Approx((update * seen.gradient).sum().item<double>() / l2(update) / l2(seen.gradient)).epsilon(1e-4));
  CHECK(std::abs(adam["moment_grad/module.weight"]) < 1);
  CHECK(adam.contains("moment_grad/module.bias"));
}

TEST_CASE("The cosine with a gradient of zero is logged as 0 by OptimizerMonitor") {
  TrainerOptions options = test::tiny_options();
  options.callbacks = {on(Event::AFTER_BACKWARD, [](const State& state) {
    for (const at::Tensor& parameter : state.model->parameters()) parameter.mutable_grad().zero_();
  })};
  const auto values = logged(std::move(options), {.batch_log_interval = 1, .log_cosines = true}, "cosine/");
  CHECK(values.at("update_grad/module.weight") == 0);
}

TEST_CASE("OptimizerMonitor rejects an interval below 1, and cosines without the norms they need") {
  CHECK_THROWS_WITH_AS(OptimizerMonitor({.batch_log_interval = 0}),
                       "OptimizerMonitor: batch_log_interval must be >= 1, got 0", ConfigError);
  CHECK_THROWS_WITH_AS(OptimizerMonitor({.log_optimizer_metrics = false, .log_cosines = true}),
                       "OptimizerMonitor: log_cosines needs log_optimizer_metrics, which is false", ConfigError);
}

}  // namespace composer::optimizer_monitor_test
