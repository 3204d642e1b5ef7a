#include <memory>
#include <string>

#include <doctest/doctest.h>

#include "composer/algorithms/gradient_clipping.h"
#include "composer/core/state_dict.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/models/gpt.h"
#include "composer/models/mlp.h"
#include "composer/optim/schedulers.h"
#include "composer/optim/sgd.h"
#include "composer/trainer/trainer.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

using namespace composer;
using namespace composer::test;

namespace {

struct Tagged : Callback {
  explicit Tagged(std::int64_t given) : tag(given) {}
  StateDict local_hparams() const override {
    StateDict options;
    options["tag"] = tag;
    return options;
  }
  std::int64_t tag;
};

TrainerOptions logged(const std::shared_ptr<loggers::InMemoryLogger>& memory) {
  TrainerOptions options = tiny_options();
  options.loggers = {memory};
  return options;
}

template <class T>
T value(const loggers::InMemoryLogger& memory, const std::string& key) {
  const auto found = memory.hyperparameters().find(key);
  REQUIRE_MESSAGE(found != memory.hyperparameters().end(), key);
  REQUIRE(std::holds_alternative<T>(found->second));
  return std::get<T>(found->second);
}

}  // namespace

TEST_CASE("A run logs the options of its trainer, optimizer, schedules and plug-ins, with their types") {
  auto memory = std::make_shared<loggers::InMemoryLogger>();
  TrainerOptions options = logged(memory);
  options.optimizer = optim::sgd({.lr = 0.25, .momentum = 0.5});
  options.schedulers = {optim::linear({.alpha_f = 0.5}), [](const optim::ScheduleContext&) { return 1.0; }};
  options.algorithms = {
      algorithms::GradientClipping({.clipping_type = algorithms::ClippingType::VALUE, .clipping_threshold = 2})};
  options.callbacks = {Tagged(3), Tagged(4)};
  Trainer(std::move(options)).fit();
  CHECK(value<double>(*memory, "optimizer/lr") == 0.25);
  CHECK(value<double>(*memory, "optimizer/momentum") == 0.5);
  CHECK(value<std::string>(*memory, "schedulers") == "linear(alpha_i=1, alpha_f=0.5, t_max=1.0dur), a function");
  CHECK(value<std::string>(*memory, "GradientClipping/clipping_type") == "value");
  CHECK(value<double>(*memory, "GradientClipping/clipping_threshold") == 2);
  CHECK(value<std::int64_t>(*memory, "Tagged/tag") == 3);
  CHECK(value<std::int64_t>(*memory, "Tagged-2/tag") == 4);
  CHECK(value<std::string>(*memory, "max_duration") == "1ep");
  CHECK(value<bool>(*memory, "deterministic_mode") == false);
}

TEST_CASE("The library's models tell their sizes") {
  const StateDict told =
      models::gpt({.vocabulary = 8, .sequence_length = 4, .width = 6, .depth = 1, .heads = 2})->local_hparams();
  CHECK(std::get<std::int64_t>(*told.find("width")) == 6);
  CHECK(std::get<bool>(*told.find("tied")));
  CHECK(std::get<std::string>(*models::mlp({.features = {4, 3, 2}})->local_hparams().find("features")) == "4 3 2");
}

TEST_CASE("Options are logged by the first fit alone, and not at all without auto_log_hparams") {
  struct Calls : LoggerDestination {
    void log_hyperparameters(std::span<const LogEntry> entries, const State&) override {
      for (const auto& [key, unused] : entries) calls += key == "max_duration";
    }
    int calls = 0;
  };
  for (const bool automatic : {true, false}) {
    CAPTURE(automatic);
    auto counter = std::make_shared<Calls>();
    TrainerOptions options = tiny_options();
    options.loggers = {counter};
    options.auto_log_hparams = automatic;
    Trainer trainer(std::move(options));
    trainer.fit();
    trainer.fit("1ep");
    CHECK(counter->calls == (automatic ? 1 : 0));
  }
}

TEST_CASE("What the program has logged under the name of an option stays") {
  struct Own : Callback {
    void init(const State&, Logger& logger) override {
      logger.log_hyperparameters({{"max_duration", std::string("long")}});
    }
  };
  auto memory = std::make_shared<loggers::InMemoryLogger>();
  TrainerOptions options = logged(memory);
  options.callbacks = {Own()};
  Trainer(std::move(options)).fit();
  CHECK(value<std::string>(*memory, "max_duration") == "long");
}

TEST_CASE("A run that goes on logs and warns of the options that have changed, and of no others") {
  const Folder folder;
  const auto options = [&](std::int64_t tag) {
    auto memory = std::make_shared<loggers::InMemoryLogger>();
    TrainerOptions options = logged(memory);
    options.save_folder = (folder / "ck").string();
    options.run_name = "r";
    options.callbacks = {Tagged(tag)};
    return std::pair(std::move(options), memory);
  };
  Trainer(options(3).first).fit();
  auto [changed, memory] = options(4);
  changed.max_duration = "2ep";
  const Warnings warnings;
  Trainer(std::move(changed)).fit();
  CHECK(warnings.say("Tagged/tag: 3 -> 4"));
  CHECK(value<std::int64_t>(*memory, "Tagged/tag") == 4);
  CHECK(value<std::string>(*memory, "max_duration") == "2ep");
  CHECK_FALSE(memory->hyperparameters().contains("optimizer/lr"));
}
