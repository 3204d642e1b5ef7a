#include "composer/data/map_style.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include "composer/core/error.h"
#include "composer/util/parallel.h"
#include "tests/data/support.h"
#include "tests/support/doctest.h"

namespace composer::map_style_test {

using data::map_style;
using data::MapStyleOptions;
using data::Sample;
using test::numbers_of;

namespace {

struct Numbers {
  std::int64_t count;
  std::int64_t size() const { return count; }
  Sample get(std::int64_t index) const {
    return {{"input", at::arange(3).add(index * 3)}, {"target", at::scalar_tensor(index, at::kLong)}};
  }
};

// Samples 7, 11 and 12 cannot be got.
struct Damaged : Numbers {
  Sample get(std::int64_t index) const {
    if (index == 7 || index == 11 || index == 12)
      throw std::runtime_error("file " + std::to_string(index) + " is broken");
    return Numbers::get(index);
  }
};

std::string error_of(Loader& loader) {
  try {
    loader.next();
  } catch (const DataError& error) {
    return describe(error);
  }
  return "none";
}

}  // namespace

TEST_CASE("An epoch of a data set holds each sample once, stacked in batches of the size asked for") {
  for (std::int64_t workers : {0, 2})
    for (bool shuffle : {false, true})
      for (bool drop_last : {false, true}) {
        const auto loader = map_style(
            Numbers{10}, {.batch_size = 4, .shuffle = shuffle, .drop_last = drop_last, .num_workers = workers});
        CHECK(loader->num_batches() == (drop_last ? 2 : 3));
        CHECK(loader->batch_size() == 4);
        for (std::int64_t epoch : {0, 4}) {
          loader->seek(epoch, 0);
          std::vector<std::int64_t> all;
          while (const auto batch = loader->next()) {
            CHECK(batch->at("input").equal(at::arange(3) + batch->at("target").unsqueeze(1) * 3));
            for (std::int64_t number : numbers_of(batch->at("target"))) all.push_back(number);
          }
          CHECK(all.size() == (drop_last ? 8 : 10));
          CHECK(std::set(all.begin(), all.end()).size() == all.size());
          if (!shuffle) CHECK(std::ranges::is_sorted(all));
        }
      }
}

TEST_CASE("A data set may be shared, a lambda, or draw random numbers") {
  const auto shared = map_style(std::make_shared<Numbers>(Numbers{3}), {.batch_size = 3, .shuffle = false});
  CHECK(numbers_of(shared->next()->at("target")) == std::vector<std::int64_t>{0, 1, 2});

  const auto lambda = map_style({.size = 4, .get = [](std::int64_t i, RandomStream) { return Sample(at::full(2, i)); }},
                                {.batch_size = 4, .shuffle = false});
  CHECK(lambda->next()->only().equal(at::arange(4).unsqueeze(1).expand({4, 2})));
}

TEST_CASE("A sample's random numbers depend on seed, epoch and sample, not on its batch") {
  const auto drawn = [](std::uint64_t seed, std::int64_t epoch, std::int64_t batch_size) {
    const auto loader = map_style(
        {.size = 6,
         .get = [](std::int64_t, RandomStream r) { return Sample(at::scalar_tensor(r.uniform(), at::kDouble)); }},
        {.batch_size = batch_size, .shuffle = false, .seed = seed});
    loader->seek(epoch, 0);
    std::vector<at::Tensor> all;
    while (const auto batch = loader->next()) all.push_back(batch->only());
    return at::cat(all);
  };
  const at::Tensor first = drawn(17, 0, 6);
  CHECK(std::get<0>(at::_unique(first)).numel() == 6);
  CHECK(drawn(17, 0, 4).equal(first));
  CHECK(drawn(17, 0, 1).equal(first));
  CHECK_FALSE(drawn(17, 1, 6).equal(first));
  CHECK_FALSE(drawn(18, 0, 6).equal(first));
}

TEST_CASE("Samples that are views, of any type, empty or on two places in memory are stacked") {
  const at::Tensor base = at::arange(60).view({5, 3, 4});
  for (auto type : {at::kByte, at::kBFloat16, at::kDouble, at::kBool, at::kComplexDouble})
    for (std::int64_t kind : {0, 1, 2, 3}) {
      const auto part = [&, type = type](std::int64_t i) {
        at::Tensor x = base[i].to(type);
        if (kind == 1) x = x.t();
        if (kind == 2) x = x.slice(0, 0, 0);
        if (kind == 3 && type == at::kComplexDouble) x = x.conj();
        return x;
      };
      const auto loader = map_style({.size = 5, .get = [&](std::int64_t i, RandomStream) { return Sample(part(i)); }},
                                    {.batch_size = 5, .shuffle = false});
      CHECK(loader->next()->only().equal(at::stack({part(0), part(1), part(2), part(3), part(4)})));
    }
}

TEST_CASE("A collate of the user's gets the samples in order and makes the batch") {
  const auto pad = [](std::vector<Sample> samples) {
    at::Tensor out = at::zeros({static_cast<std::int64_t>(samples.size()), 4}, at::kLong);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const at::Tensor& ids = samples[i]["input_ids"];
      out[static_cast<std::int64_t>(i)].slice(0, 0, ids.size(0)).copy_(ids);
    }
    return Batch{{"input_ids", out}};
  };
  for (std::int64_t workers : {0, 2}) {
    const auto loader = map_style({.size = 4,
                                   .get =
                                       [](std::int64_t i, RandomStream) {
                                         return Sample{{"input_ids", at::arange(i + 1)}};
                                       }},
                                  {.batch_size = 3, .shuffle = false, .num_workers = workers, .collate = pad});
    CHECK(loader->next()->at("input_ids").equal(at::tensor({0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 2, 0}).view({3, 4})));
    CHECK(loader->next()->at("input_ids").equal(at::tensor({0, 1, 2, 3}).view({1, 4})));
  }
}

