// Trainers that resume together are refused before a kill could leave them without a checkpoint in common.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "composer/checkpoint/folder.h"
#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/killed.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::resume_with_turns_test {
namespace {

Time ba(std::int64_t batches) { return Time(batches, TimeUnit::BATCH); }

constexpr const char* kNames[] = {"judge", "forger", "third"};

// Of trainers that run without an end.
TrainerOptions one_of(const Folder& folder, std::size_t own, std::size_t trainers = 2) {
  TrainerOptions options = tiny_options();
  options.run_name = kNames[own];
  options.max_duration = {};
  options.seed = 3;
  options.save_folder = folder / kNames[own];
  options.save_num_checkpoints_to_keep = 3;
  for (std::size_t other = 0; other < trainers; ++other)
    if (other != own) options.resume_with.push_back(folder / kNames[other]);
  return options;
}

struct Two {
  explicit Two(const Folder& folder, Time interval, std::int64_t keep = 3, bool async = true)
      : judge(make(folder, 0, interval, keep, async)), forger(make(folder, 1, interval, keep, async)) {}
  static TrainerOptions make(const Folder& folder, std::size_t own, Time interval, std::int64_t keep, bool async) {
    TrainerOptions options = one_of(folder, own);
    options.save_interval = interval;
    options.save_num_checkpoints_to_keep = keep;
    options.save_async = async;
    return options;
  }
  std::int64_t batch() const {
    CHECK(judge.state().timestamp.batch == forger.state().timestamp.batch);
    return judge.state().timestamp.batch;
  }
  Trainer judge, forger;
};

TEST_CASE("Turns of unequal length are refused before the second trainer is saved, and the program can begin again") {
  const Folder folder;
  const Warnings warnings;
  {
    Two gan(folder, "10ba");
    gan.judge.fit("5ba");
    CHECK_THROWS_WITH_AS(gan.forger.fit("1ba"), doctest::Contains("they would have no checkpoint in common"), RunError);
    CHECK_THROWS_WITH(gan.forger.fit("1ba"), doctest::Contains("let them train equally many batches"));
  }
  Two again(folder, "10ba");
  CHECK(warnings.say("beginning again"));
  CHECK(again.batch() == 0);
  for (int turn = 0; turn < 6; ++turn) CHECK_NOTHROW((again.judge.fit("5ba"), again.forger.fit("5ba")));
}

TEST_CASE("Turns that become unequal are refused the second time, also where all checkpoints are kept") {
  const Folder folder;
  const Warnings quiet;
  {
    Two gan(folder, "10ba", -1);
    gan.judge.fit("5ba"), gan.forger.fit("5ba");
    gan.judge.fit("5ba"), gan.forger.fit("1ba");
    gan.judge.fit("4ba");
    CHECK_THROWS_WITH(gan.forger.fit("1ba"), doctest::Contains("they would go back further and further"));
  }
  CHECK(Two(folder, "10ba", -1).batch() == 5);
}

TEST_CASE("A trainer that trains alone is refused before the last checkpoint in common is deleted, again and again") {
  for (const bool reset : {false, true}) {
    CAPTURE(reset);
    const Folder folder;
    const Warnings quiet;
    {
      Two gan(folder, "2ba");
      const FitOptions fit{.duration = "2ba", .reset_time = reset};
      gan.judge.fit(fit), gan.forger.fit(fit);
      gan.judge.fit(fit), gan.judge.fit(fit);
      for (int time = 0; time < 8; ++time)
        CHECK_THROWS_WITH(gan.judge.fit(fit), doctest::Contains("they would have no checkpoint in common"));
      CHECK_NOTHROW((gan.forger.fit(fit), gan.forger.fit(fit)));
      CHECK_NOTHROW(gan.judge.fit(fit));
    }
    const Two again(folder, "2ba");
    CHECK(again.batch() == (reset ? 2 : 6));
  }
}

TEST_CASE("Equal turns train on, whether they end at an interval or not, and however many checkpoints are kept") {
  struct Row {
    std::int64_t turn, interval;
  };
  for (const auto& [turn, interval] : {Row{3, 4}, Row{10, 25}, Row{4, 4}, Row{1, 2}})
    for (const auto& [keep, async] : {std::pair<std::int64_t, bool>{-1, true}, {3, true}, {3, false}}) {
      CAPTURE(turn);
      CAPTURE(keep);
      const Folder folder;
      {
        Two gan(folder, ba(interval), keep, async);
        for (int fit = 0; fit < 4; ++fit) gan.judge.fit(ba(turn)), gan.forger.fit(ba(turn));
        CHECK(gan.batch() == 4 * turn);
      }
      const Warnings quiet;
      Two steps(folder, ba(interval), keep, async);
      for (int fit = 0; fit < 4; ++fit) steps.judge.fit(ba(turn)), steps.forger.fit(ba(turn));  // as before
      const FitOptions fit{.duration = "22ba"};
      steps.judge.begin(fit), steps.forger.begin(fit);
      while (!steps.judge.done())
        for (Trainer* one : {&steps.judge, &steps.forger})
          for (std::int64_t batch = 0; batch < std::min<std::int64_t>(turn, 4); ++batch) one->step();
      CHECK_NOTHROW((steps.judge.end(), steps.forger.end()));
    }
}

TEST_CASE("A trainer may be far ahead while all checkpoints are kept, and is no more than two at the beginning") {
  const Folder folder;
  const Warnings quiet;
  {
    Two gan(folder, "2ba", -1);
    CHECK_THROWS_WITH(gan.judge.fit("20ba"), doctest::Contains("no checkpoint in common"));
    CHECK(gan.judge.state().timestamp.batch == 6);
  }
  {
    Two gan(folder, "2ba", -1);
    CHECK(gan.batch() == 0);
    gan.judge.fit("4ba"), gan.forger.fit("4ba");
    CHECK_NOTHROW(gan.judge.fit("20ba"));
  }
  CHECK(Two(folder, "2ba", -1).batch() == 4);
}

// The next start goes on from where both are. What a paused fit had left is trained by that fit then, so weights after
// as many fits are others.
TEST_CASE("Equal turns that a stop ends can be killed at every event") {
  const auto run = [](const Folder& folder, std::int64_t dies) {
    std::int64_t events = 0;
    const auto make = [&](std::size_t own) {
      TrainerOptions options = one_of(folder, own);
      options.max_duration = "9ep";
      options.save_num_checkpoints_to_keep = 4;  // a turn is saved three times where an epoch ends
      options.save_interval = "1ba";
      options.callbacks = {At([&, dies](Event event, const State& state) {
        if (event == Event::BATCH_END) state.stop.ask("the other's turn");
        if (++events == dies) throw Killed();
      })};
      return options;
    };
    Trainer judge(make(0)), forger(make(1));
    CHECK(judge.state().timestamp.batch == forger.state().timestamp.batch);
    for (int turn = 1; turn <= 4; ++turn) judge.fit(), forger.fit();
    return events;
  };
  const Folder whole;
  const Warnings quiet;
  const std::int64_t events = run(whole, -1);
  for (std::int64_t dies = events / 5; dies <= events; dies += 5) {
    CAPTURE(dies);
    const Folder folder;
    CHECK_THROWS(run(folder, dies));
    CHECK_NOTHROW(run(folder, -1));
  }
}

TEST_CASE("A trainer that is made again alone is an error also if nothing was saved since the fits began") {
  const Folder folder;
  const auto make = [&](std::size_t own) { return Two::make(folder, own, "10ba", 3, /*async=*/true); };
  Trainer judge(make(0));
  std::optional<Trainer> forger(std::in_place, make(1));
  judge.begin(FitOptions{.duration = "4ba"}), forger->begin(FitOptions{.duration = "4ba"});
  judge.step(), forger->step();
  forger.reset();
  forger.emplace(make(1));
  CHECK_THROWS_WITH(forger->begin(FitOptions{.duration = "4ba"}),
                    doctest::Contains("make all of these trainers again"));
}

TEST_CASE("A checkpoint by hand before the first of both does not keep a program from beginning again") {
  const Folder folder;
  const Warnings warnings;
  for (int start = 0; start < 4; ++start) {
    Two gan(folder, "2ba");
    CHECK(gan.batch() == 0);
    gan.judge.begin(FitOptions{.duration = "8ba"}), gan.forger.begin(FitOptions{.duration = "8ba"});
    gan.judge.step();
    gan.judge.save_checkpoint("mine");
    for (int batch = 0; batch < start; ++batch) gan.judge.step();
    if (start % 2 == 1) gan.forger.save_checkpoint("untrained");
  }
  Two gan(folder, "2ba");
  for (int turn = 0; turn < 5; ++turn) CHECK_NOTHROW((gan.judge.fit("2ba"), gan.forger.fit("2ba")));
}

// A random program: rounds of fits, or of turns within one fit.
struct Round {
  bool resets = false, steps = false;
  std::vector<std::int64_t> batches;   // of each trainer: of its fit, or of each of its turns
  std::int64_t duration = 0;           // of the fits with steps
  std::optional<std::size_t> by_hand;  // who saves at its end
};

struct Program {
  std::size_t trainers = 2;
  std::int64_t interval = 1, keep = 3;
  bool async = true;
  std::vector<Round> rounds;
};

Program make_program(std::mt19937& random) {
  const auto up_to = [&](unsigned largest) { return static_cast<std::int64_t>(1 + random() % largest); };
  Program program{.trainers = 2 + random() % 4 / 3,
                  .interval = up_to(5),
                  .keep = std::vector<std::int64_t>{3, 3, 4, -1}.at(random() % 4),
                  .async = random() % 2 == 0};
  const bool is_equal = random() % 3 != 0;
  for (std::int64_t rounds = 1 + up_to(4); rounds > 0; --rounds) {
    Round round{.resets = random() % 4 == 0, .steps = random() % 3 == 0, .duration = up_to(10)};
    round.batches.assign(program.trainers, up_to(6));
    if (!is_equal)
      for (std::int64_t& batches : round.batches)
        if (random() % 2 == 0) batches = up_to(6);
    if (random() % 4 == 0) round.by_hand = random() % program.trainers;
    program.rounds.push_back(std::move(round));
  }
  return program;
}

struct Run {
  std::vector<at::Tensor> weights;
  std::string refused;  // what the error says
  bool killed = false;
  std::int64_t events = 0;
};

void play(const Program& program, std::vector<std::unique_ptr<Trainer>>& trainers) {
  for (std::size_t number = 0; number < program.rounds.size(); ++number) {
    const Round& round = program.rounds[number];
    const auto fit = [&](std::int64_t batches) {
      return FitOptions{.duration = ba(batches), .reset_time = round.resets};
    };
    if (round.steps) {
      for (auto& one : trainers) one->begin(fit(round.duration));
      const auto is_done = [](const auto& one) { return one->done(); };
      while (!std::ranges::all_of(trainers, is_done))
        for (std::size_t one = 0; one < trainers.size(); ++one)
          for (std::int64_t batch = 0; batch < round.batches[one] && trainers[one]->step();) ++batch;
      for (auto& one : trainers) one->end();
    } else {
      for (std::size_t one = 0; one < trainers.size(); ++one) trainers[one]->fit(fit(round.batches[one]));
    }
    if (round.by_hand) trainers[*round.by_hand]->save_checkpoint(join("mine", number));
  }
}

Run run(const Folder& folder, const Program& program, std::int64_t dies = -1) {
  Run result;
  const auto make = [&](std::size_t own) {
    TrainerOptions options = one_of(folder, own, program.trainers);
    options.model = model_with_memory();
    options.save_interval = ba(program.interval);
    options.save_num_checkpoints_to_keep = program.keep;
    options.save_async = program.async;
    options.callbacks = {At([&, dies](Event, const State&) {
      if (dies > 0 && result.events >= dies) throw Killed();  // also at those that are fired on the way out
      ++result.events;
    })};
    return std::make_unique<Trainer>(std::move(options));
  };
  std::vector<std::unique_ptr<Trainer>> trainers;
  try {
    for (std::size_t own = 0; own < program.trainers; ++own) trainers.push_back(make(own));
    play(program, trainers);
    for (auto& one : trainers) result.weights.push_back(weights_of(*one));
  } catch (const std::exception& error) {
    result.killed = dies > 0 && result.events >= dies;
    if (!result.killed) result.refused = describe(error);
  }
  return result;
}

std::string text_of(const Program& program) {
  std::string text = join(program.trainers, " trainers, every ", program.interval, "ba, keep ", program.keep);
  for (const Round& round : program.rounds) {
    text += join("; ", round.resets ? "reset " : "", round.steps ? "steps of " : "fits of ");
    for (const std::int64_t batches : round.batches) text += join(batches, ' ');
    if (round.steps) text += join("until ", round.duration);
    if (round.by_hand) text += join(" by hand ", *round.by_hand);
  }
  return text;
}

TEST_CASE("A random program is refused, or ends with the same weights after a kill at any event") {
  const char* const given = std::getenv("COMPOSER_TURNS");  // NOLINT(concurrency-mt-unsafe)
  std::mt19937 random(given ? std::random_device()() : 11);
  const Warnings quiet;
  int stopped = 0, resumed = 0;
  for (int number = 0; number < (given ? std::atoi(given) : 25); ++number) {
    const Program program = make_program(random);
    CAPTURE(text_of(program));
    const Folder other, folder;
    const Run whole = run(other, program);
    const std::int64_t dies = 1 + static_cast<std::int64_t>(random()) % whole.events;
    CAPTURE(dies);
    CHECK(run(folder, program, dies).killed);
    const Run again = run(folder, program);
    if (!whole.refused.empty()) {
      for (const std::string& refused : {whole.refused, again.refused})  // and not at its start
        CHECK_MESSAGE(refused.find("let them train equally many batches") != std::string::npos, refused);
      ++stopped;
      continue;
    }
    CHECK_MESSAGE(again.refused.empty(), again.refused);
    REQUIRE(again.weights.size() == program.trainers);
    for (std::size_t one = 0; one < program.trainers; ++one) CHECK(again.weights[one].equal(whole.weights[one]));
    ++resumed;
  }
  if (!given) {
    CHECK(stopped > 1);
    CHECK(resumed > 10);
  }
}

}  // namespace
}  // namespace composer::test::resume_with_turns_test
