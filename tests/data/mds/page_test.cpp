// The code of docs/reference/data/streaming.md.
#include <filesystem>

#include <ATen/ATen.h>

#include "composer/data/mds/mds_writer.h"
#include "composer/data/mds/streaming_dataset.h"
#include "tests/data/mds/support.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"

namespace composer::mds_page_test {

namespace {

struct Document {
  std::string text;
  at::Tensor tokens;
};

void write(const std::vector<Document>& documents, const std::filesystem::path& folder) {
  const std::filesystem::path out = folder / "corpus/train";
  data::MdsWriter writer(
      out, {.columns = {{"text", "str"}, {"tokens", "ndarray:int32"}}, .compression = "zstd", .hashes = {"sha1"}});
  for (const Document& document : documents) writer.write({{"text", document.text}, {"tokens", document.tokens}});
  writer.finish();
}

std::shared_ptr<Loader> read(const std::string& remote, const std::filesystem::path& local) {
  const data::StreamingDataset corpus({.local = local, .remote = remote, .split = "train", .columns = {"tokens"}});
  return data::streaming(corpus, {.batch_size = 64, .num_workers = 2});
}

data::StreamingDataset transformed(const std::filesystem::path& folder) {
  const auto crop = [](const data::MdsSample& sample, RandomStream random) {
    const at::Tensor tokens = sample.tensor("tokens");
    const auto begin = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(tokens.size(0) - 128)));
    return data::Sample{{"input", tokens.narrow(0, begin, 128)}, {"target", tokens.narrow(0, begin + 1, 128)}};
  };
  return data::StreamingDataset({.local = folder / "corpus/train", .transform = crop});
}

std::string looked_up(const data::StreamingDataset& corpus) {
  const data::MdsSample sample = corpus.sample(17);
  const std::string_view text = sample.text("text");
  const at::Tensor tokens = sample.tensor("tokens");
  return std::string(text) + std::to_string(tokens.numel());
}

}  // namespace

TEST_CASE("The code of the page on streaming does what the page says") {
  if (!test::has("zstd")) return;
  const test::Folder folder;
  std::vector<Document> documents;
  for (int i = 0; i < 100; ++i) documents.push_back({"text " + std::to_string(i), at::arange(200, at::kInt)});
  write(documents, folder.path());
  const auto loader = read((folder / "corpus").string(), folder / "local");
  CHECK(loader->next()->at("tokens").sizes() == at::IntArrayRef({64, 200}));
  const data::StreamingDataset corpus = transformed(folder.path());
  CHECK(looked_up(corpus) == "text 17200");
  const data::Sample sample = corpus.get(3);
  CHECK(sample["target"].equal(sample["input"].add(1)));
}

}  // namespace composer::mds_page_test
