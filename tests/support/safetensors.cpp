#include "tests/support/safetensors.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

#include <ATen/ops/empty.h>

#include <nlohmann/json.hpp>

namespace composer::test {
namespace {

at::ScalarType type_of(const std::string& name) {
  if (name == "F64") return at::kDouble;
  if (name == "F32") return at::kFloat;
  if (name == "I64") return at::kLong;
  throw std::runtime_error("read_safetensors: type " + name + " is not one of F64, F32, I64");
}

}  // namespace

std::map<std::string, at::Tensor> read_safetensors(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  std::uint64_t length = 0;
  if (bytes.size() < sizeof length) throw std::runtime_error("read_safetensors: cannot read " + file.string());
  std::memcpy(&length, bytes.data(), sizeof length);  // little endian, as are the machines we run on
  if (length > bytes.size() - sizeof length) throw std::runtime_error("read_safetensors: " + file.string() + " is cut");

  const char* header = bytes.data() + sizeof length;
  const char* data = header + length;
  const auto available = static_cast<std::uint64_t>(bytes.data() + bytes.size() - data);
  std::map<std::string, at::Tensor> tensors;
  const nlohmann::json entries = nlohmann::json::parse(header, data);
  for (const auto& [name, entry] : entries.items()) {
    if (name == "__metadata__") continue;
    at::Tensor tensor = at::empty(entry.at("shape").get<std::vector<std::int64_t>>(), type_of(entry.at("dtype")));
    const std::uint64_t begin = entry.at("data_offsets").at(0), end = entry.at("data_offsets").at(1);
    if (begin > end || end > available || end - begin != tensor.nbytes()) {
      throw std::runtime_error("read_safetensors: " + file.string() + ": wrong size of " + name);
    }
    std::memcpy(tensor.data_ptr(), data + begin, tensor.nbytes());
    tensors.emplace(name, tensor);
  }
  return tensors;
}

}  // namespace composer::test
