#include "composer/trainer/hyperparameters.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "composer/algorithms/gradient_clipping.h"
#include "composer/core/error.h"
#include "composer/core/state_dict.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/models/gpt.h"
#include "composer/models/mlp.h"
#include "composer/optim/optimizer_state.h"
#include "composer/optim/schedulers.h"
#include "composer/optim/sgd.h"
#include "composer/trainer/trainer.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/text.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"
#include "tests/trainer/trainer_parts.h"

namespace composer::hyperparameters_test {

using namespace test;

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

TEST_CASE("A hyperparameter that is not UTF-8 prevents no checkpoint, and is equal to itself when the run goes on") {
  struct Own : Callback {
    void init(const State&, Logger& logger) override {
      logger.log_hyperparameters({{"file", std::string("caf\xE9")}, {"caf\xE9", std::int64_t{1}}});
    }
  };
  const Folder folder;
  const auto options = [&] {
    TrainerOptions options = tiny_options();
    options.callbacks = {Own()};
    options.save_folder = (folder / "ck").string();
    return options;
  };
  Trainer(options()).fit();
  TrainerOptions longer = options();
  longer.max_duration = "2ep";
  const Warnings warnings;
  Trainer trainer(std::move(longer));
  trainer.fit();
  CHECK(trainer.state().timestamp.epoch == 2);
  CHECK_FALSE(warnings.say("caf"));
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

TEST_CASE("A hyperparameter that changes in its 7th digit has changed, and the warning shows the digits that differ") {
  StateDict before, now;
  before["rate"] = 0.1, now["rate"] = 0.1 + 1e-9;
  before["large"] = 12345678., now["large"] = 12345679.;
  before["count"] = 3., now["count"] = std::int64_t{3};
  before["same"] = 1. / 3, now["same"] = 1. / 3;
  before["not a number"] = now["not a number"] = std::nan("");
  before["plain"] = 0.5, now["plain"] = 0.25;
  const StateDict changes = changed(before, now);
  std::vector<std::string> names;
  for (const auto& [name, value] : changes.entries()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"rate", "large", "plain"});
  const Warnings warnings;
  warn_of_changes(before, now);
  CHECK(warnings.say("rate: 0.1 -> 0.100000001\n"));
  CHECK(warnings.say("large: 12345678 -> 12345679\n"));
  CHECK(warnings.say("plain: 0.5 -> 0.25"));
}

TEST_CASE("A run that goes on with another number of ranks, or on GPUs, is told of none of it") {
  StateDict before, now;
  before["num_nodes"] = std::int64_t{2}, now["num_nodes"] = std::int64_t{1};
  before["num_cpus_per_node"] = std::int64_t{2}, now["num_cpus_per_node"] = std::int64_t{1};
  before["num_gpus_per_node"] = std::int64_t{8}, now["num_gpus_per_node"] = std::int64_t{4};
  const Warnings warnings;
  warn_of_changes(before, now);
  CHECK(warnings.texts.empty());
  before["rate"] = 0.1, now["rate"] = 0.2;
  warn_of_changes(before, now);
  REQUIRE(warnings.texts.size() == 1);
  CHECK(warnings.texts[0].ends_with("than it had:\n  rate: 0.1 -> 0.2"));
}

TEST_CASE("A resumed run warns of a schedule and a rate that change in their 7th digit") {
  const Folder folder;
  const auto run = [&](const char* until, double lr, double alpha) {
    TrainerOptions options = tiny_options();
    options.optimizer = optim::sgd({.lr = lr});
    options.schedulers = {optim::linear({.alpha_f = alpha})};
    options.save_folder = (folder / "ck").string();
    options.max_duration = Time::parse(until);
    Trainer(std::move(options)).fit();
  };
  run("1ep", 0.1, 0.5);
  const Warnings warnings;
  run("2ep", 0.10000001, 0.50000001);
  CHECK(warnings.say("optimizer/lr: 0.1 -> 0.10000001"));
  CHECK(warnings.say("alpha_f=0.50000001"));
}

// What a run is told that goes on to "2ep" with other options than it had.
template <class Before, class Now>
std::string told(const Before& before, const Now& now) {
  const Folder folder;
  const auto run = [&](const char* until, const auto& change) {
    TrainerOptions options = tiny_options();
    options.save_folder = (folder / "ck").string();
    options.max_duration = Time::parse(until);
    change(options);
    Trainer(std::move(options)).fit();
  };
  {
    const Warnings quiet;
    run("1ep", before);
  }
  const Warnings warnings;
  run("2ep", now);
  std::string all;
  for (const std::string& text : warnings.texts) all += text + '\n';
  return all;
}

TEST_CASE("A run that goes on is told of an option that was unset, or is unset now") {
  const auto unset = [](TrainerOptions&) {};
  const auto set = [](TrainerOptions& options) { options.iteration_length = "1ep"; };
  CHECK(contains(told(unset, set), "iteration_length: none -> 1ep"));
  CHECK(contains(told(set, unset), "iteration_length: 1ep -> none"));
  CHECK_FALSE(contains(told(unset, unset), "iteration_length"));
  CHECK_FALSE(contains(told(set, set), "iteration_length"));
}

TEST_CASE("A run that goes on is told of other parameter groups, and of what these have for options") {
  namespace lt = torch::optim;
  const auto in_groups = [](bool several) {
    return [=](TrainerOptions& options) {
      const std::vector<at::Tensor> all = options.model->parameters();
      std::vector<lt::OptimizerParamGroup> groups;
      const auto options_of = [](double momentum) {
        return std::make_unique<lt::SGDOptions>(lt::SGDOptions(0.1).momentum(momentum));
      };
      if (several)
        for (const at::Tensor& one : all) groups.emplace_back(std::vector{one}, options_of(0.3));
      else
        groups.emplace_back(all, options_of(0.9));
      options.optimizer = std::make_shared<lt::SGD>(groups, lt::SGDOptions(0.1));
    };
  };
  const std::string more = told(in_groups(false), in_groups(true));
  CHECK(contains(more, "optimizer/groups: 1 -> 2"));
  CHECK(contains(more, "optimizer/momentum: 0.9 -> none"));
  CHECK(contains(more, "optimizer/1/momentum: none -> 0.3"));
  const std::string fewer = told(in_groups(true), in_groups(false));
  CHECK(contains(fewer, "optimizer/groups: 2 -> 1"));
  CHECK(contains(fewer, "optimizer/momentum: none -> 0.9"));
  CHECK_FALSE(contains(told(in_groups(true), in_groups(true)), "optimizer"));
}

TEST_CASE(
    "A run that goes on with another rate of libtorch's optimizers is told of it, and not of what a schedule does") {
  namespace lt = torch::optim;
  const auto sgd = [](double lr) {
    return [=](TrainerOptions& options) {
      options.optimizer = std::make_shared<lt::SGD>(options.model->parameters(), lt::SGDOptions(lr));
      options.schedulers = {optim::linear({.alpha_f = 0.5, .t_max = "4ep"})};
    };
  };
  CHECK(contains(told(sgd(0.1), sgd(0.25)), "optimizer/lr: 0.1 -> 0.25"));
  CHECK_FALSE(contains(told(sgd(0.1), sgd(0.1)), "optimizer/lr"));
}

TEST_CASE("The warning of changed hyperparameters shows a hundred at most") {
  StateDict before, now;
  before["optimizer/groups"] = std::int64_t{1}, now["optimizer/groups"] = std::int64_t{200};
  before["optimizer/lr"] = 0.1;
  for (int i = 0; i < 200; ++i) now[join("optimizer/", i, "/lr")] = 0.1;
  const Warnings warnings;
  warn_of_changes(before, now);
  REQUIRE(warnings.texts.size() == 1);
  CHECK(std::ranges::count(warnings.texts[0], '\n') == 101);
  CHECK(warnings.say("and 102 others"));
}

TEST_CASE("A run that goes on from a checkpoint that was saved before its first fit logs what it is trained with") {
  for (const bool automatic : {true, false}) {
    CAPTURE(automatic);
    const Folder folder;
    const auto make = [&](bool auto_log_hparams) {
      auto memory = std::make_shared<loggers::InMemoryLogger>();
      TrainerOptions options = logged(memory);
      options.save_folder = (folder / "ck").string();
      options.algorithms = {algorithms::GradientClipping({.clipping_threshold = 2})};
      options.auto_log_hparams = auto_log_hparams;
      return std::pair(std::move(options), memory);
    };
    const Warnings quiet;
    Trainer(make(true).first).save_checkpoint("zero");
    auto [options, memory] = make(automatic);
    Trainer(std::move(options)).fit();
    CHECK(memory->hyperparameters().contains("enabled_algorithms/GradientClipping"));
    CHECK(memory->hyperparameters().contains("optimizer/lr") == automatic);
    auto [later, of_later] = make(true);
    later.max_duration = "2ep";
    Trainer(std::move(later)).fit();
    CHECK_FALSE(of_later->hyperparameters().contains("enabled_algorithms/GradientClipping"));
    CHECK(of_later->hyperparameters().contains("optimizer/lr") != automatic);
  }
}

TEST_CASE("A run that goes on with another grad_scaler is told of it, and not of the one that it had") {
  using O = optim::GradScalerOptions;
  const auto run = [](const Folder& folder, const char* until, std::optional<O> scaler) {
    TrainerOptions options = tiny_options();
    options.save_folder = (folder / "ck").string();
    options.max_duration = Time::parse(until);
    options.grad_scaler = scaler;
    Trainer(std::move(options)).fit();
  };
  const auto is_told = [&](std::optional<O> before, std::optional<O> now, const std::string& what) {
    const Folder folder;
    run(folder, "1ep", before);
    const Warnings warnings;
    run(folder, "2ep", now);
    return warnings.say(what);
  };
  CHECK(is_told({}, O{.init_scale = 1000.3}, "grad_scaler: none -> init_scale=1000.3, "));
  CHECK(is_told(O{}, O{.growth_interval = 7}, "growth_interval=2000 -> "));
  CHECK_FALSE(is_told(O{}, O{}, "grad_scaler"));
}

// Of another class, so that they are read from what serialize() writes.
template <class Options>
struct Derived : Options {
  explicit Derived(const Options& given) : Options(given) {}
  std::unique_ptr<torch::optim::OptimizerOptions> clone() const override { return std::make_unique<Derived>(*this); }
};

template <class Optimizer, class Options>
void check_serialized(const Options& options) {
  const auto of = [&](std::unique_ptr<torch::optim::OptimizerOptions> given) {
    const std::vector<torch::optim::OptimizerParamGroup> groups = {{{at::ones({2})}, std::move(given)}};
    return serialized_options(Optimizer(groups, options)).at(0);
  };
  const StateDict known = of(std::make_unique<Options>(options)),
                  written = of(std::make_unique<Derived<Options>>(options));
  CHECK(known.entries().size() >= 4);
  CHECK(known.entries().size() == written.entries().size());
  CHECK(changed(written, known).entries().empty());
}

TEST_CASE("Options of libtorch's optimizers are told as their serialize() writes them") {
  namespace libtorch = torch::optim;
  check_serialized<libtorch::Adam>(libtorch::AdamOptions(0.1).betas({0.8, 1. / 3}).eps(1e-7).amsgrad(true));
  check_serialized<libtorch::AdamW>(libtorch::AdamWOptions(0.1).betas({0.8, 0.99}).weight_decay(0.25));
  check_serialized<libtorch::SGD>(libtorch::SGDOptions(0.1).momentum(0.5).weight_decay(1. / 3).nesterov(true));
  check_serialized<libtorch::RMSprop>(libtorch::RMSpropOptions(0.1).alpha(0.5).momentum(0.25).centered(true));
}

TEST_CASE("What a log has of hyperparameters is logged once in a run, in whatever process") {
  const auto make = [] {
    TrainerOptions options = tiny_options();
    options.algorithms = {algorithms::GradientClipping({.clipping_threshold = 1})};
    return options;
  };
  StateDict saved, before;
  {
    TrainerParts first(make());
    first.hyperparameters.log_algorithms(/*goes_on=*/false);
    first.hyperparameters.log_options({});
    CHECK(first.log.hyperparameters().contains("enabled_algorithms/GradientClipping"));
    CHECK(first.log.hyperparameters().contains("max_duration"));
    CHECK(first.log.hyperparameters().contains("parameters"));
    before = first.hyperparameters.now();
    StateVisitor visit = StateVisitor::saving(saved);
    first.hyperparameters.visit_state(visit);
  }
  TrainerOptions options = make();
  options.max_duration = "2ep";
  TrainerParts second(std::move(options));
  StateVisitor visit = StateVisitor::loading(saved, "", StateVisitor::Of::THIS_RUN);
  second.hyperparameters.visit_state(visit);
  second.hyperparameters.log_algorithms(/*goes_on=*/true);
  second.hyperparameters.log_options(before);
  CHECK_FALSE(second.log.hyperparameters().contains("enabled_algorithms/GradientClipping"));
  CHECK(second.log.hyperparameters().contains("max_duration"));
  CHECK_FALSE(second.log.hyperparameters().contains("parameters"));
  const std::size_t all = second.log.hyperparameters().size();
  second.hyperparameters.log_options({});
  CHECK(second.log.hyperparameters().size() == all);
}

}  // namespace composer::hyperparameters_test
