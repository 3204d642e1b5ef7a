#include "composer/data/replay_buffer.h"

#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/data/for_rank.h"
#include "composer/data/sum_tree.h"
#include "composer/trainer/trainer.h"
#include "composer/util/random.h"
#include "tests/data/support.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::replay_buffer_test {

using data::ReplayBuffer;
using data::ReplayBufferOptions;
using test::numbers_of;
using Rows = std::vector<std::int64_t>;

namespace {

Batch numbered(std::int64_t from, std::int64_t to) {
  return {{"state", at::arange(from, to).unsqueeze(1).expand({to - from, 2})}, {"reward", at::arange(from, to)}};
}

// All transitions in the buffer, by drawing until each has most likely been seen.
std::set<std::int64_t> contents(const ReplayBuffer& buffer) {
  std::set<std::int64_t> seen;
  for (std::int64_t number = 0; number < 300; ++number)
    for (const std::int64_t reward : numbers_of(buffer.sample(number)["reward"])) seen.insert(reward);
  return seen;
}

void load(const ReplayBuffer& from, ReplayBuffer& into) {
  StateDict state;
  StateVisitor saving = StateVisitor::saving(state);
  const_cast<ReplayBuffer&>(from).visit_state(saving);
  StateVisitor loading = StateVisitor::loading(state, "replay");
  into.visit_state(loading);
}

bool draw_the_same(const ReplayBuffer& a, const ReplayBuffer& b) {
  for (std::int64_t number = 0; number < 20; ++number) {
    const Batch one = a.sample(number), other = b.sample(number);
    for (const auto& [name, tensor] : one)
      if (!other[name].equal(tensor)) return false;
  }
  return true;
}

// Acts after each batch: adds transitions that depend on the place alone, and sets priorities by the batch.
class Actor final : public Callback {
 public:
  explicit Actor(std::shared_ptr<ReplayBuffer> replay) : replay_(std::move(replay)) {}
  void batch_end(const State& state, Logger&) override {
    Batch seen = test::tiny_data(3 + state.timestamp.batch);
    for (auto& [name, tensor] : seen) tensor = tensor.slice(0, state.timestamp.batch, state.timestamp.batch + 3);
    replay_->push(seen);
    if (state.batch.contains("weight"))
      replay_->update_priorities(state.batch["index"], state.batch["input"].abs().sum(1));
  }

 private:
  std::shared_ptr<ReplayBuffer> replay_;
};

}  // namespace

TEST_CASE("A sum tree finds numbers in proportion to their size, whatever was changed before") {
  for (std::uint64_t number = 0; number < 50; ++number) {
    RandomStream random(number);
    const std::size_t size = 1 + random.below(40);
    data::detail::SumTree tree(size), fresh(size);
    std::vector<double> values(size);
    for (int change = 0; change < 200; ++change) {
      const std::size_t i = random.below(size);
      values[i] = random.below(3) == 0 ? 0 : random.uniform();
      tree.set(i, values[i]);
    }
    values[0] = 0.5;
    tree.set(0, 0.5);
    for (std::size_t i = 0; i < size; ++i) fresh.set(i, values[i]);
    CHECK(tree.total() == fresh.total());
    double sum = 0;
    for (std::size_t i = 0; i < size; ++i) {
      if (values[i] > 1e-9) CHECK(tree.find(sum + values[i] / 2) == i);
      sum += values[i];
    }
    CHECK(values[tree.find(std::nextafter(tree.total(), 2e9))] > 0);
  }
}

TEST_CASE("A buffer keeps the last transitions, whole or in pieces, and draws each as often") {
  for (const std::int64_t at_once : {1, 3, 7, 10, 25}) {
    CAPTURE(at_once);
    ReplayBuffer buffer({.capacity = 10, .batch_size = 16});
    for (std::int64_t from = 0; from < 25; from += at_once) {
      buffer.push(numbered(from, std::min<std::int64_t>(25, from + at_once)));
      CHECK(buffer.size() == std::min<std::int64_t>(10, std::min<std::int64_t>(25, from + at_once)));
    }
    CHECK(contents(buffer) == std::set<std::int64_t>{15, 16, 17, 18, 19, 20, 21, 22, 23, 24});
    const Batch batch = buffer.sample(3);
    CHECK(batch["state"].select(1, 1).equal(batch["reward"]));
    CHECK_FALSE(batch.contains("weight"));
  }
  ReplayBuffer buffer({.capacity = 4, .batch_size = 4000});
  buffer.push(numbered(0, 4));
  const at::Tensor counts = at::bincount(buffer.sample(0)["reward"]);
  for (std::int64_t i = 0; i < 4; ++i) CHECK(std::abs(counts[i].item<double>() - 1000) < 5 * 27.4);
}

