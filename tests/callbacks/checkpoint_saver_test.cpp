#include "composer/callbacks/checkpoint_saver.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "composer/checkpoint/folder.h"
#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::checkpoint_saver_test {
namespace {

namespace fs = std::filesystem;
using callbacks::CheckpointSaver;
using callbacks::CheckpointSaverOptions;

struct Killed : std::exception {};

At killed_at(Event event, std::int64_t batch) {
  return At([=](Event now, const State& state) {
    if (now == event && state.timestamp.batch == batch) throw Killed();
  });
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const saving::Found& found : saving::list_checkpoints(folder)) names.push_back(found.path.filename());
  return names;
}

using Names = std::vector<std::string>;

TEST_CASE("CheckpointSaver: writes what it was told to, beside the trainer's own checkpoints") {
  const Folder folder;
  TrainerOptions options = tiny_options();
  options.max_duration = "2ep";
  options.save_folder = folder / "own";
  const auto saver =
      std::make_shared<CheckpointSaver>(callbacks::CheckpointSaverOptions{.folder = folder / "{run_name}-weights",
                                                                          .filename = "w{batch:03}",
                                                                          .latest_filename = "",
                                                                          .save_interval = "2ba",
                                                                          .weights_only = true});
  options.callbacks.add(saver);
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(names_in(folder / "own") == Names{"ep1-ba4", "ep2-ba8"});
  CHECK(names_in(folder / "tiny-weights") == Names{"w002", "w004", "w006", "w008"});
  CHECK_FALSE(fs::exists(folder / "tiny-weights/w002/state.safetensors"));
  CHECK_FALSE(fs::exists(folder / "tiny-weights/latest"));
  REQUIRE(saver->saved_checkpoints().size() == 4);
  CHECK(saver->saved_checkpoints().back() == folder / "tiny-weights/w008");

  TrainerOptions other = tiny_options();
  other.load_path = folder / "tiny-weights/w008";
  Trainer from(std::move(other));
  CHECK(from.state().timestamp.batch == 0);
  CHECK(weights_of(from).equal(weights_of(trainer)));
}

TEST_CASE("CheckpointSaver: a whole checkpoint of it is one that a run can begin from") {
  const Folder folder;
  TrainerOptions options = tiny_options();
  options.callbacks.add(CheckpointSaver({.folder = folder / "all", .save_interval = "1ba"}));
  Trainer whole(std::move(options));
  whole.fit();
  TrainerOptions other = tiny_options();
  other.load_path = folder / "all/ep0-ba2";
  Trainer trainer(std::move(other));
  CHECK(trainer.state().timestamp.batch == 2);
  trainer.fit();
  CHECK(weights_of(trainer).equal(weights_of(whole)));
}

TEST_CASE("CheckpointSaver: asks a function at every checkpoint event, and saves when it says yes") {
  const Folder folder;
  int asked = 0;
  TrainerOptions options = tiny_options();
  options.callbacks.add(CheckpointSaver({.folder = folder / "some", .save_interval = [&](Event, const State& state) {
                                           ++asked;
                                           return state.timestamp.batch == 3;
                                         }}));
  Trainer(std::move(options)).fit();
  CHECK(asked == 5);  // after each batch, and at the end of the epoch
  CHECK(names_in(folder / "some") == Names{"ep0-ba3"});
}

TEST_CASE("CheckpointSaver: a run that goes on has what one that was never interrupted has") {
  const auto options = [](const Folder& folder) {
    TrainerOptions options = tiny_options();
    options.max_duration = "2ep";
    options.save_folder = folder / "own";
    options.save_interval = "1ba";
    return options;
  };
  const auto saver = [](const Folder& folder) {
    return CheckpointSaver({.folder = folder / "kept", .save_interval = "2ba", .num_checkpoints_to_keep = 2});
  };
  for (std::int64_t batch = 1; batch < 8; ++batch) {
    CAPTURE(batch);
    const Folder folder;
    {
      TrainerOptions first = options(folder);
      first.callbacks = {saver(folder), killed_at(Event::BATCH_START, batch)};
      Trainer trainer(std::move(first));
      CHECK_THROWS(trainer.fit());
    }
    // What was still on its way when the process ended.
    if (batch % 2 == 0) fs::remove_all(folder / ("kept/" + names_in(folder / "kept").back()));
    TrainerOptions second = options(folder);
    second.callbacks = {saver(folder)};
    Trainer trainer(std::move(second));
    CHECK(trainer.state().timestamp.batch == batch);
    trainer.fit();
    CHECK(names_in(folder / "kept") == Names{"ep1-ba6", "ep1-ba8"});
    CHECK(saving::open_checkpoint(folder / "kept/latest").manifest.time.batch == 8);
  }
}