TEST_CASE("What get() throws arrives in order at the call that wanted it, with the sample, and the run can go on") {
  for (std::int64_t workers : {0, 1, 2, 8}) {
    CAPTURE(workers);
    const auto loader = map_style(Damaged{{16}}, {.batch_size = 3, .shuffle = false, .num_workers = workers});
    for (std::int64_t epoch : {0, 1}) {
      loader->seek(epoch, 0);
      CHECK(numbers_of(loader->next()->at("target")) == std::vector<std::int64_t>{0, 1, 2});
      CHECK(numbers_of(loader->next()->at("target")) == std::vector<std::int64_t>{3, 4, 5});
      CHECK(error_of(*loader) ==
            join("map_style: getting sample 7 for batch 2 of epoch ", epoch, " failed\n  because: file 7 is broken"));
      CHECK(error_of(*loader).find("sample 11 for batch 3") != std::string::npos);
      CHECK(error_of(*loader).find("sample 12 for batch 4") != std::string::npos);
      CHECK(numbers_of(loader->next()->at("target")) == std::vector<std::int64_t>{15});
      CHECK_FALSE(loader->next());
    }
  }
}

TEST_CASE("Samples that cannot be stacked are an error that names them") {
  const auto refuse = [](std::function<Sample(std::int64_t)> get, const char* text) {
    for (std::int64_t workers : {0, 1}) {
      const auto loader = map_style({.size = 3, .get = [get](std::int64_t i, RandomStream) { return get(i); }},
                                    {.batch_size = 3, .shuffle = false, .num_workers = workers});
      const std::string error = error_of(*loader);
      CAPTURE(error);
      CHECK(error.find("map_style: collating batch 0 of epoch 0 failed") == 0);
      CHECK(error.find(text) != std::string::npos);
    }
  };
  refuse(
      [](std::int64_t i) {
        return Sample(at::zeros({2, i < 2 ? 3 : 4}));
      },
      "\"input\" of sample 0 is [2, 3] of Float, of sample 2 [2, 4] of Float");
  refuse([](std::int64_t i) { return Sample(at::zeros(2).to(i == 1 ? at::kByte : at::kLong)); },
         "of sample 0 is [2] of Long, of sample 1 [2] of Byte");
  refuse(
      [](std::int64_t i) {
        return Sample{{i == 2 ? "y" : "x", at::zeros(2)}};
      },
      "sample 2 has 1, none with that name");
  refuse(
      [](std::int64_t i) {
        return i ? Sample{{"x", at::zeros(2)}, {"y", at::zeros(2)}} : Sample{{"x", at::zeros(2)}};
      },
      "sample 0 has 1 tensors, one of them \"x\"; sample 1 has 2");
  refuse([](std::int64_t) { return Sample(at::Tensor()); }, "sample 0: \"input\" is undefined");
}

