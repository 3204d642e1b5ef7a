#include "composer/data/memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "composer/core/error.h"

namespace composer::data::detail {
namespace {

// The shape with its -1 replaced; throws unless it has this many numbers.
std::vector<std::int64_t> fitting(const char* who, at::IntArrayRef shape, std::size_t numbers) {
  std::vector<std::int64_t> sizes = shape.vec();
  std::int64_t known = 1, unknown = -1;
  bool fits = true;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == -1 && unknown < 0)
      unknown = static_cast<std::int64_t>(i);
    else
      fits = fits && sizes[i] >= 0 && !__builtin_mul_overflow(known, sizes[i], &known);
  }
  const auto all = static_cast<std::int64_t>(numbers);
  if (fits && unknown >= 0 && known > 0) {
    sizes[static_cast<std::size_t>(unknown)] = all / known;
    known *= all / known;
  }
  if (!fits || known != all || (unknown >= 0 && sizes[static_cast<std::size_t>(unknown)] < 0))
    throw DataError(who, ": ", numbers, " numbers cannot have the shape ", shape);
  return sizes;
}

}  // namespace

at::Tensor tensor_over(const char* who, const void* data, c10::ScalarType type, std::size_t numbers,
                       std::vector<std::int64_t> natural, at::IntArrayRef shape, std::shared_ptr<const void> owner) {
  const std::vector<std::int64_t> sizes = shape.empty() ? std::move(natural) : fitting(who, shape, numbers);
  if (numbers == 0) return at::empty(sizes, type);
  return at::from_blob(
      const_cast<void*>(data), sizes, [owner = std::move(owner)](void*) mutable { owner.reset(); },
      at::TensorOptions(type));
}

at::Tensor strided_over(const void* data, c10::ScalarType type, at::IntArrayRef shape, at::IntArrayRef strides,
                        std::shared_ptr<const void> owner) {
  if (c10::multiply_integers(shape) == 0) return at::empty(shape, type);
  return at::from_blob(
      const_cast<void*>(data), shape, strides, [owner = std::move(owner)](void*) mutable { owner.reset(); },
      at::TensorOptions(type));
}

at::Tensor table_for(const std::vector<std::size_t>& lengths, c10::ScalarType type) {
  for (std::size_t row = 0; row < lengths.size(); ++row)
    if (lengths[row] != lengths.front())
      throw DataError("from: row ", row, " has ", lengths[row], " numbers, and row 0 has ", lengths.front(),
                      "; all rows must have the same number");
  const auto columns = lengths.empty() ? 0 : static_cast<std::int64_t>(lengths.front());
  return at::empty({static_cast<std::int64_t>(lengths.size()), columns}, type);
}

}  // namespace composer::data::detail