TEST_CASE(
    "CheckpointSaver: what a process that was killed before the trainer's first checkpoint has left is this run's") {
  for (const std::string name : {"", "named"})
    for (const bool by_hand : {true, false}) {
      CAPTURE(name);
      CAPTURE(by_hand);
      const Folder folder;
      const auto run = [&](std::int64_t dies) {
        TrainerOptions options = tiny_options();
        options.run_name = name;
        options.save_folder = folder / "own";
        options.callbacks = {CheckpointSaver({.folder = folder / "more", .save_interval = "1ba"}),
                             CheckpointSaver({.folder = folder / "more",
                                              .filename = "w{batch}",
                                              .latest_filename = "",
                                              .save_interval = "2ba",
                                              .weights_only = true,
                                              .num_checkpoints_to_keep = 1}),
                             killed_at(Event::BATCH_START, dies)};
        Trainer trainer(std::move(options));
        if (by_hand) trainer.save_checkpoint("zero");
        trainer.fit();
      };
      for (const std::int64_t dies : {3, 2}) CHECK_THROWS(run(dies));
      CHECK_NOTHROW(run(-1));
      Names names = names_in(folder / "more");
      std::ranges::sort(names);
      CHECK(names == Names{"ep0-ba1", "ep0-ba2", "ep0-ba3", "ep0-ba4", "w4"});
      // Another run, of the same name and in the same place, is none of it, as often as it is started.
      fs::remove_all(folder / "own");
      for (int start = 0; start < 3; ++start)
        CHECK_THROWS_WITH(run(-1), doctest::Contains("CheckpointSaver failed at fit_start"));
    }
}

TEST_CASE("CheckpointSaver: what another run of the name has written stays, however this one was begun before") {
  for (const bool by_hand : {false, true}) {
    CAPTURE(by_hand);
    const Folder folder;
    const auto trainer = [&] {
      TrainerOptions options = tiny_options();
      options.save_folder = folder / "own";
      options.callbacks = {CheckpointSaver({.folder = folder / "kept", .save_interval = "2ba"})};
      return Trainer(std::move(options));
    };
    trainer().fit();
    fs::remove_all(folder / "own");
    const std::string id = saving::open_checkpoint(folder / "kept/ep0-ba4").manifest.id;
    try {
      Trainer fails = trainer();
      if (by_hand) fails.save_checkpoint("zero");
      throw Killed();
    } catch (const Killed&) {  // NOLINT(bugprone-empty-catch): before its first fit
    }
    for (int start = 0; start < 2; ++start) {
      CHECK_THROWS_WITH(trainer().fit(), doctest::Contains("CheckpointSaver failed at fit_start"));
      CHECK(saving::open_checkpoint(folder / "kept/ep0-ba4").manifest.id == id);
    }
  }
}

TEST_CASE("CheckpointSaver: counts and deletes what a killed process of the run has left, also under other names") {
  for (const char* save : {"1ep", "4ba"}) {  // it begins again, or goes on
    CAPTURE(save);
    const Folder folder;
    const auto run = [&](const char* interval, std::int64_t dies) {
      TrainerOptions options = tiny_options();
      options.max_duration = "3ep";
      options.save_folder = folder / "own";
      options.save_interval = Time::parse(save);
      options.callbacks = {
          CheckpointSaver(
              {.folder = folder / "kept", .save_interval = Time::parse(interval), .num_checkpoints_to_keep = 2}),
          killed_at(Event::BATCH_START, dies)};
      Trainer(std::move(options)).fit();
    };
    const bool goes_on = std::string(save) == "4ba";
    CHECK_THROWS(run("1ba", goes_on ? 7 : 3));
    const std::int64_t number = saving::list_checkpoints(folder / "kept").back().manifest.number;
    CHECK_NOTHROW(run("4ba", -1));
    CHECK(names_in(folder / "kept") == Names{"ep1-ba8", "ep2-ba12"});
    CHECK(saving::list_checkpoints(folder / "kept").front().manifest.number > number);
  }
}

