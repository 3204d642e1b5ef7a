#include "composer/data/idx.h"

#include <array>
#include <iomanip>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "composer/core/error.h"
#include "composer/data/byte_stream.h"
#include "composer/util/text.h"

namespace composer::data {
namespace {

// The header: a magic number (0, 0, type, number of dimensions), then each dimension in four bytes, big-endian.
constexpr std::size_t kWord = 4;
constexpr unsigned kUint8 = 0x08, kMaxDimensions = 8;
using Word = std::array<unsigned char, kWord>;

Word read_word(detail::ByteStream& bytes, const std::string& name) {
  Word word;
  const std::size_t got = bytes.read(word.data(), kWord);
  if (got < kWord) throw DataError(name, ": the file is cut off within its header");
  return word;
}

std::string in_hex(const Word& word) {
  util::OutText text;
  for (unsigned byte : word) text << std::hex << std::setw(2) << std::setfill('0') << byte;
  return text.str();
}

at::Tensor room_for(const std::vector<std::int64_t>& shape, const std::string& name) {
  try {
    return at::empty(shape, at::kByte);
  } catch (const c10::Error&) {
    throw DataError(name, ": its header describes an array of ", at::IntArrayRef(shape),
                    " bytes, for which there is not enough memory");
  }
}

}  // namespace

at::Tensor read_idx(const std::filesystem::path& file) {
  const std::string name = file.string();
  const auto bytes = detail::open_bytes(file);
  const Word magic = read_word(*bytes, name);
  if (magic[0] == 0x1f && magic[1] == 0x8b)
    throw DataError(name, ": it is compressed; call it ", file.filename().string(), ".gz, or unpack it");
  if (magic[0] != 0 || magic[1] != 0 || magic[3] < 1 || magic[3] > kMaxDimensions)
    throw DataError(name, ": not an idx file: expected it to begin with 000008 and the number of dimensions, found ",
                    in_hex(magic));
  if (magic[2] != kUint8)
    throw DataError(name, ": expected elements of type 08 (uint8), found type ", in_hex(magic).substr(4, 2));

  std::vector<std::int64_t> shape;
  std::uint64_t size = 1;
  for (unsigned d = 0; d < magic[3]; ++d) {
    std::uint64_t length = 0;
    for (unsigned byte : read_word(*bytes, name)) length = length << 8 | byte;
    if (length == 0) throw DataError(name, ": dimension ", d, " has length 0");
    shape.push_back(static_cast<std::int64_t>(length));
    if (__builtin_mul_overflow(size, length, &size) || size > bytes->at_most())
      throw DataError(name, ": its header describes an array of ", at::IntArrayRef(shape),
                      shape.size() < magic[3] ? " and more" : "",
                      " bytes, more than the file can hold: it is cut off or damaged");
  }

  at::Tensor data = room_for(shape, name);
  const std::size_t got = bytes->read(data.mutable_data_ptr(), size);
  if (got < size) throw DataError(name, ": the file is cut off: expected ", size, " bytes of data, found ", got);
  char more = 0;
  if (bytes->read(&more, 1) > 0) throw DataError(name, ": expected ", size, " bytes of data, found more");
  return data;
}

}  // namespace composer::data
