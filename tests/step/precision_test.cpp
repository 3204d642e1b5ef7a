#include "composer/algorithms/gradient_clipping.h"
#include "composer/core/algorithm.h"
#include "composer/core/error.h"
#include "tests/battery/host_reads.h"
#include "tests/support/doctest.h"
#include "tests/support/skippable_sgd.h"
#include "tests/support/tiny.h"

namespace composer::test::precision_test {
namespace {

// Makes the gradients of some batches infinite.
class Overflow final : public Algorithm {
 public:
  explicit Overflow(std::int64_t batch) : batch_(batch) {}
  EventSet events() const override { return {Event::AFTER_BACKWARD}; }
  void apply(Event, State& state, Logger&) override {
    if (state.timestamp.batch != batch_) return;
    for (const at::Tensor& parameter : state.model->parameters()) parameter.grad().fill_(INFINITY);
  }

 private:
  std::int64_t batch_;
};

TrainerOptions scaled_options(std::optional<optim::GradScalerOptions> scaling) {
  TrainerOptions options = tiny_options();
  options.optimizer = skippable_sgd(0.1);
  options.grad_scaler = scaling;
  options.device_train_microbatch_size = 3;
  return options;
}

TEST_CASE("Scaling the loss by a power of two changes no bit of the weights, the loss or what clipping sees") {
  const auto train = [](std::optional<optim::GradScalerOptions> scaling) {
    TrainerOptions options = scaled_options(scaling);
    options.algorithms = {algorithms::GradientClipping({.clipping_threshold = 0.05})};
    std::vector<at::Tensor> losses;
    options.callbacks = {std::make_shared<At>([&](Event event, const State& state) {
      if (event == Event::BATCH_END) losses.push_back(state.batch_loss.at("total"));
    })};
    Trainer trainer(std::move(options));
    trainer.fit();
    losses.push_back(weights_of(trainer));
    return losses;
  };
  const auto plain = train({}), scaled = train(optim::GradScalerOptions{});
  REQUIRE(plain.size() == 5);
  for (std::size_t i = 0; i < plain.size(); ++i) CHECK(at::equal(plain[i], scaled[i]));
}

TEST_CASE("A batch whose gradients overflow is counted, and changes no weight") {
  TrainerOptions options = scaled_options(optim::GradScalerOptions{});
  options.algorithms = {Overflow(2)};
  std::vector<at::Tensor> weights;
  options.callbacks = {std::make_shared<At>([&](Event event, const State& state) {
    if (event != Event::BATCH_START && event != Event::FIT_END) return;
    std::vector<at::Tensor> all;
    for (const at::Tensor& parameter : state.model->parameters()) all.push_back(parameter.detach().flatten());
    weights.push_back(at::cat(all));
  })};
  Trainer trainer(std::move(options));
  trainer.fit();
  REQUIRE(weights.size() == 5);
  CHECK_FALSE(at::equal(weights[1], weights[2]));
  CHECK(at::equal(weights[2], weights[3]));
  CHECK_FALSE(at::equal(weights[3], weights[4]));
  CHECK(trainer.state().timestamp.batch == 4);
}

TEST_CASE("A step with scaled losses reads no tensor on the host") {
  auto reads = std::make_shared<HostReads>();
  TrainerOptions options = scaled_options(optim::GradScalerOptions{});
  options.callbacks = {reads};
  Trainer(std::move(options)).fit();
  CHECK(reads->batches() == 4);
  CHECK(reads->count() == 0);
}

TEST_CASE("Scaling is refused before the run for an optimizer that cannot skip, and for bad options") {
  TrainerOptions options = tiny_options();
  const auto parameters = options.model->parameters();
  options.optimizer = std::make_shared<torch::optim::SGD>(parameters, 0.1);
  options.grad_scaler.emplace();
  auto log = std::make_shared<EventLog>();
  options.callbacks = {log};
  Trainer trainer(std::move(options));
  CHECK_THROWS_AS(trainer.fit(), ConfigError);
  CHECK(log->count("fit_start") == 0);

  options = scaled_options(optim::GradScalerOptions{.growth_interval = 0});
  CHECK_THROWS_AS(Trainer(std::move(options)), ConfigError);
}

TEST_CASE("Stepping in backward is refused where backward is not the end of it") {
  const auto fit = [](void (*spoil)(TrainerOptions&)) {
    TrainerOptions options = tiny_options();
    options.optimizer = optim::sgd({.lr = 0.1, .step_in_backward = true});
    spoil(options);
    Trainer(std::move(options)).fit();
  };
  CHECK_NOTHROW(fit([](TrainerOptions&) {}));
  CHECK_THROWS_AS(fit([](TrainerOptions& o) { o.device_train_microbatch_size = "auto"; }), ConfigError);
  CHECK_THROWS_AS(fit([](TrainerOptions& o) { o.device_train_microbatch_size = 2; }), ConfigError);
  CHECK_THROWS_AS(fit([](TrainerOptions& o) { o.grad_scaler.emplace(); }), ConfigError);
  CHECK_THROWS_AS(fit([](TrainerOptions& o) { o.tune = true; }), ConfigError);
}

TEST_CASE("Our optimizers skip a step whose gradients overflow, with their state") {
  for (const optim::AnyOptimizer& optimizer : {optim::sgd({.lr = 0.1, .momentum = 0.9}), optim::adamw()}) {
    const auto train = [&](bool skips) {  // the third batch overflows, or is not there
      TrainerOptions options = scaled_options(optim::GradScalerOptions{});
      options.optimizer = optimizer;
      options.train_dataloader = {};
      options.max_duration = std::nullopt;
      if (skips) options.algorithms = {Overflow(2)};
      Trainer trainer(std::move(options));
      trainer.begin();
      for (int i = 0; i < 4; ++i)
        if (skips || i != 2) trainer.step(tiny_data(4 + i));
      trainer.end();
      return weights_of(trainer);
    };
    CHECK(at::equal(train(true), train(false)));
  }
}

TEST_CASE("amp_fp16 is refused on a CPU") {
  TrainerOptions options = tiny_options();
  options.precision = Precision::AMP_FP16;
  CHECK_THROWS_WITH_AS(Trainer(std::move(options)), doctest::Contains("on a CPU"), ConfigError);
}

}  // namespace
}  // namespace composer::test::precision_test
