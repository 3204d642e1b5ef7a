#include "tests/support/safetensors.h"

#include <cstdint>
#include <fstream>
#include <stdexcept>

#include <ATen/ops/tensor.h>

#include <doctest/doctest.h>

namespace composer::test {
namespace {

std::filesystem::path file_of(const std::string& header, const std::string& data, std::uint64_t length) {
  const auto file = std::filesystem::temp_directory_path() / "composer_safetensors_test.safetensors";
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), sizeof length) << header << data;
  return file;
}

TEST_CASE("A safetensors file gives its tensors by name, and a damaged one an error") {
  const std::string header = R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"I64","shape":[],"data_offsets":[8,16]}})";
  const float a[] = {1.5, -2};
  const std::int64_t b = 7;
  std::string data(reinterpret_cast<const char*>(a), sizeof a);
  data.append(reinterpret_cast<const char*>(&b), sizeof b);

  const auto tensors = read_safetensors(file_of(header, data, header.size()));
  CHECK(tensors.size() == 2);
  CHECK(tensors.at("a").equal(at::tensor({1.5F, -2.F}).view({1, 2})));
  CHECK(tensors.at("b").item<std::int64_t>() == 7);

  CHECK_THROWS_AS(read_safetensors(file_of(header, data.substr(1), header.size())), std::runtime_error);
  CHECK_THROWS_AS(read_safetensors(file_of(header, data, 1'000'000)), std::runtime_error);
  CHECK_THROWS_AS(read_safetensors("/nowhere/x.safetensors"), std::runtime_error);
}

}  // namespace
}  // namespace composer::test
