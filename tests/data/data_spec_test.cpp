#include "composer/data/data_spec.h"

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/warnings.h"

namespace composer::data_spec_test {

using test::Warnings;

namespace {

Batch ten() { return {{"input", at::arange(30).view({10, 3})}, {"target", at::arange(10)}}; }

}  // namespace

TEST_CASE("A batch is split into consecutive parts, the last one smaller") {
  for (std::int64_t size = 1; size <= 10; ++size) {
    Warnings warnings;
    const Batch batch = ten();
    const auto parts = split_batch(batch, size);
    CHECK(parts.size() == static_cast<std::size_t>((10 + size - 1) / size));
    std::int64_t row = 0;
    for (const Batch& part : parts) {
      CHECK(part.size() == 2);
      const std::int64_t rows = get_num_samples_in_batch(part);
      CHECK(rows == std::min(size, 10 - row));
      CHECK(part["input"].equal(batch["input"].slice(0, row, row + rows)));
      CHECK(part["target"].equal(batch["target"].slice(0, row, row + rows)));
      CHECK(part["input"].storage().is_alias_of(batch["input"].storage()));
      row += rows;
    }
    CHECK(row == 10);
    CHECK(warnings.texts.empty());
  }
}

TEST_CASE("Two tensors of one name are refused") {
  CHECK_THROWS_WITH_AS((Batch{{"x", at::zeros(1)}, {"y", at::zeros(1)}, {"x", at::ones(1)}}),
                       doctest::Contains("two tensors are called \"x\""), DataError);
  CHECK_THROWS_AS((Outputs{{"x", at::zeros(1)}, {"x", at::ones(1)}}), DataError);
}

TEST_CASE("A batch smaller than a microbatch is one part, and the user is told") {
  Warnings warnings;
  CHECK(split_batch(ten(), 11).size() == 1);
  REQUIRE(warnings.texts.size() == 1);
  CHECK(warnings.texts[0].find("10 samples is smaller than the microbatch size of 11") != std::string::npos);
}

TEST_CASE("Tensors without dimensions go into every part and count no samples") {
  Batch batch = ten();
  batch.set("weight", at::scalar_tensor(0.5));
  CHECK(get_num_samples_in_batch(batch) == 10);
  const auto parts = split_batch(batch, 4);
  REQUIRE(parts.size() == 3);
  for (const Batch& part : parts) CHECK(part["weight"].item<double>() == 0.5);
}

TEST_CASE("Tensors of different lengths are an error that names them") {
  const Batch batch{{"input", at::zeros({5, 2})}, {"target", at::zeros(3)}};
  CHECK_THROWS_WITH_AS(split_batch(batch, 2), doctest::Contains("\"input\" has 5 rows, \"target\" has 3"), DataError);
  CHECK_THROWS_AS(get_num_samples_in_batch(batch), DataError);
}

TEST_CASE("What cannot be counted or split is an error") {
  CHECK_THROWS_AS(get_num_samples_in_batch(Batch{}), DataError);
  CHECK_THROWS_AS(get_num_samples_in_batch(at::scalar_tensor(1)), DataError);
  CHECK_THROWS_WITH_AS(get_num_samples_in_batch(Batch{{"x", at::Tensor()}}), doctest::Contains("\"x\" is undefined"),
                       DataError);
  CHECK_THROWS_WITH_AS(split_batch(ten(), 0), doctest::Contains("got 0"), ConfigError);
  CHECK_THROWS_WITH_AS(split_batch(ten(), -2), doctest::Contains("got -2"), ConfigError);
}

TEST_CASE("Tokens are the elements of input_ids, and none without it") {
  CHECK(get_num_tokens_in_batch(ten()).total == 0);
  const TokenCount count = get_num_tokens_in_batch({{"input_ids", at::zeros({4, 7}, at::kLong)}});
  CHECK(count.total == 28);
  CHECK(count.loss_generating == 28);
}

TEST_CASE("Of tokens with targets, those that are not ignored generate loss") {
  const at::Tensor ids = at::zeros({2, 3}, at::kLong);
  const auto with_loss = [&](const at::Tensor& target) {
    const TokenCount count = get_num_tokens_in_batch({{"input_ids", ids}, {"target", target}});
    CHECK(count.total == 6);
    return count.loss_generating;
  };
  CHECK(with_loss(at::tensor({1, -100, 2, -100, -100, -100}, at::kLong).view({2, 3})) == 2);
  CHECK(with_loss(at::full({2, 3}, -100, at::kLong)) == 0);
  CHECK(with_loss(at::tensor({-100, 1}, at::kLong)) == 6);  // one for each sequence
  CHECK(with_loss(at::zeros({2, 3})) == 6);                 // no classes
}

}  // namespace composer::data_spec_test