TEST_CASE("Transitions are drawn in proportion to their priority, and weights correct for it") {
  ReplayBuffer buffer({.capacity = 8, .batch_size = 4000, .alpha = 0.5, .beta = 1});
  buffer.push(numbered(0, 4));
  buffer.update_priorities(at::arange(4), at::tensor({-1.0, 4.0, 9.0, 16.0}));
  const Batch batch = buffer.sample(0);
  const at::Tensor counts = at::bincount(batch["index"]);
  for (std::int64_t i = 0; i < 4; ++i) CHECK(std::abs(counts[i].item<double>() - 400 * double(i + 1)) < 5);
  // (4 * (i + 1) / 10)^-1, divided by that of i = 0
  CHECK(batch["weight"].allclose(batch["index"].add(1).to(at::kFloat).reciprocal(), 1e-4));
  buffer.set_beta(0);
  CHECK(buffer.sample(0)["weight"].eq(1).all().item<bool>());

  buffer.push(numbered(4, 5));  // as likely as the likeliest
  const at::Tensor with_new = at::bincount(buffer.sample(1)["index"]);
  CHECK(std::abs(with_new[4].item<double>() - 4000 * 4.0 / 14) < 5);
}

TEST_CASE("A buffer that is loaded draws what the saved one draws, and goes on like it") {
  for (const double alpha : {0.0, 0.7})
    for (const std::int64_t pushed : {0, 3, 10, 23}) {
      CAPTURE(pushed);
      const ReplayBufferOptions options{.capacity = 10, .batch_size = 5, .alpha = alpha};
      ReplayBuffer buffer(options), loaded(options), larger({.capacity = 17, .batch_size = 5, .alpha = alpha});
      loaded.push(numbered(100, 110));
      if (pushed > 0) buffer.push(numbered(0, pushed));
      if (alpha > 0 && pushed > 0) buffer.update_priorities(at::zeros({1}, at::kLong), at::ones({1}).mul(5));
      load(buffer, loaded);
      load(buffer, larger);
      CHECK(loaded.size() == buffer.size());
      CHECK(larger.size() == buffer.size());
      for (ReplayBuffer* each : {&buffer, &loaded, &larger}) each->push(numbered(50, 54));
      CHECK(draw_the_same(buffer, loaded));
      larger.push(numbered(54, 64));  // the oldest of 10 give way: 3 of 10 + 4 + 10
      if (pushed == 23) CHECK(*contents(larger).begin() == 20);
    }
  const ReplayBuffer full = [] {
    ReplayBuffer buffer({.capacity = 10, .batch_size = 5});
    buffer.push(numbered(0, 10));
    return buffer;
  }();
  ReplayBuffer smaller({.capacity = 9, .batch_size = 5});
  CHECK_THROWS_WITH_AS(load(full, smaller), doctest::Contains("has 10 transitions, more than the capacity, 9"),
                       CheckpointError);
}

TEST_CASE("What is drawn depends on the place, and an epoch has the length asked for") {
  const auto buffer =
      std::make_shared<ReplayBuffer>(ReplayBufferOptions{.capacity = 50, .batch_size = 6, .batches_per_epoch = 3});
  buffer->push(numbered(0, 50));
  std::vector<Rows> batches;
  for (const std::int64_t epoch : {0, 1}) {
    buffer->seek(epoch, 0);
    while (const auto batch = buffer->next()) batches.push_back(numbers_of(batch->at("reward")));
  }
  CHECK(batches.size() == 6);
  CHECK(std::set(batches.begin(), batches.end()).size() == 6);
  buffer->seek(1, 2);
  CHECK(numbers_of(buffer->next()->at("reward")) == batches[5]);
  Rows of_ranks;
  for (const std::int64_t rank : {0, 1}) {
    const auto slice = data::for_rank({.dataloader = buffer}, rank, 2).dataloader;
    slice->seek(0, 1);
    for (const std::int64_t reward : numbers_of(slice->next()->at("reward"))) of_ranks.push_back(reward);
  }
  CHECK(of_ranks == batches[1]);
  buffer->set_default_seed(5);
  buffer->seek(1, 2);
  CHECK(numbers_of(buffer->next()->at("reward")) != batches[5]);
}

