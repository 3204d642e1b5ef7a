#include "composer/data/shared_loader.h"

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/in_memory.h"
#include "tests/support/doctest.h"
#include "tests/support/in_child.h"

namespace composer::data::shared_loader_test {
namespace {

// Four batches an epoch, which tell their place; counts the seeks.
class Places final : public Loader {
 public:
  void seek(std::int64_t epoch, std::int64_t batch) override {
    ++seeks;
    epoch_ = epoch;
    batch_ = batch;
  }
  std::optional<Batch> next() override {
    if (inside) inside();
    if (batch_ >= 4) return std::nullopt;
    return Batch{{"place", at::tensor({epoch_, batch_++})}};
  }
  int seeks = 0;
  std::function<void()> inside;

 private:
  std::int64_t epoch_ = 0, batch_ = 0;
};

std::vector<std::int64_t> place(const std::optional<Batch>& batch) {
  if (!batch) return {};
  const at::Tensor& tensor = batch->at("place");
  return {tensor[0].item<std::int64_t>(), tensor[1].item<std::int64_t>()};
}

using Numbers = std::vector<std::int64_t>;

TEST_CASE("Readers that take turns on a loader each get every batch of theirs") {
  const auto places = std::make_shared<Places>();
  const SharedLoader a(places), b(places);
  a.seek("a", 0, 0);
  b.seek("b", 3, 2);
  for (std::int64_t i = 0; i < 4; ++i) {
    CHECK(place(a.read("a", 0, i)) == Numbers{0, i});
    CHECK(place(b.read("b", 3, 2 + i)) == (i < 2 ? Numbers{3, 2 + i} : Numbers{}));
  }
  CHECK_FALSE(a.read("a", 0, 4));
}

TEST_CASE("A loader with one reader is not moved but by its seek()") {
  const auto places = std::make_shared<Places>();
  const SharedLoader a(places);
  a.seek("a", 1, 0);
  for (std::int64_t i = 0; i < 4; ++i) CHECK(place(a.read("a", 1, i)) == Numbers{1, i});
  CHECK_FALSE(a.read("a", 1, 4));
  CHECK_FALSE(a.read("a", 1, 4));
  CHECK(places->seeks == 1);
}

TEST_CASE("A reader that goes on after an error gets what the loader gives next, without a seek") {
  const auto places = std::make_shared<Places>();
  const SharedLoader a(places), b(places);
  a.seek("a", 0, 2);
  places->inside = [] { throw DataError("gone"); };
  CHECK_THROWS_AS(a.read("a", 0, 2), DataError);
  places->inside = {};
  CHECK(place(a.read("a", 0, 2)) == Numbers{0, 2});
  CHECK(places->seeks == 1);
  CHECK(place(b.read("b", 0, 2)) == Numbers{0, 2});
  CHECK(places->seeks == 2);
}

TEST_CASE("A second thread inside of a loader gets an error, and the first its batch") {
  const auto places = std::make_shared<Places>();
  const SharedLoader a(places), b(places);
  places->inside = [&] {
    std::thread([&] {
      CHECK_THROWS_WITH_AS(b.read("mine", 0, 0), doctest::Contains("mine loader: two threads"), ConfigError);
      CHECK_THROWS_AS(b.seek("mine", 0, 0), ConfigError);
    }).join();
  };
  CHECK(place(a.read("a", 0, 1)) == Numbers{0, 1});
}

TEST_CASE("A loader is leased to one thread at a time, to any number of readers there") {
  const auto places = std::make_shared<Places>();
  const SharedLoader a(places), b(places), other(std::make_shared<Places>());
  const auto refused_elsewhere = [&] {
    bool refused = false;
    std::thread([&] {
      const LoaderLease free(other, "other");
      try {
        const LoaderLease lease(b, "mine");
      } catch (const ConfigError&) {
        refused = true;
      }
    }).join();
    return refused;
  };
  {
    LoaderLease first(a, "a");
    {
      const LoaderLease second(b, "b");
      const LoaderLease moved = std::move(first);
      CHECK(refused_elsewhere());
    }
    CHECK_FALSE(refused_elsewhere());
  }
  {
    LoaderLease handed_over(a, "a");
    std::thread([&] { handed_over.move_here(); }).join();
    CHECK_THROWS_AS(LoaderLease(b, "b"), ConfigError);
    handed_over.move_here();
    CHECK_NOTHROW(LoaderLease(b, "b"));
    CHECK(refused_elsewhere());
  }
  LoaderLease of_nothing(SharedLoader(), "none");
  of_nothing.move_here();
  CHECK_FALSE(refused_elsewhere());
}

TEST_CASE("in_memory with prefetch gives each batch once to threads that read it at the same time") {
  const auto loader = in_memory({{"input", at::arange(64)}}, {.batch_size = 1, .shuffle = false, .prefetch = 2});
  for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
    loader->seek(epoch, 0);
    std::atomic<std::int64_t> sum = 0, count = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i)
      threads.emplace_back([&] {
        while (const auto batch = loader->next()) {
          sum += batch->at("input").item<std::int64_t>();
          ++count;
        }
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(count == 64);
    CHECK(sum == 63 * 32);
  }
}

TEST_CASE("A loader with threads is refused after fork(), and does not keep the child from ending") {
  auto loader = in_memory({{"input", at::arange(64)}}, {.batch_size = 1, .prefetch = 2});
  REQUIRE(loader->next());
  const int status = test::status_of_child([&] {
    int refused = 0;
    for (const auto& call :
         {std::function<void()>([&] { loader->next(); }), std::function<void()>([&] { loader->seek(0, 0); })}) {
      try {
        call();
      } catch (const ConfigError&) {
        ++refused;
      }
    }
    if (refused != 2) ::_exit(1);
    loader.reset();
    at::empty({3}).fill_(1);
    const auto fresh = in_memory({{"input", at::arange(8)}}, {.batch_size = 1, .prefetch = 2});
    if (!fresh->next()) ::_exit(2);
  });
  CHECK(test::ended_well(status));
  CHECK(loader->next());
}

}  // namespace
}  // namespace composer::data::shared_loader_test
