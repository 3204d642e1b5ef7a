#include "composer/dist/ordered_sum.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/dist/small_net.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"

namespace composer::dist::test::ordered_sum_test {
namespace {

using composer::test::error_of;
using Shards = std::vector<Gradients>;

// Values of very different size, so that the order of additions shows.
at::Tensor wild(const std::vector<std::int64_t>& shape, at::ScalarType dtype, at::Generator& random) {
  const at::Tensor size = at::randint(-6, 7, shape, random, at::TensorOptions(at::kDouble));
  return at::randn(shape, random, at::TensorOptions(at::kDouble)).mul_(at::pow(10, size)).to(dtype);
}

Shards wild_shards(std::int64_t count, std::uint64_t seed) {
  at::Generator random = at::detail::createCPUGenerator(seed);
  const std::int64_t n = at::randint(1, 300, {1}, random).item<std::int64_t>();
  Shards shards;
  for (std::int64_t s = 0; s < count; ++s)
    shards.push_back({wild({n}, at::kFloat, random), wild({3, n % 5}, at::kDouble, random),
                      wild({2, 3, 5}, at::kFloat, random), wild({}, at::kFloat, random)});
  return shards;
}

Gradients sum_in_ranks(int ranks, const Shards& shards) {
  const auto count = static_cast<std::int64_t>(shards.size());
  const auto by_rank = results_in_ranks(ranks, [&](const std::shared_ptr<World>& world) {
    OrderedSum sum(world, count, shards.front());
    Gradients result;
    for (int again = 0; again < 2; ++again) {  // the second sum uses the memory of the first
      for (std::int64_t s = 0; s < sum.shard_count(); ++s)
        sum.add(shards[static_cast<std::size_t>(sum.first_shard() + s)]);
      const Gradients sums = sum.finish();
      if (again == 0)
        result = sums;
      else if (!equal_bits(result, sums))
        throw Error("the second sum differs");
    }
    return result;
  });
  CHECK(all_equal_bits(by_rank));
  return by_rank.front();
}

TEST_CASE("Sums over shards have the same bits on 1, 2 and 4 ranks, and on 8") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    const Shards shards = wild_shards(seed % 3 == 0 ? 4 : 8 << seed % 2, seed);
    const Gradients alone = sum_in_ranks(1, shards);
    CHECK(equal_bits(sum_in_ranks(2, shards), alone));
    CHECK(equal_bits(sum_in_ranks(4, shards), alone));
    if (shards.size() >= 8 && seed < 3) CHECK(equal_bits(sum_in_ranks(8, shards), alone));
  }
}

TEST_CASE("Sums over shards are those of double precision within rounding") {
  for (const int ranks : {1, 4}) {
    const Shards shards = wild_shards(16, 5);
    const Gradients sums = sum_in_ranks(ranks, shards);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (sums[i].numel() == 0) continue;
      at::Tensor exact = at::zeros_like(sums[i], at::kDouble), size = at::zeros_like(exact);
      for (const Gradients& shard : shards) {
        exact += shard[i].to(at::kDouble);
        size += shard[i].to(at::kDouble).abs();
      }
      const double epsilon = sums[i].scalar_type() == at::kFloat ? 6e-8 : 1.2e-16;  // 4 additions deep
      CHECK(((sums[i].to(at::kDouble) - exact).abs() <= size * (8 * epsilon)).all().item<bool>());
    }
  }
}

TEST_CASE("The sum of shards in order differs from a plain sum over ranks, else equal bits would prove nothing") {
  const Shards shards = wild_shards(8, 1);
  at::Tensor plain = shards[0][2].clone();
  for (std::size_t s = 1; s < shards.size(); ++s) plain += shards[s][2];
  CHECK_FALSE(at::equal(plain, sum_in_ranks(2, shards)[2]));
}

TEST_CASE("An undefined tensor counts as zeros, and the sum is undefined if all are") {
  Shards shards = wild_shards(4, 3);
  for (std::size_t s = 0; s < shards.size(); ++s) {
    shards[s][2].reset();
    if (s != 3) shards[s][0].reset();
    shards[s][3].fill_(-0.0);  // -0 + -0 is -0, but -0 + 0 is 0
    if (s % 2 == 1) shards[s][3].reset();
  }
  const Gradients like = wild_shards(4, 3).front();
  std::vector<Gradients> results;
  for (const int ranks : {1, 2, 4}) {
    const auto by_rank = results_in_ranks(ranks, [&](const std::shared_ptr<World>& world) {
      OrderedSum sum(world, 4, like);
      for (std::int64_t s = 0; s < sum.shard_count(); ++s)
        sum.add(shards[static_cast<std::size_t>(sum.first_shard() + s)]);
      return sum.finish();
    });
    CHECK(all_equal_bits(by_rank));
    results.push_back(by_rank.front());
  }
  CHECK(all_equal_bits(results));
  for (const Gradients& sums : results) {
    CHECK_FALSE(sums[2].defined());
    CHECK(sums[0].defined());
    CHECK(at::equal(sums[0], shards[3][0]));
    CHECK_FALSE(sums[3].signbit().item<bool>());
  }
}

TEST_CASE("Sums have the memory layout of the tensors that they are for") {
  const at::Tensor image = at::ones({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  OrderedSum sum(World::alone(), 2, {image});
  sum.add({image});
  sum.add({at::ones({2, 3, 4, 5})});
  const at::Tensor result = sum.finish()[0];
  CHECK(result.strides() == image.strides());
  CHECK(at::equal(result, at::full({2, 3, 4, 5}, 2.)));
}

TEST_CASE("Numbers of shards and tensors that do not fit are errors") {
  const std::vector<at::Tensor> like{at::ones({2}), at::ones({3})};
  struct Row {
    const char* text;
    std::function<void()> run;
  };
  const Row rows[] = {
      {"must be a power of two, got 6", [&] { OrderedSum(World::alone(), 6, like); }},
      {"must be a power of two, got 0", [&] { OrderedSum(World::alone(), 0, like); }},
      {"cannot divide 2 shards equally among 4 ranks",
       [&] {
         results_in_ranks(4, [&](const std::shared_ptr<World>& world) {
           OrderedSum(world, 2, like);
           return 0;
         });
       }},
      {"got 1 tensors, must get 2", [&] { OrderedSum(World::alone(), 1, like).add({like[0]}); }},
      {"tensor 1 is Float [2], must be Float [3]",
       [&] {
         OrderedSum(World::alone(), 1, like).add({like[0], like[0]});
       }},
      {"this rank has 2 shards, and got only 1",
       [&] {
         OrderedSum sum(World::alone(), 2, like);
         sum.add(like);
         sum.finish();
       }},
      {"this rank has 1 shards, and got one more",
       [&] {
         OrderedSum sum(World::alone(), 1, like);
         sum.add(like);
         sum.add(like);
       }},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    CHECK(error_of(row.run).find(row.text) != std::string::npos);
  }
}

TEST_CASE("reset() forgets the shards of an unfinished sum") {
  OrderedSum sum(World::alone(), 4, {at::ones({2})});
  for (int s = 0; s < 3; ++s) sum.add({at::full({2}, 100.)});
  sum.reset();
  for (int s = 0; s < 4; ++s) sum.add({at::ones({2})});
  CHECK(at::equal(sum.finish()[0], at::full({2}, 4.)));
}

}  // namespace
}  // namespace composer::dist::test::ordered_sum_test
