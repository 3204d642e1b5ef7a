#include "composer/data/keys.h"

#include <ATen/ops/_unique2.h>
#include <ATen/ops/argsort.h>

#include "composer/core/error.h"

namespace composer::data::detail {
namespace {

std::vector<std::int64_t> numbers_in(const at::Tensor& tensor) {
  const auto* first = tensor.const_data_ptr<std::int64_t>();
  return {first, first + tensor.numel()};
}

}  // namespace

Keys::Keys(const RowValues& values, std::int64_t rows, const std::string& what) {
  if (!values.name().empty())
    throw ConfigError(what, ": \"", values.name(), "\" is a name, and only data with names can be asked for it; give ",
                      "a tensor with a value for each row");
  const at::Tensor& given = values.values();
  if (!given.defined())
    throw ConfigError(what, ": is given, and is an undefined tensor or an empty name; give a value for each row, or ",
                      "leave the option out");
  if (given.numel() != rows || given.dim() < 1 || given.size(0) != rows)
    throw DataError(what, ": must have one value for each of ", rows, " rows, got the shape ", given.sizes());
  if (given.is_complex() || given.layout() != at::kStrided)
    throw DataError(what, ": must be whole or floating-point numbers in a dense tensor, got ", given.scalar_type());
  values_ =
      given.detach().reshape({rows}).to(at::kCPU, given.is_floating_point() ? at::kDouble : at::kLong).contiguous();
  if (!values_.is_floating_point()) return;
  const auto* numbers = values_.const_data_ptr<double>();
  for (std::int64_t row = 0; row < rows; ++row)
    if (numbers[row] != numbers[row]) throw DataError(what, ": row ", row, " is NaN; give every row a value");
}

std::vector<std::int64_t> Keys::ascending() const {
  return numbers_in(at::argsort(values_, /*stable=*/true, /*dim=*/0, /*descending=*/false));
}

std::vector<std::int64_t> Keys::distinct(std::int64_t& count) const {
  const auto [values, inverse, counts] = at::_unique2(values_, /*sorted=*/true, /*return_inverse=*/true);
  count = values.numel();
  return numbers_in(inverse.contiguous());
}

bool Keys::equal(std::int64_t row, std::int64_t other) const {
  if (values_.is_floating_point())
    return values_.const_data_ptr<double>()[row] == values_.const_data_ptr<double>()[other];
  return values_.const_data_ptr<std::int64_t>()[row] == values_.const_data_ptr<std::int64_t>()[other];
}

std::string Keys::text(std::int64_t row) const {
  if (values_.is_floating_point()) return join(values_.const_data_ptr<double>()[row]);
  return join(values_.const_data_ptr<std::int64_t>()[row]);
}

}  // namespace composer::data::detail