TEST_CASE("A run that learns from a replay buffer and is killed goes on as one that was not") {
  for (const auto& [alpha, twice] : std::vector<std::pair<double, bool>>{{0.0, true}, {0.6, true}, {0.6, false}})
    test::check_cut_and_resumed(
        [alpha, twice] {
          const auto replay = std::make_shared<ReplayBuffer>(
              ReplayBufferOptions{.capacity = 12, .batch_size = 4, .batches_per_epoch = 5, .alpha = alpha});
          replay->push(test::tiny_data(4));
          TrainerOptions options = test::tiny_options();
          options.train_dataloader = replay;
          options.max_duration = "2ep";
          options.seed = 7;
          if (twice) options.callbacks.add(replay);  // the trainer's loader is one of its callbacks in any case
          options.callbacks.add(std::make_shared<Actor>(replay));
          return options;
        },
        7);
}

TEST_CASE(
    "A buffer that several trainers read is saved by the first of them, and that of a fit is a callback or refused") {
  const auto replay =
      std::make_shared<ReplayBuffer>(ReplayBufferOptions{.capacity = 12, .batch_size = 4, .batches_per_epoch = 5});
  replay->push(test::tiny_data(4));
  const auto options = [&](bool reads) {
    TrainerOptions made = test::tiny_options();
    if (reads) made.train_dataloader = replay;
    return made;
  };
  {
    Trainer first(options(true)), second(options(true));
    CHECK(first.engine().callbacks().size() == 1);
    CHECK(second.engine().callbacks().empty());
    second.fit();
    Trainer third(options(false));
    CHECK_NOTHROW(third.fit({.train_dataloader = replay}));
  }
  Trainer late(options(false));
  CHECK_THROWS_WITH_AS(
      late.fit({.train_dataloader = replay}),
      "train_dataloader: this ReplayBuffer is a callback as well, and a fit adds none, so it would not "
      "be saved; give it to the Trainer's options, as train_dataloader or in callbacks",
      ConfigError);
  TrainerOptions with = options(false);
  with.callbacks = {replay};
  Trainer told(std::move(with));
  CHECK_NOTHROW(told.fit({.train_dataloader = replay}));
}

TEST_CASE("The loader that a trainer adds to its callbacks listens to the events that it did as one of them") {
  const auto replay =
      std::make_shared<ReplayBuffer>(ReplayBufferOptions{.capacity = 12, .batch_size = 4, .batches_per_epoch = 5});
  TrainerOptions options = test::tiny_options();
  options.train_dataloader = replay;
  const Trainer trainer(std::move(options));
  CHECK(const_cast<Trainer&>(trainer).engine().listens(Event::FIT_START));
  CHECK_FALSE(const_cast<Trainer&>(trainer).engine().listens(Event::BEFORE_FORWARD));
}

TEST_CASE("A fit of several ranks warns that a checkpoint has the buffer of rank 0 alone") {
  ReplayBuffer buffer({.capacity = 4, .batch_size = 2});
  for (const auto& [rank, size, warns] :
       std::vector<std::tuple<int, int, bool>>{{0, 1, false}, {0, 2, true}, {1, 2, false}}) {
    State state;
    state.rank = rank;
    state.world_size = size;
    Logger logger(state, {});
    const test::Warnings warnings;
    buffer.fit_start(state, logger);
    CHECK(warnings.say("ReplayBuffer: each of 2 ranks has a buffer of its own") == warns);
    CHECK(warnings.texts.size() == (warns ? 1U : 0U));
  }
}

