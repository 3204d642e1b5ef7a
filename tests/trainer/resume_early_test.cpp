// A program that was killed before its first checkpoint starts again by itself, whatever files it had begun; one that
// changes its working directory goes on writing where it began; and what is done at the end of an epoch is done once.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "composer/callbacks/checkpoint_saver.h"
#include "composer/callbacks/profiler.h"
#include "composer/checkpoint/folder.h"
#include "composer/core/error.h"
#include "composer/loggers/csv_logger.h"
#include "composer/loggers/file_logger.h"
#include "composer/loggers/json_lines_logger.h"
#include "composer/loggers/tensorboard_logger.h"
#include "composer/util/threads_here.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/in_child.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::resume_early_test {
namespace {

namespace fs = std::filesystem;

// With every logger and callback that refuses files of other runs.
TrainerOptions options_in(const fs::path& folder, const std::string& run_name) {
  TrainerOptions options = tiny_options();
  options.run_name = run_name;
  options.max_duration = "2ep";
  options.save_folder = folder / "ck";
  options.loggers = {
      loggers::JsonLinesLogger({.path = folder / "log.jsonl"}), loggers::CsvLogger({.path = folder / "log.csv"}),
      loggers::FileLogger({.path = folder / "log.txt"}), loggers::TensorBoardLogger({.folder = folder / "tb"})};
  options.callbacks = {
      callbacks::Profiler({.skip_first = 0, .wait = 0, .warmup = 0, .active = 1, .folder = folder / "traces"}),
      callbacks::CheckpointSaver({.folder = folder / "more", .save_interval = "1ba", .async = false})};
  return options;
}

At ends_at(std::int64_t batch, const std::function<void()>& end) {
  return At([=](Event event, const State& state) {
    if (event == Event::BATCH_START && state.timestamp.batch == batch) end();
  });
}

TEST_CASE("A program that is killed or fails before its first checkpoint starts again, and its old logs are kept") {
  for (const std::string name : {"", "named"})
    for (const bool killed : {true, false}) {
      CAPTURE(name);
      CAPTURE(killed);
      const Folder folder;
      const auto dies = [&](std::int64_t batch, const std::function<void()>& end) {
        TrainerOptions options = options_in(folder.path(), name);
        options.callbacks.add(ends_at(batch, end));
        Trainer(std::move(options)).fit();
      };
      for (const std::int64_t batch : {2, 3}) {
        if (killed)
          CHECK(ended_well(status_of_child([&] {
            use_threads_here(1);  // OpenMP's threads do not survive a fork
            dies(batch, [] { std::_Exit(0); });
          })));
        else
          CHECK_THROWS(dies(batch, [] { throw Error("fails"); }));
      }
      const Warnings warnings;
      Trainer trainer(options_in(folder.path(), name));
      trainer.fit();
      CHECK(trainer.state().timestamp.epoch == 2);
      CHECK(warnings.say("log.csv is the log of an earlier process of this run, of which no checkpoint is left"));
      for (const char* log : {"log.jsonl", "log.csv", "log.txt"}) {
        CAPTURE(log);
        CHECK(fs::exists(folder / log));
        CHECK(fs::exists(folder / (std::string(log) + ".1")));
        CHECK(fs::exists(folder / (std::string(log) + ".2")));
      }
    }
}

At at_event(Event when, const std::function<void()>& act) {
  return At([=](Event event, const State&) {
    if (event == when) act();
  });
}

// One way in which a process ends before the run has a checkpoint.
struct End {
  const char* how;
  std::function<void(const fs::path&)> run;
};

const std::vector<End>& ends() {
  const auto with = [](const fs::path& folder, Event when, const std::function<void()>& act) {
    TrainerOptions options = options_in(folder, "named");
    options.eval_dataloader = tiny_loader(8, 4);
    options.callbacks.add(at_event(when, act));
    return options;
  };
  static const std::vector<End> all = {
      {"killed in an evaluation before the first fit",
       [=](const fs::path& folder) {
         status_of_child([&] {
           use_threads_here(1);  // as above
           Trainer(with(folder, Event::EVAL_BATCH_END, [] { std::raise(SIGKILL); })).eval();
         });
       }},
      {"killed at after_load",
       [=](const fs::path& folder) {
         status_of_child([&] {
           use_threads_here(1);
           const Trainer trainer(with(folder, Event::AFTER_LOAD, [] { std::raise(SIGKILL); }));
         });
       }},
      {"an error at after_load",
       [=](const fs::path& folder) {
         CHECK_THROWS(Trainer(with(folder, Event::AFTER_LOAD, [] { throw Error("fails"); })));
       }},
      {"an error in an evaluation",
       [=](const fs::path& folder) {
         Trainer trainer(with(folder, Event::EVAL_BATCH_END, [] { throw Error("fails"); }));
         CHECK_THROWS(trainer.eval());
       }},
      {"an error of the program after an evaluation",
       [=](const fs::path& folder) {
         try {
           Trainer trainer(with(folder, Event::EPOCH_END, [] {}));
           trainer.eval();
           throw Error("fails");
         } catch (const Error&) {
         }
       }},
      {"a fit that is refused",
       [=](const fs::path& folder) {
         Trainer trainer(with(folder, Event::EPOCH_END, [] {}));
         CHECK_THROWS_AS(trainer.fit("-1ep"), ConfigError);
       }},
      {"a fit that is dropped",
       [=](const fs::path& folder) {
         Trainer trainer(with(folder, Event::EPOCH_END, [] {}));
         trainer.begin();
         trainer.step();
       }},
      {"a signal, with nothing saved",
       [=](const fs::path& folder) {
         TrainerOptions options = with(folder, Event::BATCH_END, [] { std::raise(SIGTERM); });
         options.handle_signals = true;
         options.save_interval = "0ba";
         Trainer(std::move(options)).fit();
       }},
  };
  return all;
}

TEST_CASE("However a process ends before the run's first checkpoint, the program starts again") {
  const Warnings quiet;
  for (const End& end : ends()) {
    CAPTURE(end.how);
    const Folder folder;
    end.run(folder.path());
    REQUIRE(fs::exists(folder / "log.csv"));
    end.run(folder.path());
    Trainer trainer(options_in(folder.path(), "named"));
    trainer.fit();
    CHECK(trainer.state().timestamp.epoch == 2);
    for (const char* log : {"log.csv.1", "log.txt.1", "log.jsonl.1"}) CHECK(fs::exists(folder / log));
    for (const auto& entry : fs::directory_iterator(folder / "ck"))
      CHECK_FALSE(entry.path().filename().string().starts_with("."));
  }
}

TEST_CASE("A run that has ended well, and has no checkpoint, keeps its log from the next one") {
  const Folder folder;
  const auto options = [&] {
    TrainerOptions made = options_in(folder.path(), "named");
    made.save_interval = "0ba";
    return made;
  };
  Trainer(options()).fit();
  CHECK_THROWS_WITH(Trainer{options()}, doctest::Contains("exist"));
}

TEST_CASE("A log of a run that nobody has begun in the save_folder is refused as before, as often as it is tried") {
  const Folder folder;
  std::ofstream(folder / "log.csv") << "another's\n";
  const auto options = [&](const char* name) {
    TrainerOptions made = options_in(folder.path(), name);
    made.loggers = {loggers::CsvLogger({.path = folder / "log.csv"})};
    return made;
  };
  for (int i = 0; i < 2; ++i) CHECK_THROWS_WITH(Trainer(options("named")), doctest::Contains("log.csv exists"));
  status_of_child([&] {  // a stranger, in the same folder
    use_threads_here(1);
    TrainerOptions other = options("other");
    other.loggers = {};
    other.callbacks.add(ends_at(2, [] { std::raise(SIGKILL); }));
    Trainer(std::move(other)).fit();
  });
  for (const char* name : {"", "named"}) CHECK_THROWS_WITH(Trainer(options(name)), doctest::Contains("log.csv exists"));
}

// In a child, because the working directory is the process's.
TEST_CASE("A program that changes its working directory goes on with the checkpoints and logs that it had begun") {
  const Folder folder;
  fs::create_directories(folder / "elsewhere");
  const int status = status_of_child([&] {
    use_threads_here(1);  // as above
    fs::current_path(folder.path());
    TrainerOptions options = options_in("", "moves");
    options.save_folder = "ck";
    options.callbacks.add(ends_at(2, [&] { fs::current_path(folder / "elsewhere"); }));
    Trainer trainer(std::move(options));
    trainer.fit();
    trainer.close();
    if (trainer.saved_checkpoints().size() != 2) std::_Exit(2);
  });
  CHECK(ended_well(status));
  CHECK(fs::is_empty(folder / "elsewhere"));
  CHECK(saving::list_checkpoints(folder / "ck").size() == 2);
  const auto last_line = [](const fs::path& path) {
    std::ifstream file(path);
    std::string line, last;
    while (std::getline(file, line)) last = line;
    return last;
  };
  CHECK(last_line(folder / "log.csv").find("8") != std::string::npos);
}

TEST_CASE("An epoch that ends as the run is stopped ends once, though its last batch had been saved before") {
  const Folder folder;
  int ends = 0, evaluations = 0;
  const auto options = [&] {
    TrainerOptions made = tiny_options();
    made.max_duration = "2ep";
    made.eval_dataloader = tiny_loader(8, 4);
    made.save_folder = folder / "ck";
    made.save_interval = "2ba";
    made.callbacks = {At([&](Event event, const State&) {
      ends += event == Event::EPOCH_END;
      evaluations += event == Event::EVAL_END;
    })};
    return made;
  };
  {
    TrainerOptions stopped = options();
    stopped.callbacks.add(At([](Event event, const State& state) {
      if (event == Event::BATCH_END && state.timestamp.batch == 4) state.stop.ask("time is up");
    }));
    Trainer(std::move(stopped)).fit();
  }
  CHECK(ends == 1);
  Trainer(options()).fit();
  CHECK(ends == 2);
  CHECK(evaluations == 2);
}

TEST_CASE("A run with another seed in its options says which it goes on with") {
  const Folder folder;
  const auto options = [&](std::uint64_t seed) {
    TrainerOptions made = tiny_options();
    made.max_duration = seed == 4 ? Time("1ep") : Time("2ep");
    made.seed = seed;
    made.save_folder = folder / "ck";
    return made;
  };
  Trainer(options(4)).fit();
  const Warnings warnings;
  Trainer trainer(options(99));
  CHECK(trainer.state().seed == 4);
  CHECK(warnings.say("the run goes on with its seed, 4, and not with .seed = 99"));
  CHECK_FALSE(warnings.say("seed: 4 -> 99"));
}

TEST_CASE("A run resumes in the middle of an epoch with as much data as it had, or says that it cannot") {
  const auto options = [](const Folder& folder, std::int64_t samples, const char* duration) {
    TrainerOptions made = tiny_options();
    made.train_dataloader = tiny_loader(samples, 4);
    made.max_duration = Time::parse(duration);
    made.save_folder = folder / "ck";
    return made;
  };
  const Folder folder;
  Trainer(options(folder, 16, "5ba")).fit();
  for (const std::int64_t other : {12, 15, 17, 32}) {
    CAPTURE(other);
    Trainer trainer(options(folder, other, "3ep"));
    CHECK_THROWS_WITH_AS(trainer.fit(), doctest::Contains("train_dataloader: its data has"), ConfigError);
  }
  const Folder whole;
  Trainer(options(whole, 16, "1ep")).fit();
  const Warnings warnings;
  Trainer trainer(options(whole, 24, "2ep"));
  trainer.fit();
  CHECK(trainer.state().timestamp.batch == 4 + 6);
  CHECK(warnings.say("train_samples: 16 -> 24"));
}

// A loader of its own kind, of which nothing but the number of batches of an epoch is known.
struct Counted final : Loader {
  Counted(std::int64_t batches, std::int64_t more) : first(batches), grows_by(more) {}
  void seek(std::int64_t to, std::int64_t at) override { epoch = to, batch = at; }
  std::optional<Batch> next() override {
    if (batch == *num_batches()) return std::nullopt;
    ++batch;
    return tiny_data(4);
  }
  std::optional<std::int64_t> num_batches() const override { return first + grows_by * epoch; }
  std::int64_t first, grows_by, epoch = 0, batch = 0;
};

TEST_CASE("A run resumes in the middle of an epoch only with as many batches, also of a loader that knows no more") {
  const auto options = [](const Folder& folder, std::int64_t batches, std::int64_t more, const char* duration) {
    TrainerOptions made = tiny_options();
    made.train_dataloader = std::make_shared<Counted>(batches, more);
    made.max_duration = Time::parse(duration);
    made.save_folder = folder / "ck";
    return made;
  };
  for (const std::int64_t more : {0, 2}) {
    CAPTURE(more);
    const Folder folder;
    Trainer(options(folder, 4, more, "6ba")).fit();  // two batches of the second epoch
    for (const std::int64_t other : {3, 6}) {
      Trainer trainer(options(folder, other, more, "3ep"));
      CHECK_THROWS_WITH_AS(
          trainer.fit(),
          join("train_dataloader: its epoch has ", other + more,
               " batches, and the run was saved after batch 2 of epoch 1 "
               "with an epoch of ",
               4 + more, ", so it would repeat or leave out samples; resume it with an epoch of ", 4 + more,
               " (another length may begin with an epoch), or start a new run from its weights with load_path "
               "and load_weights_only")
              .c_str(),
          ConfigError);
    }
    const Warnings warnings;
    Trainer same(options(folder, 4, more, "2ep"));
    CHECK_NOTHROW(same.fit());
    CHECK(same.state().timestamp.batch == 8 + more);
    CHECK_FALSE(warnings.say("batches"));
  }
  const Folder whole;
  Trainer(options(whole, 4, 0, "1ep")).fit();
  Trainer trainer(options(whole, 3, 0, "2ep"));
  CHECK_NOTHROW(trainer.fit());
  CHECK(trainer.state().timestamp.batch == 4 + 3);
}

// Makes a mask in its first forward pass.
struct Lazy final : Model {
  torch::nn::Linear linear{4, 3};
  at::Tensor mask;
  Lazy() { register_module("linear", linear); }
  Outputs forward(const Batch& batch) override {
    if (!mask.defined()) mask = at::ones({4}) * 2;
    return linear->forward(batch["input"] * (linear->weight[0] * mask));
  }
  Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().square().mean(); }
};

TEST_CASE("A tensor that a model makes in an evaluation and trains on is an error that names inference_mode") {
  for (const bool inference_mode : {true, false}) {
    TrainerOptions options = tiny_options();
    options.model = std::make_shared<Lazy>();
    options.inference_mode = inference_mode;
    Trainer trainer(std::move(options));
    trainer.predict(tiny_loader(4, 4));
    const std::string error = error_of([&] { trainer.fit(); });
    CHECK((error.find("set inference_mode = false") != std::string::npos) == inference_mode);
    CHECK((error == "no error") != inference_mode);
  }
}

}  // namespace
}  // namespace composer::test::resume_early_test
