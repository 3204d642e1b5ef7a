#include "composer/checkpoint/safetensors.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <random>

#include <ATen/ATen.h>

#include <doctest/doctest.h>

#include "composer/core/error.h"
#include "tests/checkpoint/bytes.h"

namespace composer::test {
namespace {

using namespace formats;

bool same(const at::Tensor& a, const at::Tensor& b) {
  const auto bytes = [](const at::Tensor& t) { return t.contiguous().view(-1).view(at::kByte); };
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && (a.numel() == 0 || bytes(a).equal(bytes(b)));
}

// One of each kind that a model or an optimizer may have.
NamedTensors some_tensors() {
  NamedTensors tensors;
  at::manual_seed(3);
  const at::Tensor base = at::randn({3, 4});
  for (const at::ScalarType type :
       {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort, at::kChar, at::kByte,
        at::kUInt16, at::kUInt32, at::kUInt64, at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kFloat8_e4m3fnuz,
        at::kFloat8_e5m2fnuz, at::kFloat8_e8m0fnu, at::kComplexFloat})
    tensors.emplace_back(std::string("of.") + c10::toString(type), base.abs().to(type));
  tensors.emplace_back("bool", base > 0);
  tensors.emplace_back("empty", at::empty({0, 5}));
  tensors.emplace_back("scalar", at::scalar_tensor(7, at::kLong));
  tensors.emplace_back("transposed", base.t());
  tensors.emplace_back("expanded", base.select(0, 0).expand({2, 4}));
  tensors.emplace_back("a \"name\"\n\\ of \xC3\xA4 \xF0\x9F\x99\x82", at::ones({3}, at::kBFloat16));
  return tensors;
}

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

TEST_CASE("What a safetensors file cannot hold is refused before anything is written") {
  const auto written = [](const NamedTensors& tensors, const Metadata& metadata = {}) {
    bool any = false;
    try {
      write_safetensors(tensors, metadata, [&](const void*, std::size_t) { any = true; });
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

// A byte of ours that is changed must be noticed, wherever it is.
TEST_CASE("A flipped bit anywhere in a file of ours is an error") {
  const std::string bytes = safetensors_bytes(
      {{"a", at::arange(5)}, {"b.weight", at::ones({2, 2})}, {"c", at::ones({3}) > 0}}, {{"key", "value"}});
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    CAPTURE(bit);
    CHECK_THROWS_AS(open_safetensors(damaged).read_all(), CheckpointError);
  }
}

TEST_CASE("A file of ours that is cut or prolonged is an error") {
  const std::string bytes = safetensors_bytes({{"a", at::arange(5)}, {"b", at::ones({3})}}, {});
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CAPTURE(size);
    CHECK_THROWS_AS(open_safetensors(bytes.substr(0, size)).read_all(), CheckpointError);
  }
  CHECK_THROWS_AS(open_safetensors(bytes + '\0'), CheckpointError);
}

TEST_CASE("A tensor of another file of ours is an error") {
  const auto make = [](double value) {
    return safetensors_bytes({{"a", at::full({4}, value)}, {"b", at::full({4}, value)}}, {});
  };
  const std::string one = make(1), two = make(2);
  REQUIRE(one.size() == two.size());
  for (std::size_t at = 1; at < one.size(); ++at) {
    const std::string spliced = one.substr(0, at) + two.substr(at);
    if (spliced == one || spliced == two) continue;
    CAPTURE(at);
    CHECK_THROWS_AS(open_safetensors(spliced).read_all(), CheckpointError);
  }
}

}  // namespace
}  // namespace composer::test
