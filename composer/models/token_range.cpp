#include "composer/models/token_range.h"

#include "composer/core/error.h"

namespace composer::models::detail {

void check_range(const at::Tensor& numbers, std::int64_t count, const NumbersOf& of) {
  if (!numbers.is_cpu() || !at::isIntegralType(numbers.scalar_type(), /*includeBool=*/false) || numbers.dim() != 2)
    return;
  const at::Tensor whole = numbers.to(at::kLong).contiguous();
  const auto* const number = whole.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < whole.numel(); ++i)
    if (number[i] < 0 || number[i] >= count)
      throw DataError(of.model, ": ", of.one, ' ', number[i], " of sample ", i / whole.size(1), ", at position ",
                      i % whole.size(1), ", is out of range; ", of.all, ' ', count, ", 0 to ", count - 1);
}

}  // namespace composer::models::detail
