#include "composer/data/join_batches.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/in_memory.h"
#include "composer/data/map_style.h"
#include "tests/support/doctest.h"

namespace composer::data::join_batches_test {
namespace {

std::shared_ptr<Loader> plain(std::int64_t samples, std::int64_t batch_size, bool shuffle = true) {
  return in_memory({{"input", at::arange(samples)}}, {.batch_size = batch_size, .shuffle = shuffle});
}

std::vector<at::Tensor> rest(Loader& loader) {
  std::vector<at::Tensor> all;
  while (std::optional<Batch> batch = loader.next()) all.push_back((*batch)["input"].clone());
  return all;
}

TEST_CASE("Joined batches have the samples of the batches that they join, in their order, from any position") {
  for (const std::int64_t count : {1, 2, 3, 7, 20}) {
    CAPTURE(count);
    const auto loader = join_batches(plain(43, 4), count);
    const auto single = plain(43, 4);
    CHECK(loader->num_batches() == (11 + count - 1) / count);
    CHECK(loader->batch_size() == 4 * count);
    for (const std::int64_t epoch : {0, 3}) {
      single->seek(epoch, 0);
      const at::Tensor expected = at::cat(rest(*single));
      for (std::int64_t from = 0; from <= *loader->num_batches(); ++from) {
        loader->seek(epoch, from);
        const std::vector<at::Tensor> batches = rest(*loader);
        CHECK(std::ssize(batches) == *loader->num_batches() - from);
        if (batches.empty()) continue;
        CHECK(at::cat(batches).equal(expected.slice(0, from * count * 4)));
        const std::vector<std::int64_t> indices = loader->sample_indices(epoch, from);
        CHECK(at::tensor(indices).equal(batches.front()));
      }
    }
  }
}

TEST_CASE("After the end of an epoch, next() says so again, and seek() begins anew") {
  const auto loader = join_batches(plain(10, 3, false), 3);
  loader->seek(0, 0);
  CHECK(rest(*loader).size() == 2);
  CHECK_FALSE(loader->next().has_value());
  loader->seek(1, 1);
  CHECK(rest(*loader).size() == 1);
}

TEST_CASE("After an error of the loader the following batches have their own samples") {
  const SampleSource source{.size = 20, .get = [](std::int64_t i, RandomStream) {
                              if (i == 2 || i == 12) throw DataError("sample ", i, " is broken");
                              return Sample{{"input", at::scalar_tensor(i, at::kLong)}};
                            }};
  for (const std::int64_t workers : {0, 2}) {
    CAPTURE(workers);
    const auto loader = join_batches(map_style(source, {.batch_size = 2, .shuffle = false, .num_workers = workers}), 3);
    for (const std::int64_t epoch : {0, 1}) {
      loader->seek(epoch, 0);
      CHECK_THROWS_AS(loader->next(), DataError);
      CHECK((*loader->next())["input"].equal(at::arange(6, 12)));
      CHECK_THROWS_AS(loader->next(), DataError);
      CHECK((*loader->next())["input"].equal(at::arange(18, 20)));
      CHECK_FALSE(loader->next());
      CHECK_FALSE(loader->next());
    }
  }
}

TEST_CASE("Batches that do not fit together are a DataError that names the tensor and both kinds") {
  struct Varying final : Loader {
    explicit Varying(std::vector<Batch> given) : batches(std::move(given)) {}
    void seek(std::int64_t, std::int64_t batch) override { at = static_cast<std::size_t>(batch); }
    std::optional<Batch> next() override { return at < batches.size() ? std::optional(batches[at++]) : std::nullopt; }
    std::vector<Batch> batches;
    std::size_t at = 0;
  };
  const auto joined = [](Batch first, Batch second) {
    const auto loader = join_batches(std::make_shared<Varying>(std::vector{std::move(first), std::move(second)}), 2);
    return loader->next();
  };
  CHECK_THROWS_WITH_AS(joined({{"x", at::ones({2, 3})}}, {{"x", at::ones({2, 4})}}),
                       doctest::Contains("\"x\" is Float [2, 3] in one batch and Float [2, 4] in another"), DataError);
  CHECK_THROWS_WITH_AS(joined({{"x", at::ones({2})}}, {{"y", at::ones({2})}}),
                       doctest::Contains("do not have the same tensors"), DataError);
  CHECK_THROWS_WITH_AS(joined({{"x", at::scalar_tensor(1)}}, {{"x", at::scalar_tensor(2)}}),
                       doctest::Contains("it is one number"), DataError);
  CHECK((*joined({{"x", at::scalar_tensor(1)}}, {{"x", at::scalar_tensor(1)}}))["x"].dim() == 0);
  CHECK_THROWS_AS(join_batches(nullptr, 2), ConfigError);
  CHECK_THROWS_AS(join_batches(plain(4, 2), 0), ConfigError);
}

}  // namespace
}  // namespace composer::data::join_batches_test
