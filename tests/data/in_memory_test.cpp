#include "composer/data/in_memory.h"

#include <numeric>
#include <random>
#include <set>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "composer/core/error.h"
#include "tests/data/support.h"
#include "tests/support/doctest.h"

namespace composer::in_memory_test {

using data::in_memory;
using data::InMemoryOptions;
using test::numbers_of;

namespace {

// n samples whose input tells which sample it is.
Batch numbered(std::int64_t n) { return {{"input", at::arange(n * 3).view({n, 3})}, {"target", at::arange(n)}}; }

// The sample numbers of each batch up to the end of the epoch.
std::vector<std::vector<std::int64_t>> rest_of_epoch(Loader& loader) {
  std::vector<std::vector<std::int64_t>> batches;
  while (auto batch = loader.next()) {
    const at::Tensor& target = batch->at("target");
    CHECK(batch->at("input").equal(at::arange(3) + target.unsqueeze(1) * 3));
    batches.push_back(numbers_of(target));
  }
  return batches;
}

std::vector<std::vector<std::int64_t>> epoch(Loader& loader, std::int64_t number) {
  loader.seek(number, 0);
  return rest_of_epoch(loader);
}

std::vector<std::int64_t> joined(const std::vector<std::vector<std::int64_t>>& batches) {
  std::vector<std::int64_t> all;
  for (const auto& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

at::Tensor pixels(at::IntArrayRef shape) {
  return at::arange(c10::multiply_integers(shape)).mul(37).remainder(251).to(at::kByte).view(shape);
}

}  // namespace

TEST_CASE("Sparse data are refused by name, with the remedy") {
  CHECK_THROWS_WITH_AS(data::in_memory({{"x", at::eye(4).to_sparse()}}, {}),
                       doctest::Contains("in_memory: \"x\" is of the layout Sparse, and samples are taken from dense "
                                         "tensors alone; give its to_dense()"),
                       DataError);
}

TEST_CASE("An epoch holds each sample once, in batches of the size asked for") {
  for (std::int64_t n : {1, 2, 7, 32, 100})
    for (std::int64_t size : {1, 2, 3, 7, 32, 200})
      for (bool shuffle : {true, false})
        for (bool drop_last : {false, true}) {
          if (drop_last && n < size) continue;
          CAPTURE(n);
          CAPTURE(size);
          CAPTURE(shuffle);
          CAPTURE(drop_last);
          const auto loader = in_memory(numbered(n), {.batch_size = size, .shuffle = shuffle, .drop_last = drop_last});
          for (std::int64_t e : {0, 1, 5}) {
            const auto batches = epoch(*loader, e);
            CHECK(static_cast<std::int64_t>(batches.size()) == loader->num_batches());
            for (std::size_t b = 0; b < batches.size(); ++b)
              CHECK(static_cast<std::int64_t>(batches[b].size()) ==
                    std::min(size, n - static_cast<std::int64_t>(b) * size));
            auto all = joined(batches);
            CHECK(static_cast<std::int64_t>(all.size()) == (drop_last ? n / size * size : n));
            if (shuffle) {
              CHECK(std::set(all.begin(), all.end()).size() == all.size());
            } else {
              std::vector<std::int64_t> in_order(all.size());
              std::iota(in_order.begin(), in_order.end(), 0);
              CHECK(all == in_order);
            }
            CHECK(*std::min_element(all.begin(), all.end()) >= 0);
            CHECK(*std::max_element(all.begin(), all.end()) < n);
          }
        }
}

TEST_CASE("From any place on a loader continues as one that was never interrupted") {
  for (bool shuffle : {true, false}) {
    const InMemoryOptions options{.batch_size = 4, .shuffle = shuffle};
    const auto whole = in_memory(numbered(30), options);
    const auto resumed = in_memory(numbered(30), options);
    std::mt19937 random(3);
    for (int i = 0; i < 60; ++i) {
      const std::int64_t e = random() % 4, b = random() % 9;
      CAPTURE(e);
      CAPTURE(b);
      auto expected = epoch(*whole, e);
      expected.erase(expected.begin(), expected.begin() + b);
      resumed->seek(e, b);
      CHECK(rest_of_epoch(*resumed) == expected);
    }
  }
}

TEST_CASE("A loader that was not positioned begins with epoch 0") {
  const auto fresh = in_memory(numbered(30), {.batch_size = 4});
  const auto seeked = in_memory(numbered(30), {.batch_size = 4});
  CHECK(rest_of_epoch(*fresh) == epoch(*seeked, 0));
}

TEST_CASE("After the last batch a loader stays at the end until it is positioned") {
  const auto loader = in_memory(numbered(5), {.batch_size = 2});
  CHECK(epoch(*loader, 0).size() == 3);
  CHECK_FALSE(loader->next());
  CHECK_FALSE(loader->next());
  loader->seek(0, 3);
  CHECK_FALSE(loader->next());
  loader->seek(0, 2);
  CHECK(loader->next());
}

TEST_CASE("Orders differ between epochs and seeds, and seed + 1 is not the next epoch") {
  std::set<std::vector<std::int64_t>> orders;
  for (std::uint64_t seed : {17, 18, 19})
    for (std::int64_t e = 0; e < 5; ++e)
      orders.insert(joined(epoch(*in_memory(numbered(40), {.batch_size = 8, .seed = seed}), e)));
  CHECK(orders.size() == 15);
}

TEST_CASE("The order does not depend on the batch size") {
  const auto small = in_memory(numbered(40), {.batch_size = 3}), large = in_memory(numbered(40), {.batch_size = 11});
  CHECK(joined(epoch(*small, 2)) == joined(epoch(*large, 2)));
}

TEST_CASE("All orders of a few samples are about equally likely") {
  std::map<std::vector<std::int64_t>, int> count;
  const auto loader = in_memory(numbered(4), {.batch_size = 4});
  for (std::int64_t e = 0; e < 24 * 200; ++e) ++count[joined(epoch(*loader, e))];
  CHECK(count.size() == 24);
  double chi2 = 0;
  for (const auto& [order, n] : count) chi2 += (n - 200.) * (n - 200.) / 200.;
  CHECK(chi2 < 50);  // 23 degrees of freedom: more than this once in 1000 seeds
}

TEST_CASE("A shuffled order is pinned, so that a run can be resumed by a newer version") {
  const auto loader = in_memory(numbered(10), {.batch_size = 10, .seed = 17});
  CHECK(joined(epoch(*loader, 0)) == std::vector<std::int64_t>{9, 7, 1, 3, 0, 6, 5, 4, 2, 8});
  CHECK(joined(epoch(*loader, 1)) == std::vector<std::int64_t>{0, 4, 2, 3, 7, 8, 1, 9, 5, 6});
}

TEST_CASE("Batches in the order given are views of the data") {
  const Batch data = numbered(10);
  const auto loader = in_memory(data, {.batch_size = 4, .shuffle = false});
  loader->seek(0, 1);
  const auto batch = loader->next();
  CHECK(batch->at("input").data_ptr() == data["input"][4].data_ptr());
}

TEST_CASE("A batch that was changed in place is an error of the next batch, if it was a view of the data") {
  struct Row {
    const char* what;
    InMemoryOptions options;
    bool view;
  };
  const Row rows[] = {
      {"in order", {.batch_size = 4, .shuffle = false}, true},
      {"in order, made ahead", {.batch_size = 4, .shuffle = false, .prefetch = 1}, true},
      {"shuffled", {.batch_size = 4}, false},
      {"with cutout", {.batch_size = 4, .shuffle = false, .cutout = 1}, false},
  };
  for (const Row& row : rows)
    for (const bool inference : {false, true}) {
      CAPTURE(row.what);
      CAPTURE(inference);
      const Batch data{{"input", at::zeros({12, 1, 2, 2})}, {"target", at::arange(12)}};
      const c10::InferenceMode mode(inference);
      const auto loader = in_memory(data, row.options);
      std::optional<Batch> batch = loader->next();
      batch->at("input").sub_(1);
      const auto rest = [&] {
        while (loader->next()) {
        }
        loader->seek(1, 0);
        loader->next();
      };
      if (row.view) {
        CHECK_THROWS_WITH_AS(rest(), doctest::Contains("\"input\" was changed in place"), DataError);
      } else {
        rest();
        CHECK(data["input"].eq(0).all().item<bool>());
      }
    }
}

TEST_CASE("Data made in inference mode, which keeps no version, is copied into its batches") {
  const c10::InferenceMode mode;
  const Batch data{{"input", at::zeros({4, 2})}};
  const auto loader = in_memory(data, {.batch_size = 2, .shuffle = false});
  loader->next()->at("input").sub_(1);
  CHECK(loader->next()->at("input").eq(0).all().item<bool>());
  CHECK(data["input"].eq(0).all().item<bool>());
}

TEST_CASE("Data that its owner changes in place, and batches whose tensors are replaced, are no error") {
  const Batch data{{"input", at::zeros({4, 2})}};
  const auto loader = in_memory(data, {.batch_size = 2, .shuffle = false});
  std::optional<Batch> batch = loader->next();
  batch->set("input", batch->at("input") - 1);
  data["input"].add_(5);
  CHECK(loader->next()->only().eq(5).all().item<bool>());
}

TEST_CASE("Lazily conjugated and negated data comes out as it reads") {
  const at::Tensor z = at::complex(at::arange(6, at::kDouble), at::arange(6, at::kDouble) + 1);
  const at::Tensor negated = at::imag(z.conj());  // a lazy negative
  REQUIRE(z.conj().is_conj());
  REQUIRE(negated.is_neg());
  for (const bool shuffle : {false, true}) {
    const auto loader =
        in_memory({{"z", z.conj()}, {"n", negated}, {"target", at::arange(6)}}, {.batch_size = 6, .shuffle = shuffle});
    const auto batch = loader->next();
    const at::Tensor order = batch->at("target");
    CHECK(at::equal(batch->at("z"), z.conj().resolve_conj().index_select(0, order)));
    CHECK(at::equal(batch->at("n"), negated.resolve_neg().index_select(0, order)));
  }
}

TEST_CASE("A seed that was not given is the trainer's, once it is known, and 17 before") {
  const auto order = [](Loader& loader) { return joined(epoch(loader, 0)); };
  const auto with = [&](std::uint64_t seed) {
    return order(*in_memory(numbered(40), {.batch_size = 8, .seed = seed}));
  };
  for (const std::int64_t prefetch : {0, 2}) {
    const auto loader = in_memory(numbered(40), {.batch_size = 8, .prefetch = prefetch});
    CHECK(order(*loader) == with(17));
    loader->seek(0, 0);
    loader->next();  // made ahead or not, the rest is of the new seed
    loader->set_default_seed(5);
    CHECK(order(*loader) == with(5));
    loader->set_default_seed(5);
    CHECK(order(*loader) == with(5));
    const auto own = in_memory(numbered(40), {.batch_size = 8, .seed = 3, .prefetch = prefetch});
    own->set_default_seed(5);
    CHECK(order(*own) == with(3));
  }
}

TEST_CASE("Any dtype, shape and stride is given back as it was") {
  for (auto type : {at::kByte, at::kHalf, at::kFloat, at::kDouble, at::kLong, at::kBool}) {
    const at::Tensor x = at::arange(7 * 6).remainder(2).view({7, 2, 3}).to(type).transpose(1, 2);
    const auto loader = in_memory({{"x", x}, {"target", at::arange(7)}}, {.batch_size = 3});
    while (const auto batch = loader->next()) {
      CHECK((batch->at("x").scalar_type() == type));
      CHECK(batch->at("x").equal(x.index_select(0, batch->at("target"))));
    }
  }
}

TEST_CASE("Batches large enough for several threads are the same") {
  const at::Tensor x = pixels({300, 3, 40, 40});
  const auto loader = in_memory({{"input", x}, {"target", at::arange(300)}},
                                {.batch_size = 200, .normalize = data::Normalize{{0.5}, {0.25}}});
  const auto batch = loader->next();
  const at::Tensor expected = x.index_select(0, batch->at("target")).to(at::kFloat).div(255).sub(0.5).div(0.25);
  CHECK(at::allclose(batch->at("input"), expected, 1e-6, 1e-6));
}

TEST_CASE("Pixels become normalised floats, of all channels alike or of each its own, in both memory formats") {
  for (std::int64_t channels : {1, 3}) {
    for (bool channels_last : {false, true}) {
      for (bool shuffle : {false, true}) {
        for (const auto& normalize :
             {data::Normalize{{0.286}, {0.353}}, data::Normalize{{0.1, 0.2, 0.3}, {1, 0.5, 2}}}) {
          if (normalize.mean.size() == 3 && channels == 1) continue;
          CAPTURE(channels);
          CAPTURE(channels_last);
          CAPTURE(shuffle);
          const at::Tensor x = pixels({11, channels, 5, 9});
          const auto loader =
              in_memory({{"input", x}, {"target", at::arange(11)}},
                        {.batch_size = 4, .shuffle = shuffle, .normalize = normalize, .channels_last = channels_last});
          const at::Tensor mean = at::tensor(normalize.mean).view({-1, 1, 1}),
                           stddev = at::tensor(normalize.stddev).view({-1, 1, 1});
          while (const auto batch = loader->next()) {
            const at::Tensor& image = batch->at("input");
            CHECK((image.scalar_type() == at::kFloat));
            const at::Tensor raw = x.index_select(0, batch->at("target")).to(at::kDouble);
            CHECK(at::allclose(image.to(at::kDouble), (raw / 255 - mean) / stddev, 1e-6, 1e-6));
            CHECK((image.suggest_memory_format() == at::MemoryFormat::ChannelsLast) == channels_last);
          }
        }
      }
    }
  }
}

TEST_CASE("About half of the images are mirrored, others each epoch, whatever the batch size and the memory format") {
  const std::int64_t n = 400;
  const at::Tensor x = pixels({n, 2, 3, 5});
  std::map<std::int64_t, std::vector<bool>> mirrored;  // by epoch
  for (auto [size, channels_last, floats] :
       {std::tuple{7, false, false}, {400, true, false}, {32, false, true}, {32, true, true}}) {
    InMemoryOptions options{.batch_size = size, .flip = true, .channels_last = channels_last};
    if (floats) options.normalize = data::Normalize{{0}, {1}};
    const auto loader = in_memory({{"input", x}, {"target", at::arange(n)}}, options);
    for (std::int64_t e = 0; e < 2; ++e) {
      loader->seek(e, 0);
      std::vector<bool> now(static_cast<std::size_t>(n));
      while (const auto batch = loader->next()) {
        const auto samples = numbers_of(batch->at("target"));
        for (std::size_t i = 0; i < samples.size(); ++i) {
          at::Tensor image = batch->at("input")[static_cast<std::int64_t>(i)];
          if (floats) image = image.mul(255).round().to(at::kByte);
          const at::Tensor original = x[samples[i]];
          const bool flipped = image.equal(original.flip({2}));
          CHECK((flipped || image.equal(original)));
          now[static_cast<std::size_t>(samples[i])] = flipped;
        }
      }
      const auto half = std::count(now.begin(), now.end(), true);
      CHECK(half > 150);
      CHECK(half < 250);
      const auto& first = mirrored.try_emplace(e, now).first->second;
      CHECK(now == first);
    }
  }
  CHECK(mirrored[0] != mirrored[1]);
}

TEST_CASE("Options that do not fit are refused, with the value") {
  const Batch images{{"input", pixels({4, 3, 2, 2})}, {"target", at::arange(4)}};
  const auto refuse = [](Batch data, InMemoryOptions options, const char* text) {
    CHECK_THROWS_WITH_AS(in_memory(std::move(data), std::move(options)), doctest::Contains(text), ConfigError);
  };
  refuse(images, {}, "batch_size must be >= 1, got 0");
  refuse(images, {.batch_size = -3}, "got -3");
  refuse(images, {.batch_size = 5, .drop_last = true}, "leaves no batch of 4 samples");
  refuse(images, {.batch_size = 2, .image = "picture", .flip = true}, "need a tensor called \"picture\"");
  refuse(numbered(4), {.batch_size = 2, .flip = true}, "need images [N, C, H, W], got [4, 3]");
  refuse(numbered(4), {.batch_size = 2, .channels_last = true}, "need images [N, C, H, W], got [4, 3]");
  refuse(numbered(4), {.batch_size = 2, .normalize = data::Normalize{{0}, {1}}}, "the data is of type Long");
  refuse(images, {.batch_size = 2, .normalize = data::Normalize{{0, 0}, {1, 1}}}, "got 2 and 2");
  refuse(images, {.batch_size = 2, .normalize = data::Normalize{}}, "got 0 and 0");
  refuse(images, {.batch_size = 2, .normalize = data::Normalize{{0}, {0}}}, "stddev must be > 0, got 0");
  refuse(images, {.batch_size = 2, .normalize = data::Normalize{{0}, {NAN}}}, "stddev must be > 0, got nan");
  refuse(images, {.batch_size = 2, .normalize = data::Normalize{{INFINITY}, {1}}}, "mean must be finite, got inf");
}

TEST_CASE("Data without samples, or of different lengths, is refused") {
  CHECK_THROWS_WITH_AS(in_memory(at::zeros({0, 3}), {.batch_size = 1}), doctest::Contains("no samples"), DataError);
  CHECK_THROWS_AS(in_memory(Batch{}, {.batch_size = 1}), DataError);
  CHECK_THROWS_AS(in_memory(at::scalar_tensor(1), {.batch_size = 1}), DataError);
  CHECK_THROWS_WITH_AS(in_memory({{"input", at::zeros({3, 1})}, {"target", at::zeros(4)}}, {.batch_size = 1}),
                       "in_memory: \"input\" has 3 samples, \"target\" has 4; all tensors must have the same number",
                       DataError);
}

TEST_CASE("A place outside of the epoch is refused") {
  const auto loader = in_memory(numbered(10), {.batch_size = 4});
  CHECK_THROWS_AS(loader->seek(0, 4), ConfigError);
  CHECK_THROWS_AS(loader->seek(0, -1), ConfigError);
  CHECK_THROWS_AS(loader->seek(-1, 0), ConfigError);
}

}  // namespace composer::in_memory_test