TEST_CASE("CheckpointSaver: the names of another one, or of the trainer, in its folder are refused before training") {
  const Folder folder;
  for (const bool trainers : {true, false})
    for (const char* folders : {"one", "./two/../one/"}) {
      CAPTURE(trainers);
      CAPTURE(folders);
      TrainerOptions options = tiny_options();
      options.save_folder = folder / (trainers ? "one" : "own");
      options.callbacks = {CheckpointSaver({.folder = folder / folders, .overwrite = true})};
      if (!trainers) options.callbacks.add(CheckpointSaver({.folder = folder / "one"}));
      Trainer trainer(std::move(options));
      const std::string error = error_of([&] { trainer.fit(); });
      CHECK(error.find(trainers ? "is the trainer's save_folder" : "another one writes") != std::string::npos);
      CHECK(error.find("set another folder") != std::string::npos);
      CHECK(trainer.state().timestamp.batch == 0);
    }
}

TEST_CASE("CheckpointSaver: whole checkpoints in the trainer's folder are refused under any name, weights are not") {
  const Folder folder;
  for (const bool weights_only : {false, true}) {
    CAPTURE(weights_only);
    TrainerOptions options = tiny_options();
    options.save_folder = folder / "own";
    options.callbacks = {
        CheckpointSaver({.folder = folder / "own", .filename = "s{batch}", .weights_only = weights_only})};
    const std::string error = error_of([&] { Trainer(std::move(options)).fit(); });
    CHECK((error.find("is the trainer's save_folder") != std::string::npos) == !weights_only);
  }
}

TEST_CASE("CheckpointSaver: checkpoints in a folder below the trainer's are not taken for the trainer's") {
  std::vector<at::Tensor> weights;
  for (const char* place : {"apart", "ck/often"}) {
    const Folder folder;
    const Warnings quiet;
    const auto options_of = [&](std::int64_t dies_at) {
      TrainerOptions options = tiny_options();
      options.optimizer = optim::sgd({.lr = 0.1, .momentum = 0.9});
      options.max_duration = "3ep";
      options.save_folder = folder / "ck";
      options.save_num_checkpoints_to_keep = 1;
      options.callbacks = {
          CheckpointSaver({.folder = folder / place, .save_interval = "1ba", .ignore_keys = {"optimizer/*"}}),
          At([=](Event event, const State& state) {
            if (event == Event::BATCH_START && state.timestamp.batch == dies_at) throw std::runtime_error("killed");
          })};
      return options;
    };
    CHECK_THROWS(Trainer(options_of(6)).fit());
    Trainer trainer(options_of(-1));
    CHECK(trainer.resumed_from() == folder / "ck/ep1-ba4");
    trainer.fit();
    CHECK(trainer.saved_checkpoints() == std::vector<std::string>{folder / "ck/ep3-ba12"});
    weights.push_back(weights_of(trainer));
  }
  CHECK(weights[0].equal(weights[1]));
}

TEST_CASE("CheckpointSaver: a folder that cannot be resolved is its error, which CONTINUE makes a warning") {
  const Folder folder;
  std::filesystem::create_symlink("around", folder / "around");
  TrainerOptions options = tiny_options();
  options.save_folder = folder / "own";
  options.callbacks = {CheckpointSaver({.folder = folder / "around/ck", .on_failure = saving::OnFailure::CONTINUE})};
  const Warnings warnings;
  Trainer trainer(std::move(options));
  CHECK_NOTHROW(trainer.fit());
  CHECK(trainer.state().timestamp.batch == 4);
  CHECK(warnings.say("around"));
}

TEST_CASE("CheckpointSaver: an eval() that fails between two steps does not end its fit") {
  const Folder folder;
  bool fails = false;
  TrainerOptions options = tiny_options();
  options.eval_dataloader = tiny_loader(8, 4);
  options.eval_interval = "0ep";
  const auto saver = std::make_shared<CheckpointSaver>(CheckpointSaverOptions{
      .folder = folder / "kept", .save_interval = "4ba", .best = saving::Best{.metric = "eval/MulticlassAccuracy"}});
  options.callbacks = {At([&](Event event, const State&) {
    if (event == Event::EVAL_BATCH_START && fails) throw std::runtime_error("the disk is gone");
  })};
  options.callbacks.add(saver);
  Trainer trainer(std::move(options));
  trainer.begin();
  trainer.step();
  fails = true;
  CHECK_THROWS(trainer.eval());
  fails = false;
  trainer.step();
  trainer.eval();  // of weights that no checkpoint has
  const Warnings warnings;
  trainer.step();
  CHECK(warnings.say("is that of weights which no checkpoint has"));
}

