#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/for_rank.h"
#include "composer/data/mds/stream_order.h"
#include "composer/data/mds/streaming_dataset.h"
#include "tests/data/mds/support.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"

namespace composer::mds_streaming_test {

using data::for_rank;
using data::streaming;
using data::StreamingDataset;
using data::StreamingLoaderOptions;
using data::detail::StreamOrder;
using test::flat;
using test::Folder;
using test::ids_of;
using test::numbers_of;

namespace {

using Ids = std::vector<std::int64_t>;

Ids counting(std::int64_t n) {
  Ids all(static_cast<std::size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Ids sorted(Ids ids) {
  std::ranges::sort(ids);
  return ids;
}

// 101 samples in shards of 15.
struct Data {
  Folder folder;
  StreamingDataset dataset = [this] {
    test::write_numbered(folder / "d", 101);
    return StreamingDataset({.local = folder / "d"});
  }();
};

std::vector<StreamingLoaderOptions> all_options() {
  return {{.batch_size = 8, .shuffle = false},
          {.batch_size = 8},
          {.batch_size = 8, .shuffle_block_size = 20},
          {.batch_size = 8, .shuffle_block_size = 20, .num_canonical_nodes = 4},
          {.batch_size = 6, .shuffle = false, .num_canonical_nodes = 2},
          {.batch_size = 9, .shuffle_block_size = 30, .num_canonical_nodes = 3, .drop_last = true}};
}

}  // namespace

TEST_CASE("An epoch has every sample once, in another order each epoch and for each seed") {
  const Data data;
  for (const StreamingLoaderOptions& options : all_options()) {
    CAPTURE(options.num_canonical_nodes);
    CAPTURE(options.shuffle_block_size);
    const auto loader = streaming(data.dataset, options);
    const Ids first = flat(ids_of(*loader, 0)), second = flat(ids_of(*loader, 1));
    CHECK(flat(ids_of(*loader, 0)) == first);
    for (const Ids& ids : {first, second}) {
      CHECK(std::set(ids.begin(), ids.end()).size() == ids.size());
      if (options.drop_last)
        CHECK(ids.size() == 99);
      else
        CHECK(sorted(ids) == counting(101));
    }
    CHECK((first == second) == !options.shuffle);
    loader->set_default_seed(5);
    CHECK((flat(ids_of(*loader, 0)) == first) == !options.shuffle);
    if (!options.shuffle && options.num_canonical_nodes == 1) CHECK(first == counting(101));
  }
}

TEST_CASE("A run that is stopped at any batch goes on with the same batches, with any number of workers") {
  const Data data;
  for (StreamingLoaderOptions options : all_options()) {
    std::vector<std::vector<Ids>> whole;
    for (const std::int64_t epoch : {0, 1}) whole.push_back(ids_of(*streaming(data.dataset, options), epoch));
    for (const std::int64_t workers : {0, 1, 3}) {
      options.num_workers = workers;
      const auto used = streaming(data.dataset, options);
      CHECK(used->num_batches() == static_cast<std::int64_t>(whole[0].size()));
      for (const std::int64_t epoch : {0, 1})
        for (std::int64_t b = 0; b <= *used->num_batches(); ++b) {
          const std::vector<Ids> rest(whole[static_cast<std::size_t>(epoch)].begin() + b,
                                      whole[static_cast<std::size_t>(epoch)].end());
          CHECK(ids_of(*streaming(data.dataset, options), epoch, b) == rest);
          used->seek(1 - epoch, 2);
          used->next();
          CHECK(ids_of(*used, epoch, b) == rest);
          if (b < *used->num_batches())
            CHECK(used->sample_indices(epoch, b) ==
                  whole[static_cast<std::size_t>(epoch)][static_cast<std::size_t>(b)]);
        }
    }
  }
}

TEST_CASE("Ranks read their slices of the same batches, so a run goes on with another number of ranks") {
  const Data data;
  for (StreamingLoaderOptions options : all_options())
    for (const std::int64_t workers : {0, 2}) {
      options.num_workers = workers;
      const auto alone = streaming(data.dataset, options);
      const auto whole = ids_of(*alone, 3);
      for (const std::int64_t world : {1, 2, 3, 10}) {
        std::vector<std::shared_ptr<Loader>> ranks;
        for (std::int64_t rank = 0; rank < world; ++rank)
          ranks.push_back(for_rank({.dataloader = streaming(data.dataset, options)}, rank, world).dataloader);
        const auto from = static_cast<std::int64_t>(whole.size()) / 2;  // where another number of ranks stopped
        std::vector<Ids> joined(whole.size() - static_cast<std::size_t>(from));
        for (const auto& rank : ranks) {
          const auto slices = ids_of(*rank, 3, from);
          REQUIRE(slices.size() == joined.size());
          for (std::size_t b = 0; b < slices.size(); ++b)
            joined[b].insert(joined[b].end(), slices[b].begin(), slices[b].end());
        }
        CHECK(joined == std::vector<Ids>(whole.begin() + from, whole.end()));
      }
    }
}

TEST_CASE("Any part of the order is found without the parts before it") {
  for (const bool shuffle : {false, true})
    for (const std::int64_t nodes : {1, 2, 5})
      for (const std::int64_t block : {1, 7, 64, 1000}) {
        const auto make = [&] {
          return StreamOrder({.shard_samples = {0, 40, 1, 77, 13, 0, 90, 32, 5},
                              .batch_size = 10,
                              .shuffle = shuffle,
                              .block_size = block,
                              .nodes = nodes});
        };
        const StreamOrder order = make();
        REQUIRE(order.samples() == 258);
        const Ids whole = order.part(1, 2, 0, 258);
        CHECK(sorted(whole) == counting(258));
        for (std::int64_t from = 250; from >= 0; from -= 25)
          CHECK(make().part(1, 2, from, 8) == Ids(whole.begin() + from, whole.begin() + from + 8));
        for (std::int64_t sample = 0; sample < 258; ++sample) {
          const auto place = order.place(sample);
          CHECK(place.sample >= 0);
          CHECK(place.sample < 90);
        }
      }
}

TEST_CASE("The shards that are named ahead contain those of the next samples, and few others") {
  std::vector<std::int64_t> shards(100, 50);
  const StreamOrder order({.shard_samples = shards, .batch_size = 20, .shuffle = true, .block_size = 200});
  for (const std::int64_t from : {0, 20, 400, 2000, 4980}) {
    const auto named = order.shards(1, 0, from, 20, 100);
    CHECK(named.size() <= 14);
    const std::set<std::size_t> set(named.begin(), named.end());
    CHECK(set.size() == named.size());
    for (const std::int64_t sample : order.part(1, 0, from, std::min<std::int64_t>(120, 5000 - from)))
      CHECK(set.contains(order.place(sample).shard));
  }
  CHECK(order.shards(1, 0, 0, 20, 0).size() <= 3);  // so an epoch begins soon
}

TEST_CASE("Canonical nodes read shards of their own, the same ones in each epoch") {
  const std::vector<std::int64_t> shards(40, 30);
  const StreamOrder order({.shard_samples = shards, .batch_size = 12, .shuffle = true, .block_size = 90, .nodes = 4});
  std::vector<std::set<std::size_t>> of_node(4);
  for (const std::int64_t epoch : {0, 1, 2})
    for (std::int64_t batch = 0; batch < 100; ++batch) {
      const Ids ids = order.part(3, epoch, batch * 12, 12);
      for (std::size_t i = 0; i < 12; ++i) of_node[i / 3].insert(order.place(ids[i]).shard);
    }
  std::size_t all = 0;
  for (const auto& of : of_node) all += of.size();
  CHECK(all <= 43);  // at most one shard is cut between two neighbours
}

TEST_CASE("Samples of a block are mixed evenly, and neighbours do not stay together") {
  const std::vector<std::int64_t> shards(20, 500);
  const StreamOrder order({.shard_samples = shards, .batch_size = 10, .shuffle = true, .block_size = 10000});
  const Ids ids = order.part(1, 0, 0, 10000);
  int neighbours = 0;
  for (std::size_t i = 1; i < ids.size(); ++i) neighbours += std::abs(ids[i] - ids[i - 1]) == 1 ? 1 : 0;
  CHECK(neighbours < 15);  // 2 are expected
  std::map<std::size_t, int> early;
  for (std::size_t i = 0; i < 1000; ++i) ++early[order.place(ids[i]).shard];
  CHECK(early.size() == 20);
  for (const auto& [shard, count] : early) CHECK(std::abs(count - 50) < 40);
}

TEST_CASE("The transform makes the sample, with random numbers of (seed, epoch, sample) alone") {
  const Data data;
  const auto made = [&](std::int64_t workers) {
    const StreamingDataset transformed(
        {.local = data.folder / "d", .transform = [](const data::MdsSample& sample, RandomStream random) {
           return data::Sample{{"id", sample.tensor("id")},
                               {"drawn", at::scalar_tensor(random.uniform(), at::kDouble)}};
         }});
    return streaming(transformed, {.batch_size = 10, .num_workers = workers});
  };
  const auto plain = made(0), ahead = made(3);
  std::map<std::int64_t, double> drawn;
  for (const std::int64_t epoch : {0, 1}) {
    plain->seek(epoch, 0);
    ahead->seek(epoch, 0);
    while (const auto batch = plain->next()) {
      const auto other = ahead->next();
      CHECK(batch->at("drawn").equal(other->at("drawn")));
      CHECK(batch->at("id").equal(other->at("id")));
    }
  }
}

TEST_CASE("A data set can be read by index, and by map_style") {
  const Data data;
  for (const std::int64_t i : {100, 0, 57}) {
    const data::Sample sample = data.dataset.get(i);
    CHECK(sample["id"].item<std::int64_t>() == i);
    CHECK(sample["x"].equal(at::full({8}, i, at::kInt)));
  }
  const auto loader = data::map_style(data.dataset, {.batch_size = 25, .num_workers = 2});
  CHECK(sorted(flat(ids_of(*loader, 0))) == counting(101));
}

TEST_CASE("Samples of different sizes are an error that names the sample, unless collate pads them") {
  const Folder folder;
  data::MdsWriter writer(folder / "d", {.columns = {{"t", "str"}}});
  for (const char* text : {"a", "bc", "def"}) writer.write({{"t", text}});
  writer.finish();
  const StreamingDataset dataset({.local = folder / "d"});
  CHECK_THROWS_WITH_AS(streaming(dataset, {.batch_size = 3})->next(), doctest::Contains("streaming: collating batch 0"),
                       DataError);
  const auto padded = streaming(
      dataset, {.batch_size = 3, .shuffle = false, .collate = [](std::vector<data::Sample> samples) {
                  at::Tensor all = at::zeros({3, 3}, at::kByte);
                  for (std::size_t i = 0; i < 3; ++i)
                    all[static_cast<std::int64_t>(i)].narrow(0, 0, samples[i]["t"].numel()).copy_(samples[i]["t"]);
                  return Batch{{"t", all}};
                }});
  CHECK(padded->next()->at("t").sum().item<std::int64_t>() == 'a' + 'b' + 'c' + 'd' + 'e' + 'f');
}

TEST_CASE("Options that cannot be meant are refused with what is allowed") {
  const Data data;
  const auto refused = [](auto make, const char* text) {
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(make(), doctest::Contains(text), ConfigError);
  };
  refused([&] { streaming(data.dataset, {}); }, "streaming: batch_size must be >= 1, got 0");
  refused([&] { streaming(data.dataset, {.batch_size = 8, .num_canonical_nodes = 3}); },
          "num_canonical_nodes must divide batch_size, got 3 and 8");
  refused([&] { streaming(data.dataset, {.batch_size = 8, .shuffle_block_size = 0}); },
          "shuffle_block_size must be >= 1");
  refused([&] { streaming(data.dataset, {.batch_size = 8, .predownload = -1}); }, "predownload must be >= 0");
  refused([&] { streaming(data.dataset, {.batch_size = 200, .drop_last = true}); }, "leaves no batch of 101 samples");
  refused([&] { StreamingDataset({}); }, "local must not be empty");
  refused([&] { StreamingDataset({.local = data.folder / "d", .split = "../x"}); }, "must lie in the folder");
  refused([&] { StreamingDataset({.local = data.folder / "d", .cache_limit = 5}); }, "cache_limit needs a remote");
  refused([&] { StreamingDataset({.local = data.folder / "d", .remote = (data.folder / "d").string()}); },
          "are one folder");
  refused([&] { StreamingDataset({.local = data.folder / "e", .remote = "ftp://host/x"}); }, "is not supported");
  refused([&] { StreamingDataset({.local = data.folder / "d", .download_threads = 0}); },
          "download_threads must be from 1 to 64");
}

}  // namespace composer::mds_streaming_test
