#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/data/text/encode_parts.h"
#include "composer/data/text/token_file.h"
#include "composer/formats/byte_source.h"
#include "composer/util/new_file.h"

namespace composer::data {
namespace {

constexpr std::uint64_t kTextAtOnce = 8 << 20;  // bytes

std::vector<Option<WriteTokensOptions>> write_tokens_options() {
  using O = WriteTokensOptions;
  return all_options(part("dtype", &O::dtype, "a dtype"), part("end_of_text", &O::end_of_text, "a token"));
}

// The largest token that the type holds.
std::int64_t largest_of(at::ScalarType type) {
  switch (type) {
    case at::kUInt16:
      return std::numeric_limits<std::uint16_t>::max();
    case at::kUInt32:
      return std::numeric_limits<std::uint32_t>::max();
    case at::kInt:
      return std::numeric_limits<std::int32_t>::max();
    case at::kLong:
      return std::numeric_limits<std::int64_t>::max();
    default:
      throw ConfigError("write_tokens: dtype must be at::kUInt16, at::kUInt32, at::kInt or at::kLong, got ", type);
  }
}

template <class T>
void narrow(std::span<const std::int64_t> tokens, std::string& bytes) {
  bytes.resize(tokens.size() * sizeof(T));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const T value = static_cast<T>(tokens[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
}

}  // namespace

struct TokenWriter::File {
  explicit File(const std::filesystem::path& path) : file(path) {}
  util::NewFile file;
  std::string bytes;
};

TokenWriter::TokenWriter(const std::filesystem::path& path, at::ScalarType dtype) : dtype_(dtype) {
  largest_of(dtype);
  file_ = std::make_unique<File>(path);
}

TokenWriter::~TokenWriter() = default;

void TokenWriter::write(std::span<const std::int64_t> tokens) {
  const std::int64_t largest = largest_of(dtype_);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] > largest)
      throw DataError("TokenWriter: token ", size_ + static_cast<std::int64_t>(i), " is ", tokens[i], ", and dtype ",
                      dtype_, " holds 0 to ", largest);
  switch (c10::elementSize(dtype_)) {
    case 2:
      narrow<std::uint16_t>(tokens, file_->bytes);
      break;
    case 4:
      narrow<std::uint32_t>(tokens, file_->bytes);
      break;
    default:
      narrow<std::int64_t>(tokens, file_->bytes);
  }
  file_->file.write(file_->bytes);
  size_ += static_cast<std::int64_t>(tokens.size());
}

void TokenWriter::commit() { file_->file.commit(); }

std::int64_t write_tokens(const std::filesystem::path& path, const Tokenizer& tokenizer,
                          const std::vector<std::filesystem::path>& texts, WriteTokensOptions options) {
  options = checked("write_tokens", std::move(options), write_tokens_options());
  if (tokenizer.size() - 1 > largest_of(options.dtype))
    throw ConfigError("write_tokens: the tokenizer has ", tokenizer.size(), " tokens, and dtype ", options.dtype,
                      " holds ", largest_of(options.dtype) + 1, "; set dtype = at::kUInt32");
  if (options.end_of_text && (*options.end_of_text < 0 || *options.end_of_text >= tokenizer.size()))
    throw ConfigError("write_tokens: end_of_text must be from 0 to ", tokenizer.size() - 1, ", got ",
                      *options.end_of_text);
  TokenWriter writer(path, options.dtype);
  const auto write = [&](std::string_view text, std::uint64_t from) {
    for (const auto& tokens : detail::encode_parts(tokenizer, text, from)) writer.write(tokens);
  };
  for (const std::filesystem::path& name : texts) {
    try {
      const auto file = formats::open_file(name);
      std::string text;  // what has been read and not encoded yet
      for (std::uint64_t at = 0; at < file->size();) {
        const std::uint64_t some = std::min(kTextAtOnce, file->size() - at);
        text += file->read(at, static_cast<std::size_t>(some));
        at += some;
        const std::size_t end = at < file->size() ? tokenizer.last_border(text) : text.size();
        write(std::string_view(text).substr(0, end), at - text.size());
        text.erase(0, end);
      }
    } catch (const CheckpointError& error) {
      throw DataError("write_tokens: ", error.what());
    } catch (const DataError&) {
      throw_nested<DataError>("write_tokens: cannot encode ", name.string());
    }
    if (options.end_of_text) writer.write({{*options.end_of_text}});
  }
  writer.commit();
  return writer.size();
}

}  // namespace composer::data
