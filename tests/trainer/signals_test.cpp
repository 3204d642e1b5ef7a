#include <csignal>
#include <unistd.h>

#include <sys/wait.h>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::signals_test {
namespace {

// Sends the process a signal at that event of that batch of training.
At raise_at(Event moment, std::int64_t batch, int signal) {
  return At([=](Event event, const State& state) {
    if (event == moment && state.timestamp.batch == batch) std::raise(signal);
  });
}

TEST_CASE("SIGINT and SIGTERM end the run after the current batch, and the handlers of before come back") {
  for (int signal : {SIGINT, SIGTERM}) {
    auto log = std::make_shared<EventLog>();
    TrainerOptions options = tiny_options();
    options.handle_signals = true;
    options.eval_dataloader = tiny_loader(4, 4);
    options.callbacks = {log, raise_at(Event::BEFORE_FORWARD, 1, signal)};
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(trainer.interrupted_by() == signal);
    CHECK(trainer.state().timestamp.batch == 2);
    CHECK(trainer.state().stop.asked());
    CHECK(log->count("fit_end") == 1);
    CHECK(log->count("eval_start") == 0);  // whoever interrupts wants an end
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    CHECK((now.sa_handler == SIG_DFL));
    trainer.state().stop.clear();
    trainer.fit();
    CHECK(trainer.state().timestamp.epoch == 1);
    CHECK(trainer.interrupted_by() == 0);
  }
}

TEST_CASE("A signal in an evaluation ends it after the current batch, without metrics") {
  auto log = std::make_shared<EventLog>();
  TrainerOptions options = tiny_options();
  options.handle_signals = true;
  options.max_duration = "2ep";
  options.eval_dataloader = tiny_loader(16, 4);
  options.callbacks = {log, At([](Event event, const State& state) {
                         if (event == Event::EVAL_BATCH_START && state.eval_timestamp.batch == 1) std::raise(SIGINT);
                       })};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(log->count("eval_batch_end") == 2);
  CHECK(log->count("eval_end") == 1);  // what EVAL_START has opened is closed
  CHECK(log->count("eval_after_all") == 1);
  CHECK(log->count("fit_end") == 1);
  CHECK_FALSE(trainer.state().metrics.find("eval", "CrossEntropy"));
}

TEST_CASE(
    "A grace period that the last checkpoint would not have fitted into is warned of, and it is tried all the same") {
  for (const double seconds : {1e-9, 1e9}) {
    const Folder folder;
    const Warnings warnings;
    TrainerOptions options = tiny_options();
    options.handle_signals = true;
    options.grace_period = Seconds(seconds);
    options.save_folder = folder / "ck";
    options.save_interval = "2ba";
    options.callbacks = {raise_at(Event::BATCH_START, 2, SIGTERM)};
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(trainer.state().timestamp.batch == 3);
    CHECK(trainer.saved_checkpoints().back() == folder / "ck/ep0-ba3");
    CHECK(warnings.say("the run resumes from ep0-ba2") == (seconds < 1));
  }
  TrainerOptions options = tiny_options();
  options.grace_period = Seconds(0);
  CHECK_THROWS_AS(Trainer(std::move(options)), ConfigError);
}

TEST_CASE("A signal that ended one trainer does not end the next one, which handles none") {
  {
    TrainerOptions options = tiny_options();
    options.handle_signals = true;
    options.callbacks = {raise_at(Event::BEFORE_FORWARD, 1, SIGTERM)};
    Trainer trainer(std::move(options));
    trainer.fit();
    REQUIRE(trainer.interrupted_by() == SIGTERM);
  }
  TrainerOptions options = tiny_options();
  options.handle_signals = false;
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(trainer.interrupted_by() == 0);
  CHECK(trainer.state().timestamp.batch == 4);
}

TEST_CASE("A program's own handler, or none at all, is left alone") {
  static volatile std::sig_atomic_t seen = 0;
  struct sigaction before {};
  struct sigaction mine {};
  mine.sa_handler = [](int) { seen = 1; };
  sigaction(SIGINT, &mine, &before);
  TrainerOptions options = tiny_options();
  options.handle_signals = true;
  options.callbacks = {raise_at(Event::BATCH_END, 1, SIGINT)};
  Trainer trainer(std::move(options));
  trainer.fit();
  sigaction(SIGINT, &before, nullptr);
  CHECK(seen == 1);
  CHECK(trainer.state().timestamp.batch == 4);
}

TEST_CASE("A second signal ends the process at once") {
  const pid_t child = fork();
  if (child == 0) {
    TrainerOptions options = tiny_options();
    options.handle_signals = true;
    options.callbacks = {At([](Event event, const State&) {
      if (event == Event::BATCH_START) std::raise(SIGTERM), std::raise(SIGTERM);
    })};
    Trainer trainer(std::move(options));
    trainer.fit();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGTERM);
}

}  // namespace
}  // namespace composer::test::signals_test
