// Several ranks end and evaluate after the same batches, whatever one of them alone is asked for.
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "composer/trainer/evaluations.h"
#include "composer/util/random.h"
#include "composer/util/threads_here.h"
#include "tests/support/doctest.h"
#include "tests/support/in_ranks.h"
#include "tests/support/tiny.h"

namespace composer::test::ranks_agree_test {
namespace {

using namespace std::chrono_literals;

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

}  // namespace
}  // namespace composer::test::ranks_agree_test
