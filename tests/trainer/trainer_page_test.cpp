// The code of docs/reference/trainer.md but for its blocks of options, and some of docs/reference/data.md;
// scripts/pages.py compares.
#include <csignal>
#include <exception>
#include <filesystem>
#include <iostream>

#include <torch/nn/modules/linear.h>

#include "composer/core/model.h"
#include "composer/formats/weights.h"
#include "composer/optim/schedulers.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"

namespace composer::test::trainer_page_test {
namespace {

TEST_CASE("A trainer whose options are the defaults of the page trains, evaluates and predicts") {
  TrainerOptions options{.model = tiny_model()};
  options.train_dataloader = tiny_loader(16, 4);
  options.eval_dataloader = tiny_loader(8, 4);
  options.optimizer = optim::sgd({.lr = 0.1});
  options.max_duration = "1ep";
  options.device = at::Device(at::kCPU);
  Trainer trainer(std::move(options));
  trainer.fit(FitOptions{});
  CHECK(trainer.state().timestamp.batch == 4);

  trainer.eval();
  const double accuracy = trainer.state().metrics.at("eval", "MulticlassAccuracy");
  CHECK(accuracy >= 0);
  trainer.eval(EvalOptions{});
  CHECK(trainer.predict(tiny_loader(8, 4), PredictOptions{}).size() == 2);
}

TEST_CASE("Options of fit() last beyond it, or do not, as the page about trainers says") {
  auto log = std::make_shared<EventLog>();
  TrainerOptions options = tiny_options();
  options.max_duration = "8ep";
  options.callbacks = {log};
  Trainer trainer(std::move(options));
  trainer.fit({.train_dataloader = tiny_loader(8, 4),
               .duration = "1ep",
               .schedulers = {[](const optim::ScheduleContext&) { return 0.5; }},
               .eval_dataloader = tiny_loader(4, 4),
               .device_train_microbatch_size = 2,
               .precision = Precision::AMP_BF16});
  CHECK(trainer.state().timestamp.batch == 2);
  CHECK_THROWS_WITH_AS(trainer.fit(), doctest::Contains("already reached 1ep"), ConfigError);
  trainer.fit("1ep");
  const State& state = trainer.state();
  CHECK(state.timestamp.batch == 4);
  CHECK(optim::learning_rates(*state.optimizer)[0] == doctest::Approx(0.05));
  CHECK(log->count("eval_start") == 2);
  CHECK(state.device_train_microbatch_size == 2);
  CHECK(state.precision == Precision::AMP_BF16);
}

TEST_CASE("The two fits of the page train one after the other") {
  TrainerOptions options = tiny_options();
  options.max_duration = {};
  Trainer trainer(std::move(options));
  trainer.fit("1ep");
  trainer.fit({.duration = "3ep", .reset_time = true});
  CHECK(trainer.state().timestamp.epoch == 3);
}

TEST_CASE(
    "A scale_schedule_ratio of fit() is of its max_duration, and of its schedulers for as long as they are used") {
  double ratio = 0;
  TrainerOptions options = tiny_options();
  options.max_duration = "4ep";
  Trainer trainer(std::move(options));
  const auto see = [&](const optim::ScheduleContext& now) {
    ratio = now.scale_schedule_ratio;
    return 1.0;
  };
  trainer.fit({.schedulers = {see}, .scale_schedule_ratio = 0.5});
  CHECK(trainer.state().timestamp.epoch == 2);
  ratio = 0;
  trainer.fit();
  CHECK(trainer.state().timestamp.epoch == 4);
  CHECK(ratio == 0.5);
}

TEST_CASE("A time known only at run time is parsed, or made of a number and a unit") {
  const std::string text = "10ep";
  const std::int64_t batches = 500;
  const Time parsed = Time::parse(text);
  const Time counted(batches, TimeUnit::BATCH);
  CHECK(parsed == Time("10ep"));
  CHECK(counted == Time("500ba"));
  CHECK_THROWS_AS(Time::parse("10epp"), TimeSyntaxError);
}

// docs/reference/data.md
TEST_CASE("Data in memory is a batch of tensors, of which row i belongs to sample i") {
  const Batch data = tiny_data(40);
  const at::Tensor &inputs = data["input"], &targets = data["target"];
  const Batch samples{{"input", inputs}, {"target", targets}};
  const auto loader = data::in_memory(samples, {.batch_size = 32});
  loader->seek(0, 0);
  const Batch batch = *loader->next();
  const at::Tensor same = batch["input"].unsqueeze(1).eq(inputs.unsqueeze(0)).all(2);
  CHECK(same.sum().item<std::int64_t>() == 32);
  CHECK(at::equal(batch["target"], targets.index_select(0, same.nonzero().select(1, 1))));
}

TEST_CASE("Predictions of a loader that does not shuffle are in the order of the data") {
  TrainerOptions options = tiny_options();
  options.max_duration = "1ba";
  Trainer trainer(std::move(options));
  const at::Tensor inputs = tiny_data(250)["input"];
  const auto loader = data::in_memory({{"input", inputs}}, {.batch_size = 100, .shuffle = false});
  const at::Tensor predictions = trainer.predict_all(loader).only();
  const at::NoGradGuard no_grad;
  State& state = trainer.state();
  CHECK(at::allclose(predictions, state.model->forward({{"input", inputs}}).only(), 1e-5, 1e-6));
}

bool interrupts = false;

TrainerOptions options_of(const std::shared_ptr<Model>& model) {
  TrainerOptions options = tiny_options();
  options.model = model;
  options.handle_signals = true;
  options.callbacks = {At([](Event event, const State& state) {
    if (interrupts && event == Event::BATCH_END && state.timestamp.batch == 2) std::raise(SIGINT);
  })};
  return options;
}

struct Net : models::Classifier {
  Net() : Classifier(torch::nn::Linear(4, 3), {.num_classes = 3}) {}
};

TEST_CASE(
    "Runs repeat with libtorch seeded before the model is made, and with the seed of the trainer alone they do not") {
  const auto weights = [](std::optional<std::uint64_t> libtorch, std::optional<std::uint64_t> seed) {
    if (libtorch) at::manual_seed(*libtorch);
    TrainerOptions options = tiny_options();
    options.model = std::make_shared<Net>();
    options.train_dataloader = data::in_memory(tiny_data(16), {.batch_size = 4});
    options.seed = seed;
    Trainer trainer(std::move(options));
    trainer.fit();
    return weights_of(trainer);
  };
  CHECK(at::equal(weights(5, 3), weights(5, 3)));
  CHECK(at::equal(weights(5, {}), weights(5, {})));
  CHECK_FALSE(at::equal(weights({}, 3), weights({}, 3)));
}

TEST_CASE("A fit that lasts until end() refuses schedules in shares of the run") {
  TrainerOptions options{.model = tiny_model()};
  options.optimizer = optim::sgd({.lr = 0.1});
  options.schedulers = {optim::linear()};
  options.device = at::Device(at::kCPU);
  Trainer trainer(std::move(options));
  CHECK_THROWS_AS(trainer.begin(), ConfigError);
}

namespace program {

int main(int argc, char** argv) try {
  at::manual_seed(1);
  const auto net = std::make_shared<Net>();
  Trainer trainer(options_of(net));
  trainer.fit();
  if (const int signal = trainer.interrupted_by()) return 128 + signal;
  save_weights(*net, argc > 1 ? argv[1] : "net.safetensors");
  return 0;
} catch (const std::exception& error) {
  std::cerr << "error: " << error.what() << '\n';
  return 1;
}

}  // namespace program

TEST_CASE("A program that asks interrupted_by() ends with 130 after Ctrl-C, and does not use what is unfinished") {
  const Folder folder;
  std::string name = "net", path = folder / "net.safetensors";
  std::vector<char*> arguments{name.data(), path.data()};
  interrupts = true;
  CHECK(program::main(2, arguments.data()) == 130);
  CHECK_FALSE(std::filesystem::exists(path));
  interrupts = false;
  CHECK(program::main(2, arguments.data()) == 0);
  CHECK(std::filesystem::exists(path));
}

}  // namespace
}  // namespace composer::test::trainer_page_test
