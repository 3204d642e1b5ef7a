// The header of an array of NumPy: what is accepted has a known type and a size that fits, and can be written again.
#include <algorithm>

#include "composer/data/table/npy_header.h"
#include "tests/fuzz/fuzz.h"

using namespace composer;
using data::detail::NpyHeader;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  NpyHeader header;
  try {
    const std::size_t length = data::detail::npy_header_size(bytes.substr(0, data::detail::kNpyPrefix), "input");
    if (length > size) return 0;
    header = data::detail::read_npy_header(bytes.substr(0, length), "input");
  } catch (const DataError&) {
    return 0;
  }
  std::uint64_t elements = header.item_size;
  for (const std::int64_t length : header.shape) {
    fuzz::require(length >= 0);
    fuzz::require(!__builtin_mul_overflow(elements, static_cast<std::uint64_t>(length), &elements));
  }
  fuzz::require(header.bytes == elements && header.item_size <= 16);
  const std::string element = std::string("<") + header.kind + std::to_string(header.item_size);
  const std::string written = data::detail::make_npy_header(element, header.shape);
  fuzz::require(written.size() % 64 == 0);
  const NpyHeader again = data::detail::read_npy_header(written, "again");
  fuzz::require(again.shape == header.shape && again.kind == header.kind && again.bytes == header.bytes);
  return 0;
}
