#include "tests/checkpoint/mutations.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "tests/formats/bytes.h"
#include "tests/formats/tensors.h"
#include "tests/support/doctest.h"

namespace composer::test::mutations_test {
namespace {

TEST_CASE("A flipped bit anywhere in a safetensors file of ours is an error") {
  const std::string bytes = safetensors_bytes(
      {{"a", at::arange(5)}, {"b.weight", at::ones({2, 2})}, {"c", at::ones({3}) > 0}}, {{"key", "value"}});
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string file = bytes;
    file[bit / 8] = static_cast<char>(file[bit / 8] ^ 1 << bit % 8);
    CAPTURE(bit);
    CHECK_THROWS_AS(open_safetensors(file).read_all(), CheckpointError);
  }
}

TEST_CASE("A flipped bit anywhere in a .pt file of ours is an error or changes no tensor") {
  const formats::NamedTensors tensors = {{"a", at::arange(5)}, {"b.weight", at::ones({2, 2})}};
  const std::string bytes = pt_bytes(tensors);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string file = bytes;
    file[bit / 8] = static_cast<char>(file[bit / 8] ^ 1 << bit % 8);
    CAPTURE(bit);
    bool right = true;
    try {
      right = same(open_pt(file).read_all(), tensors);
    } catch (const CheckpointError&) {
    }
    CHECK(right);
  }
}

TEST_CASE("A file of ours that is cut anywhere or prolonged is an error") {
  const formats::NamedTensors tensors = {{"a", at::arange(5)}, {"b", at::ones({3})}};
  const std::string safetensors = safetensors_bytes(tensors), pt = pt_bytes(tensors);
  for (std::size_t size = 0; size < safetensors.size(); ++size) {
    CAPTURE(size);
    CHECK_THROWS_AS(open_safetensors(safetensors.substr(0, size)).read_all(), CheckpointError);
  }
  for (std::size_t size = 0; size < pt.size(); ++size) {
    CAPTURE(size);
    CHECK_THROWS_AS(open_pt(pt.substr(0, size)).read_all(), CheckpointError);
  }
  CHECK_THROWS_AS(open_safetensors(safetensors + '\0'), CheckpointError);
  CHECK_THROWS_AS(open_pt(pt + '\0'), CheckpointError);
}

TEST_CASE("A file put together from two of ours is an error") {
  const auto make = [](double value) {
    return safetensors_bytes({{"a", at::full({4}, value)}, {"b", at::full({4}, value)}});
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

// What loading says; empty: it is loaded, and with the content that it had.
std::string said_of(const TwoCheckpoints& two, const std::string& name, const std::string& bytes) {
  try {
    return two.unchanged_with(name, bytes) ? "" : "another content";
  } catch (const CheckpointError&) {
    return "refused";
  }
}

TEST_CASE("A flipped bit anywhere in any file of a checkpoint is an error when it is loaded") {
  const TwoCheckpoints two;
  for (const std::string name : TwoCheckpoints::kNames) {
    CAPTURE(name);
    const std::string bytes = two.text(0, name);
    REQUIRE(said_of(two, name, bytes).empty());
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      std::string file = bytes;
      file[bit / 8] = static_cast<char>(file[bit / 8] ^ 1 << bit % 8);
      CAPTURE(bit);
      CHECK(said_of(two, name, file) == "refused");
    }
  }
}

TEST_CASE("A file of a checkpoint that is cut, or put together from those of two, is an error when it is loaded") {
  const TwoCheckpoints two;
  for (const std::string name : TwoCheckpoints::kNames) {
    CAPTURE(name);
    const std::string bytes = two.text(0, name), other = two.text(1, name);
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      CAPTURE(at);
      CHECK(said_of(two, name, bytes.substr(0, at)) == "refused");
      for (const std::string& spliced :
           {bytes.substr(0, at) + other.substr(std::min(at, other.size())), other.substr(0, at) + bytes.substr(at)})
        if (spliced != bytes) CHECK(said_of(two, name, spliced) == "refused");
    }
  }
}

// The full number is composer_mutations'.
TEST_CASE("No damaged file of ours is read as if it were whole") {
  for (const Format format : {Format::SAFETENSORS, Format::PT, Format::MANIFEST, Format::CHECKPOINT}) {
    const Verdicts verdicts = attack(format, 3'000, 1);
    CAPTURE(verdicts.first);
    CHECK(verdicts.silent == 0);
    CHECK(verdicts.other == 0);
    CHECK(verdicts.refused > 2'000);
  }
}

}  // namespace
}  // namespace composer::test::mutations_test
