#include "composer/data/sampler.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/support/doctest.h"

namespace composer::data::detail::sampler_test {
namespace {

TEST_CASE("A sampler is in order only if it neither shuffles nor arranges, and takes no parts of another order") {
  const SamplerOptions plain{.who = "test", .samples = 10, .batch_size = 2, .shuffle = false};
  CHECK(Sampler(plain).in_order());
  SamplerOptions shuffled = plain, arranged = plain, parts = plain;
  shuffled.shuffle = true;
  arranged.arrange = [](auto& order, std::uint64_t, std::int64_t) { std::ranges::reverse(order); };
  parts.part = [](std::uint64_t, std::int64_t, std::int64_t, std::int64_t) { return Sampler::Order{}; };
  for (const SamplerOptions& other : {shuffled, arranged, parts}) CHECK_FALSE(Sampler(other).in_order());
}

TEST_CASE("Readers at different epochs share a sampler without an epoch being shuffled again for each batch") {
  for (const std::int64_t readers : {1, 2, 3, 5, 8}) {
    CAPTURE(readers);
    Sampler sampler({.who = "test", .samples = 100, .batch_size = 8});
    for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
      std::vector<std::shared_ptr<const Sampler::Order>> orders(static_cast<std::size_t>(readers));
      std::int64_t made = 0;
      for (int batch = 0; batch < 50; ++batch)
        for (std::int64_t reader = 0; reader < readers; ++reader) {
          const auto order = sampler.order(epoch + 10 * reader);
          auto& before = orders[static_cast<std::size_t>(reader)];
          if (std::exchange(before, order) != order) ++made;
        }
      CHECK(made <= (epoch == 0 ? readers * readers : readers));  // first it learns how many there are
    }
  }
}

TEST_CASE("A sampler that one reader asks for one epoch after another keeps two orders") {
  Sampler sampler({.who = "test", .samples = 100, .batch_size = 8});
  std::vector<std::weak_ptr<const Sampler::Order>> orders;
  for (std::int64_t epoch = 0; epoch < 10; ++epoch)
    for (int batch = 0; batch < 13; ++batch) {
      const auto order = sampler.order(epoch);
      if (batch == 0) orders.push_back(order);
      if (epoch > 0 && batch < 3) sampler.order(epoch - 1);  // batches are made ahead
    }
  for (std::size_t epoch = 0; epoch < 8; ++epoch) CHECK(orders[epoch].expired());
}

TEST_CASE("A sampler that many readers used keeps no more orders than are asked for, once they have gone") {
  Sampler sampler({.who = "test", .samples = 100, .batch_size = 8});
  std::vector<std::weak_ptr<const Sampler::Order>> orders;
  for (int batch = 0; batch < 13; ++batch)
    for (std::int64_t reader = 0; reader < 8; ++reader) orders.push_back(sampler.order(100 * reader));
  std::vector<std::weak_ptr<const Sampler::Order>> later;
  for (std::int64_t epoch = 1000; epoch < 1030; ++epoch)
    for (int batch = 0; batch < 13; ++batch) later.push_back(sampler.order(epoch));
  int kept = 0;
  std::erase_if(later, [](const auto& order) { return order.expired(); });
  CHECK(later.size() == 2 * 13);
  for (const auto& order : orders) kept += order.expired() ? 0 : 1;
  CHECK(kept == 0);
}

}  // namespace
}  // namespace composer::data::detail::sampler_test
