// A program of several fits that is started again does what is left of them and no more: those with a duration, those
// that count from zero again, and loops of its own. A fit after one that a signal has ended returns at once.
#include <algorithm>
#include <csignal>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include "composer/checkpoint/folder.h"
#include "composer/core/error.h"
#include "composer/optim/reduce_on_plateau.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/killed.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::fits_test {
namespace {

// Whose model has a memory, and whose data is shuffled. No max_duration.
TrainerOptions options_in(const Folder& folder) {
  TrainerOptions options = tiny_options();
  options.model = model_with_memory();
  options.train_dataloader = data::in_memory(tiny_data(16), {.batch_size = 4, .shuffle = true});
  options.max_duration = {};
  options.seed = 3;
  options.save_folder = folder / "ck";
  options.save_interval = "1ba";
  return options;
}

struct Result {
  at::Tensor weights;
  Timestamp timestamp;
  std::int64_t trained = 0;  // batches, by this process
};

using Program = std::function<void(Trainer&)>;

// Killed, as far as the disk can tell, when it begins its batch of that number; -1: not.
Result run(TrainerOptions options, const Program& program, std::int64_t dies_at = -1) {
  std::int64_t trained = 0;
  options.callbacks.add(At([&](Event event, const State&) {
    if (event == Event::BATCH_START && trained++ == dies_at) throw Killed();
  }));
  Trainer trainer(std::move(options));
  if (dies_at < 0)
    program(trainer);
  else
    CHECK_THROWS(program(trainer));
  return {weights_of(trainer), trainer.state().timestamp, trained};
}

void check_as_uninterrupted(const Program& program, const std::function<TrainerOptions(const Folder&)>& options) {
  const Folder whole_folder;
  const Result whole = run(options(whole_folder), program);
  for (std::int64_t batch = 1; batch < whole.trained; ++batch) {
    CAPTURE(batch);
    const Folder folder;
    run(options(folder), program, batch);
    const Result resumed = run(options(folder), program);
    CHECK(resumed.trained == whole.trained - batch);
    CHECK(resumed.weights.equal(whole.weights));
    CHECK(resumed.timestamp.epoch == whole.timestamp.epoch);
    CHECK(resumed.timestamp.batch == whole.timestamp.batch);
    const Result again = run(options(folder), program);
    CHECK(again.trained == 0);
    CHECK(again.weights.equal(whole.weights));
  }
}

TEST_CASE("A fit with a duration that is started again ends where it would have ended, and then does nothing") {
  check_as_uninterrupted([](Trainer& trainer) { trainer.fit("2ep"); }, options_in);
  check_as_uninterrupted([](Trainer& trainer) { trainer.fit("5ba"); }, options_in);
}

TEST_CASE("Fits one after another that are started again train what is left of each, killed after any batch") {
  check_as_uninterrupted(
      [](Trainer& trainer) {
        trainer.fit("1ep");
        trainer.fit("3ba");
        trainer.fit("1ep");
      },
      options_in);
}

TEST_CASE("A fit that counts from zero again is not begun again by a program that is started again") {
  check_as_uninterrupted(
      [](Trainer& trainer) {
        trainer.fit("5ba");
        trainer.fit({.duration = "6ba", .reset_time = true});
      },
      options_in);
  check_as_uninterrupted(
      [](Trainer& trainer) {
        trainer.fit("3ba");
        trainer.fit({.reset_time = true});
      },
      options_in);
}

TEST_CASE("A plain fit and one with a duration after it are gone on with after a kill in either") {
  check_as_uninterrupted(
      [](Trainer& trainer) {
        trainer.fit();
        trainer.fit("1ep");
      },
      [](const Folder& folder) {
        TrainerOptions options = options_in(folder);
        options.max_duration = "1ep";
        return options;
      });
}

TEST_CASE("A stop that a program asks between two fits ends the next one, and no other, also after a kill in a later") {
  for (const Stop::Kind kind : {Stop::PAUSED, Stop::FINISHED}) {
    check_as_uninterrupted(
        [kind](Trainer& trainer) {
          trainer.fit("1ep");
          trainer.state().stop.ask("no time for this one", kind);
          trainer.fit("1ep");
          trainer.fit("1ep");
        },
        options_in);
  }
}

// Asks for stops after so many batches of the whole program.
class Stops final : public Callback {
 public:
  using All = std::map<std::int64_t, Stop::Kind>;
  explicit Stops(All all) : all_(std::move(all)) {}
  void batch_end(const State& state, Logger&) override {
    if (const auto stop = all_.find(++trained_); stop != all_.end()) state.stop.ask("Stops: enough", stop->second);
  }
  void visit_state(StateVisitor& visit) override { visit("trained", trained_); }

