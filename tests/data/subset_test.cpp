#include "composer/data/subset.h"

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "tests/data/support.h"
#include "tests/support/doctest.h"

namespace composer::subset_test {

using data::concat;
using data::subset;
using test::numbers_of;
using Rows = std::vector<std::int64_t>;

namespace {

struct Numbered {
  std::int64_t from, count;
  std::int64_t size() const { return count; }
  data::Sample get(std::int64_t index) const { return at::scalar_tensor(from + index, at::kLong); }
};

std::int64_t number(const data::SampleSource& source, std::int64_t index) {
  return source.get(index, RandomStream(0)).at("input").item<std::int64_t>();
}

}  // namespace

TEST_CASE("A subset has the rows asked for, in their order and as often, and shares those that follow each other") {
  const Batch rows{{"input", at::arange(12).view({6, 2})}, {"target", at::arange(6)}, {"scale", at::ones({})}};
  const Batch some = subset(rows, at::tensor({4, 0, 4}, at::kLong));
  CHECK(numbers_of(some["target"]) == Rows{4, 0, 4});
  CHECK(numbers_of(some["input"]) == Rows{8, 9, 0, 1, 8, 9});
  CHECK(some["scale"].dim() == 0);
  const Batch shared = subset(rows, at::arange(2, 5));
  CHECK(numbers_of(shared["target"]) == Rows{2, 3, 4});
  CHECK(shared["target"].is_alias_of(rows["target"]));
  CHECK(subset(rows, at::empty({0}, at::kLong))["input"].sizes() == at::IntArrayRef{0, 2});
}

TEST_CASE("Rows put together again are what they were, and data sets are read one after another") {
  const Batch rows{{"input", at::arange(12).view({6, 2})}, {"target", at::arange(6)}};
  const Batch whole = concat({subset(rows, at::arange(4)), subset(rows, at::arange(4, 6))});
  CHECK(whole["input"].equal(rows["input"]));
  CHECK(whole["target"].equal(rows["target"]));

  const data::SampleSource both =
      concat({data::source(Numbered{10, 3}), data::source(Numbered{0, 0}), data::source(Numbered{50, 2})});
  REQUIRE(both.size == 5);
  Rows numbers;
  for (std::int64_t i = 0; i < both.size; ++i) numbers.push_back(number(both, i));
  CHECK(numbers == Rows{10, 11, 12, 50, 51});
  const data::SampleSource some = subset(both, at::tensor({4, 1}, at::kLong));
  CHECK(some.size == 2);
  CHECK(number(some, 0) == 51);
  CHECK(number(subset(Numbered{10, 3}, at::tensor({2}, at::kLong)), 0) == 12);
  const at::Tensor chosen = at::tensor({4, 1}, at::kLong);
  const data::SampleSource kept = subset(both, chosen);
  chosen.fill_(1000);  // the caller's own
  CHECK(number(kept, 0) == 51);
}

TEST_CASE("Rows that do not exist and batches that do not fit are errors that name what does not") {
  const Batch rows{{"input", at::zeros({6, 2})}, {"target", at::arange(6)}};
  CHECK_THROWS_WITH_AS(subset(rows, at::tensor({1, 6}, at::kLong)),
                       "subset: there is no row 6; the data has 6 rows, counted from 0", DataError);
  CHECK_THROWS_WITH_AS(subset(data::source(Numbered{0, 3}), at::tensor({-1}, at::kLong)),
                       doctest::Contains("there is no row -1"), DataError);
  CHECK_THROWS_WITH_AS(subset(rows, at::tensor({1.0})), doctest::Contains("must be an int64 tensor [n]"), DataError);
  CHECK_THROWS_WITH_AS(concat({rows, Batch{{"input", at::zeros({1, 2})}}}),
                       "concat: part 0 has \"target\", and part 1 does not", DataError);
  CHECK_THROWS_WITH_AS(concat({Batch{{"input", at::zeros({1, 2})}}, rows}),
                       "concat: part 1 has \"target\", and part 0 does not", DataError);
  CHECK_THROWS_WITH_AS(concat({rows, Batch{{"input", at::zeros({1, 3})}, {"target", at::arange(1)}}}),
                       doctest::Contains("\"input\" is [6, 2] of Float on cpu in part 0 and [1, 3] of Float"),
                       DataError);
  CHECK_THROWS_WITH_AS(concat({rows, Batch{{"input", at::zeros({1, 2})}, {"target", at::zeros({1})}}}),
                       doctest::Contains("\"target\" is [6] of Long on cpu in part 0 and [1] of Float"), DataError);
  CHECK_THROWS_AS(concat(std::vector<Batch>{}), DataError);
}

}  // namespace composer::subset_test
