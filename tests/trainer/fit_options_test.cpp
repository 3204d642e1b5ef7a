// What fit() and eval() are given, beside what the trainer was built with.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/modules/container/sequential.h>

#include "composer/core/error.h"
#include "composer/formats/weights.h"
#include "composer/optim/reduce_on_plateau.h"
#include "composer/optim/schedulers.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::fit_options_test {
namespace {

TEST_CASE("Metrics of training are reported under the label that fit() gives the loader") {
  TrainerOptions options = tiny_options();
  options.model = tiny_model(/*train_metrics=*/true);
  Trainer trainer(std::move(options));
  trainer.fit({.train_dataloader = tiny_loader(16, 4),
               .train_dataloader_label = "ft",
               .duration = "2ep",
               .schedulers = {optim::reduce_on_plateau(
                   {.monitor = "MulticlassAccuracy", .dataloader_label = "ft", .patience = "1ep"})}});
  CHECK(trainer.state().metrics.find("ft", "MulticlassAccuracy"));
  CHECK_FALSE(trainer.state().metrics.find("train", "MulticlassAccuracy"));
}

TEST_CASE("An evaluator with the label of the training loader is refused, whoever gives it") {
  const auto refused = doctest::Contains("has the label of the training loader, \"train\"");
  const Evaluator train{.label = "train", .dataloader = tiny_loader(4, 4)};
  TrainerOptions options = tiny_options();
  options.eval_dataloader = train;
  CHECK_THROWS_WITH_AS(Trainer(std::move(options)), refused, ConfigError);
  Trainer trainer(tiny_options());
  CHECK_THROWS_WITH_AS(trainer.fit({.eval_dataloader = train}), refused, ConfigError);
  CHECK_THROWS_WITH_AS(trainer.eval({.eval_dataloader = train}), refused, ConfigError);

  TrainerOptions with_eval = tiny_options();
  with_eval.eval_dataloader = tiny_loader(4, 4);
  Trainer evaluates(std::move(with_eval));
  CHECK_THROWS_WITH_AS(evaluates.fit({.train_dataloader = tiny_loader(16, 4), .train_dataloader_label = "eval"}),
                       doctest::Contains("has the label of the training loader, \"eval\""), ConfigError);
}

TEST_CASE("A metric_names that matches no metric is an error that lists the metrics") {
  const auto make = [](std::vector<std::string> names) {
    TrainerOptions options = tiny_options();
    options.eval_dataloader =
        Evaluator{.label = "e", .dataloader = tiny_loader(4, 4), .metric_names = std::move(names)};
    return Trainer(std::move(options));
  };
  CHECK_THROWS_WITH_AS(make({"Acuracy"}),
                       "metrics of e: metric_names has \"Acuracy\", which matches none of: CrossEntropy, "
                       "MulticlassAccuracy",
                       ConfigError);
  CHECK_THROWS_AS(make({"accuracy", "F1"}), ConfigError);
  CHECK_NOTHROW(make({"accuracy", "cross"}));
  CHECK_NOTHROW(make({}));
}

TEST_CASE("The subset that eval() is given goes before that of an evaluator") {
  TrainerOptions options = tiny_options();
  options.eval_dataloader = Evaluator{.dataloader = tiny_loader(16, 4), .subset_num_batches = 3};
  Trainer trainer(std::move(options));
  const auto batches = [&](const EvalOptions& eval) {
    trainer.eval(eval);
    return trainer.state().eval_timestamp.batch;
  };
  const Evaluator given{.label = "given", .dataloader = tiny_loader(16, 4), .subset_num_batches = 3};
  CHECK(batches({.subset_num_batches = 2}) == 2);
  CHECK(batches({.eval_dataloader = given, .subset_num_batches = 2}) == 2);
  CHECK(batches({.eval_dataloader = given}) == 3);
  CHECK(batches({}) == 3);
}

TEST_CASE("Options of evaluation that fit() is given are warned of if there is nothing to evaluate on") {
  const auto warnings_of = [](FitOptions fit, bool has_evaluator) {
    TrainerOptions options = tiny_options();
    if (has_evaluator) options.eval_dataloader = tiny_loader(4, 4);
    Trainer trainer(std::move(options));
    const Warnings warnings;
    trainer.fit(std::move(fit));
    return warnings.texts;
  };
  CHECK(warnings_of({.eval_interval = "1ba"}, false).size() == 1);
  CHECK(warnings_of({.eval_interval = "1ba"}, true).size() == 1);  // it is of the evaluators given to fit()
  CHECK(warnings_of({.eval_subset_num_batches = 1}, false).size() == 1);
  CHECK(warnings_of({}, false).empty());
  CHECK(warnings_of({.eval_dataloader = tiny_loader(4, 4), .eval_interval = "1ba"}, false).empty());
}

TEST_CASE("Options that say how to load are warned of if there is nothing to load") {
  const auto warnings_of = [](const std::function<void(TrainerOptions&)>& change) {
    TrainerOptions options = tiny_options();
    change(options);
    const Warnings warnings;
    const Trainer trainer(std::move(options));
    return warnings.texts;
  };
  CHECK(warnings_of([](TrainerOptions&) {}).empty());
  CHECK(warnings_of([](TrainerOptions& o) { o.load_weights_only = true; }) ==
        std::vector<std::string>{"load_weights_only has no effect without a load_path"});
  CHECK(warnings_of([](TrainerOptions& o) {
          o.load_strict_model_weights = false;
          o.load_rename = {{.from = "a", .to = "b"}};
          o.load_ignore_keys = {"rng"};
        }) ==
        std::vector<std::string>{"load_strict_model_weights, load_rename, load_ignore_keys have no effect without a "
                                 "load_path"});
}

TEST_CASE("A label that fit() is given for no loader is warned of") {
  Trainer trainer(tiny_options());
  const Warnings warnings;
  trainer.fit({.train_dataloader_label = "ft", .duration = "1ba"});
  CHECK(warnings.texts ==
        std::vector<std::string>{"fit: train_dataloader_label has no effect without a train_dataloader beside it"});
  trainer.fit({.train_dataloader = tiny_loader(16, 4), .train_dataloader_label = "ft", .duration = "1ba"});
  CHECK(warnings.texts.size() == 1);
}

TEST_CASE("A subset that fit() is given is of that fit only") {
  TrainerOptions options = tiny_options();
  options.train_subset_num_batches = 3;
  Trainer trainer(std::move(options));
  const auto batches = [&](FitOptions fit) {
    const std::int64_t before = trainer.state().timestamp.batch;
    fit.duration = "1ep";
    trainer.fit(std::move(fit));
    return trainer.state().timestamp.batch - before;
  };
  CHECK(batches({.train_subset_num_batches = 1}) == 1);
  CHECK(batches({}) == 3);
  CHECK(batches({.train_dataloader = tiny_loader(20, 4), .train_subset_num_batches = 2}) == 2);
  CHECK(batches({}) == 5);
}

TEST_CASE("A scale_schedule_ratio that fit() is given is of that fit only, and does not compound") {
  TrainerOptions options = tiny_options();
  options.max_duration = "8ep";
  Trainer trainer(std::move(options));
  const auto half = [] { return FitOptions{.schedulers = {optim::linear()}, .scale_schedule_ratio = 0.5}; };
  trainer.fit(half());
  CHECK(trainer.state().timestamp.epoch == 4);
  CHECK_THROWS_WITH_AS(trainer.fit(half()), doctest::Contains("already reached 4ep"), ConfigError);
  trainer.fit();
  CHECK(trainer.state().timestamp.epoch == 8);
}

TEST_CASE("A duration of nothing is told as what fit() was given") {
  Trainer trainer(tiny_options());
  CHECK_THROWS_WITH_AS(trainer.fit({.duration = "0ep"}), "duration: is 0ep, so there is nothing to do", ConfigError);
}

TEST_CASE("A scale_schedule_ratio of fit() needs schedulers in the same fit(), also if the trainer has some") {
  TrainerOptions options = tiny_options();
  options.schedulers = {optim::linear()};
  Trainer trainer(std::move(options));
  CHECK_THROWS_WITH_AS(trainer.fit({.duration = "2ep", .scale_schedule_ratio = 0.5}),
                       "scale_schedule_ratio: 0.5 has no effect without schedulers in the same fit()", ConfigError);
}

TrainerOptions saved_options(const Folder& folder, std::int64_t batch_size, const char* duration) {
  TrainerOptions options = tiny_options();
  options.train_dataloader = tiny_loader(32, batch_size);
  options.max_duration = Time::parse(duration);
  options.save_folder = folder / "ck";
  return options;
}

TEST_CASE("A run resumes in the middle of an epoch with the batch size that it had, or says that it cannot") {
  const Folder folder;
  Trainer(saved_options(folder, 4, "5ba")).fit();
  for (const std::int64_t other : {2, 8, 16}) {
    CAPTURE(other);
    Trainer trainer(saved_options(folder, other, "2ep"));
    CHECK_THROWS_WITH_AS(trainer.fit(), doctest::Contains("train_dataloader: its batches have"), ConfigError);
    CHECK(trainer.state().timestamp.batch == 5);
  }
  Trainer same(saved_options(folder, 4, "2ep"));
  same.fit();
  CHECK(same.state().timestamp.batch == 16);
}

TEST_CASE("A run that was saved at the end of an epoch resumes with another batch size, and a warning") {
  const Folder folder;
  Trainer(saved_options(folder, 4, "1ep")).fit();
  const Warnings warnings;
  Trainer trainer(saved_options(folder, 8, "2ep"));
  trainer.fit();
  CHECK(trainer.state().timestamp.batch == 12);
  CHECK(warnings.say("train_batch_size: 4 -> 8"));
}

TEST_CASE("load_rename gives weights of a file the names of the model, and load_ignore_keys leaves those out") {
  const Folder folder;
  Trainer trained(tiny_options());
  trained.state().model->parameters().front().detach().fill_(7);
  save_weights(*trained.state().model, folder / "w.safetensors", {.rename = {{"", "net."}}});
  TrainerOptions options = tiny_options();
  options.load_path = folder / "w.safetensors";
  options.load_rename = {{"net.", ""}};
  CHECK_THROWS_WITH_AS(Trainer(TrainerOptions(options)), doctest::Contains("set load_weights_only"), ConfigError);
  options.load_weights_only = true;
  TrainerOptions plain = options;
  plain.load_rename.clear();
  CHECK_THROWS_WITH_AS(Trainer(std::move(plain)), doctest::Contains("A trainer has load_rename"), WeightsError);
  const auto weights_of = [](const Trainer& trainer) { return trainer.state().model->parameters().front(); };
  CHECK(weights_of(Trainer(TrainerOptions(options))).equal(weights_of(trained)));
  options.load_strict_model_weights = false;
  options.load_ignore_keys = {"model/*bias"};
  const Warnings warnings;
  const Trainer part(std::move(options));
  CHECK(warnings.say("1 of 2 tensors of the model"));
}

TEST_CASE("Weights that were asked for and of which none fits are an error; some that are missing, a warning") {
  const Folder folder;
  Trainer trained(tiny_options());
  save_weights(*trained.state().model, folder / "other.safetensors", {.rename = {{"", "prefix."}}});
  const auto partly = [&](const std::string& name, std::vector<std::string> ignored) {
    TrainerOptions options = tiny_options();
    options.load_path = folder / name;
    options.load_weights_only = true;
    options.load_strict_model_weights = false;
    options.load_ignore_keys = std::move(ignored);
    return options;
  };
  CHECK_THROWS_WITH_AS(Trainer(partly("other.safetensors", {})), doctest::Contains("none of its 2 tensors"),
                       CheckpointError);
  save_weights(*trained.state().model, folder / "w.safetensors");
  const Warnings warnings;
  const Trainer whole(partly("w.safetensors", {}));
  CHECK(warnings.texts.empty());
  const Trainer part(partly("w.safetensors", {"model/*bias"}));
  CHECK(warnings.texts.size() == 1);
  CHECK(warnings.say("1 of 2 tensors of the model"));
}

TEST_CASE("A glob of load_ignore_keys that fits nothing is told by the option's name") {
  const Folder folder;
  Trainer trained(tiny_options());
  save_weights(*trained.state().model, folder / "w.safetensors");
  TrainerOptions options = tiny_options();
  options.load_path = folder / "w.safetensors";
  options.load_weights_only = true;
  options.load_ignore_keys = {"nothing/*"};
  const Warnings warnings;
  const Trainer trainer(std::move(options));
  CHECK(warnings.texts == std::vector<std::string>{"load_ignore_keys: nothing/* matches nothing in the checkpoint"});
}

}  // namespace
}  // namespace composer::test::fit_options_test
