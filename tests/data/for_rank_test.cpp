#include "composer/data/for_rank.h"

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/in_memory.h"
#include "composer/data/map_style.h"
#include "composer/data/shared_loader.h"
#include "composer/data/windows.h"
#include "tests/data/support.h"
#include "tests/support/doctest.h"

namespace composer::for_rank_test {

using data::for_rank;
using test::LoaderCase;

namespace {

using Counts = std::vector<std::atomic<int>>;

// Counts how often each sample is read, and draws for it.
data::SampleSource counting(std::shared_ptr<Counts> counts) {
  return {.size = static_cast<std::int64_t>(counts->size()), .get = [counts](std::int64_t index, RandomStream random) {
            ++(*counts)[static_cast<std::size_t>(index)];
            return data::Sample{{"input", at::full({2}, index)},
                                {"drawn", at::scalar_tensor(random.uniform(), at::kDouble)}};
          }};
}

std::shared_ptr<Loader> drawn(std::int64_t samples, std::int64_t batch_size, std::int64_t workers) {
  return data::map_style(counting(std::make_shared<Counts>(samples)),
                         {.batch_size = batch_size, .num_workers = workers});
}

std::shared_ptr<Loader> images(std::int64_t samples, std::int64_t batch_size, bool shuffle, std::int64_t prefetch) {
  return data::in_memory({{"input", at::arange(samples * 48).remainder(251).to(at::kByte).view({samples, 3, 4, 4})},
                          {"target", at::arange(samples)}},
                         {.batch_size = batch_size,
                          .shuffle = shuffle,
                          .normalize = data::Normalize{{0.3}, {0.4}},
                          .flip = true,
                          .crop_padding = 1,
                          .cutout = 2,
                          .prefetch = prefetch});
}

// A loader that for_rank() knows nothing of.
class Wrapped final : public Loader {
 public:
  explicit Wrapped(std::shared_ptr<Loader> inner) : inner_(std::move(inner)) {}
  void seek(std::int64_t epoch, std::int64_t batch) override { inner_->seek(epoch, batch); }
  std::optional<Batch> next() override { return inner_->next(); }
  std::optional<std::int64_t> num_batches() const override { return inner_->num_batches(); }
  std::optional<std::int64_t> batch_size() const override { return inner_->batch_size(); }
  std::vector<std::int64_t> sample_indices(std::int64_t epoch, std::int64_t batch) const override {
    return inner_->sample_indices(epoch, batch);
  }
  void set_default_seed(std::uint64_t seed) override { inner_->set_default_seed(seed); }

