// What surrounds the calls of a trainer, without one.
#include "composer/trainer/call_guard.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ops/rand.h>

#include "composer/core/callback.h"
#include "composer/core/error.h"
#include "composer/core/error_watcher.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"
#include "tests/trainer/trainer_parts.h"

namespace composer::test::call_guard_test {
namespace {

// Notes what it is told of an error.
class Watcher final : public Callback, public ErrorWatcher {
 public:
  void run_fails(const std::exception_ptr& error, const State&, Logger&) override {
    told.push_back(describe(error));
    if (throws) throw std::runtime_error("no more");
  }
  std::vector<std::string> told;
  bool throws = false;
};

struct Guarded : TrainerParts {
  explicit Guarded(const std::shared_ptr<Watcher>& watcher = std::make_shared<Watcher>())
      : TrainerParts([&] {
          TrainerOptions options = tiny_options();
          options.callbacks = {watcher};
          return options;
        }()) {}

  Calls calls;
  int abandoned = 0;
  CallGuard guard{{.calls = calls,
                   .ranks = ranks,
                   .state = state,
                   .engine = engine,
                   .logger = logger,
                   .process = process,
                   .tuning = tuning,
                   .fits = fits,
                   .fit = fit,
                   .abandon_fit = [this] { ++abandoned; }}};
};

TEST_CASE("A call draws from the generators of its trainer, and no other call begins inside of it") {
  Guarded trainer;
  const at::Tensor drawn = trainer.guard.run([&] {
    CHECK_THROWS_WITH_AS(trainer.calls.require_idle("fit()"), doctest::Contains("inside of another call"), ConfigError);
    return at::rand({4});
  });
  trainer.calls.require_idle("fit()");
  const OwnRandom same(at::kCPU, 3);
  const RandomScope draws(same);
  CHECK(drawn.equal(at::rand({4})));
}

TEST_CASE("An error in a call leaves with its place, after those who watch for errors have seen it") {
  const auto watcher = std::make_shared<Watcher>();
  Guarded trainer(watcher);
  const Warnings warnings;
  watcher->throws = true;
  trainer.calls.note(Event::BEFORE_FORWARD);
  trainer.state.timestamp.batch = 7;
  CHECK_THROWS_WITH_AS(trainer.guard.run([] { throw std::runtime_error("too large"); }),
                       doctest::Contains("failed after before_forward, epoch 0, batch 7"), RunError);
  CHECK(watcher->told == std::vector<std::string>{"too large"});
  CHECK(warnings.say("run_fails(): no more"));
  CHECK(trainer.fits.failed);
  CHECK(trainer.abandoned == 0);
  CHECK(trainer.fits.ended_by.empty());
}

TEST_CASE("An error that says where it was says so once") {
  Guarded trainer;
  CHECK_THROWS_WITH_AS(trainer.guard.run([] { throw RunError("at batch_end"); }), "at batch_end", RunError);
}

TEST_CASE("An error in a part of a fit ends the fit, and what is called next is told why") {
  Guarded trainer;
  CHECK_THROWS_WITH_AS(trainer.guard.require_fit("step()"), "Trainer: step() before begin()", ConfigError);
  CHECK(trainer.guard.train([] { return 5; }) == 5);
  CHECK(trainer.abandoned == 0);
  CHECK_THROWS_AS(trainer.guard.train([]() -> int { throw RunError("too large"); }), RunError);
  CHECK(trainer.abandoned == 1);
  CHECK_THROWS_WITH_AS(trainer.guard.require_fit("step()"),
                       "Trainer: step() after the fit was ended by an error (too large); call begin() again",
                       ConfigError);
}

TEST_CASE("Nothing is called any more once the engine is closed") {
  Guarded trainer;
  trainer.guard.require_open("fit()");
  trainer.engine.close();
  CHECK_THROWS_WITH_AS(trainer.guard.require_open("fit()"), doctest::Contains("fit() after close()"), Error);
}

}  // namespace
}  // namespace composer::test::call_guard_test
