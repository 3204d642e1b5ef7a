// Runs whose ranks divide the optimizer are saved whole or in parts, and go on with any number of ranks.
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <torch/optim/adam.h>

#include "composer/checkpoint/parts.h"
#include "composer/checkpoint/saver.h"
#include "composer/checkpoint/state_file.h"
#include "composer/core/error.h"
#include "composer/optim/optimizer.h"
#include "tests/formats/bytes.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/trainer/zero_runs.h"

namespace composer::test::zero_checkpoints_test {
namespace {

namespace fs = std::filesystem;
using dist::test::errors_in_ranks;
using dist::test::results_in_ranks;

struct Way {
  int ranks = 1;
  std::int64_t stage = 0;
  bool in_parts = false;
};
using Change = std::function<void(TrainerOptions&)>;

TrainerOptions saved_options(const Folder& folder, const Way& way, const Change& change = {}) {
  TrainerOptions options = zero_options(way.stage);
  options.distributed.sharded_checkpoints = way.in_parts;
  options.save_folder = (folder / "ck").string();
  options.save_interval = "1ba";
  options.run_name = "zero";
  if (change) change(options);
  return options;
}

// Trains up to that time, on from what the folder has, on each rank.
std::vector<FitResult> train(const Folder& folder, const Way& way, const char* until, const Change& change = {}) {
  const auto run = [&](const WorldPointer& world) {
    TrainerOptions options = saved_options(folder, way, change);
    options.max_duration = Time::parse(until);
    return result_of_fit(std::move(options), world);
  };
  if (way.ranks == 1) return {run(dist::World::alone())};
  return results_in_ranks(way.ranks, run);
}

const std::vector<std::pair<Way, Way>>& ways() {
  static const std::vector<std::pair<Way, Way>> all = {{{4, 1, true}, {2, 1, true}},   {{2, 2, true}, {4, 2, false}},
                                                       {{2, 1, true}, {1, 0, false}},  {{1, 0, false}, {4, 1, true}},
                                                       {{2, 1, false}, {2, 0, false}}, {{4, 2, false}, {2, 2, true}},
                                                       {{3, 1, true}, {3, 1, true}},   {{2, 0, false}, {3, 2, true}}};
  return all;
}

TEST_CASE("What n ranks have saved, whole or in parts, goes on with m ranks, and with one process") {
  const std::vector<std::pair<const char*, Change>> optimizers = {
      {"AdamW", {}},
      {"Muon", [](TrainerOptions& options) { options.optimizer = optim::muon({.lr = 0.02}); }},
      {"libtorch's Adam", [](TrainerOptions& options) {
         options.optimizer = std::make_shared<torch::optim::Adam>(options.model->parameters(), 0.02);
       }}};
  for (const auto& [name, change] : optimizers) {
    const Folder straight;
    const at::Tensor expected = train(straight, {}, "3ep", change).front().weights;
    for (const auto& [before, after] : ways()) {
      CAPTURE(std::string(name));
      CAPTURE(before.ranks);
      CAPTURE(after.ranks);
      const Folder folder;
      train(folder, before, "7ba", change);
      const saving::Found saved = saving::open_checkpoint(folder / "ck/latest");
      CHECK(saved.manifest.time.batch == 7);
      CHECK((saved.manifest.files.size() > 2) == before.in_parts);
      for (const FitResult& rank : train(folder, after, "3ep", change)) {
        CHECK(rank.losses.size() == 5);  // of 12
        CHECK(at::allclose(rank.weights, expected, 0, 1e-12));
      }
    }
  }
}

TEST_CASE("With virtual shards, a run that is saved in parts goes on with another number of ranks, equal to the bit") {
  const Change shards = [](TrainerOptions& options) { options.distributed.virtual_shards = 4; };
  const Folder straight;
  const at::Tensor expected = train(straight, {}, "3ep", shards).front().weights;
  for (const auto& [before, after] :
       {std::pair(Way{4, 1, true}, Way{2, 1, true}), std::pair(Way{2, 1, true}, Way{1, 0, false}),
        std::pair(Way{1, 0, false}, Way{4, 1, true})}) {
    CAPTURE(before.ranks);
    CAPTURE(after.ranks);
    const Folder folder;
    train(folder, before, "7ba", shards);
    for (const FitResult& rank : train(folder, after, "3ep", shards)) CHECK(at::equal(rank.weights, expected));
  }
}

std::string bytes_of(const StateDict& state, const char* name) {
  StateDict part;
  part[name] = *state.find(name);
  std::string bytes;
  saving::write_state(part, "", placed_sink_to(bytes));
  return bytes;
}

TEST_CASE("A whole checkpoint has the same bits, in the same order, whether the optimizer is divided or not") {
  const std::vector<Change> optimizers = {{}, [](TrainerOptions& options) {
                                            options.optimizer =
                                                std::make_shared<torch::optim::Adam>(options.model->parameters(), 0.02);
                                          }};
  for (const Change& change : optimizers) {
    const Folder plain, divided;
    train(plain, {2, 0, false}, "5ba", change);
    train(divided, {2, 1, false}, "5ba", change);
    const StateDict a = saving::load(saving::open_checkpoint(plain / "ck/latest"));
    const StateDict b = saving::load(saving::open_checkpoint(divided / "ck/latest"));
    for (const char* name : {"model", "optimizer"}) CHECK(bytes_of(a, name) == bytes_of(b, name));
  }
}

TEST_CASE("Each part has the optimizer's state of its rank alone") {
  const Folder folder;
  train(folder, {4, 1, true}, "2ba");
  const saving::Found found = saving::open_checkpoint(folder / "ck/latest");
  REQUIRE(found.manifest.files.size() == 5);
  std::size_t parameters = 0;
  for (const char* file :
       {"state.safetensors", "state-1-of-4.safetensors", "state-2-of-4.safetensors", "state-3-of-4.safetensors"}) {
    const StateDict part = saving::read_state(found, file);
    const auto& optimizer = std::get<StateDict>(*part.find("optimizer"));
    const std::size_t own = std::get<StateDict>(*optimizer.find("state")).size();
    CHECK(own > 0);
    parameters += own;
  }
  CHECK(parameters == 8);
}

TEST_CASE("A run whose newest checkpoint lacks a part, or has a damaged one, goes on from the one before") {
  const Folder straight;
  const at::Tensor expected = train(straight, {}, "3ep").front().weights;
  for (const bool removes : {false, true}) {
    CAPTURE(removes);
    const Folder folder;
    const Way way{2, 1, true};
    train(folder, way, "7ba");
    const fs::path part = folder / "ck" / "latest" / saving::part_name(1, 2);
    if (removes) {
      fs::remove(part);
    } else {
      std::string bytes = text_of(part);
      bytes.back() = static_cast<char>(bytes.back() ^ 1);
      std::ofstream(part, std::ios::binary) << bytes;
    }
    for (const FitResult& rank : train(folder, way, "3ep")) {
      CHECK(rank.losses.size() == 6);  // from batch 6, not 7
      CHECK(at::allclose(rank.weights, expected, 0, 1e-12));
    }
  }
}

// Remembers what differs by rank.
class Memory final : public Callback {
 public:
  void batch_end(const State& state, Logger&) override { value += state.rank + 1; }
  void visit_state(StateVisitor& visit) override { visit("value", value); }
  std::int64_t value = 0;
};

TEST_CASE("Callbacks go on with the state of their rank from parts of as many ranks, else with that of rank 0") {
  const auto values = [](const Folder& folder, const Way& way, const char* until) {
    return results_in_ranks(way.ranks, [&](const WorldPointer& world) {
      auto memory = std::make_shared<Memory>();
      TrainerOptions options = saved_options(folder, way);
      options.max_duration = Time::parse(until);
      options.callbacks = {memory};
      fit_in(world, std::move(options));
      return memory->value;
    });
  };
  using Values = std::vector<std::int64_t>;
  const Folder same, other, whole;
  for (const Folder* folder : {&same, &other}) CHECK(values(*folder, {2, 1, true}, "2ba") == Values{2, 4});
  CHECK(values(same, {2, 1, true}, "3ba") == Values{3, 6});
  CHECK(values(other, {3, 1, true}, "3ba") == Values{3, 4, 5});
  values(whole, {2, 1, false}, "2ba");
  CHECK(values(whole, {2, 1, false}, "3ba") == Values{3, 4});
}

TEST_CASE("Checkpoints of divided optimizers are kept, deleted, named and written by hand as any other") {
  for (const bool in_parts : {false, true}) {
    CAPTURE(in_parts);
    const Folder folder;
    const auto paths = results_in_ranks(2, [&](const WorldPointer& world) {
      TrainerOptions options = saved_options(folder, {2, 1, in_parts});
      options.save_num_checkpoints_to_keep = 2;
      options.max_duration = "5ba";
      options.world = world;
      Trainer trainer(std::move(options));
      trainer.fit();
      return trainer.save_checkpoint("by-hand");
    });
    CHECK(paths[0] == paths[1]);
    std::vector<std::string> names;
    for (const saving::Found& found : saving::list_checkpoints(folder / "ck")) {
      names.push_back(found.path.filename());
      CHECK(found.manifest.files.size() == (in_parts ? 3 : 2));
      CHECK(saving::load(found).find("optimizer"));
    }
    std::ranges::sort(names);
    CHECK(names == std::vector<std::string>{"by-hand", "ep0-ba4", "ep1-ba5"});
    CHECK(fs::read_symlink(folder / "ck/latest") == "by-hand");
    for (const auto& entry : fs::directory_iterator(folder / "ck"))
      CHECK_FALSE(entry.path().filename().string().starts_with(".tmp-"));
  }
}

TEST_CASE("A checkpoint in parts is uploaded, downloaded and deleted as one") {
  const Folder remote, staging, other_staging, straight;
  const at::Tensor expected = train(straight, {}, "3ep").front().weights;
  const auto change = [&](const Folder& place) -> Change {
    return [&remote, &place](TrainerOptions& options) {
      options.save_folder = "file://" + (remote / "runs").string();
      options.save_staging_folder = place.path().string();
      options.save_num_checkpoints_to_keep = 1;
    };
  };
  train(remote, {2, 1, true}, "7ba", change(staging));
  REQUIRE(saving::list_checkpoints(remote / "runs").size() == 1);
  const saving::Found found = saving::list_checkpoints(remote / "runs").front();
  CHECK(found.manifest.time.batch == 7);
  CHECK(fs::exists(found.path / saving::part_name(1, 2)));
  for (const FitResult& rank : train(remote, {4, 1, true}, "3ep", change(other_staging))) {
    CHECK(rank.losses.size() == 5);
    CHECK(at::allclose(rank.weights, expected, 0, 1e-12));
  }
  CHECK(saving::list_checkpoints(remote / "runs").size() == 1);
  CHECK_FALSE(fs::exists(found.path));
}

TEST_CASE("Weights alone, and nothing, are saved without asking the other ranks for their parts") {
  for (const bool in_parts : {false, true}) {
    const Folder weights, nothing;
    train(weights, {2, 1, in_parts}, "2ba", [](TrainerOptions& options) { options.save_weights_only = true; });
    CHECK(saving::list_checkpoints(weights / "ck").size() == 2);
    train(nothing, {2, 1, in_parts}, "2ba", [](TrainerOptions& options) { options.save_num_checkpoints_to_keep = 0; });
    CHECK(saving::list_checkpoints(nothing / "ck").empty());
  }
}

TEST_CASE("What save_ignore_keys names is in no part") {
  const Folder folder;
  train(folder, {2, 1, true}, "2ba", [](TrainerOptions& options) { options.save_ignore_keys = {"optimizer/*"}; });
  const saving::Found found = saving::open_checkpoint(folder / "ck/latest");
  const StateDict part = saving::read_state(found, saving::part_name(1, 2));
  const StateValue* optimizer = part.find("optimizer");
  CHECK((!optimizer || std::get<StateDict>(*optimizer).empty()));
}

}  // namespace
}  // namespace composer::test::zero_checkpoints_test
