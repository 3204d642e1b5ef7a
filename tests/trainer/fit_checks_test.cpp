// What is told when a fit begins, or at its first batch, instead of training for nothing or for ever.
#include <cmath>
#include <functional>
#include <limits>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "composer/core/error.h"
#include "composer/metrics/classification.h"
#include "composer/optim/schedulers.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::fit_checks_test {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Batches of 4 samples with 8 tokens each (or none), 4 an epoch.
TrainerOptions with_tokens(std::int64_t each) {
  TrainerOptions options = tiny_options();
  DataSpec spec{.dataloader = tiny_loader(16, 4)};
  spec.get_num_tokens_in_batch = [each](const Batch& batch) { return TokenCount(each * batch.front().size(0)); };
  options.train_dataloader = spec;
  return options;
}

TEST_CASE("A limit in iterations without an iteration_length is refused before any event") {
  TrainerOptions options = tiny_options();
  options.max_duration = "3iter";
  CHECK_THROWS_WITH_AS(Trainer(std::move(options)), doctest::Contains("max_duration: is 3iter"), ConfigError);
  Trainer trainer(tiny_options());
  CHECK_THROWS_WITH_AS(trainer.fit("1iter"), doctest::Contains("iteration_length"), ConfigError);
  CHECK(*trainer.state().max_duration == Time(1, TimeUnit::EPOCH));
  TrainerOptions iterations = tiny_options();
  iterations.max_duration = "2iter";
  iterations.iteration_length = "1ep";
  Trainer ends(std::move(iterations));
  ends.fit();
  CHECK(ends.state().timestamp.batch == 8);
}

TEST_CASE("What counts tokens is refused at the first batch if batches count none, by its name") {
  const Folder folder;
  struct Row {
    const char* option;
    std::function<void(TrainerOptions&)> count_tokens;
  };
  for (const auto& [option, count_tokens] : {
           Row{"max_duration: ", [](TrainerOptions& o) { o.max_duration = "100tok"; }},
           Row{"iteration_length: ",
               [](TrainerOptions& o) {
                 o.max_duration = "4ba";
                 o.iteration_length = "64tok";
               }},
           Row{"eval_interval: ",
               [](TrainerOptions& o) {
                 o.eval_dataloader = tiny_loader(4, 4);
                 o.eval_interval = "3tok";
               }},
           Row{"save_interval: ",
               [&](TrainerOptions& o) {
                 o.save_folder = folder / "ck";
                 o.save_interval = "3tok";
               }},
           Row{"schedulers: the one at index 1",
               [](TrainerOptions& o) {
                 o.schedulers = {optim::linear({.t_max = "8ba"}), optim::cosine_annealing({.t_max = "100tok"})};
               }},
           Row{"schedulers: the one at index 0",
               [](TrainerOptions& o) { o.schedulers = {optim::multi_step({.milestones = {"5000tok"}})}; }},
       }) {
    CAPTURE(option);
    TrainerOptions none = with_tokens(0), some = with_tokens(8);
    count_tokens(none);
    count_tokens(some);
    some.save_folder.clear();
    Trainer refused(std::move(none));
    const std::string text = error_of([&] { refused.fit(); });
    CAPTURE(text);
    CHECK(has(text, option));
    CHECK(has(text, "get_num_tokens_in_batch"));
    CHECK(refused.state().timestamp.batch == 0);
    Trainer trains(std::move(some));
    CHECK_NOTHROW(trains.fit());
  }
  TrainerOptions batches = with_tokens(0);
  batches.schedulers = {optim::linear(), optim::step({.step_size = "3ba"})};
  CHECK_NOTHROW(Trainer(std::move(batches)).fit());
}

TEST_CASE("A limit in epochs without a loader is refused, because no epoch would end") {
  for (const char* limit : {"2ep", "2iter"}) {
    TrainerOptions options = tiny_options();
    options.train_dataloader = {};
    options.max_duration = Time::parse(limit);
    options.iteration_length = "1ep";
    Trainer trainer(std::move(options));
    CHECK_THROWS_WITH_AS(trainer.begin(), doctest::Contains("no epoch ends without a train_dataloader"), ConfigError);
    trainer.begin({.duration = "2ba"});
    CHECK(trainer.step(tiny_data(4)));
    trainer.end();
  }
}

TEST_CASE("A fit without a limit leaves none behind") {
  TrainerOptions options = tiny_options();
  options.max_duration = std::nullopt;
  Trainer trainer(std::move(options));
  trainer.begin();
  CHECK(trainer.step());
  trainer.end();
  CHECK_FALSE(trainer.state().max_duration.has_value());
  CHECK_THROWS_WITH_AS(trainer.fit(), doctest::Contains("max_duration: is required"), ConfigError);
}