TEST_CASE("CheckpointSaver: its errors name its own options") {
  const Folder folder;
  const auto run = [&](const char* name) {
    TrainerOptions options = tiny_options();
    options.run_name = name;
    options.callbacks = {CheckpointSaver({.folder = folder / "more"})};
    Trainer(std::move(options)).fit();
  };
  run("one");
  const std::string error = error_of([&] { run("other"); });
  CHECK(error.find("CheckpointSaver: folder: ") != std::string::npos);
  CHECK(error.find("set another folder, or overwrite") != std::string::npos);
  CHECK(error.find("save_") == std::string::npos);
}

TEST_CASE("CheckpointSaver: deletes nothing of the run whose checkpoint this one has begun from") {
  const Folder folder;
  const auto saver = [&](std::int64_t keep) {
    return CheckpointSaver({.folder = folder / "kept", .save_interval = "1ba", .num_checkpoints_to_keep = keep});
  };
  {
    TrainerOptions options = tiny_options();
    options.callbacks = {saver(-1)};
    options.save_folder = folder / "own";
    Trainer(std::move(options)).fit();
  }
  TrainerOptions options = tiny_options();
  options.run_name = "another";
  options.load_path = folder / "own/latest";
  options.max_duration = "2ep";
  options.callbacks = {saver(1)};
  Trainer(std::move(options)).fit();
  CHECK(names_in(folder / "kept") == Names{"ep0-ba1", "ep0-ba2", "ep0-ba3", "ep0-ba4", "ep1-ba8"});
}

TEST_CASE("CheckpointSaver: weights in the trainer's own folder do not keep the run from going on") {
  const Folder folder;
  const auto options = [&] {
    TrainerOptions options = tiny_options();
    options.max_duration = "2ep";
    options.save_folder = folder / "own";
    options.callbacks = {CheckpointSaver(
        {.folder = folder / "own", .filename = "w{batch}", .save_interval = "1ba", .weights_only = true})};
    return options;
  };
  {
    TrainerOptions first = options();
    first.callbacks.add(killed_at(Event::BATCH_START, 7));
    Trainer trainer(std::move(first));
    CHECK_THROWS(trainer.fit());
  }
  Trainer trainer(options());
  CHECK(trainer.state().timestamp.batch == 4);
}

TEST_CASE("CheckpointSaver: what it cannot do is said before the first batch") {
  const auto refused = [](CheckpointSaverOptions options, const char* what) {
    CHECK_THROWS_WITH_AS(CheckpointSaver(std::move(options)), doctest::Contains(what), ConfigError);
  };
  refused({.folder = ""}, "CheckpointSaver: folder: is required");
  refused({.folder = "s3://b/f"},
          "CheckpointSaver: folder: s3://b/f is a URI, which only the save_folder of a Trainer");
  refused({.folder = "{batch}"}, "CheckpointSaver: folder: ");
  refused({.filename = "{foo}"}, "CheckpointSaver: filename: ");
  refused({.latest_filename = "{foo}"}, "CheckpointSaver: latest_filename: ");
  refused({.num_checkpoints_to_keep = -2}, "CheckpointSaver: num_checkpoints_to_keep: must be >= 0");
  CHECK_THROWS_AS(CheckpointSaver({.num_checkpoints_to_keep = 0, .best = saving::Best{.metric = "eval/X"}}),
                  ConfigError);
  const Folder folder;
  const auto options = [&](const char* run_name) {
    TrainerOptions options = tiny_options();
    options.run_name = run_name;
    options.callbacks = {CheckpointSaver({.folder = folder / "one"})};
    return options;
  };
  Trainer(options("first")).fit();
  Trainer second(options("second"));
  CHECK_THROWS(second.fit());
  CHECK(second.state().timestamp.batch == 0);
}

}  // namespace
}  // namespace composer::test::checkpoint_saver_test
