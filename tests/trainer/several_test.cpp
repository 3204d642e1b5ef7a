// Several trainers in one process: in turn, nested in time, and in threads.
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
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

#include "composer/callbacks/early_stopper.h"
#include "composer/callbacks/speed_monitor.h"
#include "composer/core/error.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/loggers/json_lines_logger.h"
#include "composer/loggers/progress_bar.h"
#include "composer/models/classifier.h"
#include "composer/optim/optimizer.h"
#include "composer/optim/reduce_on_plateau.h"
#include "composer/optim/schedulers.h"
#include "composer/util/threads_here.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/in_child.h"
#include "tests/support/killed.h"
#include "tests/support/machines.h"
#include "tests/support/tiny.h"

namespace composer::test::several_test {
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

TEST_CASE("A trainer that changes threads between two calls trains as it does on one") {
  TrainerOptions options = drawing_options(1);
  options.deterministic_mode = true;
  options.eval_dataloader = Evaluator{.label = "eval", .dataloader = options.train_dataloader};
  Trainer trainer(std::move(options));
  trainer.begin();
  bool more = true;
  while (more)
    std::thread([&] {
      CHECK_NOTHROW(trainer.eval());
      CHECK_NOTHROW(more = trainer.step());
    }).join();
  trainer.end();
  CHECK(trainer.state().timestamp.batch == 12);
  CHECK(weights_of(trainer).equal(trained_alone(1)));
}

TEST_CASE("While a trainer that changed threads is there, others on its former thread are refused its loader") {
  TrainerOptions first = drawing_options(1), second = drawing_options(2);
  second.train_dataloader = first.train_dataloader;
  Trainer a(std::move(first)), b(std::move(second));
  a.begin();
  std::thread([&] { a.step(); }).join();
  CHECK_THROWS_WITH_AS(b.begin(), doctest::Contains("on another thread"), ConfigError);
  a.step();
  CHECK_NOTHROW(b.begin());
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
    first.callbacks = {killed_at(Event::BATCH_START, 5)};
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

// Trains `first` for two steps, does something else, and lets it go on to the end of its epoch.
std::map<float, int> seen_beside(const std::function<void(const std::shared_ptr<Loader>&)>& something_else) {
  const auto loader = data::in_memory(tiny_data(32), {.batch_size = 8, .shuffle = true});
  std::map<float, int> seen;
  TrainerOptions options = drawing_options(1);
  options.train_dataloader = loader;
  options.max_duration = "1ep";
  options.callbacks = {At([&](Event event, const State& state) {
    if (event != Event::BATCH_START) return;
    for (std::int64_t i = 0; i < 8; ++i) ++seen[state.batch.at("input")[i][1].item<float>()];
  })};
  Trainer trainer(std::move(options));
  trainer.begin();
  trainer.step();
  trainer.step();
  something_else(loader);
  while (trainer.step()) {
  }
  trainer.end();
  return seen;
}

TEST_CASE("A trainer of another seed that is made with the loader, or takes turns on it, does not change the order") {
  const auto alone = seen_beside([](const auto&) {});
  REQUIRE(alone.size() == 32);
  for (const bool trains : {false, true}) {
    CAPTURE(trains);
    std::map<float, int> other;
    const auto seen = seen_beside([&](const std::shared_ptr<Loader>& loader) {
      TrainerOptions options = drawing_options(2);
      options.train_dataloader = loader;
      options.callbacks = {At([&](Event event, const State& state) {
        if (event != Event::BATCH_START) return;
        for (std::int64_t i = 0; i < 8; ++i) ++other[state.batch.at("input")[i][1].item<float>()];
      })};
      Trainer second(std::move(options));
      if (trains) second.fit("1ep");
    });
    CHECK(seen == alone);
    CHECK(other.size() == (trains ? 32 : 0));
  }
}

TEST_CASE("Trainers without a seed, and the program, draw numbers that nobody else has drawn") {
  at::manual_seed(3);
  const auto expected = at::rand({500});
  std::vector<at::Tensor> drawn;
  for (int i = 0; i < 3; ++i) {
    TrainerOptions options = tiny_options();
    options.callbacks = {At([&](Event event, const State&) {
      if (event == Event::FIT_START) drawn.push_back(at::rand({500}));
    })};
    if (i == 0) at::manual_seed(3);  // the model has drawn, too
    Trainer trainer(std::move(options));
    trainer.fit("1ba");
    drawn.push_back(at::rand({500}));
  }
  CHECK(drawn[0].equal(expected));  // as if there were no trainer
  std::vector<float> all;
  for (const at::Tensor& some : drawn)
    all.insert(all.end(), some.const_data_ptr<float>(), some.const_data_ptr<float>() + 500);
  std::ranges::sort(all);
  const auto twice = all.end() - std::unique(all.begin(), all.end());
  CHECK(twice < 20);  // of 3000 from 2^24
}

TEST_CASE("What one trainer has left in a stopper, a schedule or a monitor is nothing to the next one that gets it") {
  const auto plateau = std::make_shared<optim::ReduceOnPlateau>(
      optim::ReduceOnPlateauOptions{.monitor = "CrossEntropy", .patience = "0ep", .threshold = 10});
  const auto stopper = std::make_shared<callbacks::EarlyStopper>(callbacks::EarlyStopperOptions{
      .monitor = "CrossEntropy", .dataloader_label = "eval", .min_delta = 10, .patience = "1ep"});
  const auto speed = std::make_shared<callbacks::SpeedMonitor>();
  std::vector<double> rates, val;
  std::vector<std::int64_t> batches;
  for (int i = 0; i < 2; ++i) {
    const auto log = std::make_shared<loggers::InMemoryLogger>();
    TrainerOptions options = tiny_options();
    options.eval_dataloader = tiny_loader(8, 4);
    options.max_duration = "6ep";
    options.schedulers = {plateau};
    options.callbacks = {stopper, speed};
    options.loggers = {log};
    Trainer trainer(std::move(options));
    rates.push_back(optim::learning_rates(*trainer.state().optimizer)[0]);
    trainer.fit();
    batches.push_back(trainer.state().timestamp.batch);
    val.push_back(log->get_timeseries("time/val").front().number());
    trainer.close();
  }
  CHECK(rates[1] == rates[0]);
  CHECK(batches[0] < 24);
  CHECK(batches[1] == batches[0]);
  CHECK(val == std::vector<double>{0, 0});
}

TEST_CASE("A ready optimizer begins with the same learning rate in every trainer that gets it") {
  const auto model = tiny_model();
  const auto optimizer = optim::sgd({.lr = 0.1}).make(optim::parameters_of(*model));
  for (int i = 0; i < 3; ++i) {
    CAPTURE(i);
    TrainerOptions options = tiny_options();
    options.model = model;
    options.optimizer = optimizer;
    options.schedulers = {optim::linear({.alpha_f = 0.1})};
    Trainer trainer(std::move(options));
    CHECK(optim::learning_rates(*optimizer)[0] == 0.1);
    trainer.fit();
    CHECK(optim::learning_rates(*optimizer)[0] == doctest::Approx(0.01));
  }
}

TEST_CASE("A trainer that is closed or gone between two steps leaves signals and the loader to others") {
  for (const bool closes : {false, true}) {
    CAPTURE(closes);
    std::optional<State> copy;
    TrainerOptions options = drawing_options(1);
    options.handle_signals = true;
    const AnyDataSpec loader = options.train_dataloader;
    std::optional<Trainer> trainer(std::move(options));
    trainer->begin();
    trainer->step();
    copy = trainer->state();
    if (closes)
      trainer->close();
    else
      trainer.reset();
    CHECK(default_handler(SIGTERM));
    std::thread([&] {
      TrainerOptions other = drawing_options(2);
      other.train_dataloader = loader;
      CHECK_NOTHROW(Trainer(std::move(other)).fit());
    }).join();
    if (closes) CHECK_THROWS_AS(trainer->step(), Error);
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
  const QuietMachine quiet;
  const int before = at::get_num_threads();
  use_threads_here(2);
  for (int run = 0; run < 2; ++run) {
    CAPTURE(run);
    TrainerOptions options = drawing_options(1);
    options.tune = true;
    options.tune_cache = folder / ("tune" + std::to_string(run) + ".json");
    options.products = Products::LIBRARY;
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
}  // namespace composer::test::several_test