TEST_CASE("A damaged state of a buffer is an error, and priorities that cannot be summed are") {
  ReplayBuffer buffer({.capacity = 4, .batch_size = 2, .alpha = 2});
  buffer.push(numbered(0, 3));
  const auto damaged = [&](const std::function<void(StateDict&)>& damage) {
    StateDict state;
    StateVisitor saving = StateVisitor::saving(state);
    buffer.visit_state(saving);
    damage(state);
    ReplayBuffer into({.capacity = 4, .batch_size = 2, .alpha = 2});
    StateVisitor loading = StateVisitor::loading(state, "replay");
    try {
      into.visit_state(loading);
    } catch (const CheckpointError& error) {
      CHECK(into.size() == 0);
      into.push(numbered(0, 2));
      CHECK(into.sample(0)["weight"].isfinite().all().item<bool>());
      return std::string(error.what());
    }
    return std::string("none");
  };
  CHECK(damaged([](StateDict&) {}) == "none");
  for (const double highest : {0.0, -1.0, double(NAN), double(INFINITY), 1e308})
    CHECK(damaged([&](StateDict& state) { state["highest"] = highest; }).find("the highest priority is") !=
          std::string::npos);
  CHECK(damaged([](StateDict& state) { state["next_row"] = std::int64_t{1}; }).find("the next at 1") !=
        std::string::npos);
  for (const double priority : {0.0, -1.0, double(NAN), 1e308}) {
    CAPTURE(priority);
    const std::string error = damaged([&](StateDict& state) {
      ReplayBuffer other({.capacity = 4, .batch_size = 2, .alpha = 2});
      StateDict priorities;
      std::vector<double> values{1, priority, 1};
      StateVisitor saving = StateVisitor::saving(priorities);
      saving("priorities", values);
      state["priorities"] = *priorities.find("priorities");
    });
    CHECK(error.find("a priority is") != std::string::npos);
  }
  CHECK_THROWS_WITH_AS(buffer.update_priorities(at::tensor({1}, at::kLong), at::full({1}, 1e200, at::kDouble)),
                       doctest::Contains("is 1e+200, whose power alpha = 2 is too large"), DataError);
  CHECK(buffer.sample(0)["weight"].isfinite().all().item<bool>());
  ReplayBuffer steep({.capacity = 4, .batch_size = 64, .alpha = 60});
  steep.push(numbered(0, 2));
  steep.update_priorities(at::arange(2), at::zeros({2}));  // (1e-6)^60 is not a number of 64 bits
  CHECK(contents(steep) == std::set<std::int64_t>{0, 1});
}

TEST_CASE("Transitions that do not fit, and drawing from nothing, are errors") {
  ReplayBuffer buffer({.capacity = 4, .batch_size = 2, .alpha = 1});
  CHECK_THROWS_WITH_AS(buffer.next(), "ReplayBuffer: there are no transitions yet; push() some before training",
                       DataError);
  CHECK_THROWS_WITH_AS(buffer.push({{"index", at::zeros({1})}}),
                       doctest::Contains("give the transitions' tensor another"), DataError);
  buffer.push(numbered(0, 2));
  CHECK_THROWS_WITH_AS(buffer.push({{"reward", at::arange(1)}}),
                       "ReplayBuffer: transitions have 1 tensors, and the first had 2", DataError);
  CHECK_THROWS_WITH_AS(
      buffer.push({{"state", at::arange(3).view({1, 3})}, {"reward", at::arange(1)}}),
      doctest::Contains("\"state\" is [1, 3] of Long, and the first transitions had [n] and [2] of Long"), DataError);
  CHECK_THROWS_WITH_AS(buffer.update_priorities(at::tensor({2}, at::kLong), at::ones({1})),
                       "ReplayBuffer: there is no transition 2; it has 2", DataError);
  CHECK_THROWS_WITH_AS(buffer.update_priorities(at::tensor({1}, at::kLong), at::full({1}, NAN)),
                       "ReplayBuffer: the priority of transition 1 is nan", DataError);
  CHECK_THROWS_WITH_AS(ReplayBuffer({.capacity = 4, .batch_size = 2}).update_priorities(at::arange(1), at::ones({1})),
                       "ReplayBuffer: priorities need alpha > 0", ConfigError);
  CHECK_THROWS_WITH_AS(ReplayBuffer({.batch_size = 2}), "ReplayBuffer: capacity must be >= 1 transitions, got 0",
                       ConfigError);
  CHECK_THROWS_WITH_AS(buffer.set_beta(2), "ReplayBuffer: beta must be from 0 to 1, got 2", ConfigError);
}

}  // namespace composer::replay_buffer_test
