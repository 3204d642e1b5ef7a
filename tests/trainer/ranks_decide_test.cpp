// What ranks must not decide apart: when training is over, where files are, which learning rate is suggested.
#include <cmath>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "composer/callbacks/nan_monitor.h"
#include "composer/core/error.h"
#include "tests/support/folder.h"
#include "tests/trainer/fits_in_ranks.h"

namespace composer::test::ranks_decide_test {
namespace {

using dist::test::errors_in_ranks;
using dist::test::results_in_ranks;

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
}  // namespace composer::test::ranks_decide_test
