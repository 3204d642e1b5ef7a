// What ranks must not decide apart: when training is over and what is evaluated, whatever one of them alone is asked
// for; where files are; which learning rate is suggested.
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "composer/callbacks/nan_monitor.h"
#include "composer/core/error.h"
#include "composer/trainer/evaluations.h"
#include "composer/util/random.h"
#include "composer/util/threads_here.h"
#include "tests/support/folder.h"
#include "tests/support/in_ranks.h"
#include "tests/trainer/fits_in_ranks.h"

namespace composer::test::ranks_agree_test {
namespace {

using namespace std::chrono_literals;
using dist::test::errors_in_ranks;
using dist::test::results_in_ranks;

// Where each rank's fit has ended, and why.
struct End {
  std::int64_t batch = -1;
  std::string why;
  bool operator==(const End&) const = default;
};

// Trains on each rank with the function, which gets a trainer without limits to speak of.
std::vector<End> ends_of(int ranks, const std::function<void(Trainer&, int rank)>& train,
                         const std::function<void(TrainerOptions&, int rank)>& change = {}) {
  std::vector<End> ends(static_cast<std::size_t>(ranks));
  dist::Options options;
  options.collective_timeout = 10s;  // ranks that disagree would wait for each other
  in_ranks(
      ranks,
      [&](dist::World& world) {
        use_threads_here(1);
        TrainerOptions given = tiny_options();
        given.max_duration = "100ep";
        given.seed = 17;
        given.world = std::shared_ptr<dist::World>(std::shared_ptr<void>(), &world);
        if (change) change(given, world.rank());
        Trainer trainer(std::move(given));
        train(trainer, world.rank());
        ends[static_cast<std::size_t>(world.rank())] = {trainer.state().timestamp.batch, trainer.state().stop.why()};
      },
      options);
  return ends;
}

// One rank asks at the end of the third batch.
void asks_late(TrainerOptions& options, int rank, int asking) {
  options.callbacks.add(At([rank, asking](Event event, const State& state) {
    if (event == Event::BATCH_END && state.timestamp.batch == 3 && rank == asking) state.stop.ask("enough");
  }));
}

TEST_CASE("A loop of one's own that asks done() ends on all ranks after the same batch if one is asked to stop") {
  for (const int asking : {0, 1}) {
    CAPTURE(asking);
    const auto ends = ends_of(
        2,
        [](Trainer& trainer, int) {
          trainer.begin();
          while (!trainer.done()) trainer.step();
          trainer.end();
        },
        [asking](TrainerOptions& options, int rank) { asks_late(options, rank, asking); });
    for (const End& end : ends) CHECK(end == End{3, "enough"});
  }
}

TEST_CASE("A loop of one's own with batches of its own ends likewise, and trains no batch after the stop") {
  const auto ends = ends_of(
      2,
      [](Trainer& trainer, int) {
        trainer.begin();
        for (int batch = 0; batch < 50 && !trainer.done(); ++batch) trainer.step(tiny_data(4));
        trainer.end();
      },
      [](TrainerOptions& options, int rank) {
        options.train_dataloader = AnyDataSpec();
        options.max_duration = "100ba";
        asks_late(options, rank, 1);
      });
  for (const End& end : ends) CHECK(end == End{3, "enough"});
}

TEST_CASE("done() is true on all ranks where the limit is reached") {
  const auto ends = ends_of(
      2,
      [](Trainer& trainer, int) {
        trainer.begin();
        while (!trainer.done()) trainer.step();
        CHECK_FALSE(trainer.step());
        trainer.end();
      },
      [](TrainerOptions& options, int) { options.max_duration = "5ba"; });
  for (const End& end : ends) CHECK(end.batch == 5);
}

TEST_CASE("Stops that threads of several ranks ask for at any moment end all ranks after the same batch") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    const auto ends = ends_of(3, [seed](Trainer& trainer, int rank) {
      RandomStream random(hash64(seed, static_cast<std::uint64_t>(rank)));
      const auto pause = std::chrono::microseconds(static_cast<int>(random.uniform() * 30'000));
      const bool asks = random.uniform() < 0.6 || rank == 1;
      std::jthread thread([&, pause, asks] {
        std::this_thread::sleep_for(pause);
        if (asks) trainer.state().stop.ask("any moment", random.uniform() < 0.5 ? Stop::FINISHED : Stop::PAUSED);
      });
      trainer.fit();
    });
    for (const End& end : ends) CHECK(end == ends.front());
    CHECK(ends.front().why == "any moment");
  }
}

TEST_CASE("Rank 0 decides when an evaluation is due whose interval is a function") {
  std::vector<std::vector<std::int64_t>> batches(2);  // after which each rank has evaluated
  ends_of(
      2, [](Trainer& trainer, int) { trainer.fit(); },
      [&](TrainerOptions& options, int rank) {
        options.max_duration = "12ba";
        options.eval_dataloader = tiny_loader(4, 2);
        options.callbacks.add(At([&batches, rank](Event event, const State& state) {
          if (event == Event::EVAL_END) batches[static_cast<std::size_t>(rank)].push_back(state.timestamp.batch);
        }));
        options.eval_interval = [rank](Event event, const State& state) {
          return event == Event::BATCH_END && state.timestamp.batch % (3 + rank) == 0;
        };
      });
  CHECK(batches[0] == std::vector<std::int64_t>{3, 6, 9, 12});
  CHECK(batches[1] == batches[0]);
}

TEST_CASE("Ranks ask rank 0 about intervals that functions and clocks decide, and about no others") {
  CHECK(differs_by_rank(Interval([](Event, const State&) { return true; })));
  CHECK(differs_by_rank("90sec"));
  for (const Interval& interval : {Interval("1ep"), Interval("10ba"), Interval("0.5dur"), Interval("64sp")})
    CHECK_FALSE(differs_by_rank(interval));
}

TEST_CASE("Ranks agree on the seconds that training has taken") {
  for (const std::int64_t shards : {0, 2}) {
    CAPTURE(shards);
    const auto times = results_in_ranks(2, [&](const WorldPointer& world) {
      std::vector<Seconds> times;
      TrainerOptions options = tiny_options();
      options.train_dataloader = tiny_loader(15, 4);
      options.callbacks = {At([&](Event event, const State& state) {
        if (event == Event::BATCH_END) times.push_back(state.timestamp.total_wct);
      })};
      options.distributed.virtual_shards = shards;
      options.max_duration = "2ep";
      fit_in(world, std::move(options));
      return times;
    });
    CHECK(times[0].size() == 8);
    CHECK(times[0].front().count() > 0);
    CHECK(times[0] == times[1]);
  }
}

TEST_CASE("A NaN of one rank ends all, and the file of its microbatch has the rank in its name") {
  const Folder folder;
  const auto errors = errors_of_fits(2, [&](TrainerOptions& options, int) {
    Batch data = tiny_data(8);
    data.at("input")[7].fill_(std::nan(""));
    options.train_dataloader = data::in_memory(std::move(data), {.batch_size = 8, .shuffle = false});
    options.callbacks = {callbacks::NaNMonitor({.folder = (folder / "nan").string()})};
  });
  for (const std::string& error : errors) CHECK_FALSE(error.empty());
  CHECK(std::filesystem::exists(folder / "nan" / "nan-ep0-ba0-rank1.safetensors"));
}

TEST_CASE("A fit that would return at once on one rank, and train on the others, is a ConfigError on all") {
  const auto errors = errors_in_ranks(2, [&](const WorldPointer& world) {
    const Warnings warnings;
    TrainerOptions options = tiny_options();
    options.handle_signals = true;
    options.callbacks = {At([&](Event event, const State& state) {
      if (event == Event::BATCH_START && state.timestamp.batch == 1 && world->rank() == 0) std::raise(SIGTERM);
    })};
    options.world = world;
    Trainer trainer(std::move(options));
    trainer.fit();
    if (trainer.interrupted_by() != SIGTERM) throw Error("was not interrupted");
    if (world->rank() == 0) trainer.state().stop.clear();
    trainer.fit("1ep");
  });
  check_all_say(errors, "fit: the ranks differ: rank 0 has this one = begins; rank 1 has this one = returns at once");
}

TEST_CASE("Ranks look for a learning rate together, and find what one process finds") {
  const auto find = [](const WorldPointer& world) {
    TrainerOptions options = tiny_options();
    options.train_dataloader = tiny_loader(15, 4);
    options.model->to(at::kDouble);
    Batch data = tiny_data(15);
    data.set("input", data.at("input").to(at::kDouble));
    options.train_dataloader = data::in_memory(std::move(data), {.batch_size = 4, .shuffle = false});
    options.world = world;
    Trainer trainer(std::move(options));
    const at::Tensor before = weights_of(trainer).clone();
    const LrCurve curve = trainer.find_lr({.start_lr = 1e-3, .end_lr = 1, .num_batches = 8});
    CHECK(at::equal(weights_of(trainer), before));
    std::vector<double> losses;
    for (const LrPoint& point : curve.points) losses.push_back(point.loss);
    return losses;
  };
  const std::vector<double> alone = find(dist::World::alone());
  CHECK(alone.size() == 8);
  for (const std::vector<double>& rank : results_in_ranks(2, find)) {
    REQUIRE(rank.size() == alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i) CHECK(rank[i] == doctest::Approx(alone[i]).epsilon(1e-12));
  }
}

}  // namespace
}  // namespace composer::test::ranks_agree_test
