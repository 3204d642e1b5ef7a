#include "composer/formats/tensor_bytes.h"

#include <cstdint>
#include <utility>

#include <ATen/ops/empty.h>

#include <sys/mman.h>

#include "composer/core/error.h"

namespace composer::formats {
namespace {

constexpr std::pair<std::string_view, at::ScalarType> kScalarTypes[] = {
    {"F32", at::kFloat},
    {"BF16", at::kBFloat16},
    {"F16", at::kHalf},
    {"F64", at::kDouble},
    {"I64", at::kLong},
    {"I32", at::kInt},
    {"I16", at::kShort},
    {"I8", at::kChar},
    {"U8", at::kByte},
    {"U16", at::kUInt16},
    {"U32", at::kUInt32},
    {"U64", at::kUInt64},
    {"BOOL", at::kBool},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E5M2", at::kFloat8_e5m2},
    {"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz},
    {"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz},
    {"F8_E8M0", at::kFloat8_e8m0fnu},
    {"C64", at::kComplexFloat},
    {"C128", at::kComplexDouble},
};

}  // namespace

at::ScalarType scalar_type(std::string_view dtype) {
  for (const auto& [name, type] : kScalarTypes)
    if (name == dtype) return type;
  throw CheckpointError("unknown dtype ", dtype);  // readers of headers have rejected unknown dtypes before
}

std::string_view dtype_name(at::ScalarType type) {
  for (const auto& [name, known] : kScalarTypes)
    if (known == type) return name;
  return {};
}

at::Tensor new_tensor(at::IntArrayRef shape, at::ScalarType type) {
  constexpr std::uintptr_t kHugePage = 2 << 20;
  at::Tensor tensor = at::empty(shape, type);
  const auto data = reinterpret_cast<std::uintptr_t>(tensor.mutable_data_ptr());
  const std::uintptr_t begin = (data + kHugePage - 1) / kHugePage * kHugePage;
  const std::uintptr_t end = (data + tensor.nbytes()) / kHugePage * kHugePage;
  // If it fails, ordinary pages are used.
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  return tensor;
}

at::Tensor on_host(const at::Tensor& tensor) { return tensor.detach().resolve_conj().resolve_neg().cpu().contiguous(); }

bool are_bools(const char* bytes, std::size_t size) {
  unsigned seen = 0;
  for (std::size_t i = 0; i < size; ++i) seen |= static_cast<unsigned char>(bytes[i]);
  return seen <= 1;
}

}  // namespace composer::formats
