#include "composer/util/safetensors.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <unistd.h>

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "composer/core/error.h"

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

// A file that is removed unless it is committed under its name.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::filesystem::path target)
      : target_(std::move(target)), path_(target_.string() + ".tmp-" + std::to_string(::getpid())) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor_ < 0) fail("create");
  }
  ~TemporaryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!committed_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(const void* data, std::size_t size) {
    const auto* from = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t written = ::write(descriptor_, from, size);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail("write");
      from += written;
      size -= static_cast<std::size_t>(written);
    }
  }

  void commit() {
    if (::fsync(descriptor_) != 0) fail("sync");
    if (::close(std::exchange(descriptor_, -1)) != 0) fail("close");
    if (::rename(path_.c_str(), target_.c_str()) != 0) fail("rename");
    committed_ = true;
    const std::filesystem::path folder = target_.has_parent_path() ? target_.parent_path() : ".";
    const int directory = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) return;
    ::fsync(directory);
    ::close(directory);
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    const std::string reason = std::strerror(errno);
    throw Error("could not ", what, " ", path_.string(), ": ", reason);
  }

  std::filesystem::path target_, path_;
  int descriptor_ = -1;
  bool committed_ = false;
};

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

  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  TemporaryFile file(path);
  const std::uint64_t length = text.size();
  static_assert(std::endian::native == std::endian::little);
  file.write(&length, sizeof length);
  file.write(text.data(), text.size());
  for (const at::Tensor& tensor : data) file.write(tensor.const_data_ptr(), tensor.nbytes());
  file.commit();
}

}  // namespace composer::util
