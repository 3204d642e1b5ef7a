#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/data/row_values.h"

namespace composer::data::detail {

// The values of all rows by which rows are grouped or ordered: whole numbers, booleans or floating-point numbers.
class Keys {
 public:
  // `what` begins errors, as in "split: stratify". Throws ConfigError for values that are only named, DataError unless
  // there is one number, and no NaN, for each row.
  Keys(const RowValues& values, std::int64_t rows, const std::string& what);

  // The rows by ascending value; rows of equal value stay in their order.
  std::vector<std::int64_t> ascending() const;
  // For each row, the number of its value among the distinct ones in ascending order, from 0.
  std::vector<std::int64_t> distinct(std::int64_t& count) const;
  bool equal(std::int64_t row, std::int64_t other) const;
  std::string text(std::int64_t row) const;  // the value, for messages

 private:
  at::Tensor values_;  // int64 or float64, on the host
};

}  // namespace composer::data::detail
