#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/data/map_style.h"
#include "composer/data/text/tokenizer.h"

namespace composer::data {

// The lines of a file of text, each a sample. Keeps their places, 8 bytes for each, and reads the text from the disk
// when it is needed. Copies share the file. Thread-safe.
class COMPOSER_EXPORT Lines {
 public:
  // Throws DataError for a file that is missing or empty.
  explicit Lines(const std::filesystem::path& path);
  std::int64_t size() const;
  // A line without its end, "\n" or "\r\n".
  std::string text(std::int64_t index) const;
  // The bytes of each line, int64 [size()]: about the lengths of the samples, for MapStyleOptions::lengths.
  at::Tensor lengths() const;

 private:
  class File;
  std::shared_ptr<const File> file_;
};

struct TokenizedOptions {
  std::int64_t max_length = 0;  // tokens beyond it are cut off; 0: no limit
  at::Tensor labels = {};       // [texts, ...]: the "target" of each sample; undefined: none
};

// Samples of lines: "input_ids", int64 [tokens], and "target", the label. For map_style() with collate = pad_collate().
// Throws ConfigError for a tokenizer that is null, DataError unless there is a label for each line.
COMPOSER_EXPORT SampleSource tokenized(Lines lines, std::shared_ptr<const Tokenizer> tokenizer,
                                       TokenizedOptions options = {});
// The same of texts in memory, such as a column of a table.
COMPOSER_EXPORT SampleSource tokenized(std::vector<std::string> texts, std::shared_ptr<const Tokenizer> tokenizer,
                                       TokenizedOptions options = {});

}  // namespace composer::data