TEST_CASE("No more batches are made ahead than asked for, and none before the first is wanted") {
  for (std::int64_t workers : {1, 3}) {
    std::atomic<int> got = 0;
    const auto loader = map_style({.size = 100,
                                   .get =
                                       [&](std::int64_t i, RandomStream) {
                                         ++got;
                                         return Sample(at::full(1, i));
                                       }},
                                  {.batch_size = 1, .num_workers = workers, .prefetch_factor = 4});
    CHECK(got == 0);
    loader->next();
    const int most = 1 + static_cast<int>(workers) * 4;
    while (got < most) std::this_thread::yield();
    for (int i = 0; i < 100; ++i) std::this_thread::yield();
    CHECK(got == most);
  }
}

TEST_CASE("Batches are the same with workers and without, whichever epoch follows which") {
  const auto get = [](std::int64_t i, RandomStream random) {
    return Sample(at::tensor({i, static_cast<std::int64_t>(random.below(1'000'000))}));
  };
  for (const std::int64_t workers : {1, 3})
    for (const std::int64_t factor : {1, 4}) {
      const auto loader =
          map_style({.size = 7, .get = get}, {.batch_size = 2, .num_workers = workers, .prefetch_factor = factor});
      const auto reference = map_style({.size = 7, .get = get}, {.batch_size = 2});
      for (const std::int64_t epoch : {0, 1, 2, 5, 5, 5, 0, 0, 3, 4}) {
        CAPTURE(epoch);
        for (const auto& one : {loader, reference}) one->seek(epoch, 0);
        while (const auto wanted = reference->next()) {
          const auto given = loader->next();
          REQUIRE(given.has_value());
          CHECK(given->only().equal(wanted->only()));
        }
        CHECK_FALSE(loader->next().has_value());
      }
    }
}

TEST_CASE("The first batches of the epoch that probably follows are made before anybody asks for them") {
  std::atomic<int> got = 0;
  const auto loader = map_style({.size = 4,
                                 .get =
                                     [&](std::int64_t i, RandomStream) {
                                       ++got;
                                       return Sample(at::full(1, i));
                                     }},
                                {.batch_size = 2, .num_workers = 1, .prefetch_factor = 2});
  const auto read_epoch = [&](std::int64_t epoch) {
    loader->seek(epoch, 0);
    while (loader->next()) {
    }
  };
  const auto reaches = [&](int samples) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (got < samples && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    for (int i = 0; i < 100; ++i) std::this_thread::yield();
    return got == samples;
  };
  struct Row {
    const char* what;
    std::int64_t epoch;
    int samples;  // read and ahead, after this epoch
  };
  for (const Row& row :
       {Row{"the first epoch, and all of the next one", 0, 8}, Row{"as was guessed", 1, 12},
        Row{"the same one again: 4 were made for nothing", 1, 20}, Row{"the same, as was guessed", 1, 24},
        Row{"the next one: 4 were made for nothing", 2, 32}, Row{"as was guessed", 3, 36}}) {
    CAPTURE(row.what);
    read_epoch(row.epoch);
    CHECK(reaches(row.samples));
  }
}

