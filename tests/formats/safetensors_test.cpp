#include "composer/formats/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "tests/formats/bytes.h"
#include "tests/formats/tensors.h"
#include "tests/support/doctest.h"

namespace composer::test::safetensors_test {
namespace {

using namespace formats;

TEST_CASE("A safetensors file gives back the tensors and the metadata that it was given, to the bit") {
  const NamedTensors tensors = some_tensors();
  const Metadata metadata = {{"format", "pt"}, {"empty", ""}, {"with \"quotes\"", "{\"a\": 1}\n"}};
  const SafetensorsFile file = open_safetensors(safetensors_bytes(tensors, metadata), {.require_checksums = true});
  CHECK(file.metadata() == metadata);
  CHECK(file.checksums());
  CHECK(file.tensors().size() == tensors.size());
  for (const auto& [name, tensor] : tensors) {
    CAPTURE(name);
    CHECK(file.has(name));
    CHECK(same(file.read(name), tensor));
  }
  for (const TensorEntry& entry : file.tensors()) CHECK(entry.begin % element_bytes(entry.dtype) == 0);
  CHECK_FALSE(file.has("nobody"));
  CHECK_THROWS_AS(file.read("nobody"), CheckpointError);
}

TEST_CASE("A safetensors file without tensors is one") {
  CHECK(open_safetensors(safetensors_bytes(NamedTensors(), {})).tensors().empty());
  CHECK(open_safetensors(safetensors_bytes("{}", "")).tensors().empty());
}

TEST_CASE("Equal tensors give equal files") {
  CHECK(safetensors_bytes(some_tensors(), {}) == safetensors_bytes(some_tensors(), {}));
}

TEST_CASE("A safetensors file is written byte for byte once, its header last, and tells its checksum") {
  NamedTensors tensors = some_tensors();
  tensors.emplace_back("of several pieces", at::arange(300'000));
  std::vector<std::pair<std::uint64_t, std::uint64_t>> parts;
  std::string bytes;
  const PlacedSink to = placed_sink_to(bytes);
  const std::string checksum =
      write_safetensors(tensors, {}, [&](std::uint64_t at, const void* data, std::size_t size) {
        if (size > 0) parts.emplace_back(at, at + size);
        to(at, data, size);
      });
  CHECK(parts.back().first == 0);
  std::sort(parts.begin(), parts.end());
  std::uint64_t end = 0;
  for (const auto& [begin, its_end] : parts) {
    CHECK(begin == end);
    end = its_end;
  }
  CHECK(end == bytes.size());
  CHECK(checksum.starts_with("xxh3:"));
  CHECK(open_safetensors(bytes).checksum() == checksum);
}

TEST_CASE("What a safetensors file cannot hold is refused before anything is written") {
  const auto written = [](const NamedTensors& tensors, const Metadata& metadata = {}) {
    bool any = false;
    try {
      write_safetensors(tensors, metadata, [&](std::uint64_t, const void*, std::size_t) { any = true; });
    } catch (const ConfigError&) {
      CHECK_FALSE(any);
      return false;
    }
    return true;
  };
  const at::Tensor one = at::ones({1});
  CHECK(written({{"a", one}, {"b", one}}));
  CHECK_FALSE(written({{"a", one}, {"a", one}}));
  CHECK_FALSE(written({{"__metadata__", one}}));
  CHECK_FALSE(written({{"a", at::Tensor()}}));
  CHECK_FALSE(written({{"a", one.to(at::kComplexDouble)}}));
  CHECK_FALSE(written({{"\xC3", one}}));
  CHECK_FALSE(written({{"a", one}}, {{"composer.checksums", "{}"}}));
}

TEST_CASE("A file of others has no checksums, and is an error where they are required") {
  const std::string bytes = safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} )", "abcd");
  CHECK_FALSE(open_safetensors(bytes).checksums());
  CHECK_THROWS_AS(open_safetensors(bytes, {.require_checksums = true}), CheckpointError);
}

TEST_CASE("A file that is no safetensors file is an error that names it") {
  for (const char* path : {"/nowhere/x.safetensors", "/", "/dev/null"}) {
    CAPTURE(path);
    try {
      SafetensorsFile file{std::filesystem::path(path)};
      FAIL("it was read");
    } catch (const CheckpointError& error) {
      CHECK(std::string(error.what()).find(path) != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace composer::test::safetensors_test
