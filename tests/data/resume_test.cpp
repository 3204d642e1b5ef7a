// What a loader gives depends on the place alone: each loader, from each place of two epochs.
#include <functional>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/in_memory.h"
#include "composer/data/map_style.h"
#include "composer/data/windows.h"
#include "tests/data/support.h"
#include "tests/support/doctest.h"

namespace composer::resume_test {

using data::in_memory;
using data::InMemoryOptions;
using test::LoaderCase;

namespace {

Batch images(std::int64_t n) {
  return {{"input", at::arange(n * 48).mul(7).remainder(251).to(at::kByte).view({n, 3, 4, 4})},
          {"target", at::arange(n)}};
}

InMemoryOptions augmented(std::int64_t prefetch) {
  return {.batch_size = 5,
          .normalize = data::Normalize{{0.3}, {0.4}},
          .flip = true,
          .crop_padding = 1,
          .cutout = 2,
          .channels_last = true,
          .prefetch = prefetch};
}

// Samples that tell which they are and what was drawn for them.
struct Drawn {
  std::int64_t size() const { return 33; }
  data::Sample get(std::int64_t index, RandomStream random) const {
    return {{"input", at::full({2, 3}, index)}, {"drawn", at::scalar_tensor(random.uniform(), at::kDouble)}};
  }
};

std::shared_ptr<Loader> drawn(std::int64_t workers, std::int64_t prefetch_factor = 2) {
  return data::map_style(Drawn(), {.batch_size = 5, .num_workers = workers, .prefetch_factor = prefetch_factor});
}

InMemoryOptions weighted(std::int64_t prefetch) {
  InMemoryOptions options = augmented(prefetch);
  options.weights = at::arange(33);
  options.samples_per_epoch = 24;
  return options;
}

data::Windows stretches() {
  return data::windows(at::arange(80).view({40, 2}),
                       {.length = 4, .horizon = 2, .series = at::arange(40).div(13, "floor")});
}

std::vector<LoaderCase> cases() {
  return {
      {"in order", [] { return in_memory(images(33), {.batch_size = 5, .shuffle = false}); }},
      {"shuffled", [] { return in_memory(images(33), {.batch_size = 5, .drop_last = true}); }},
      {"augmented", [] { return in_memory(images(33), augmented(0)); }},
      {"augmented, 1 ahead", [] { return in_memory(images(33), augmented(1)); }},
      {"augmented, 4 ahead", [] { return in_memory(images(33), augmented(4)); }},
      {"augmented, 99 ahead", [] { return in_memory(images(33), augmented(99)); }},
      {"weighted", [] { return in_memory(images(33), weighted(0)); }},
      {"weighted, 3 ahead", [] { return in_memory(images(33), weighted(3)); }},
      {"windows", [] { return in_memory(stretches(), {.batch_size = 5}); }},
      {"windows, 2 ahead", [] { return in_memory(stretches(), {.batch_size = 5, .prefetch = 2}); }},
      {"map style", [] { return drawn(0); }},
      {"map style, weighted, 2 workers",
       [] {
         return data::map_style(
             Drawn(), {.batch_size = 5, .weights = at::arange(33), .samples_per_epoch = 24, .num_workers = 2});
       }},
      {"map style, 1 worker", [] { return drawn(1); }},
      {"map style, 2 workers", [] { return drawn(2, 1); }},
      {"map style, 8 workers", [] { return drawn(8); }},
  };
}

bool same(const Batch& a, const Batch& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, tensor] : a)
    if (!b.contains(name) || !tensor.equal(b[name]) || tensor.strides() != b[name].strides()) return false;
  return true;
}

// [epoch][batch]
std::vector<std::vector<Batch>> two_epochs(Loader& loader) {
  std::vector<std::vector<Batch>> epochs;
  for (std::int64_t epoch : {0, 1}) {
    loader.seek(epoch, 0);
    auto& batches = epochs.emplace_back();
    while (auto batch = loader.next()) batches.push_back(std::move(*batch));
  }
  return epochs;
}

void check_rest(Loader& loader, const std::vector<Batch>& epoch, std::size_t from) {
  for (std::size_t b = from; b < epoch.size(); ++b) {
    const auto batch = loader.next();
    REQUIRE(batch);
    CHECK(same(*batch, epoch[b]));
  }
  CHECK_FALSE(loader.next());
}

}  // namespace