 private:
  std::shared_ptr<Loader> inner_;
};

std::vector<LoaderCase> cases() {
  return {
      {"map style", [] { return drawn(23, 5, 0); }},
      {"map style, 2 workers", [] { return drawn(23, 5, 2); }},
      {"map style, batches smaller than the ranks", [] { return drawn(5, 2, 0); }},
      {"in memory", [] { return images(23, 5, true, 0); }},
      {"in memory, in order", [] { return images(23, 5, false, 0); }},
      {"in memory, ahead", [] { return images(23, 5, true, 2); }},
      {"weighted", [] { return data::in_memory(Batch(at::arange(23)), {.batch_size = 5, .weights = at::arange(23)}); }},
      {"map style, weighted, 2 workers",
       [] {
         return data::map_style(
             counting(std::make_shared<Counts>(23)),
             {.batch_size = 5, .weights = at::arange(23), .samples_per_epoch = 12, .num_workers = 2});
       }},
      {"windows",
       [] {
         return data::in_memory(data::windows(at::arange(50).view({25, 2}), {.length = 3, .horizon = 1}),
                                {.batch_size = 5, .prefetch = 1});
       }},
      {"views", [] { return data::in_memory(Batch(at::arange(23)), {.batch_size = 5, .shuffle = false}); }},
      {"another loader", [] { return std::make_shared<Wrapped>(drawn(23, 5, 0)); }}};
}

std::vector<std::shared_ptr<Loader>> ranks_of(const std::shared_ptr<Loader>& loader, std::int64_t world_size) {
  std::vector<std::shared_ptr<Loader>> ranks;
  for (std::int64_t rank = 0; rank < world_size; ++rank)
    ranks.push_back(for_rank({.dataloader = loader}, rank, world_size).dataloader);
  return ranks;
}

// The next slices of all ranks make up the batch. Slices without samples have the names and types of the batch.
void check_next(const std::vector<std::shared_ptr<Loader>>& ranks, const std::optional<Batch>& batch) {
  std::vector<Batch> slices;
  for (const auto& rank : ranks) {
    std::optional<Batch> slice = rank->next();
    REQUIRE(slice.has_value() == batch.has_value());
    if (slice) slices.push_back(std::move(*slice));
  }
  if (!batch) return;
  for (const auto& [name, tensor] : *batch) {
    std::vector<at::Tensor> parts;
    for (const Batch& slice : slices) {
      CHECK(slice.size() == batch->size());
      CHECK(slice[name].sizes().slice(1) == tensor.sizes().slice(1));
      parts.push_back(slice[name]);
    }
    CHECK(at::cat(parts).equal(tensor));
    CHECK((at::cat(parts).scalar_type() == tensor.scalar_type()));
  }
}

}  // namespace

TEST_CASE("The slices of all ranks make up the batches of one process, in each epoch and for each seed") {
  for (const LoaderCase& c : cases())
    for (std::int64_t world_size : {1, 2, 3, 4}) {
      CAPTURE(c.name);
      CAPTURE(world_size);
      const auto alone = c.make();
      const auto ranks = ranks_of(c.make(), world_size);
      for (std::uint64_t seed : {17, 5}) {
        alone->set_default_seed(seed);
        for (const auto& rank : ranks) rank->set_default_seed(seed);
        for (std::int64_t epoch : {0, 1}) {
          alone->seek(epoch, 0);
          for (const auto& rank : ranks) rank->seek(epoch, 0);
          for (std::int64_t batch = 0; batch <= *alone->num_batches(); ++batch) check_next(ranks, alone->next());
        }
      }
    }
}

TEST_CASE("Two ranks read each sample once per epoch") {
  for (bool shuffle : {false, true})
    for (std::int64_t world_size : {2, 3}) {
      const auto counts = std::make_shared<Counts>(23);
      const auto loader = data::map_style(counting(counts), {.batch_size = 5, .shuffle = shuffle});
      for (const auto& rank : ranks_of(loader, world_size)) {
        std::int64_t batches = 0;
        while (rank->next()) ++batches;
        CHECK(batches == 5);
      }
      for (const auto& count : *counts) CHECK(count == 1);
    }
}

TEST_CASE("A rank without samples reads one sample for their shapes, and only if it has made no batch") {
  const auto counts = std::make_shared<Counts>(7);
  const auto loader = data::map_style(counting(counts), {.batch_size = 3, .shuffle = false});
  const auto second = for_rank({.dataloader = loader}, 1, 2).dataloader;
  const auto total = [&] {
    int sum = 0;
    for (const auto& count : *counts) sum += count;
    return sum;
  };
  second->seek(0, 2);  // one sample, which is rank 0's
  CHECK(second->next()->at("input").sizes() == at::IntArrayRef({0, 2}));
  CHECK(total() == 1);
  second->seek(0, 2);
  CHECK(second->next()->at("drawn").sizes() == at::IntArrayRef({0}));
  CHECK(total() == 1);
}

TEST_CASE("A run that stops with two ranks goes on with three, and then with one, with the batches of one process") {
  for (const LoaderCase& c : cases()) {
    CAPTURE(c.name);
    const auto alone = c.make();
    alone->seek(1, 0);
    std::int64_t batch = 0;
    for (std::int64_t world_size : {2, 3, 1}) {
      const auto ranks = ranks_of(c.make(), world_size);
      for (const auto& rank : ranks) rank->seek(1, batch);
      check_next(ranks, alone->next());
      ++batch;
    }
  }
}

TEST_CASE("A rank's loader tells the indices of its samples and the size of its slice") {
  for (const LoaderCase& c : cases()) {
    CAPTURE(c.name);
    const auto alone = c.make();
    std::vector<std::int64_t> indices;
    std::int64_t size = 0;
    for (const auto& rank : ranks_of(alone, 2)) {
      const auto own = rank->sample_indices(1, 1);
      indices.insert(indices.end(), own.begin(), own.end());
      size += *rank->batch_size();
      CHECK(rank->num_batches() == alone->num_batches());
    }
    CHECK(indices == alone->sample_indices(1, 1));
    CHECK(size == alone->batch_size());
  }
}

TEST_CASE("Ranks of one loader with different seeds do not disturb each other") {
  for (const LoaderCase& c : cases()) {
    CAPTURE(c.name);
    const auto loader = c.make();
    const data::SharedLoader a(for_rank({.dataloader = loader}, 0, 2).dataloader);
    const data::SharedLoader b(for_rank({.dataloader = loader}, 0, 2).dataloader);
    const auto reference = for_rank({.dataloader = c.make()}, 0, 2).dataloader;
    data::SharedLoader first = a, second = b;
    first.set_default_seed(1);
    second.set_default_seed(2);
    reference->set_default_seed(1);
    for (std::int64_t batch = 0; batch < 2; ++batch) {
      second.read("b", 0, batch);
      CHECK(first.read("a", 0, batch)->front().equal(reference->next()->front()));
    }
  }
}

TEST_CASE("A loader is not sliced twice, nor for a rank that does not exist, nor if there is none") {
  for (const LoaderCase& c : cases()) {
    const DataSpec spec{.dataloader = c.make()};
    CHECK_THROWS_WITH_AS(for_rank(for_rank(spec, 0, 2), 0, 2), doctest::Contains("already"), ConfigError);
    CHECK_THROWS_WITH_AS(for_rank(spec, 2, 2), doctest::Contains("rank must be from 0 to 1, got 2"), ConfigError);
    CHECK(for_rank(spec, 0, 1).dataloader == spec.dataloader);
  }
  CHECK_THROWS_AS(for_rank({}, 0, 2), ConfigError);
}

}  // namespace composer::for_rank_test
