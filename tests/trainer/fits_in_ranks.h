#pragma once
// Fits on several ranks, which are threads of the test.
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/dist/world.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/support/doctest.h"
#include "tests/support/text.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test {

using WorldPointer = std::shared_ptr<dist::World>;
// What a rank makes of the options of all.
using RankChange = std::function<void(TrainerOptions& options, int rank)>;

inline void fit_in(const WorldPointer& world, TrainerOptions options) {
  options.world = world;
  Trainer(std::move(options)).fit();
}

// What a fit shows: the loss of each batch, the weights, all metrics.
struct FitResult {
  at::Tensor weights;
  std::vector<double> losses;
  std::vector<std::string> metrics;
  Timestamp timestamp;
};

inline FitResult result_of_fit(TrainerOptions options, const WorldPointer& world) {
  FitResult result;
  options.world = world;
  options.callbacks.add(At([&](Event event, const State& state) {
    if (event == Event::BATCH_END) result.losses.push_back(state.batch_loss.at("total").item<double>());
  }));
  Trainer trainer(std::move(options));
  trainer.fit();
  result.weights = weights_of(trainer).clone();
  result.timestamp = trainer.state().timestamp;
  for (const auto& [label, by_name] : trainer.state().metrics.all())
    for (const auto& [name, reported] : by_name)
      result.metrics.push_back(join(label, '/', name, ' ', std::round(reported.value.item<double>() * 1e9) / 1e9));
  return result;
}

// But for rounding in double precision.
inline void check_same(const FitResult& rank, const FitResult& alone) {
  CHECK(at::allclose(rank.weights, alone.weights, 0, 1e-12));
  CHECK(rank.metrics == alone.metrics);
  CHECK(rank.timestamp.sample == alone.timestamp.sample);
  CHECK(rank.timestamp.batch == alone.timestamp.batch);
  CHECK(rank.timestamp.epoch == alone.timestamp.epoch);
  REQUIRE(rank.losses.size() == alone.losses.size());
  for (std::size_t i = 0; i < alone.losses.size(); ++i)
    CHECK(rank.losses[i] == doctest::Approx(alone.losses[i]).epsilon(1e-12));
}

// The error with which the fit of each rank ends; empty where there is none.
inline std::vector<std::string> errors_of_fits(int ranks, const RankChange& change,
                                               const std::function<TrainerOptions()>& of_all = tiny_options) {
  return dist::test::errors_in_ranks(ranks, [&](const WorldPointer& world) {
    const Warnings quiet;
    TrainerOptions options = of_all();
    change(options, world->rank());
    fit_in(world, std::move(options));
  });
}

inline void check_all_say(const std::vector<std::string>& errors, const std::string& text) {
  CAPTURE(text);
  for (const std::string& error : errors) {
    CAPTURE(error);
    CHECK(contains(error, text));
  }
}

// Two ranks end with an error that says this.
inline void check_refused(const std::string& text, const RankChange& change,
                          const std::function<TrainerOptions()>& of_all = tiny_options) {
  check_all_say(errors_of_fits(2, change, of_all), text);
}

}  // namespace composer::test