TEST_CASE("A loader that is positioned anywhere goes on as a run that was never interrupted") {
  for (const LoaderCase& c : cases()) {
    CAPTURE(c.name);
    const auto whole = two_epochs(*c.make());
    const auto used = c.make();
    for (std::size_t epoch : {0, 1})
      for (std::size_t b = 0; b <= whole[epoch].size(); ++b) {
        CAPTURE(epoch);
        CAPTURE(b);
        const auto fresh = c.make();
        fresh->seek(static_cast<std::int64_t>(epoch), static_cast<std::int64_t>(b));
        check_rest(*fresh, whole[epoch], b);
        // and one that was somewhere else, in the middle of something
        used->seek(static_cast<std::int64_t>(1 - epoch), 2);
        CHECK(same(*used->next(), whole[1 - epoch][2]));
        used->seek(static_cast<std::int64_t>(epoch), static_cast<std::int64_t>(b));
        check_rest(*used, whole[epoch], b);
      }
  }
}

TEST_CASE("Batches made ahead are the same to the bit") {
  const auto plain = two_epochs(*in_memory(images(33), augmented(0)));
  for (std::int64_t prefetch : {1, 2, 7}) {
    const auto ahead = two_epochs(*in_memory(images(33), augmented(prefetch)));
    for (std::size_t epoch : {0, 1}) {
      REQUIRE(ahead[epoch].size() == plain[epoch].size());
      for (std::size_t b = 0; b < plain[epoch].size(); ++b) CHECK(same(ahead[epoch][b], plain[epoch][b]));
    }
  }
}

TEST_CASE("Samples of a data set are the same with any number of workers, and drawn anew each epoch") {
  const auto plain = two_epochs(*drawn(0));
  CHECK_FALSE(plain[0][0]["drawn"].equal(plain[1][0]["drawn"]));
  for (std::int64_t workers : {1, 2, 3, 8})
    for (std::int64_t factor : {1, 4}) {
      const auto other = two_epochs(*drawn(workers, factor));
      for (std::size_t epoch : {0, 1}) {
        REQUIRE(other[epoch].size() == plain[epoch].size());
        for (std::size_t b = 0; b < plain[epoch].size(); ++b) CHECK(same(other[epoch][b], plain[epoch][b]));
      }
    }
}

TEST_CASE("A loader that makes batches ahead can be positioned and dropped at any moment") {
  for (int i = 0; i < 60; ++i) {
    const auto loader = in_memory(images(33), augmented(1 + i % 5));
    for (int taken = 0; taken < i % 4; ++taken) REQUIRE(loader->next());
    if (i % 3 == 0) loader->seek(i, i % 7);
    if (i % 2 == 0) REQUIRE(loader->next());
    if (i % 6 == 0) loader->seek(0, 7);
  }
}

TEST_CASE("A loader that was left behind the last batch of an epoch gives the batches of the next one") {
  const auto made = [](std::int64_t prefetch) {
    return in_memory(Batch{{"input", at::arange(6)}}, {.batch_size = 2, .seed = 5, .prefetch = prefetch});
  };
  const auto ahead = made(2), plain = made(0);
  for (const std::int64_t epoch : {1, 0, 4}) {  // that follows, the same one, another one
    for (const auto& loader : {ahead, plain}) {
      loader->seek(0, 0);
      CHECK(loader->next());
      loader->seek(0, 3);
      CHECK_FALSE(loader->next());
      loader->seek(epoch, 0);
    }
    CHECK(ahead->next()->at("input").equal(plain->next()->at("input")));
  }
}

TEST_CASE("A negative number of batches to make ahead is refused") {
  CHECK_THROWS_WITH_AS(in_memory(images(4), {.batch_size = 2, .prefetch = -1}),
                       doctest::Contains("prefetch must be >= 0, got -1"), ConfigError);
}

TEST_CASE("Pinned memory is refused where there is no CUDA device") {
  if (at::globalContext().hasCUDA()) return;
  CHECK_THROWS_WITH_AS(in_memory(images(4), {.batch_size = 2, .pin_memory = true}),
                       doctest::Contains("pin_memory requires a CUDA device"), ConfigError);
}

}  // namespace composer::resume_test