 private:
  All all_;
  std::int64_t trained_ = 0;
};

std::function<TrainerOptions(const Folder&)> stopped(const Time& max_duration, const Stops::All& stops) {
  return [=](const Folder& folder) {
    TrainerOptions options = options_in(folder);
    options.max_duration = max_duration;
    options.callbacks.add(Stops(stops));
    return options;
  };
}

TEST_CASE("A plain fit that has ended, in any way, is not trained again in a program that goes on in a later fit") {
  const std::vector<std::pair<const char*, Program>> programs = {
      {"a plain fit and one with a duration",
       [](Trainer& trainer) {
         trainer.fit();
         trainer.fit("5ba");
       }},
      {"a plain fit and one that counts from zero again",
       [](Trainer& trainer) {
         trainer.fit();
         trainer.fit({.duration = "5ba", .reset_time = true});
       }},
      {"a plain fit, and one that counts from zero again to the same end", [](Trainer& trainer) {
         trainer.fit();
         trainer.fit({.reset_time = true});
       }}};
  const std::vector<Stops::All> stops = {{},
                                         {{3, Stop::FINISHED}},
                                         {{4, Stop::FINISHED}},
                                         {{3, Stop::PAUSED}},
                                         {{4, Stop::PAUSED}},
                                         {{2, Stop::FINISHED}, {5, Stop::FINISHED}},
                                         {{2, Stop::PAUSED}, {5, Stop::FINISHED}}};
  for (const auto& [name, program] : programs)
    for (const Stops::All& all : stops) {
      CAPTURE(std::string(name));
      CAPTURE(all.size());
      CAPTURE((all.empty() ? 0 : all.begin()->first));
      check_as_uninterrupted(program, stopped("6ba", all));
    }
}

TEST_CASE("The last plain fit of a finished program goes on to a longer max_duration, and those before it do not") {
  const Folder folder, other;
  const Program one = [](Trainer& trainer) { trainer.fit(); };
  const Program two = [](Trainer& trainer) {
    trainer.fit();
    trainer.fit("2ba");
  };
  CHECK(run(stopped("3ba", {})(folder), one).trained == 3);
  CHECK(run(stopped("5ba", {})(folder), one).timestamp.batch == 5);
  CHECK(run(stopped("3ba", {})(other), two).trained == 5);
  CHECK(run(stopped("9ba", {})(other), two).trained == 0);
}

TEST_CASE("The first batch of a fit that counts from zero again is saved after a fit of one batch") {
  const Folder folder;
  TrainerOptions options = options_in(folder);
  options.save_filename = "fit{batch}-{sample}-{token}-{epoch}";
  Trainer trainer(std::move(options));
  trainer.fit("1ba");
  const std::string before = saving::open_checkpoint(folder / "ck/latest").manifest.id;
  trainer.fit({.duration = "1ba", .reset_time = true});
  const saving::Manifest manifest = saving::open_checkpoint(folder / "ck/latest").manifest;
  CHECK(manifest.id != before);
  CHECK(manifest.number == 2);
  CHECK(manifest.fit == 1);
}

const Program kTwoFits = [](Trainer& trainer) {
  trainer.fit("5ba");
  trainer.fit({.duration = "3ba", .reset_time = true});
};

TEST_CASE("After reset_time a run goes on from what was saved last, also without a link and from a bucket") {
  for (const bool is_remote : {false, true}) {
    CAPTURE(is_remote);
    check_as_uninterrupted(kTwoFits, [=](const Folder& folder) {
      TrainerOptions options = options_in(folder);
      if (is_remote) {
        options.save_folder = "file://" + (folder / "bucket").string();
        options.save_staging_folder = (folder / "staging").string();
      } else {
        options.save_latest_filename = "";
      }
      return options;
    });
  }
}

TEST_CASE("After reset_time, from a bucket alone, a run goes on from what was saved last") {
  const Folder folder;
  const auto options = [&](const char* machine) {
    TrainerOptions made = options_in(folder);
    made.save_folder = "file://" + (folder / "bucket").string();
    made.save_staging_folder = (folder / machine).string();
    return made;
  };
  run(options("one"), kTwoFits);
  CHECK(run(options("two"), kTwoFits).trained == 0);
}

TEST_CASE("After reset_time a run goes back over a damaged checkpoint to the one that was saved before it") {
  const Folder folder, other;
  const Program program = [](Trainer& trainer) {
    trainer.fit("4ba");
    trainer.fit({.duration = "4ba", .reset_time = true});
  };
  const auto options = [](const Folder& in) {
    TrainerOptions made = options_in(in);
    made.save_filename = "ba{batch}";
    return made;
  };
  const Result whole = run(options(other), program);
  run(options(folder), program, 6);
  {
    std::fstream file(folder / "ck/ba2-2/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-4, std::ios::end);
    file.write("XXXX", 4);
  }
  const Warnings warnings;
  const Result resumed = run(options(folder), program);
  CHECK(warnings.say("going back to " + (folder / "ck/ba1-2").string()));
  CHECK(resumed.trained == 3);
  CHECK(resumed.weights.equal(whole.weights));
}

// A program of some fits that have something to train, with stops in them.
struct RandomProgram {
  explicit RandomProgram(std::uint32_t seed) : random(seed) {
    max_duration = Time(draw(3, 9), TimeUnit::BATCH);
    limit = max_duration.count();
    for (std::int64_t n = draw(2, 5); n > 0; --n) add_fit();
    if (const auto last = stops.find(trained); last != stops.end())
      last->second = Stop::FINISHED;  // the last one that is only paused goes on
  }

  void operator()(Trainer& trainer) const {
    for (const FitOptions& fit : fits) trainer.fit(fit);
  }

  std::mt19937 random;
  Time max_duration = "1ba";
  std::vector<FitOptions> fits;
  Stops::All stops;
  std::int64_t trained = 0;  // batches, by all fits

 private:
  static constexpr std::int64_t kEpoch = 4;
  std::int64_t draw(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most - least + 1));
  }

