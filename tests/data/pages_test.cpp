// The code of pages of docs/data; scripts/pages.py compares.
#include <ATen/ATen.h>

#include "composer/data/class_weights.h"
#include "composer/data/in_memory.h"
#include "composer/data/split.h"
#include "tests/support/doctest.h"

namespace composer::data_pages_test {
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

}  // namespace composer::data_pages_test