TEST_CASE("libtorch uses one thread inside a worker and as many as before everywhere else") {
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  const auto threads = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}); };
  (void)at::rand({300, 300}).mm(at::rand({300, 300}));  // opens the team of this thread
  const auto others = threads();
  std::atomic<std::int64_t> seen = 0, most = 0;
  const auto loader = map_style({.size = 8,
                                 .get =
                                     [&](std::int64_t, RandomStream) {
                                       seen = std::max<std::int64_t>(seen, at::get_num_threads());
                                       at::Tensor x = at::rand({300, 300}).mm(at::rand({300, 300})).exp();
                                       parallel_for(0, 1000000, 1, [](std::int64_t, std::int64_t) {});
                                       most = std::max<std::int64_t>(most, threads());
                                       return Sample(x.sum());
                                     }},
                                {.batch_size = 1, .num_workers = 2});
  while (loader->next()) {
  }
  CHECK(seen == 1);
  CHECK(most == others + 2);
  CHECK(at::get_num_threads() == 3);
  int later = 0;
  std::thread([&] { later = at::get_num_threads(); }).join();
  CHECK(later == 3);
  at::set_num_threads(before);
}

TEST_CASE("Batches of a data set are ordinary tensors without gradients, whatever mode the caller is in") {
  const auto make = [](std::int64_t workers) {
    return map_style(
        {.size = 4, .get = [](std::int64_t, RandomStream) { return Sample(at::ones(2).requires_grad_() * 2); }},
        {.batch_size = 2, .num_workers = workers});
  };
  for (std::int64_t workers : {0, 1}) {
    const auto loader = make(workers);
    const auto batch = loader->next();
    CHECK_FALSE(batch->only().requires_grad());
    const c10::InferenceMode inference;
    CHECK_FALSE(loader->next()->only().is_inference());
  }
}

TEST_CASE("A data set's loader with workers can be positioned and dropped at any moment") {
  for (int i = 0; i < 60; ++i) {
    const auto loader =
        map_style(Damaged{{40}}, {.batch_size = 2, .num_workers = 1 + i % 8, .prefetch_factor = 1 + i % 3});
    for (int taken = 0; taken < i % 5; ++taken) (void)error_of(*loader);
    if (i % 3 == 0) loader->seek(i, i % 20);
    if (i % 2 == 0) (void)error_of(*loader);
  }
}

TEST_CASE("A batch that nobody wants any more is not made to its end") {
  std::atomic<int> got = 0;
  std::atomic<bool> go_on = false;
  const auto get = [&](std::int64_t i, RandomStream) {
    ++got;
    while (i == 60 && !go_on) std::this_thread::yield();
    return Sample(at::full(1, i));
  };
  auto loader = map_style({.size = 100, .get = get}, {.batch_size = 50, .shuffle = false, .num_workers = 1});
  CHECK(loader->next());
  while (got < 61) std::this_thread::yield();  // in the middle of the second batch
  loader->seek(0, 2);
  go_on = true;
  loader.reset();
  CHECK(got == 61);
}

TEST_CASE("Options of a data set's loader that do not fit are refused, with the value") {
  const auto refuse = [](std::int64_t samples, MapStyleOptions options, const char* text) {
    CHECK_THROWS_WITH_AS(map_style(Numbers{samples}, std::move(options)), doctest::Contains(text), Error);
  };
  refuse(4, {}, "map_style: batch_size must be >= 1, got 0");
  refuse(0, {.batch_size = 2}, "map_style: the data has no samples");
  refuse(-1, {.batch_size = 2}, "map_style: the data has no samples");
  refuse(4, {.batch_size = 5, .drop_last = true}, "leaves no batch of 4 samples");
  refuse(4, {.batch_size = 2, .num_workers = -1}, "num_workers must be >= 0, got -1");
  refuse(4, {.batch_size = 2, .prefetch_factor = 0}, "prefetch_factor must be >= 1, got 0");
  CHECK_THROWS_WITH_AS(map_style(std::shared_ptr<Numbers>(), {.batch_size = 2}),
                       doctest::Contains("the data set is null"), ConfigError);
  const auto loader = map_style(Numbers{10}, {.batch_size = 4});
  CHECK_THROWS_WITH_AS(loader->seek(0, 4), doctest::Contains("map_style: there is no batch 4 in epoch 0"), ConfigError);
}

}  // namespace composer::map_style_test
