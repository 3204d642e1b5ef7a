#include "composer/step/batch_rules.h"

#include <string>
#include <vector>

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"

namespace composer::test::batch_rules_test {
namespace {

Batch batch_of(std::int64_t samples) {
  return {{"input_ids", at::zeros({samples, 3}, at::kLong)}, {"target", at::zeros({samples}, at::kLong)}};
}

std::vector<std::int64_t> sizes(const BatchRules& rules, const Batch& batch, std::int64_t size) {
  std::vector<std::int64_t> all;
  for (const Batch& part : rules.split(batch, size)) all.push_back(rules.count_samples(part));
  return all;
}

using Sizes = std::vector<std::int64_t>;

TEST_CASE("Without functions of its own, a DataSpec has its batches counted and split along their first dimension") {
  const BatchRules rules(DataSpec{}, "train");
  CHECK(rules.count_samples(batch_of(5)) == 5);
  CHECK(rules.count_tokens(batch_of(5)).total == 15);
  CHECK_FALSE(rules.has_token_count());
  CHECK(sizes(rules, batch_of(5), 2) == Sizes{2, 2, 1});
  CHECK(sizes(rules, batch_of(5), 0) == Sizes{5});
  CHECK(sizes(rules, batch_of(5), 5) == Sizes{5});  // and no warning of a batch that is not larger
  CHECK_FALSE(rules.has_batch_transforms());
  Batch batch = batch_of(2);
  rules.transform(batch);
  rules.transform_microbatch(batch);
  CHECK(rules.count_samples(batch) == 2);
}

TEST_CASE("The functions of a DataSpec say how its batches are counted, split and transformed") {
  const BatchRules rules(DataSpec{.batch_transforms = [](Batch& batch) { batch = batch_of(7); },
                                  .microbatch_transforms = [](Batch& batch) { batch = batch_of(1); },
                                  .split_batch =
                                      [](const Batch& batch, std::int64_t) {
                                        return std::vector<Batch>{batch, batch};
                                      },
                                  .get_num_samples_in_batch = [](const Batch&) { return 4; },
                                  .get_num_tokens_in_batch = [](const Batch&) { return TokenCount(9, 8); }},
                         "train");
  CHECK(rules.count_samples(batch_of(5)) == 4);
  CHECK(rules.count_tokens(batch_of(5)).loss_generating == 8);
  CHECK(rules.has_token_count());
  CHECK(sizes(rules, batch_of(5), 100) == Sizes{4, 4});  // it is asked whatever the size
  CHECK(sizes(rules, batch_of(5), 0) == Sizes{4});
  Batch batch = batch_of(2);
  CHECK(rules.has_batch_transforms());
  rules.transform(batch);
  CHECK(get_num_samples_in_batch(batch) == 7);
  CHECK(rules.has_microbatch_transforms());
  rules.transform_microbatch(batch);
  CHECK(get_num_samples_in_batch(batch) == 1);
}

TEST_CASE("A split_batch that gives nothing is an error that names the loader") {
  const BatchRules rules(DataSpec{.split_batch = [](const Batch&, std::int64_t) { return std::vector<Batch>(); }},
                         "train");
  CHECK(error_of([&] { rules.split(batch_of(4), 2); }) == "train loader: split_batch gave no microbatch");
}

}  // namespace
}  // namespace composer::test::batch_rules_test