  void add_fit() {
    FitOptions fit;
    fit.reset_time = draw(0, 2) == 0;
    if (fit.reset_time) now = 0;
    if (now >= limit || draw(0, 2) != 0) {
      const bool epochs = draw(0, 2) == 0;
      const std::int64_t count = draw(1, epochs ? 2 : 6);
      fit.duration = Time(count, epochs ? TimeUnit::EPOCH : TimeUnit::BATCH);
      limit = epochs ? (now / kEpoch + count) * kEpoch : now + count;
    }
    std::int64_t trains = limit - now;
    if (draw(0, 2) == 0) {
      trains = draw(1, trains);
      stops[trained + trains] = draw(0, 1) == 0 ? Stop::FINISHED : Stop::PAUSED;
    }
    now += trains;
    trained += trains;
    fits.push_back(std::move(fit));
  }

  std::int64_t now = 0, limit = 0;
};

TEST_CASE("Random programs of fits and stops, killed and started again, end as those that nobody has killed") {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    RandomProgram program(seed);
    const Folder whole_folder, folder;
    const auto options = [&, interval = Time(1 + seed % 3, TimeUnit::BATCH)](const Folder& in) {
      TrainerOptions made = stopped(program.max_duration, program.stops)(in);
      made.save_interval = interval;
      made.save_async = seed % 2 == 0;
      if (seed % 4 == 1) made.save_latest_filename = "";
      return made;
    };
    const Program fits = [&](Trainer& trainer) { program(trainer); };
    const Result whole = run(options(whole_folder), fits);
    REQUIRE(whole.trained == program.trained);
    for (std::int64_t left = program.trained; left > 1;) {
      const auto dies_at = static_cast<std::int64_t>(program.random() % static_cast<std::uint64_t>(left));
      left = std::min(left - 1, left - dies_at);
      run(options(folder), fits, dies_at);
    }
    const Result resumed = run(options(folder), fits);
    CHECK(resumed.weights.equal(whole.weights));
    CHECK(resumed.timestamp.batch == whole.timestamp.batch);
    CHECK(resumed.timestamp.epoch == whole.timestamp.epoch);
    CHECK(run(options(folder), fits).trained == 0);
  }
}

