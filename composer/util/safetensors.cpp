#include "composer/util/safetensors.h"

#include <bit>
#include <set>

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "composer/core/error.h"
#include "composer/util/new_file.h"

namespace composer::util {
namespace {

const char* dtype_name(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return "F64";
    case at::kFloat:
      return "F32";
    case at::kHalf:
      return "F16";
    case at::kBFloat16:
      return "BF16";
    case at::kLong:
      return "I64";
    case at::kInt:
      return "I32";
    case at::kShort:
      return "I16";
    case at::kChar:
      return "I8";
    case at::kByte:
      return "U8";
    case at::kBool:
      return "BOOL";
    default:
      return nullptr;
  }
}

}  // namespace

void save_safetensors(const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                      const std::filesystem::path& path) {
  nlohmann::ordered_json header;
  std::set<std::string> names;
  std::vector<at::Tensor> data;
  std::size_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const char* dtype = dtype_name(tensor.scalar_type());
    if (!dtype) throw ConfigError(path.string(), ": safetensors has no dtype for ", name);
    if (!names.insert(name).second) throw ConfigError(path.string(), ": two tensors are called ", name);
    data.push_back(tensor.detach().cpu().contiguous());
    header[name] = {{"dtype", dtype},
                    {"shape", std::vector<std::int64_t>(tensor.sizes().begin(), tensor.sizes().end())},
                    {"data_offsets", {offset, offset + data.back().nbytes()}}};
    offset += data.back().nbytes();
  }
  std::string text = tensors.empty() ? "{}" : header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the tensors are aligned

  NewFile file(path);
  const std::uint64_t length = text.size();
  static_assert(std::endian::native == std::endian::little);
  file.write(&length, sizeof length);
  file.write(text.data(), text.size());
  for (const at::Tensor& tensor : data) file.write(tensor.const_data_ptr(), tensor.nbytes());
  file.commit();
}

}  // namespace composer::util