// Says that it has 8 batches, and gives 3.
class Short final : public Loader {
 public:
  void seek(std::int64_t, std::int64_t batch) override { next_ = batch; }
  std::optional<Batch> next() override { return next_++ < 3 ? std::optional(tiny_data(4)) : std::nullopt; }
  std::optional<std::int64_t> num_batches() const override { return 8; }

 private:
  std::int64_t next_ = 0;
};

TEST_CASE("A loader that gives fewer batches than it says is warned of once") {
  TrainerOptions options = tiny_options();
  options.train_dataloader = std::make_shared<Short>();
  options.max_duration = "3ep";
  Trainer trainer(std::move(options));
  const Warnings warnings;
  trainer.fit();
  CHECK(trainer.state().timestamp.batch == 9);
  CHECK(warnings.texts.size() == 1);
  CHECK(warnings.say("train loader: an epoch ended after 3 batches; num_batches() is 8"));
}

struct Odd : Metric {
  explicit Odd(bool has_fresh) : has_fresh(has_fresh) {}
  std::string name() const override { return "Odd"; }
  Better better() const override { return Better::LOWER; }
  void update(const Outputs&, const Batch&) override {}
  at::Tensor compute() const override { return {}; }
  void reset() override {}
  std::shared_ptr<Metric> fresh() const override { return has_fresh ? std::make_shared<Odd>(true) : nullptr; }
  bool has_fresh;
};

TrainerOptions evaluating(std::shared_ptr<Metric> metric) {
  Metrics metrics;
  metrics.add(std::move(metric));
  TrainerOptions options = tiny_options();
  options.eval_dataloader = Evaluator{.label = "e", .dataloader = tiny_loader(4, 4), .metrics = metrics};
  return options;
}

