// Samples that are drawn by weights.
#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/class_weights.h"
#include "composer/data/in_memory.h"
#include "composer/data/map_style.h"
#include "composer/data/weighted_draw.h"
#include "tests/data/support.h"
#include "tests/support/doctest.h"

namespace composer::weights_test {

using data::in_memory;
using data::map_style;
using data::detail::WeightedDraw;
using test::numbers_of;

namespace {

std::vector<double> frequencies(const WeightedDraw& weights, std::int64_t draws) {
  std::vector<double> made(static_cast<std::size_t>(weights.size()));
  for (const std::int64_t index : weights.draw(draws, RandomStream(3)))
    made[static_cast<std::size_t>(index)] += 1.0 / static_cast<double>(draws);
  return made;
}

data::SampleSource drawing(std::int64_t size) {
  return {.size = size, .get = [](std::int64_t index, RandomStream random) {
            return data::Sample{{"input", at::scalar_tensor(index, at::kLong)},
                                {"drawn", at::scalar_tensor(random.uniform(), at::kDouble)}};
          }};
}

}  // namespace

TEST_CASE("Indices are drawn in proportion to their weights, and those of weight 0 never") {
  for (std::uint64_t number = 0; number < 40; ++number) {
    CAPTURE(number);
    RandomStream random(number);
    std::vector<double> weights(1 + random.below(60));
    double sum = 0;
    for (double& weight : weights) weight = random.below(4) == 0 ? 0 : std::pow(random.uniform(), 3) * 1e3;
    weights[random.below(weights.size())] = 1;
    for (const double weight : weights) sum += weight;
    constexpr std::int64_t kDraws = 20000;
    const auto drawn = frequencies(WeightedDraw(weights), kDraws);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double expected = weights[i] / sum;
      if (weights[i] == 0) CHECK(drawn[i] == 0);
      CHECK(std::abs(drawn[i] - expected) <= 6 * std::sqrt(expected * (1 - expected) / kDraws) + 1e-12);
    }
  }
  CHECK(WeightedDraw({0, 1e-320, 0}).draw(3, RandomStream(1)) == std::vector<std::int64_t>{1, 1, 1});
  const double most = std::numeric_limits<double>::max();
  CHECK(frequencies(WeightedDraw({most, most, 0}), 1000)[2] == 0);
}

TEST_CASE("A loader draws as many samples as asked for, the same ones of memory and of a data set") {
  const at::Tensor weights = at::tensor({0.0, 1.0, 2.0, 0.0, 5.0});
  for (const std::int64_t drawn : {0, 3, 23})
    for (const bool drop_last : {false, true}) {
      const std::int64_t samples = drawn == 0 ? 5 : drawn;
      const auto memory =
          in_memory(Batch(at::arange(5)),
                    {.batch_size = 3, .drop_last = drop_last, .weights = weights, .samples_per_epoch = drawn});
      const auto source = map_style(
          drawing(5),
          {.batch_size = 3, .drop_last = drop_last, .weights = weights, .samples_per_epoch = drawn, .num_workers = 2});
      CHECK(memory->num_batches() == (drop_last ? samples / 3 : (samples + 2) / 3));
      for (const std::int64_t epoch : {0, 1, 7}) {
        memory->seek(epoch, 0);
        source->seek(epoch, 0);
        std::int64_t got = 0, number = 0;
        while (const auto batch = memory->next()) {
          const auto indices = numbers_of(batch->at("input"));
          CHECK(indices == numbers_of(source->next()->at("input")));
          CHECK(indices == memory->sample_indices(epoch, number));
          CHECK(indices == source->sample_indices(epoch, number++));
          for (const std::int64_t index : indices) CHECK((index != 0 && index != 3));
          got += static_cast<std::int64_t>(indices.size());
        }
        CHECK_FALSE(source->next());
        CHECK(got == (drop_last ? samples / 3 * 3 : samples));
      }
    }
}

