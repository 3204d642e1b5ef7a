// What a run that goes on says, refuses and survives.
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "composer/algorithms/ema.h"
#include "composer/callbacks/early_stopper.h"
#include "composer/callbacks/threshold_stopper.h"
#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/saver.h"
#include "composer/core/algorithm.h"
#include "composer/core/error.h"
#include "composer/core/error_watcher.h"
#include "composer/core/logger.h"
#include "composer/core/on.h"
#include "composer/formats/weights.h"
#include "composer/optim/reduce_on_plateau.h"
#include "tests/support/at_algorithm.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/killed.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::resume_messages_test {
namespace {

namespace fs = std::filesystem;
namespace nn = torch::nn;

TrainerOptions saved_options(const Folder& folder) {
  TrainerOptions options = tiny_options();
  options.save_folder = folder / "ck";
  options.save_interval = "1ba";
  return options;
}

TEST_CASE("a run with \"auto\" microbatches goes on from a checkpoint without") {
  const Folder folder;
  Trainer(saved_options(folder)).fit();
  TrainerOptions options = saved_options(folder);
  options.device_train_microbatch_size = "auto";
  options.max_duration = "2ep";
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(trainer.state().timestamp.batch == 8);
}

TEST_CASE("The losses of the last batch are there when a complete run is started again") {
  const Folder folder;
  Trainer first(saved_options(folder));
  first.fit();
  Trainer again(saved_options(folder));
  again.fit();
  CHECK(again.state().batch_loss["total"].equal(first.state().batch_loss["total"]));
}

TEST_CASE("A run that a stopper has ended goes on if that has other options, and otherwise it is told how") {
  const Folder folder;
  const auto run = [&](Time patience, bool with_stopper) {
    TrainerOptions options = saved_options(folder);
    options.max_duration = "6ep";
    options.eval_dataloader = tiny_loader(8, 4);
    if (with_stopper)
      options.callbacks = {callbacks::EarlyStopper(
          {.monitor = "CrossEntropy", .dataloader_label = "eval", .min_delta = 100, .patience = patience})};
    Trainer trainer(std::move(options));
    trainer.fit();
    return trainer.state().timestamp.epoch;
  };
  CHECK(run("0ep", true) == 2);
  {
    const Warnings warnings;
    CHECK(run("0ep", true) == 2);
    CHECK(warnings.say("this run is complete"));
    CHECK(warnings.say("to train on, change the options of who has decided that"));
  }
  const Warnings warnings;
  CHECK(run("2ep", true) == 4);
  CHECK(warnings.say("EarlyStopper/patience: 0ep -> 2ep"));
  CHECK(warnings.say("the run was complete (EarlyStopper: "));
  CHECK(run("2ep", false) == 6);
}

TEST_CASE("A checkpoint without the optimizer's state is loaded with a warning") {
  const Folder folder;
  TrainerOptions options = saved_options(folder);
  options.max_duration = "2ba";
  options.save_ignore_keys = {"optimizer/*"};
  Trainer(std::move(options)).fit();
  {
    const Warnings warnings;
    const Trainer resumed(saved_options(folder));
    CHECK(warnings.say("ep0-ba2: has no optimizer, so that one begins anew"));
  }
  const Warnings warnings;
  TrainerOptions other = tiny_options();
  other.load_path = folder / "ck/ep0-ba2";
  const Trainer loaded(std::move(other));
  CHECK(warnings.say("ep0-ba2: has no optimizer, so that one begins anew"));
}

TEST_CASE("a folder elsewhere is refused at once") {
  TrainerOptions options = tiny_options();
  options.save_folder = "s3://bucket/run";
  CHECK_THROWS_AS(Trainer(std::move(options)), ConfigError);
}

class Surgery final : public Algorithm {
 public:
  EventSet events() const override { return {Event::INIT}; }
  void apply(Event, State&, Logger&) override {}
  bool required_on_load() const override { return true; }
};

TEST_CASE("a run that goes on with other hyperparameters says which, and what they were") {
  const Folder folder;
  Trainer(saved_options(folder)).fit();
  {
    const Warnings warnings;
    Trainer(saved_options(folder)).fit();
    CHECK_FALSE(warnings.say("hyperparameters"));
    CHECK(warnings.say("this run is complete"));
    CHECK(warnings.texts.size() == 1);
  }
  const Warnings warnings;
  TrainerOptions options = saved_options(folder);
  options.optimizer = optim::sgd({.lr = 0.25});
  options.max_duration = "2ep";
  options.device_train_microbatch_size = 2;
  options.algorithms = {Surgery()};
  options.save_interval = "2ba";
  Trainer trainer(std::move(options));
  trainer.begin();
  CHECK(warnings.say("optimizer/lr: 0.1 -> 0.25"));
  CHECK(warnings.say("max_duration: 1ep -> 2ep"));
  CHECK(warnings.say("device_train_microbatch_size: 0 -> 2"));
  CHECK(warnings.say("algorithms: none -> Surgery"));
  CHECK_FALSE(warnings.say("momentum"));
  CHECK_FALSE(warnings.say("save_interval"));
}

TEST_CASE("An unchanged program of several fits is told of no other hyperparameters, wherever it was killed") {
  const Folder folder;
  const auto run = [&](std::int64_t dies, const Time& last) {
    TrainerOptions options = saved_options(folder);
    options.callbacks = {killed_at(Event::BATCH_CHECKPOINT, dies)};
    Trainer trainer(std::move(options));
    trainer.fit();
    trainer.fit("1ep");
    trainer.fit({.train_dataloader = tiny_loader(8, 2), .duration = last});
  };
  const Warnings warnings;
  for (const std::int64_t dies : {2, 6, 10}) CHECK_THROWS(run(dies, "1ep"));
  run(-1, "1ep");
  CHECK_FALSE(warnings.say("hyperparameters"));
  run(-1, "2ep");
  CHECK(warnings.say("max_duration: 3ep -> 4ep"));
}

TEST_CASE("What the program logs of itself is compared, at whichever event it does so before the first batch") {
  for (const Event when : {Event::INIT, Event::AFTER_LOAD, Event::FIT_START}) {
    CAPTURE(std::string(to_string(when)));
    const Folder folder;
    const auto run = [&](const std::string& dataset) {
      TrainerOptions options = saved_options(folder);
      options.callbacks = {on(when, [=](const State&, Logger& logger) {
        logger.log_hyperparameters({{"dataset", dataset}});
      })};
      Trainer(std::move(options)).fit();
    };
    run("v3");
    const Warnings warnings;
    run("v4");
    CHECK(warnings.say("dataset: v3 -> v4"));
  }
}

TEST_CASE("A callback that gives two fields one name is an error when the fit begins, with its name and the field's") {
  struct Twice : Callback {
    int a = 1, b = 2;
    void visit_state(StateVisitor& visit) override { visit("x", a), visit("x", b); }
  };
  const Folder folder;
  TrainerOptions options = saved_options(folder);
  options.callbacks = {Twice()};
  Trainer trainer(std::move(options));
  CHECK_THROWS_WITH_AS(trainer.fit(), doctest::Contains("callbacks/Twice/x is the name of two fields"),
                       CheckpointError);
}

TEST_CASE("What visit_state() throws is an error before the first batch that names the plug-in") {
  struct Broken : Callback {
    void visit_state(StateVisitor&) override { throw std::runtime_error("the disk is gone"); }
  };
  TrainerOptions options = tiny_options();
  options.callbacks = {Broken()};
  Trainer trainer(std::move(options));
  CHECK_THROWS_WITH_AS(trainer.fit(), doctest::Contains("callbacks/Broken failed in visit_state()"), ConfigError);
}

TEST_CASE(
    "A name that save_checkpoint() cannot give, and a negative subset of eval(), are ConfigErrors that fail nothing") {
  struct Failures : Callback, ErrorWatcher {
    void run_fails(const std::exception_ptr&, const State&, Logger&) override { ++*count; }
    std::shared_ptr<int> count = std::make_shared<int>(0);
  };
  const Folder folder;
  const auto failures = std::make_shared<Failures>();
  TrainerOptions options = saved_options(folder);
  options.eval_dataloader = tiny_loader(8, 4);
  options.callbacks.add(failures);
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK_THROWS_AS(trainer.save_checkpoint("latest"), ConfigError);
  CHECK_THROWS_AS(trainer.eval({.subset_num_batches = -7}), ConfigError);
  CHECK(*failures->count == 0);
}

TEST_CASE("Two fields of one name that are empty at first are an error before anything is trained, whatever is saved") {
  struct Later : Callback {
    std::optional<double> a, b;
    void visit_state(StateVisitor& visit) override { visit("x", a), visit("x", b); }
  };
  struct LaterAlgorithm : Algorithm {
    std::optional<double> a;
    at::Tensor b;
    EventSet events() const override { return {Event::BATCH_END}; }
    void apply(Event, State&, Logger&) override {}
    void visit_state(StateVisitor& visit) override { visit("x", a), visit("x", b); }
  };
  for (const bool saves : {true, false}) {
    const Folder folder;
    const auto fails = [&](TrainerOptions options, const char* what) {
      if (saves) options.save_folder = folder / "ck";
      Trainer trainer(std::move(options));
      CHECK_THROWS_WITH_AS(trainer.fit(), doctest::Contains(what), CheckpointError);
      CHECK(trainer.state().timestamp.batch == 0);
    };
    TrainerOptions callback = tiny_options(), algorithm = tiny_options();
    callback.callbacks = {Later()};
    algorithm.algorithms = {LaterAlgorithm()};
    fails(std::move(callback), "callbacks/Later/x is the name of two fields");
    fails(std::move(algorithm), "algorithms/LaterAlgorithm/x is the name of two fields");
  }
}

TEST_CASE("a damaged newest checkpoint is passed over with a warning, and the run ends as it would have") {
  const Folder folder;
  Trainer whole(saved_options(folder));
  whole.fit();
  for (const char* file : {"model.safetensors", "state.safetensors"}) {
    CAPTURE(file);
    for (const char* name : {"ep0-ba4", "ep0-ba3"}) {
      const fs::path path = fs::path(folder / "ck") / name / file;
      std::fstream bytes(path, std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekg(-1, std::ios::end);
      const char last = static_cast<char>(bytes.get());
      bytes.seekp(-1, std::ios::end);
      bytes.put(static_cast<char>(last ^ 1));
    }
    const Warnings warnings;
    Trainer trainer(saved_options(folder));
    CHECK(warnings.say("ep0-ba4"));
    CHECK(warnings.say("going back to"));
    CHECK(trainer.state().timestamp.batch == 2);
    trainer.fit();
    CHECK(weights_of(trainer).equal(weights_of(whole)));
    CHECK(trainer.saved_checkpoints().size() == 4);
  }
}

TEST_CASE("a fit that counts from zero again saves the batches that had been saved before, beside those") {
  const Folder folder;
  Trainer trainer(saved_options(folder));
  const auto ids = [&] {
    std::vector<std::string> ids;
    for (const saving::Found& found : saving::list_checkpoints(folder / "ck")) ids.push_back(found.manifest.id);
    return ids;
  };
  trainer.fit();
  const auto before = ids();
  trainer.fit({.duration = "1ep", .reset_time = true});
  const auto after = ids();
  REQUIRE(before.size() == 4);
  REQUIRE(after.size() == 8);
  for (std::size_t i = 0; i < 4; ++i) CHECK(before[i] == after[i]);
}

TEST_CASE("what was trained with an algorithm that is required cannot be loaded without it") {
  const Folder folder;
  const auto options = [&](bool with) {
    TrainerOptions options = saved_options(folder);
    if (with) options.algorithms = {Surgery()};
    return options;
  };
  Trainer(options(true)).fit();
  CHECK_NOTHROW(Trainer(options(true)));
  CHECK_THROWS_WITH_AS(Trainer(options(false)), doctest::Contains("Surgery"), CheckpointError);
}

TEST_CASE("a run that goes on keeps the hyperparameters that had been logged, though it does not log them again") {
  const Folder folder;
  const auto options = [&] {
    TrainerOptions options = saved_options(folder);
    options.algorithms = {Surgery()};
    return options;
  };
  const auto saved = [&] {
    const StateDict all = saving::load(saving::open_checkpoint(folder / "ck/ep0-ba4"));
    StateDict found = std::get<StateDict>(*all.find("hyperparameters"));
    return found;
  };
  Trainer(options()).fit();
  const StateDict whole = saved();
  CHECK(whole.find("enabled_algorithms/Surgery"));
  for (const char* name : {"ck/ep0-ba3", "ck/ep0-ba4"}) fs::remove_all(folder / name);
  Trainer trainer(options());
  CHECK(trainer.state().timestamp.batch == 2);
  trainer.fit();
  const StateDict parts = saved();
  REQUIRE(parts.size() == whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) CHECK(parts.entries()[i].first == whole.entries()[i].first);
}

TEST_CASE("a run may have more algorithms than its checkpoint knows of") {
  const Folder folder;
  Trainer(saved_options(folder)).fit();
  TrainerOptions options = saved_options(folder);
  options.algorithms = {Surgery()};
  CHECK_NOTHROW(Trainer(std::move(options)));
}

TEST_CASE("weights that do not fit are an error that names them all, and nothing is changed") {
  const Folder folder;
  Trainer(saved_options(folder)).fit();
  TrainerOptions options = tiny_options();
  nn::Sequential net(nn::Linear(4, 5), nn::Linear(5, 3));
  options.model = std::make_shared<models::Classifier>(net, models::ClassifierOptions{.num_classes = 3});
  options.load_path = folder / "ck/latest";
  try {
    Trainer trainer(std::move(options));
    FAIL("it was loaded");
  } catch (const CheckpointError& error) {
    const std::string text = error.what();
    CHECK(text.find("missing ") != std::string::npos);
    CHECK(text.find("unexpected ") != std::string::npos);
  }
}

std::shared_ptr<Model> two_layers(std::int64_t classes) {
  nn::Sequential net(nn::Linear(4, 4), nn::Linear(4, classes));
  return std::make_shared<models::Classifier>(net, models::ClassifierOptions{.num_classes = classes});
}

TEST_CASE(
    "A changed model that finds an old run in its save_folder is told what fits, and not options of load_weights()") {
  const Folder folder;
  const auto with_classes = [&](std::int64_t classes) {
    TrainerOptions options = saved_options(folder);
    options.model = two_layers(classes);
    return options;
  };
  Trainer(with_classes(3)).fit();
  const auto error = [&](bool whole) {
    TrainerOptions options = with_classes(5);
    if (whole) {
      options.load_path = folder / "ck/latest";
      options.save_folder = "";
    }
    try {
      const Trainer trainer(std::move(options));
    } catch (const WeightsError& thrown) {
      return std::string(thrown.what());
    }
    return std::string("no error");
  };
  const std::string resumed = error(false), loaded = error(true);
  for (const std::string& text : {resumed, loaded}) {
    CAPTURE(text);
    CHECK(text.find("does not fit the model") != std::string::npos);
    CHECK(text.find("mismatched module.1.weight: Float [5, 4] in the model, Float [3, 4] in the file") !=
          std::string::npos);
    CHECK(text.find(".ignore") == std::string::npos);
    CHECK(text.find("with load_weights_only = true, load_strict_model_weights = false and load_ignore_keys = "
                    "{\"model/module.1.*\"}") != std::string::npos);
  }
  CHECK(resumed.find("save_folder: the run there is of another model") != std::string::npos);
  CHECK(resumed.find("set another save_folder or run_name") != std::string::npos);
  CHECK(resumed.find("load_path = \"" + (folder / "ck").string()) != std::string::npos);
  TrainerOptions as_told = with_classes(5);
  as_told.run_name = "another";
  as_told.load_path = folder / "ck/latest";
  as_told.load_weights_only = true;
  as_told.load_strict_model_weights = false;
  as_told.load_ignore_keys = {"model/module.1.*"};
  const Warnings quiet;
  CHECK_NOTHROW(Trainer(std::move(as_told)));
}

TEST_CASE("load_path may be a file of weights, which is all that is loaded then") {
  const Folder folder;
  Trainer trained(tiny_options());
  trained.fit();
  const auto loading = [&](const std::string& name) {
    TrainerOptions options = tiny_options();
    options.load_path = folder / name;
    options.load_weights_only = true;
    return options;
  };
  for (const std::string name : {"w.safetensors", "w.pt"}) {
    save_weights(*trained.state().model, folder / name);
    Trainer trainer(loading(name));
    CHECK(weights_of(trainer).equal(weights_of(trained)));
    CHECK(trainer.state().timestamp.batch == 0);
    CHECK(trainer.resumed_from() == folder / name);
  }
  TrainerOptions whole = loading("w.pt");
  whole.load_weights_only = false;
  CHECK_THROWS_WITH_AS(Trainer(std::move(whole)), doctest::Contains("set load_weights_only"), ConfigError);
  CHECK_THROWS_WITH_AS(Trainer(loading("gone.pt")),
                       doctest::Contains("gone.pt: is not a checkpoint: there is no such file or folder"),
                       CheckpointError);
  TrainerOptions renaming = loading("w.pt");
  renaming.load_rename = {{.from = "gone.", .to = "module."}};
  const Warnings warnings;
  const Trainer loaded(std::move(renaming));
  CHECK(warnings.say("load_rename: gone. begins no name"));
}

TEST_CASE("load_path that names a folder of checkpoints, or leads nowhere, is an error that says so") {
  const Folder folder;
  Trainer(saved_options(folder)).fit();
  fs::create_symlink("nowhere", folder / "dangling");
  for (const auto& [path, text] : std::vector<std::pair<std::string, std::string>>{
           {"ck", "ck: is not a checkpoint, but a folder of checkpoints; give the path of one of them"},
           {"dangling", "dangling: is not a checkpoint, but a link to something that does not exist"}}) {
    TrainerOptions options = tiny_options();
    options.load_path = folder / path;
    CHECK_THROWS_WITH_AS(Trainer(std::move(options)), doctest::Contains(text.c_str()), CheckpointError);
  }
}

TEST_CASE("a checkpoint of another optimizer is refused") {
  const Folder folder;
  Trainer(saved_options(folder)).fit();
  TrainerOptions other = saved_options(folder);
  other.optimizer = optim::adamw();
  CHECK_THROWS_AS(Trainer(std::move(other)), CheckpointError);
}

bool is_same(const StateValue& a, const StateValue& b) {
  return std::visit(
      [&](const auto& held) {
        using T = std::decay_t<decltype(held)>;
        const T* const other = std::get_if<T>(&b);
        if constexpr (std::is_same_v<T, StateDict>)
          return other != nullptr;
        else if constexpr (std::is_same_v<T, at::Tensor>)
          return other && held.equal(*other);
        else
          return other && *other == held;
      },
      static_cast<const StateValue::variant&>(a));
}

// The names of what differs, but for the list of checkpoints.
void note_differing(const StateDict& a, const StateDict& b, const std::string& path, std::vector<std::string>& names) {
  for (const auto& [name, value] : a.entries()) {
    const std::string own = path.empty() ? name : path + "/" + name;
    if (own == "saver") continue;
    const StateValue* const other = b.find(name);
    const auto* const dict = std::get_if<StateDict>(&value);
    if (!other || !is_same(value, *other))
      names.push_back(own);
    else if (dict)
      note_differing(*dict, std::get<StateDict>(*other), own, names);
  }
}

std::vector<std::string> differing(const StateDict& a, const StateDict& b) {
  std::vector<std::string> names;
  note_differing(a, b, "", names);
  note_differing(b, a, "", names);
  return names;
}

// A run of which all that may wait for the next fit has a value.
void train_with_all(const Folder& folder, const std::function<void(TrainerOptions&)>& change,
                    const std::function<void(Trainer&)>& before = {}) {
  TrainerOptions options = saved_options(folder);
  options.max_duration = "8ep";
  options.optimizer = optim::sgd({.lr = 0.1, .momentum = 0.9});
  options.grad_scaler = optim::GradScalerOptions{.init_scale = 1024, .growth_interval = 2};
  options.algorithms = {algorithms::EMA({.half_life = "2ba"}), AtAlgorithm({Event::BATCH_END}, [](State& state) {
                          if (state.timestamp.batch == 2) state.model->parameters()[1].set_requires_grad(false);
                        })};
  options.callbacks = {callbacks::ThresholdStopper(
      {.monitor = "CrossEntropy", .dataloader_label = "given", .threshold = 0, .better = Better::HIGHER})};
  change(options);
  Trainer trainer(std::move(options));
  if (before) before(trainer);
  trainer.fit(
      {.schedulers = {optim::reduce_on_plateau(
           {.monitor = "MulticlassAccuracy", .dataloader_label = "given", .factor = 0.5, .patience = "0ep"})},
       .eval_dataloader = Evaluator{.label = "given", .dataloader = tiny_loader(8, 4), .eval_interval = "3ep"}});
}

TEST_CASE("What is saved between the load and the fit has all that waits for the fit") {
  for (const bool by_hand : {true, false}) {
    CAPTURE(by_hand);
    const Folder folder;
    const Warnings quiet;
    train_with_all(folder, [](TrainerOptions&) {});
    const StateDict finished = saving::load(saving::open_checkpoint(folder / "ck/latest"));
    for (const char* name : {"rng", "scaler", "settings", "schedulers", "evaluated", "hyperparameters", "stop"})
      CHECK_MESSAGE(finished.find(name), name);
    CHECK(std::get<std::string>(*finished.find("stop")) != "");
    const auto save = [](Trainer& trainer) {
      trainer.save_checkpoint("copy");
      throw Killed();
    };
    Trainer* at_start = nullptr;
    CHECK_THROWS(train_with_all(
        folder,
        [&](TrainerOptions& options) {
          options.optimizer = optim::sgd({.lr = 0.2, .momentum = 0.9});  // to be compared when the fit goes on
          if (by_hand) return;
          options.callbacks.add(At([&](Event event, const State&) {
            if (event == Event::FIT_START) save(*at_start);
          }));
        },
        [&](Trainer& trainer) {
          at_start = &trainer;
          if (by_hand) save(trainer);
        }));
    const StateDict copy = saving::load(saving::open_checkpoint(folder / "ck/copy"));
    for (const std::string& name : differing(finished, copy)) FAIL_CHECK(name);
    const Warnings warnings;
    train_with_all(
        folder, [](TrainerOptions&) {},
        [](Trainer& trainer) { CHECK(fs::path(trainer.resumed_from()).filename() == "copy"); });
    CHECK(warnings.say("this run is complete"));
  }
}

TEST_CASE("A run that goes on from what was saved before its fit trains as without that") {
  const auto weights = [](bool saves) {
    const Folder folder;
    const Warnings quiet;
    at::Tensor last;
    for (const int start : {0, 1, 2}) {
      if (start == 1 && !saves) continue;
      const auto run = [&] {
        train_with_all(
            folder,
            [&](TrainerOptions& options) {
              options.callbacks = {At([&, start](Event event, const State& state) {
                if (event == Event::BATCH_START && state.timestamp.batch == 17 && start == 0) throw Killed();
                if (event == Event::FIT_END) last = state.model->parameters()[0].detach().clone();
              })};
            },
            [&](Trainer& trainer) {
              if (start == 1) trainer.save_checkpoint("copy"), throw Killed();
            });
      };
      if (start == 2)
        run();
      else
        CHECK_THROWS(run());
    }
    return last;
  };
  CHECK(weights(true).equal(weights(false)));
}

}  // namespace
}  // namespace composer::test::resume_messages_test
