#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace composer::data::detail {

// What stands before the elements of an array in a file of numpy.save.
struct NpyHeader {
  char kind = 'f';  // b: bool, i: signed integer, u: unsigned integer, f: float, c: complex
  std::size_t item_size = 4;
  bool big_endian = false, fortran_order = false;
  std::vector<std::int64_t> shape;

  std::size_t size = 0;     // bytes of the header
  std::uint64_t bytes = 0;  // of the elements
};

inline constexpr std::size_t kNpyPrefix = 12;  // bytes that tell the length of the header, at most

// The length of the header whose first bytes these are: min(file's length, kNpyPrefix). Throws DataError, which begins
// with `name`.
std::size_t npy_header_size(std::string_view prefix, const std::string& name);

// Reads a whole header. Throws DataError for what a tensor cannot hold, and for arrays of 2^63 bytes and more.
NpyHeader read_npy_header(std::string_view header, const std::string& name);

// The header for elements such as "<f4" in C's order.
std::string make_npy_header(std::string_view element, const std::vector<std::int64_t>& shape);

}  // namespace composer::data::detail