TEST_CASE("Copies of a sample in one epoch are transformed differently, and the same after a resume") {
  const at::Tensor weights = at::tensor({1.0, 0.0});
  const auto source = map_style(drawing(2), {.batch_size = 8, .weights = weights, .samples_per_epoch = 8});
  const at::Tensor drawn = source->next()->at("drawn");
  CHECK(std::get<0>(at::_unique2(drawn)).numel() == 8);
  source->seek(0, 0);
  CHECK(source->next()->at("drawn").equal(drawn));

  const Batch images{{"input", at::arange(2 * 64).to(at::kByte).view({2, 1, 8, 8})}};
  const auto loader = in_memory(
      images, {.batch_size = 16, .weights = weights, .samples_per_epoch = 16, .flip = true, .crop_padding = 3});
  const at::Tensor batch = loader->next()->at("input").flatten(1);
  CHECK(std::get<0>(at::unique_dim(batch, 0)).size(0) > 8);
}

TEST_CASE("Balanced weights are those of scikit-learn, and give each class the same chance") {
  const at::Tensor targets = at::tensor({0, 0, 0, 0, 2, 2, 2, 1, 0, 0}, at::kLong);
  // compute_class_weight("balanced", classes=[0, 1, 2], y=targets)
  CHECK(data::class_weights(targets).allclose(at::tensor({10.0F / 18, 10.0F / 3, 10.0F / 9})));
  CHECK(data::class_weights(targets, 5).allclose(at::tensor({10.0F / 18, 10.0F / 3, 10.0F / 9, 0.0F, 0.0F})));
  const at::Tensor weights = data::balanced_weights(targets);
  CHECK(weights.sum().item<float>() == doctest::Approx(10));
  std::vector<double> of_class(3);
  const auto numbers = numbers_of(targets);
  const std::vector<double> drawn = frequencies(*data::detail::weighted("test", weights), 30000);
  for (std::size_t i = 0; i < drawn.size(); ++i) of_class[static_cast<std::size_t>(numbers[i])] += drawn[i];
  for (const double share : of_class) CHECK(std::abs(share - 1.0 / 3) < 0.015);
  CHECK(data::balanced_weights(targets.to(at::kByte).unsqueeze(1)).equal(weights));
  CHECK_THROWS_WITH_AS(data::class_weights(at::tensor({0, -100}, at::kLong)),
                       "class_weights: the target of sample 1 is -100, and classes are from 0 to 16777215", DataError);
  CHECK_THROWS_WITH_AS(data::class_weights(targets, 2), doctest::Contains("sample 4 is 2, and classes are from 0 to 1"),
                       DataError);
  CHECK_THROWS_WITH_AS(data::class_weights(at::ones({2, 2})), doctest::Contains("must be classes as whole numbers [N]"),
                       DataError);
}

TEST_CASE("Weights that do not fit the samples are errors that name the sample or the number") {
  const auto with = [](const at::Tensor& weights, bool shuffle = true, std::int64_t drawn = 0) {
    return [=] {
      in_memory(Batch(at::arange(3)),
                {.batch_size = 2, .shuffle = shuffle, .weights = weights, .samples_per_epoch = drawn});
    };
  };
  CHECK_THROWS_WITH_AS(with(at::ones(4))(), "in_memory: weights has 4 numbers, and the data has 3 samples", DataError);
  CHECK_THROWS_WITH_AS(with(at::tensor({1.0, -1.0, 1.0}))(),
                       "in_memory: weights must be finite and >= 0, and that of sample 1 is -1", DataError);
  CHECK_THROWS_WITH_AS(with(at::tensor({1.0, 1.0, double(NAN)}))(), doctest::Contains("sample 2 is nan"), DataError);
  CHECK_THROWS_WITH_AS(with(at::zeros(3))(), "in_memory: weights are all 0", DataError);
  CHECK_THROWS_WITH_AS(with(at::ones({3, 1}))(), doctest::Contains("must be real numbers [N]"), DataError);
  CHECK_THROWS_WITH_AS(with(at::ones(3), false)(),
                       "in_memory: weights draw samples at random, and shuffle is false; leave one of them out",
                       ConfigError);
  CHECK_THROWS_WITH_AS(with({}, true, 5)(), "in_memory: samples_per_epoch needs weights", ConfigError);
  CHECK_THROWS_WITH_AS(with(at::ones(3), true, -1)(), "in_memory: samples_per_epoch must be >= 0, got -1", ConfigError);
}

}  // namespace composer::weights_test
