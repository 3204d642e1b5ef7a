#include "composer/data/text/lines.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/formats/byte_source.h"

namespace composer::data {
namespace {

constexpr std::uint64_t kScannedAtOnce = 1 << 20;

std::vector<Option<TokenizedOptions>> tokenized_options() {
  using O = TokenizedOptions;
  return all_options(option("max_length", &O::max_length).at_least(0), part("labels", &O::labels, "a tensor"));
}

// `text` returns the text of a sample, and is called on several threads at once.
SampleSource tokenized_by(std::int64_t size, std::function<std::string(std::int64_t index)> text,
                          std::shared_ptr<const Tokenizer> tokenizer, TokenizedOptions options) {
  if (!tokenizer) throw ConfigError("tokenized: the tokenizer is null");
  options = checked("tokenized", std::move(options), tokenized_options());
  if (options.labels.defined() && (options.labels.dim() < 1 || options.labels.size(0) != size))
    throw DataError("tokenized: there are ", size, " texts, and labels of shape ", options.labels.sizes(),
                    "; each text needs one");
  return {.size = size,
          .get = [text = std::move(text), tokenizer = std::move(tokenizer), max_length = options.max_length,
                  labels = options.labels](std::int64_t index, RandomStream) -> Sample {
            const std::vector<std::int64_t> tokens = tokenizer->encode(text(index));
            auto count = static_cast<std::int64_t>(tokens.size());
            if (max_length > 0) count = std::min(count, max_length);
            at::Tensor ids = at::empty({count}, at::kLong);
            std::copy_n(tokens.data(), count, ids.mutable_data_ptr<std::int64_t>());
            Sample sample{{"input_ids", ids}};
            if (labels.defined()) sample.set("target", labels.select(0, index));
            return sample;
          }};
}

}  // namespace

class Lines::File {
 public:
  explicit File(const std::filesystem::path& path) {
    try {
      file_ = formats::open_file(path);
      scan();
    } catch (const CheckpointError& error) {
      throw DataError("Lines: ", error.what());
    }
    if (begins_.size() < 2) throw DataError(path.string(), ": has no lines");
  }

  std::int64_t size() const { return static_cast<std::int64_t>(begins_.size()) - 1; }
  std::uint64_t begin(std::int64_t index) const { return begins_[static_cast<std::size_t>(index)]; }

  std::string text(std::int64_t index) const {
    if (index < 0 || index >= size())
      throw DataError(file_->name(), ": there is no line ", index, "; lines are from 0 to ", size() - 1);
    std::string line;
    try {
      line = file_->read(begin(index), static_cast<std::size_t>(begin(index + 1) - begin(index)));
    } catch (const CheckpointError& error) {
      throw DataError("Lines: ", error.what());
    }
    if (line.ends_with('\n')) line.pop_back();
    if (line.ends_with('\r')) line.pop_back();
    return line;
  }

 private:
  void scan() {
    std::string bytes(static_cast<std::size_t>(std::min(kScannedAtOnce, file_->size())), '\0');
    begins_.push_back(0);
    for (std::uint64_t at = 0; at < file_->size(); at += bytes.size()) {
      const std::size_t count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), file_->size() - at));
      file_->read(at, bytes.data(), count);
      for (std::size_t i = 0; i < count; ++i) {
        const void* end = std::memchr(bytes.data() + i, '\n', count - i);
        if (!end) break;
        i = static_cast<std::size_t>(static_cast<const char*>(end) - bytes.data());
        begins_.push_back(at + i + 1);
      }
    }
    if (begins_.back() != file_->size()) begins_.push_back(file_->size());
  }

  std::unique_ptr<formats::ByteSource> file_;
  std::vector<std::uint64_t> begins_;  // of each line, and the end of the last one
};

Lines::Lines(const std::filesystem::path& path) : file_(std::make_shared<const File>(path)) {}

std::int64_t Lines::size() const { return file_->size(); }

std::string Lines::text(std::int64_t index) const { return file_->text(index); }

at::Tensor Lines::lengths() const {
  at::Tensor lengths = at::empty({size()}, at::kLong);
  auto* const to = lengths.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < size(); ++i) to[i] = static_cast<std::int64_t>(file_->begin(i + 1) - file_->begin(i));
  return lengths;
}

SampleSource tokenized(Lines lines, std::shared_ptr<const Tokenizer> tokenizer, TokenizedOptions options) {
  const std::int64_t size = lines.size();
  const auto text = [lines = std::move(lines)](std::int64_t index) { return lines.text(index); };
  return tokenized_by(size, text, std::move(tokenizer), std::move(options));
}

SampleSource tokenized(std::vector<std::string> texts, std::shared_ptr<const Tokenizer> tokenizer,
                       TokenizedOptions options) {
  const std::int64_t size = std::ssize(texts);
  const auto shared = std::make_shared<const std::vector<std::string>>(std::move(texts));
  const auto text = [shared](std::int64_t index) { return (*shared)[static_cast<std::size_t>(index)]; };
  return tokenized_by(size, text, std::move(tokenizer), std::move(options));
}

}  // namespace composer::data