TEST_CASE("Null pointers are errors that name the option") {
  CHECK_THROWS_WITH_AS(optim::AnyOptimizer(std::shared_ptr<torch::optim::SGD>()),
                       "optimizer: is a null pointer; pass an optimizer, or a factory such as optim::adamw({...})",
                       ConfigError);
  TrainerOptions optimizer = tiny_options();
  optimizer.optimizer =
      optim::AnyOptimizer::Factory([](const optim::NamedParameters&) { return std::shared_ptr<optim::Optimizer>(); });
  CHECK_THROWS_WITH_AS(Trainer(std::move(optimizer)),
                       "optimizer: is a null pointer; pass an optimizer, or a factory such as optim::adamw({...})",
                       ConfigError);

  const std::function<double(const optim::ScheduleContext&)> nothing;
  for (const optim::Scheduler& null : {optim::Scheduler(), optim::Scheduler(nothing)}) {
    TrainerOptions schedulers = tiny_options();
    schedulers.schedulers = {optim::linear(), null};
    CHECK_THROWS_WITH_AS(Trainer(std::move(schedulers)), "schedulers: the one at index 1 is null", ConfigError);
    Trainer trainer(tiny_options());
    CHECK_THROWS_WITH_AS(trainer.fit({.schedulers = {null}}), "schedulers: the one at index 0 is null", ConfigError);
  }
  CHECK_THROWS_WITH_AS(Trainer(evaluating(nullptr)), doctest::Contains("metrics of e: the one at index 0 is null"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(Trainer(evaluating(std::make_shared<Odd>(false))),
                       doctest::Contains("metrics of e: fresh() of Odd returned a null pointer"), ConfigError);
}

TEST_CASE("A metric that computes nothing is an error that names it") {
  Trainer trainer(evaluating(std::make_shared<Odd>(true)));
  CHECK(has(error_of([&] { trainer.eval(); }), "e/Odd: compute() returned an undefined tensor"));
}

struct Bare : Model {
  explicit Bare(bool registers) {
    if (registers) register_module("relu", torch::nn::ReLU());
  }
  Outputs forward(const Batch& batch) override { return batch["input"]; }
  Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().sum(); }
};

TEST_CASE("A model without parameters is told from a missing optimizer, and from modules that nobody registered") {
  const auto text_of = [](std::shared_ptr<Model> model, bool looks_for_lr) {
    TrainerOptions options = tiny_options();
    options.model = std::move(model);
    Trainer trainer(std::move(options));
    return error_of([&] {
      if (looks_for_lr)
        trainer.find_lr();
      else
        trainer.fit();
    });
  };
  for (const bool looks_for_lr : {false, true}) {
    CHECK(has(text_of(std::make_shared<Bare>(false), looks_for_lr), "model: has no parameters"));
    CHECK(has(text_of(std::make_shared<Bare>(false), looks_for_lr), "no module is registered"));
    CHECK(has(text_of(std::make_shared<Bare>(false), looks_for_lr), "register_module"));
    CHECK(has(text_of(std::make_shared<Bare>(true), looks_for_lr), "relu"));
  }
}

struct NoGradient : Model {
  explicit NoGradient(bool defined) : is_defined(defined) { register_module("fc", fc); }
  Outputs forward(const Batch& batch) override { return fc->forward(batch["input"]); }
  Losses loss(const Outputs& outputs, const Batch&) override {
    if (!is_defined) return {{"shape", outputs.only().sum()}, {"colour", at::Tensor()}};
    return {{"shape", outputs.only().sum().detach()}, {"colour", at::zeros({})}};
  }
  torch::nn::Linear fc{4, 3};
  bool is_defined;
};

TEST_CASE("A loss that nothing can be learnt from is an error that names it") {
  const auto text_of = [](bool defined) {
    TrainerOptions options = tiny_options();
    options.model = std::make_shared<NoGradient>(defined);
    return error_of([&] { Trainer(std::move(options)).fit(); });
  };
  CHECK(has(text_of(true), "Model::loss: no gradient flows from shape, colour"));
  CHECK(has(text_of(false), "Model::loss: colour is an undefined tensor"));
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST_CASE("A schedule that gives no rate at the start is refused, and the refused fit changes nothing") {
  for (const double bad : {kNan, kInf, -0.5}) {
    CAPTURE(bad);
    const auto schedule = [bad](const optim::ScheduleContext&) { return bad; };
    TrainerOptions options = tiny_options();
    options.schedulers = {optim::linear(), schedule};
    CHECK(has(error_of([&] { Trainer(std::move(options)).fit(); }), join("schedulers: the one at index 1 gave ", bad)));

    Trainer trainer(tiny_options());
    trainer.fit("2ba");
    const Timestamp before = trainer.state().timestamp;
    CHECK_THROWS_AS(trainer.fit({.duration = "7ep",
                                 .reset_time = true,
                                 .schedulers = {schedule},
                                 .eval_dataloader = tiny_loader(4, 4),
                                 .device_train_microbatch_size = 2}),
                    ConfigError);
    CHECK(trainer.state().timestamp == before);
    CHECK(to_string(*trainer.state().max_duration) == "2ba");
    CHECK(trainer.state().device_train_microbatch_size == 0);
    CHECK(optim::learning_rates(*trainer.state().optimizer)[0] == 0.1);
    CHECK_THROWS_AS(trainer.eval(), ConfigError);  // there is no evaluator
  }
}

TEST_CASE("A schedule that throws is told before the fit changes anything") {
  Trainer trainer(tiny_options());
  const auto broken = [](const optim::ScheduleContext&) -> double { throw std::runtime_error("broken"); };
  CHECK_THROWS_WITH(trainer.fit({.duration = "7ep", .schedulers = {broken}}), "broken");
  CHECK(to_string(*trainer.state().max_duration) == "1ep");
}

TEST_CASE("A schedule that gives no rate later ends the run before the batch that would train with it") {
  TrainerOptions options = tiny_options();
  options.schedulers = {[](const optim::ScheduleContext& now) { return now.timestamp.batch < 2 ? 1 : kNan; }};
  Trainer trainer(std::move(options));
  const std::string text = error_of([&] { trainer.fit(); });
  CAPTURE(text);
  CHECK(has(text, "schedulers: the one at index 0 gave nan at epoch 0, batch 2"));
  CHECK(trainer.state().timestamp.batch == 2);
  CHECK(at::isfinite(weights_of(trainer)).all().item<bool>());
}

TEST_CASE("What a schedule gives beyond the end of a run that overshoots does not matter") {
  TrainerOptions options = tiny_options();
  options.max_duration = "10sp";  // of batches of 4
  options.schedulers = {[](const optim::ScheduleContext& now) {
    return std::pow(1 - static_cast<double>(now.timestamp.sample) / 10, 0.9);
  }};
  Trainer trainer(std::move(options));
  CHECK_NOTHROW(trainer.fit());
  CHECK(trainer.state().timestamp.sample == 12);
  CHECK(std::isfinite(optim::learning_rates(*trainer.state().optimizer)[0]));
}

TEST_CASE("A limit before the start is refused as such") {
  TrainerOptions options = tiny_options();
  options.max_duration = "-1ep";
  CHECK_THROWS_WITH_AS(Trainer(std::move(options)), "max_duration: must be >= 0, got -1ep", ConfigError);
  Trainer trainer(tiny_options());
  CHECK_THROWS_WITH_AS(trainer.fit("-2ba"), "duration: must be >= 0, got -2ba", ConfigError);
}

TEST_CASE("Microbatches that are larger than the batch are warned of") {
  const auto warned = [](MicrobatchSize size) {
    TrainerOptions options = tiny_options();
    options.device_train_microbatch_size = size;
    Trainer trainer(std::move(options));
    const Warnings warnings;
    trainer.fit();
    return warnings.say("device_train_microbatch_size: is 100, and a batch of the train loader has 4 samples");
  };
  CHECK(warned(100));
  CHECK_FALSE(warned(4));
  CHECK_FALSE(warned(2));
}

}  // namespace
}  // namespace composer::test::fit_checks_test