TEST_CASE("Fits with a loader, a schedule and an evaluator of their own go on after a kill with what these remember") {
  const Program program = [](Trainer& trainer) {
    const auto plateau = [] {
      return optim::reduce_on_plateau({.monitor = "CrossEntropy", .dataloader_label = "own", .patience = "1ba"});
    };
    const auto evaluator = [] { return Evaluator{.label = "own", .dataloader = tiny_loader(5, 5)}; };
    for (const std::int64_t batch_size : {4, 2})
      trainer.fit({.train_dataloader = data::in_memory(tiny_data(12), {.batch_size = batch_size, .shuffle = true}),
                   .duration = "1ep",
                   .schedulers = {plateau()},
                   .eval_dataloader = evaluator(),
                   .eval_interval = "1ba"});
  };
  check_as_uninterrupted(program, options_in);
}

TEST_CASE("Loops of one's own with durations are gone on with after a kill in any of them") {
  check_as_uninterrupted(
      [](Trainer& trainer) {
        for (const Time& duration : {Time("3ba"), Time("2ba"), Time("4ba")}) {
          trainer.begin({.duration = duration});
          while (!trainer.done()) trainer.step();
          CHECK_FALSE(trainer.step());
          trainer.end();
        }
      },
      options_in);
}

TEST_CASE("A program that is started again with a longer duration trains on to the new end") {
  const Folder folder;
  run(options_in(folder), [](Trainer& trainer) { trainer.fit("5ba"); });
  const Result longer = run(options_in(folder), [](Trainer& trainer) { trainer.fit("7ba"); });
  CHECK(longer.trained == 2);
  CHECK(longer.timestamp.batch == 7);
}

TEST_CASE("What a program that is started again has finished is told in one line") {
  const Folder folder;
  const Program program = [](Trainer& trainer) {
    trainer.fit("2ba");
    trainer.fit("2ba");
    trainer.fit("2ba");
  };
  run(options_in(folder), program, 5);
  const Warnings warnings;
  run(options_in(folder), program);
  CHECK(warnings.say("fit: the first 2 of this program's fits had ended before "));
  CHECK(warnings.say("resumed from "));
  CHECK(warnings.texts.size() == 2);
}

TEST_CASE("A fit that follows an error is the same fit, in a program that is started again as well") {
  const Folder folder;
  {
    TrainerOptions options = options_in(folder);
    options.callbacks.add(At([n = 0](Event event, const State&) mutable {
      if (event == Event::BATCH_START && ++n == 3) throw Killed();
    }));
    Trainer trainer(std::move(options));
    CHECK_THROWS(trainer.fit("5ba"));
    trainer.begin({.duration = "5ba"});
    trainer.step();
    trainer.save_checkpoint("by-hand");
  }
  const Result result = run(options_in(folder), [](Trainer& trainer) { trainer.fit("5ba"); });
  CHECK(result.timestamp.batch == 2 + 5);  // the second try has begun at batch 2
}

TEST_CASE("After a signal has ended a fit, those after it return at once, until the program clears the request") {
  TrainerOptions options = tiny_options();
  options.handle_signals = true;
  const auto log = std::make_shared<EventLog>();
  options.callbacks = {log, At([](Event event, const State& state) {
                         if (event == Event::BATCH_START && state.timestamp.batch == 1) std::raise(SIGTERM);
                       })};
  Trainer trainer(std::move(options));
  trainer.fit("1ep");
  REQUIRE(trainer.state().timestamp.batch == 2);
  log->names.clear();
  trainer.fit("3ep");
  trainer.begin({.duration = "1ep"});
  CHECK(trainer.done());
  CHECK_FALSE(trainer.step());
  trainer.end();
  CHECK(trainer.interrupted_by() == SIGTERM);
  CHECK(log->names.empty());
  trainer.state().stop.clear();
  trainer.fit("1ep");
  CHECK(trainer.interrupted_by() == 0);
  CHECK(trainer.state().timestamp.epoch == 1);
}

TEST_CASE("A program of several fits that a signal has ended trains all that is left when it is started again") {
  const Folder folder;
  const Program program = [](Trainer& trainer) {
    trainer.fit("3ba");
    trainer.fit("3ba");
  };
  const Folder other;
  const Result whole = run(options_in(other), program);
  for (const std::int64_t batch : {0, 1, 4}) {
    const Folder interrupted;
    TrainerOptions options = options_in(interrupted);
    options.handle_signals = true;
    options.callbacks.add(At([batch](Event event, const State& state) {
      if (event == Event::BATCH_START && state.timestamp.batch == batch) std::raise(SIGTERM);
    }));
    run(std::move(options), program);
    const Result resumed = run(options_in(interrupted), program);
    CHECK(resumed.weights.equal(whole.weights));
    CHECK(resumed.trained == 6 - (batch + 1));
  }
}

