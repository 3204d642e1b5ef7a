// The code of pages of docs/reference/data; scripts/pages.py compares.
#include <span>
#include <vector>

#include <ATen/ATen.h>

#include "composer/data/class_weights.h"
#include "composer/data/in_memory.h"
#include "composer/data/memory.h"
#include "composer/data/replay_buffer.h"
#include "composer/data/split.h"
#include "composer/data/torch_dataset.h"
#include "composer/data/windows.h"
#include "tests/support/doctest.h"

namespace composer::data_pages_test {
namespace {

std::vector<float> read_sensor() { return std::vector<float>(60, 0.5F); }
std::vector<std::int64_t> read_states() { return std::vector<std::int64_t>(20, 1); }

struct TorchSet {
  struct Example {
    at::Tensor data, target;
  };
  std::size_t size() const { return 70; }
  Example get(std::size_t) const { return {at::ones({2}), at::zeros({})}; }
};

}  // namespace

TEST_CASE("The code of the page about splits does what the page says") {
  const Batch samples{{"input", at::rand({50, 2})}, {"target", at::arange(50).ge(40).to(at::kLong)}};

  const auto [train, test] = data::split(samples, {0.8, 0.2}, {.seed = 1, .stratify = "target"});
  const auto train_loader = data::in_memory(train, {.batch_size = 32});
  const auto test_loader = data::in_memory(test, {.batch_size = 256, .shuffle = false});

  CHECK(test_loader->next()->at("target").sum().item<std::int64_t>() == 2);
  CHECK(train_loader->num_batches() == 2);

  for (const auto& [train, test] : data::k_folds(samples, 5, {.stratify = "target"})) {
    const auto loader = data::in_memory(train, {.batch_size = 32});
    // ... a Trainer for each fold
  }

  const Batch some = data::subset(samples, at::tensor({4, 8, 15}, at::kLong));
  const Batch both = data::concat({train, test});

  CHECK(some["input"].size(0) == 3);
  CHECK(both["input"].size(0) == 50);

  const auto balanced = data::in_memory(train, {.batch_size = 32, .weights = data::balanced_weights(train["target"])});

  CHECK(balanced->num_batches() == 2);
}

TEST_CASE("The code of the page about memory does what the page says") {
  std::vector<float> measured = read_sensor();  // rows of 3 numbers, one after another
  std::vector<std::int64_t> states = read_states();
  const Batch samples{{"input", data::from(std::move(measured), {-1, 3})}, {"target", data::from(std::move(states))}};
  const auto loader = data::in_memory(samples, {.batch_size = 32});

  CHECK(loader->next()->at("input").sizes() == at::IntArrayRef{20, 3});

  const auto recording = std::make_shared<std::vector<float>>(read_sensor());
  const at::Tensor shared = data::view(std::span<const float>(*recording), {-1, 3}, recording);  // the tensor keeps it

  CHECK(recording.use_count() == 2);
  const TorchSet torch_dataset;

  const data::SampleSource digits = data::adapt(torch_dataset);
  const auto digits_loader = data::map_style(digits, {.batch_size = 64, .num_workers = 2});

  CHECK(digits_loader->num_batches() == 2);
}

TEST_CASE("The code of the page about series does what the page says") {
  const at::Tensor measurements = at::rand({1000, 3}), seconds = at::arange(1000).flip(0);
  const at::Tensor sensor_ids = at::arange(1000).remainder(2);

  const Batch rows{{"input", measurements}, {"sensor", sensor_ids}, {"time", seconds}};
  const data::Windows all =
      data::windows(rows, {.length = 48, .horizon = 12, .target_columns = {0}, .series = "sensor", .time = "time"});
  const auto [past, future] = data::split_by_time(all, {0.8, 0.2});
  const auto train_loader = data::in_memory(past, {.batch_size = 64});
  const auto eval_loader = data::in_memory(future, {.batch_size = 256, .shuffle = false});

  CHECK(train_loader->next()->at("target").sizes() == at::IntArrayRef{64, 12, 1});
  CHECK(eval_loader->next()->at("input").sizes() == at::IntArrayRef{2 * 41, 48, 3});

  const auto [train_rows, test_rows] = data::split(rows, {0.8, 0.2}, {.time = "time", .series = "sensor"});
  const at::Tensor mean = train_rows["input"].mean(0), stddev = train_rows["input"].std(0);

  CHECK(test_rows["time"].ge(800).all().item<bool>());
}

TEST_CASE("The code of the page about replay buffers does what the page says") {
  const at::Tensor observations = at::rand({20, 4}), next_observations = at::rand({20, 4});
  const at::Tensor actions = at::zeros({20}, at::kLong), rewards = at::ones({20}), errors = at::rand({8});

  const auto replay = std::make_shared<data::ReplayBuffer>(
      data::ReplayBufferOptions{.capacity = 1000, .batch_size = 8, .alpha = 0.6, .seed = 3});
  replay->push({{"observation", observations}, {"action", actions}, {"reward", rewards}, {"next", next_observations}});
  const Batch drawn = replay->sample(0);
  replay->update_priorities(drawn["index"], errors);

  CHECK(drawn["weight"].sizes() == at::IntArrayRef{8});
}

}  // namespace composer::data_pages_test
