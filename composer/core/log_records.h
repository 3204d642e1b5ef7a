#pragma once
// What can be logged: the structs that Logger takes, and that a Record (composer/core/record.h) holds.
//
// To add a new kind of content, add a struct here and to LogContent, with its check(), tensors_of() and
// copied_to_host(). Logger::log() passes it to the destinations, which access it by Record::get().
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer {

// A number, a text, or a 0-d tensor that has not been read. A tensor must not be changed after it was logged.
using LogValue = std::variant<std::int64_t, double, bool, std::string, at::Tensor>;

// The value as a number, read on the host (waits if the tensor is on a GPU). Throws DataError for a text.
COMPOSER_EXPORT double to_number(const LogValue& value);

struct LogEntry {
  std::string_view key;  // such as loss/train/total; valid during the call only
  LogValue value;
};

// The class of each pixel of the images that the mask is logged with.
struct LogMask {
  std::string name;    // unique among the masks of these images
  at::Tensor classes;  // integers, [N, H, W]; [H, W] for a single image
};

// Images of one size. The tensors must not be changed after they were logged.
struct LogImages {
  at::Tensor images;           // [N, C, H, W], [C, H, W] or [H, W]: uint8, or floating-point from 0 to 1
  bool channels_last = false;  // [N, H, W, C] or [H, W, C] instead; C is 1 (gray), 3 (RGB) or 4 (RGBA)
  std::vector<LogMask> masks = {};
  std::map<std::int64_t, std::string> class_labels = {};  // names of the classes in the masks
};

// Each row has a value for each column. A table may have no rows.
struct LogTable {
  std::vector<std::string> columns;  // at least one; names are unique
  std::vector<std::vector<LogValue>> rows;
};

// counts[i] values are in [edges[i], edges[i + 1]); the last interval includes its end.
struct COMPOSER_EXPORT LogHistogram {
  at::Tensor counts;  // [bins], real numbers >= 0
  at::Tensor edges;   // [bins + 1], floating-point, ascending
  // The number of values that were left out as infinite or NaN: [], an integer; undefined if unknown. Loggers that
  // write in the background warn about the first histogram with such values.
  at::Tensor left_out = {};

  // Counts the finite values of a tensor of any shape in `bins` intervals of equal width between the smallest and the
  // largest; other values are left out. Computes on the tensor's device without waiting for it, and keeps no reference
  // to the values, so weights may be changed afterwards. Throws DataError for complex and empty tensors, and unless
  // bins is from 1 to 10,000.
  static LogHistogram of(const at::Tensor& values, std::int64_t bins = 64);
  static LogHistogram of(const std::vector<double>& counts, const std::vector<double>& edges);
};

// A file that destinations copy or send later, in the background. For a file of up to 64 MiB they get its contents at
// the time of the call: Logger copies it into the folder for temporary files until all destinations have it. A larger
// file must exist, unchanged, until flush() returns.
struct LogFile {
  std::string path;
  std::string name;        // at the destination; placeholders as in save_filename: plots/{run_name}/ep{epoch}.svg
  bool overwrite = false;  // replace a file with that name
  std::shared_ptr<const void> copy = nullptr;  // set by Logger: keeps the file at `path`
};

// The content that is logged under one key. The key of a file is its name.
using LogContent = std::variant<LogImages, LogTable, LogHistogram, LogFile>;

// Throw DataError, which begins with the key, for content without the shape or type described above. Do not read values
// of tensors.
COMPOSER_EXPORT void check(std::string_view key, const LogImages& images);
COMPOSER_EXPORT void check(std::string_view key, const LogTable& table);
COMPOSER_EXPORT void check(std::string_view key, const LogHistogram& histogram);
COMPOSER_EXPORT void check(std::string_view key, const LogFile& file);

// All tensors in the content; some may be undefined.
COMPOSER_EXPORT std::vector<at::Tensor> tensors_of(const LogImages& images);
COMPOSER_EXPORT std::vector<at::Tensor> tensors_of(const LogTable& table);
COMPOSER_EXPORT std::vector<at::Tensor> tensors_of(const LogHistogram& histogram);
COMPOSER_EXPORT std::vector<at::Tensor> tensors_of(const LogFile& file);

// Copies of the content with all tensors contiguous on the host. Tensors of a histogram become doubles, and cells of a
// table become numbers. Wait for devices.
COMPOSER_EXPORT LogImages copied_to_host(const LogImages& images);
COMPOSER_EXPORT LogTable copied_to_host(const LogTable& table);
COMPOSER_EXPORT LogHistogram copied_to_host(const LogHistogram& histogram);
COMPOSER_EXPORT LogFile copied_to_host(const LogFile& file);

}  // namespace composer