saving::Manifest saved(const Folder& folder, const char* name) {
  return saving::open_checkpoint(folder / "ck" / name).manifest;
}

TEST_CASE("What a program saves by name keeps its weights when it is started again, until a fit goes on") {
  const Folder folder;
  Trainer* now = nullptr;
  const auto options = [&] {
    TrainerOptions all = options_in(folder);
    all.callbacks.add(At([&](Event event, const State&) {
      if (event == Event::FIT_START) now->save_checkpoint("start");
    }));
    return all;
  };
  std::vector<std::string> paths;
  const Program program = [&](Trainer& trainer) {
    now = &trainer;
    paths = {trainer.save_checkpoint("before")};
    trainer.fit("2ba");
    paths.push_back(trainer.save_checkpoint("between"));
    trainer.fit("4ba");
    trainer.save_checkpoint("after");
  };
  run(options(), program, 4);
  const char* const names[] = {"before", "between", "start"};
  std::vector<std::string> before, after;
  for (const char* name : names) before.push_back(saved(folder, name).id);
  const Warnings warnings;
  run(options(), program);
  for (const char* name : names) {
    after.push_back(saved(folder, name).id);
    CHECK(warnings.say(join(name, " stays as the run has saved it before ")));
  }
  CHECK(after == before);
  CHECK(saved(folder, "between").time.batch == 2);
  CHECK(saved(folder, "after").time.batch == 6);
  CHECK(paths == std::vector<std::string>{folder / "ck/before", folder / "ck/between"});
}

TEST_CASE("What a program that is started again saves under a new name has the weights that it goes on with") {
  const Folder folder;
  const auto program = [](const char* name) {
    return [=](Trainer& trainer) {
      trainer.fit("2ba");
      trainer.save_checkpoint(name);
      trainer.fit("4ba");
    };
  };
  run(options_in(folder), program("old"), 4);
  const Warnings warnings;
  run(options_in(folder), program("new"));
  CHECK(saved(folder, "old").time.batch == 2);
  CHECK(saved(folder, "new").time.batch == 4);
  run(options_in(folder), program("ep{epoch}-ba{batch}"));
  CHECK(saved(folder, "ep1-ba6").time.batch == 6);
}

TEST_CASE("A checkpoint by name from which a run goes on keeps its weights, also if its program changes them again") {
  const Folder folder;
  const Program program = [](Trainer& trainer) {
    trainer.fit("2ba");
    {
      const at::NoGradGuard no_grad;
      for (const at::Tensor& parameter : trainer.state().model->parameters()) parameter.mul_(0.5);
    }
    trainer.save_checkpoint("half");
    trainer.fit("2ba");
  };
  run(options_in(folder), program, 2);
  const std::string id = saved(folder, "half").id;
  const Warnings warnings;
  run(options_in(folder), program, 0);
  CHECK(warnings.say("half stays as the run has saved it before "));
  CHECK(saved(folder, "half").id == id);
}

TEST_CASE("Every rank hears of the named checkpoint that keeps its weights") {
  const Folder folder;
  const auto run_in_ranks = [&](std::int64_t dies_at) {
    return dist::test::results_in_ranks(2, [&](const std::shared_ptr<dist::World>& world) {
      const Warnings warnings;
      TrainerOptions options = options_in(folder);
      options.world = world;
      std::string path;
      Trainer trainer(std::move(options));
      trainer.fit("2ba");
      path = trainer.save_checkpoint("mine");
      trainer.begin({.duration = "4ba"});
      while (trainer.state().timestamp.batch != dies_at && trainer.step()) {
      }
      if (dies_at < 0) trainer.end();
      return path;
    });
  };
  run_in_ranks(4);
  const std::string id = saved(folder, "mine").id;
  CHECK(run_in_ranks(-1) == std::vector<std::string>(2, folder / "ck/mine"));
  CHECK(saved(folder, "mine").id == id);
}

}  // namespace
}  // namespace composer::test::fits_test
