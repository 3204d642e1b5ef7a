// Several trainers in one process: in turn, nested in time, and in threads.
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>

#include <doctest/doctest.h>

#include "composer/core/error.h"
#include "composer/loggers/json_lines_logger.h"
#include "composer/loggers/progress_bar.h"
#include "composer/models/classifier.h"
#include "composer/util/threads_here.h"
#include "tests/support/folder.h"
#include "tests/support/in_child.h"
#include "tests/support/tiny.h"

namespace composer::test {
namespace {

at::Tensor default_state() { return at::detail::getDefaultCPUGenerator().get_state(); }

bool default_handler(int signal) {
  struct sigaction now {};
  sigaction(signal, nullptr, &now);
  return now.sa_handler == SIG_DFL;
}

// A model that draws at every step.
std::shared_ptr<Model> drawing_model() {
  at::manual_seed(5);
  torch::nn::Sequential net(torch::nn::Linear(4, 16), torch::nn::Dropout(0.5), torch::nn::Linear(16, 3));
  return std::make_shared<models::Classifier>(net, models::ClassifierOptions{.num_classes = 3});
}

TrainerOptions drawing_options(std::uint64_t seed) {
  TrainerOptions options = tiny_options();
  options.model = drawing_model();
  options.seed = seed;
  options.max_duration = "3ep";
  return options;
}

at::Tensor trained_alone(std::uint64_t seed) {
  Trainer trainer(drawing_options(seed));
  trainer.fit();
  return weights_of(trainer);
}

TEST_CASE("Trainers that take turns, as in a GAN, train as each of them does alone") {
  for (const bool shared : {false, true}) {
    CAPTURE(shared);
    TrainerOptions first = drawing_options(1), second = drawing_options(2);
    second.eval_dataloader = tiny_loader(8, 4);
    if (shared) {
      second.train_dataloader = first.train_dataloader;
      second.eval_dataloader = Evaluator{.label = "eval", .dataloader = first.train_dataloader};
    }
    Trainer a(std::move(first)), b(std::move(second));
    a.begin();
    b.begin();
    for (bool more = true; more;) {
      const bool of_a = a.step();
      at::rand({3});  // the program's own
      more = b.step() || of_a;
    }
    a.end();
    b.end();
    CHECK(a.state().timestamp.batch == 12);
    CHECK(b.state().timestamp.batch == 12);
    CHECK(weights_of(a).equal(trained_alone(1)));
    CHECK(weights_of(b).equal(trained_alone(2)));
  }
}

TEST_CASE("Trainers in threads train as each of them does alone") {
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (std::uint64_t seed = 0; seed < 4; ++seed) trainers.push_back(std::make_unique<Trainer>(drawing_options(seed)));
  std::vector<std::thread> threads;
  for (const auto& trainer : trainers) threads.emplace_back([&trainer] { trainer->fit(); });
  for (std::thread& thread : threads) thread.join();
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    CHECK(weights_of(*trainers[seed]).equal(trained_alone(seed)));
  }
}

TEST_CASE("Trainers that are made and run in threads leave libtorch's generator and the process as they were") {
  std::vector<TrainerOptions> options;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    options.push_back(drawing_options(seed));
    options.back().handle_signals = true;
  }
  at::manual_seed(3);
  const at::Tensor before = default_state();
  std::vector<std::thread> threads;
  std::atomic<int> unprotected = 0;
  for (TrainerOptions& given : options)
    threads.emplace_back([&] {
      given.callbacks = {At([&](Event event, const State&) {
        if (event == Event::BATCH_START && default_handler(SIGTERM)) ++unprotected;
      })};
      Trainer(std::move(given)).fit();
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(unprotected == 0);
  CHECK(default_handler(SIGTERM));
  CHECK(default_state().equal(before));
}

TEST_CASE("A seeded trainer does not change what the program draws, whatever it does") {
  TrainerOptions options = drawing_options(9);
  at::manual_seed(3);
  const at::Tensor before = default_state();
  Trainer trainer(std::move(options));
  trainer.fit();
  trainer.find_lr({.num_batches = 4});
  trainer.eval({.eval_dataloader = tiny_loader(4, 4)});
  trainer.fit("1ep");
  CHECK(default_state().equal(before));
}

TEST_CASE("A seeded run is the same when other trainers are made, and run within it") {
  Trainer nested(drawing_options(2));
  TrainerOptions options = drawing_options(1);
  options.callbacks = {At([&](Event event, const State& state) {
    if (event == Event::BATCH_END && state.timestamp.batch == 5) nested.fit();
  })};
  Trainer trainer(std::move(options));
  const Trainer merely_made(drawing_options(3));
  trainer.fit();
  CHECK(weights_of(trainer).equal(trained_alone(1)));
  CHECK(weights_of(nested).equal(trained_alone(2)));
}

TEST_CASE("A run that resumes restores its own random numbers, and touches nobody else's") {
  const Folder folder;
  const auto options = [&] {
    TrainerOptions given = drawing_options(4);
    given.save_folder = folder / "ck";
    given.save_interval = "1ba";
    return given;
  };
  {
    TrainerOptions first = options();
    first.callbacks = {At([](Event event, const State& state) {
      if (event == Event::BATCH_START && state.timestamp.batch == 5) throw std::runtime_error("killed");
    })};
    Trainer trainer(std::move(first));
    CHECK_THROWS_AS(trainer.fit(), RunError);
  }
  TrainerOptions second = options();
  at::manual_seed(8);
  const at::Tensor before = default_state();
  Trainer resumed(std::move(second));
  resumed.fit();
  CHECK(resumed.resumed_from() == folder / "ck/ep1-ba5");
  CHECK(default_state().equal(before));
  CHECK(weights_of(resumed).equal(trained_alone(4)));
}

TEST_CASE("A trainer that handles no signals is not ended by one that another trainer gets") {
  TrainerOptions handles = drawing_options(1), ignores = drawing_options(2);
  handles.handle_signals = true;
  Trainer a(std::move(handles)), b(std::move(ignores));
  a.begin();
  b.begin();
  std::raise(SIGTERM);
  while (b.step()) {
  }
  CHECK_FALSE(a.step());
  a.end();
  b.end();
  CHECK(a.interrupted_by() == SIGTERM);
  CHECK(b.interrupted_by() == 0);
  CHECK(b.state().timestamp.batch == 12);
}

TEST_CASE(
    "Two trainers on one loader in two threads: the second is refused, and may read it when the first has ended") {
  for (const bool evaluates : {false, true}) {
    CAPTURE(evaluates);
    const auto loader = data::in_memory(tiny_data(16), {.batch_size = 4, .shuffle = true, .prefetch = 2});
    TrainerOptions first = drawing_options(1);
    first.train_dataloader = loader;
    first.callbacks = {At([&](Event event, const State& state) {
      if (event != Event::BATCH_END || state.timestamp.batch != 2) return;
      std::thread([&] {
        TrainerOptions second = drawing_options(2);
        if (!evaluates) second.train_dataloader = loader;
        Trainer other(std::move(second));
        if (evaluates)
          CHECK_THROWS_AS(other.eval({.eval_dataloader = Evaluator{.label = "eval", .dataloader = loader}}), RunError);
        else
          CHECK_THROWS_WITH_AS(other.fit(), doctest::Contains("a trainer on another thread"), ConfigError);
      }).join();
    })};
    Trainer trainer(std::move(first));
    trainer.fit();
    CHECK(trainer.state().timestamp.batch == 12);
    TrainerOptions second = drawing_options(2);
    second.train_dataloader = loader;
    std::thread([&] { CHECK_NOTHROW(Trainer(std::move(second)).fit()); }).join();
  }
}

TEST_CASE("deterministic_mode is on while its trainer runs, and as before when it does not") {
  const auto is_on = [] { return at::globalContext().deterministicAlgorithms(); };
  int on = 0, batches = 0;
  TrainerOptions options = drawing_options(1);
  options.deterministic_mode = true;
  options.callbacks = {At([&](Event event, const State&) {
    batches += event == Event::BATCH_START ? 1 : 0;
    on += event == Event::BATCH_START && is_on() ? 1 : 0;
  })};
  Trainer trainer(std::move(options));
  CHECK_FALSE(is_on());
  trainer.begin();
  trainer.step();
  CHECK_FALSE(is_on());
  std::thread([] {
    Trainer other(drawing_options(2));
    CHECK_THROWS_WITH_AS(other.fit(), doctest::Contains("deterministic_mode"), ConfigError);
  }).join();
  trainer.end();
  trainer.fit();
  CHECK(on == batches);
  CHECK_FALSE(is_on());
  std::thread([] { CHECK_NOTHROW(Trainer(drawing_options(2)).fit()); }).join();
}

TEST_CASE("A trainer that has tuned gives the threads back, and the next one has the choice again") {
  const Folder folder;
  const int before = at::get_num_threads();
  use_threads_here(2);
  for (int run = 0; run < 2; ++run) {
    CAPTURE(run);
    TrainerOptions options = drawing_options(1);
    options.tune = true;
    options.tune_cache = folder / ("tune" + std::to_string(run) + ".json");
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(at::get_num_threads() == 2);
    REQUIRE(trainer.tuning().size() == 1);
    CHECK(trainer.tuning()[0].starts_with("threads: "));
  }
  use_threads_here(before);
}

TEST_CASE("A closed pipe for stderr or stdout ends the display, and not the training") {
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    CAPTURE(stream);
    const Folder folder;
    const int status = status_of_child([&] {
      use_threads_here(1);  // OpenMP's other threads are not in this process
      std::signal(SIGPIPE, SIG_DFL);
      std::array<int, 2> ends{};
      if (::pipe(ends.data()) != 0) ::_exit(1);
      ::close(ends[0]);
      ::dup2(ends[1], stream);
      TrainerOptions options = tiny_options();
      options.max_duration = "3ep";
      options.save_folder = folder / "ck";
      options.save_async = false;
      options.loggers = {loggers::ProgressBar({.stream = stream == STDOUT_FILENO ? "stdout" : "stderr"})};
      options.callbacks = {At([](Event event, const State&) {
        if (event == Event::BATCH_END) warn("something odd");
      })};
      Trainer trainer(std::move(options));
      trainer.fit();
      if (trainer.state().timestamp.epoch != 3) ::_exit(2);
    });
    CHECK(ended_well(status));
    CHECK(std::filesystem::exists(folder / "ck/ep3-ba12"));
  }
}

TEST_CASE("A process that is forked in a fit may use libtorch, drop the trainer, or run another program, and ends") {
  const Folder folder;
  TrainerOptions options = tiny_options();
  options.train_dataloader = data::in_memory(tiny_data(16), {.batch_size = 4, .prefetch = 2});
  options.loggers = {loggers::JsonLinesLogger({.path = folder / "log.jsonl"})};
  std::optional<Trainer> trainer(std::move(options));
  trainer->begin();
  trainer->step();
  CHECK(ended_well(status_of_child([] { at::ones({100}).sum().item<float>(); })));
  CHECK(ended_well(status_of_child([&] { trainer.reset(); })));
  CHECK(ended_well(status_of_child([&] {
    bool refused = false;
    try {
      trainer->step();
    } catch (const RunError&) {
      refused = true;
    }
    if (!refused) ::_exit(1);
  })));
  CHECK(ended_well(status_of_child([] {
    ::execl("/bin/true", "true", static_cast<char*>(nullptr));
    ::_exit(5);
  })));
  while (trainer->step()) {
  }
  trainer->end();
  CHECK(trainer->state().timestamp.batch == 4);
  trainer.reset();
  std::ifstream log(folder / "log.jsonl");
  CHECK(std::count(std::istreambuf_iterator<char>(log), {}, '\n') > 4);
}

}  // namespace
}  // namespace composer::test
