#include "composer/step/loss_sums.h"

#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/support/doctest.h"

namespace composer::test::loss_sums_test {
namespace {

using dist::test::results_in_ranks;
using World = std::shared_ptr<dist::World>;

at::Tensor loss_of(double value) { return at::scalar_tensor(value, at::kFloat); }

std::string text(const Losses& losses) {
  std::string text;
  for (const auto& [name, loss] : losses) text += join(text.empty() ? "" : ", ", name, ' ', loss.item<double>());
  return text;
}

TEST_CASE("Losses that any rank has are added up on all of them, in one order") {
  const auto by_rank = results_in_ranks(3, [](const World& world) {
    LossSums sums(world, at::kCPU);
    Losses losses;  // rank 0 has none
    if (world->rank() > 0) losses.set("total", loss_of(0.5));
    if (world->rank() == 2) losses.set("extra", loss_of(2));
    sums.sum(losses);
    return text(losses);
  });
  CHECK(by_rank == std::vector<std::string>(3, "total 1, extra 2"));
}

TEST_CASE("A rank that has a loss of another name has others, and its sum is of that from the next batch on") {
  const auto by_rank = results_in_ranks(2, [](const World& world) {
    LossSums sums(world, at::kCPU);
    std::vector<std::string> seen;
    for (const bool learns : {false, false, true}) {
      Losses losses;
      losses.set("total", loss_of(1));
      if (!seen.empty() && world->rank() == 1) losses.set("late", loss_of(3));
      if (learns) sums.forget_names();
      sums.sum(losses);
      seen.push_back(text(losses) + (sums.has_others() ? " and others" : ""));
    }
    return seen;
  });
  CHECK(by_rank[0] == std::vector<std::string>{"total 2", "total 2", "total 2, late 3 and others"});
  CHECK(by_rank[1] == std::vector<std::string>{"total 2", "total 2 and others", "total 2, late 3"});
}

TEST_CASE("Losses of shards are added up in the order of the shards, whichever rank has one") {
  const std::vector<double> losses = {1e8, 1, -1e8, 1e-3};
  const auto sum_on = [&](int ranks) {
    return results_in_ranks(ranks, [&](const World& world) {
      LossSums sums(world, at::kCPU);
      std::vector<LossSums::OfShard> own;
      const std::size_t each = losses.size() / static_cast<std::size_t>(world->size());
      for (std::size_t i = 0; i < each; ++i) {
        const std::size_t shard = static_cast<std::size_t>(world->rank()) * each + i;
        Losses of_shard;
        of_shard.set("total", at::scalar_tensor(losses[shard], at::kDouble));
        own.emplace_back(shard, of_shard);
      }
      return sums.sum_shards(own, 4).at("total").item<double>();
    });
  };
  const double alone = sum_on(1).front();
  CHECK(sum_on(2) == std::vector<double>(2, alone));
  CHECK(sum_on(4) == std::vector<double>(4, alone));
}

}  // namespace
}  // namespace composer::test::loss_sums_test
