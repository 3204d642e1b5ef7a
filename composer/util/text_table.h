#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "composer/core/export.h"

namespace composer::util {

// Rows in aligned columns, two spaces apart. The alignment has one letter per column, l or r. A column without any text
// takes no room.
class COMPOSER_EXPORT TextTable {
 public:
  explicit TextTable(std::string alignment) : alignment_(std::move(alignment)) {}
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // A line for each row, which begins with `indent` spaces and ends without any.
  std::string text(std::size_t indent = 0) const;

 private:
  std::string alignment_;
  std::vector<std::vector<std::string>> rows_;
};

COMPOSER_EXPORT std::string grouped(std::int64_t number);  // 12,345

}  // namespace composer::util
