#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include "composer/core/error.h"
#include "composer/data/loader.h"
#include "composer/data/mds/mds_compression.h"
#include "composer/data/mds/mds_writer.h"
#include "composer/data/mds/streaming_dataset.h"
#include "tests/data/support.h"
#include "tests/support/places.h"

namespace composer::test {

inline std::filesystem::path golden_mds(const std::string& name) {
  return std::filesystem::path(repository()) / "tests/data/mds/golden" / name;
}

inline std::string content_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_content(const std::filesystem::path& file, std::string_view content) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << content;
}

// Whether this build can read and write the compression; zstd may be left out.
inline bool has(const std::string& compression) {
  try {
    if (!compression.empty()) data::detail::parse_mds_compression("", compression);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

// Samples that say which they are; of 64 bytes or more.
inline void write_numbered(const std::filesystem::path& folder, std::int64_t samples,
                           data::MdsWriterOptions options = {}) {
  options.columns = {{"id", "int"}, {"x", "ndarray:int32:8"}};
  if (options.size_limit == 1 << 26) options.size_limit = 1000;
  data::MdsWriter writer(folder, options);
  for (std::int64_t i = 0; i < samples; ++i) writer.write({{"id", i}, {"x", at::full({8}, i, at::kInt)}});
  writer.finish();
}

// The ids of an epoch's batches from this one on.
inline std::vector<std::vector<std::int64_t>> ids_of(Loader& loader, std::int64_t epoch, std::int64_t from = 0) {
  loader.seek(epoch, from);
  std::vector<std::vector<std::int64_t>> batches;
  while (const auto batch = loader.next()) batches.push_back(numbers_of(batch->at("id")));
  return batches;
}

inline std::vector<std::int64_t> flat(const std::vector<std::vector<std::int64_t>>& batches) {
  std::vector<std::int64_t> all;
  for (const auto& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

}  // namespace composer::test
