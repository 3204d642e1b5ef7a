// Ranks agree on everything that decides what follows: every option of a trainer, a fit and an evaluator is compared
// between ranks, unless its description says why it is free to differ. So is what the hyperparameters say of a trainer.
// Options that have a text form are changed by it; the others have a row here.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "composer/algorithms/ema.h"
#include "composer/checkpoint/described_options.h"
#include "composer/core/error.h"
#include "composer/dist/described_options.h"
#include "composer/loggers/format.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/optim/schedulers.h"
#include "composer/trainer/call_options.h"
#include "composer/trainer/trainer_options.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/sandbox.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"
#include "tests/trainer/fits_in_ranks.h"

namespace composer::test::ranks_options_test {
namespace {

// Changes of options, by name: of those without a text form, and of those that need another beside them.
template <class Options>
using Changes = std::map<std::string, std::function<void(Options&)>>;
// Why an option cannot be tried here, by name.
using Untried = std::map<std::string, std::string>;

// What the value of an option is told as, by name, where that is not its name.
using ToldAs = std::map<std::string, std::string>;
std::string name_in(const ToldAs& told_as, const std::string& name) {
  const auto found = told_as.find(name);
  return found == told_as.end() ? name : found->second;
}

// A text that the option reads as another value than its default.
template <class Options>
std::string other_text(const Option<Options>& option) {
  const std::map<std::string, std::string> of_type = {
      {"whole number", "1"}, {"number", "2"}, {"time", "2ep"}, {"text", "other"}};
  std::string rest = option.type;
  while (!rest.empty()) {
    const std::size_t end = rest.find(" or ");
    const std::string type = rest.substr(0, end);
    rest = end == std::string::npos ? "" : rest.substr(end + 4);
    const auto known = of_type.find(type);
    std::string text = known == of_type.end() ? type : known->second;
    if (text != option.default_text) return text;
  }
  FAIL("no other value of ", option.name);
  return {};
}

template <class Options>
std::function<void(Options&)> change_of(const Option<Options>& option, const Changes<Options>& changes) {
  if (const auto given = changes.find(option.name); given != changes.end()) return given->second;
  REQUIRE_MESSAGE(option.read, option.name, " has no text form: give it a row");
  return [&option](Options& options) { option.read(options, other_text(option)); };
}

// What both ranks are given, and what rank 1 is given in addition.
struct Given {
  std::function<void(TrainerOptions&)> trainer = [](TrainerOptions&) {};
  std::function<void(FitOptions&)> fit = [](FitOptions&) {};
};

std::vector<std::string> errors_of(const Folder& folder, const Given& both, const Given& rank_1) {
  return dist::test::errors_in_ranks(2, [&](const WorldPointer& world) {
    const Warnings warnings;
    TrainerOptions options = tiny_options();
    options.model = tiny_model(/*train_metrics=*/true);
    options.eval_dataloader = tiny_loader(8, 4);
    options.schedulers = {optim::linear({.alpha_f = 0.5})};
    options.save_folder = folder / "ck";
    options.run_name = "two";
    options.device.reset();
    FitOptions fit;
    both.trainer(options), both.fit(fit);
    if (world->rank() == 1) rank_1.trainer(options), rank_1.fit(fit);
    options.world = world;
    Trainer trainer(std::move(options));
    trainer.fit(std::move(fit));
  });
}

std::map<std::string, std::string> hyperparameters(const std::function<void(TrainerOptions&)>& change) {
  const Warnings warnings;
  const auto memory = std::make_shared<loggers::InMemoryLogger>();
  TrainerOptions options = tiny_options();
  options.schedulers = {optim::linear({.alpha_f = 0.5})};
  options.loggers = {memory};
  options.seed = 7;
  change(options);
  Trainer(std::move(options)).fit();
  std::map<std::string, std::string> texts;
  for (const auto& [name, value] : memory->hyperparameters()) texts[name] = loggers::format_unquoted(value);
  return texts;
}

// What a run says that goes on with other options than it had, or the error of one that cannot.
std::string told(const std::function<void(TrainerOptions&)>& before, const std::function<void(TrainerOptions&)>& now) {
  const Sandbox here;
  const Folder folder;
  Warnings warnings;
  const auto run = [&](const char* until, const std::function<void(TrainerOptions&)>& change) {
    TrainerOptions options = tiny_options();
    options.eval_dataloader = tiny_loader(8, 4);
    options.schedulers = {optim::linear({.alpha_f = 0.5, .t_max = "8ep"})};
    options.save_folder = folder / "ck";
    options.seed = 7;
    options.max_duration = Time::parse(until);
    change(options);
    Trainer(std::move(options)).fit();
  };
  run("3ep", before);
  warnings.texts.clear();
  const std::string error = error_of([&] { run("4ep", now); });
  std::string all = error == "no error" ? "" : error;
  for (const std::string& text : warnings.texts)
    if (text.find("checkpoint: the run goes on with") != std::string::npos) all += text + '\n';
  return all;
}

// Both ranks are given `both`, and rank 1 what `given` makes of another value of one option.
template <class Options>
void check_compared(const std::vector<Option<Options>>& list, const Changes<Options>& changes, const Untried& untried,
                    const ToldAs& told_as, const std::function<Given(const std::function<void(Options&)>&)>& given,
                    const Given& both = {}) {
  for (const Option<Options>& option : list) {
    CAPTURE(option.name);
    const bool is_free = option.rules.compared == Compared::NEVER;
    CHECK(is_free == !option.rules.free.empty());
    if (untried.contains(option.name)) continue;
    const Sandbox here;
    const Folder folder;
    for (const std::string& error : errors_of(folder, both, given(change_of(option, changes)))) {
      CAPTURE(error);
      const std::string differs = join("the ranks differ: rank 0 has ", name_in(told_as, option.name));
      const bool says_it =
          error.find(differs + " = ") != std::string::npos || error.find(differs + ": ") != std::string::npos;
      CHECK(says_it == !is_free);
      CHECK(error.empty() == is_free);
    }
  }
}

const Changes<TrainerOptions>& changes_of_trainer() {
  using O = TrainerOptions;
  static const Changes<O> changes = {
      {"model", [](O& o) { o.model = model_with_memory(); }},
      {"train_dataloader", [](O& o) { o.train_dataloader = tiny_loader(12, 4); }},
      {"eval_dataloader", [](O& o) { o.eval_dataloader = tiny_loader(4, 4); }},
      {"optimizer", [](O& o) { o.optimizer = optim::sgd({.lr = 0.2}); }},
      {"schedulers", [](O& o) { o.schedulers = {optim::linear({.alpha_f = 0.25})}; }},
      {"algorithms", [](O& o) { o.algorithms = {algorithms::EMA()}; }},
      {"algorithm_passes", [](O& o) { o.algorithm_passes.emplace_back([](Event, auto&) {}); }},
      {"callbacks", [](O& o) { o.callbacks.add(EventLog()); }},
      {"device", [](O& o) { o.device = at::Device(at::kCPU); }},
      {"grad_scaler", [](O& o) { o.grad_scaler.emplace(); }},
      {"distributed", [](O& o) { o.distributed.virtual_shards = 2; }},
      {"load_rename", [](O& o) { o.load_rename = {{.from = "a", .to = "b"}}; }},
  };
  return changes;
}

TEST_CASE("Every option of a trainer is compared between ranks, or free to differ for a reason") {
  using O = TrainerOptions;
  check_compared<O>(trainer_options(), changes_of_trainer(),
                    {{"allow_tf32", "has no meaning on a CPU"},
                     {"deterministic_mode", "threads of one process have it in common"},
                     {"cuda_graph", "is refused with several ranks"},
                     {"world", "makes the ranks"},
                     {"loggers", "of other ranks are not even kept"},
                     {"save_best", "needs a metric"},
                     {"resume_with", "needs another trainer"},
                     {"handle_signals", "is off in tests"}},
                    {{"model", "module.weight"},
                     {"train_dataloader", "train_samples"},
                     {"eval_dataloader", "batches of evaluator eval"},
                     {"optimizer", "optimizer/lr"},
                     {"distributed", "virtual_shards"}},
                    [](const std::function<void(O&)>& change) { return Given{.trainer = change}; });
}

TEST_CASE("Every option of a trainer is a hyperparameter and told when a run goes on, or is not for a reason") {
  using O = TrainerOptions;
  const std::set<std::string> same_here = {"device", "allow_tf32", "deterministic_mode"};
  const ToldAs told_as = {{"model", "parameters"},
                          {"train_dataloader", "train_samples"},
                          {"optimizer", "optimizer/lr"},
                          {"distributed", "distributed/virtual_shards"}};
  const std::map<std::string, std::string> not_in_list = {{"model", "does not fit the model"},
                                                          {"seed", "the run goes on with its seed"}};
  const auto unchanged = hyperparameters([](O&) {});
  CHECK(hyperparameters([](O&) {}) == unchanged);
  const auto same = [](O&) {};
  const std::string only =
      "checkpoint: the run goes on with other hyperparameters than it had:\n  max_duration: 3ep -> 4ep\n";
  CHECK(told(same, same) == only);
  for (const Option<O>& option : trainer_options()) {
    if (!option.is_logged() || same_here.contains(option.name)) continue;
    CAPTURE(option.name);
    REQUIRE((option.tell || option.value));
    const auto change = change_of(option, changes_of_trainer());
    const std::string name = name_in(told_as, option.name);
    const auto changed = hyperparameters(change);
    REQUIRE(changed.contains(name));
    CHECK((!unchanged.contains(name) || changed.at(name) != unchanged.at(name)));
    if (option.name == "max_duration") continue;
    const auto own = not_in_list.find(option.name);
    const std::string expected = own == not_in_list.end() ? join("\n  ", name, ": ") : own->second;
    for (const std::string& text : {told(same, change), told(change, same)}) {  // there and back
      CAPTURE(text);
      CHECK(text.find(expected) != std::string::npos);
    }
  }
}

TEST_CASE("Every option of a fit is compared between ranks, or free to differ for a reason") {
  using O = FitOptions;
  const Changes<O> changes = {
      {"train_dataloader", [](O& o) { o.train_dataloader = tiny_loader(12, 4); }},
      {"train_dataloader_label",
       [](O& o) { o.train_dataloader = tiny_loader(16, 4), o.train_dataloader_label = "other"; }},
      {"schedulers", [](O& o) { o.schedulers = {optim::linear({.alpha_f = 0.25})}; }},
      {"scale_schedule_ratio",
       [](O& o) { o.schedulers = {optim::linear({.alpha_f = 0.5})}, o.scale_schedule_ratio = 2; }},
      {"step_schedulers_every_batch",
       [](O& o) { o.schedulers = {optim::linear({.alpha_f = 0.5})}, o.step_schedulers_every_batch = false; }},
      {"eval_dataloader", [](O& o) { o.eval_dataloader = tiny_loader(4, 4); }},
      {"eval_interval", [](O& o) { o.eval_dataloader = tiny_loader(8, 4), o.eval_interval = "1ba"; }},
      {"eval_subset_num_batches", [](O& o) { o.eval_dataloader = tiny_loader(8, 4), o.eval_subset_num_batches = 1; }},
      {"precision", [](O& o) { o.precision = Precision::AMP_BF16; }},
  };
  check_compared<O>(fit_options(), changes, {},
                    {{"train_dataloader", "train_samples"},
                     {"train_subset_num_batches", "batches in train_dataloader"},
                     {"duration", "max_duration"},
                     {"schedulers", "factors of schedulers"},
                     {"scale_schedule_ratio", "max_duration"},
                     {"step_schedulers_every_batch", "factors of schedulers"},
                     {"eval_dataloader", "batches of evaluator eval"},
                     {"eval_interval", "evaluator"},
                     {"eval_subset_num_batches", "batches of evaluator eval"},
                     {"precision", "precision of this fit"}},
                    [](const std::function<void(O&)>& change) { return Given{.fit = change}; });
}

TEST_CASE("Every field of an evaluator is compared between ranks, or free to differ for a reason") {
  using O = Evaluator;
  const Changes<O> changes = {
      {"dataloader", [](O& o) { o.dataloader = tiny_loader(4, 4); }},
      {"metrics", [](O& o) { o.metrics = Metrics(); }},
      {"metric_names", [](O& o) { o.metric_names = {"Multi.*"}; }},
      {"eval_interval", [](O& o) { o.eval_interval = "1ba"; }},
  };
  const auto evaluated = [](const std::function<void(O&)>& change) {
    return [=](TrainerOptions& options) {
      Evaluator evaluator{.label = "own", .dataloader = tiny_loader(8, 4)};
      change(evaluator);
      options.eval_dataloader = evaluator;
    };
  };
  check_compared<O>(evaluator_options(), changes, {},
                    {{"label", "evaluator"},
                     {"dataloader", "batches of evaluator own"},
                     {"metrics", "evaluator"},
                     {"metric_names", "evaluator"},
                     {"eval_interval", "evaluator"},
                     {"subset_num_batches", "batches of evaluator own"}},
                    [&](const std::function<void(O&)>& change) { return Given{.trainer = evaluated(change)}; },
                    {.trainer = evaluated([](O&) {})});
}

TEST_CASE("Every option of ranks is compared between them") {
  using O = dist::DistributedOptions;
  const auto given = [](const std::function<void(O&)>& change) {
    return Given{.trainer = [=](TrainerOptions& options) { change(options.distributed); }};
  };
  std::vector<Option<O>> list = dist::distributed_options(), with_zero;
  const auto sharded = std::ranges::find(list, "sharded_checkpoints", &Option<O>::name);
  REQUIRE(sharded != list.end());
  with_zero.push_back(*sharded);
  list.erase(sharded);
  check_compared<O>(list, {{"virtual_shards", [](O& o) { o.virtual_shards = 2; }}}, {}, {}, given);
  check_compared<O>(with_zero, {}, {}, {}, given, given([](O& o) { o.zero_stage = 1; }));
}

TEST_CASE("What a trainer saves is what its save_... options say, which are those of CheckpointSaver") {
  const std::vector<Option<TrainerOptions>>& of_trainer = trainer_options();
  for (const Option<saving::RunSaverOptions>& option : saving::run_saver_options()) {
    CAPTURE(option.name);
    const std::string name = option.name.starts_with("save_") ? option.name : "save_" + option.name;
    const auto found = std::ranges::find(of_trainer, name, &Option<TrainerOptions>::name);
    REQUIRE(found != of_trainer.end());
    if (!option.read) continue;
    CHECK(found->type == option.type);
    if (name != "save_folder") CHECK(found->default_text == option.default_text);  // a trainer's may be empty
    TrainerOptions given;
    found->read(given, other_text(option));
    const saving::RunSaverOptions saved = save_options_of(given);
    saving::RunSaverOptions expected;
    option.read(expected, other_text(option));
    CHECK(text_of(option.value(saved)) == text_of(option.value(expected)));
  }
  TrainerOptions given;
  given.save_best = saving::Best{.metric = "eval/a"};
  given.save_ignore_keys = {"optimizer/*"};
  CHECK(save_options_of(given).best->metric == "eval/a");
  CHECK(save_options_of(given).ignore_keys == given.save_ignore_keys);
}

TEST_CASE("Ranks that evaluate or predict different numbers of batches are a ConfigError on all") {
  for (const bool predicts : {false, true}) {
    CAPTURE(predicts);
    const auto errors = dist::test::errors_in_ranks(2, [&](const WorldPointer& world) {
      const Warnings warnings;
      TrainerOptions options = tiny_options();
      options.world = world;
      Trainer trainer(std::move(options));
      const auto loader = tiny_loader(world->rank() == 0 ? 8 : 12, 4);
      predicts ? static_cast<void>(trainer.predict(loader)) : trainer.eval({.eval_dataloader = loader});
    });
    check_all_say(errors, predicts ? "predict: the ranks differ: rank 0 has batches = 2; rank 1 has batches = 3"
                                   : "eval: the ranks differ: rank 0 has batches of evaluator eval = 2; rank 1 has "
                                     "batches of evaluator eval = 3");
  }
}

TEST_CASE("A rank may leave run_name and save_folder to rank 0, and save by hand all the same") {
  const Folder folder;
  const auto paths = dist::test::results_in_ranks(2, [&](const WorldPointer& world) {
    const Warnings warnings;
    TrainerOptions options = tiny_options();
    options.run_name = world->rank() == 0 ? "two" : "";
    options.save_folder = world->rank() == 0 ? (folder / "ck").string() : "";
    options.world = world;
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(trainer.state().run_name == "two");
    return trainer.save_checkpoint("by-hand");
  });
  CHECK(paths[0] == (folder / "ck/by-hand").string());
  CHECK(paths[1] == paths[0]);
}

}  // namespace
}  // namespace composer::test::ranks_options_test
