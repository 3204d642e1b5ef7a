#include "tests/support/idx_files.h"

#include <atomic>
#include <fstream>
#include <stdexcept>
#include <zlib.h>

namespace composer::test {

TemporaryFolder::TemporaryFolder() {
  static std::atomic<int> number = 0;
  path_ = std::filesystem::temp_directory_path() /
          ("composer_data_" + std::to_string(::getpid()) + "_" + std::to_string(number++));
  std::filesystem::create_directories(path_);
}
TemporaryFolder::~TemporaryFolder() { std::filesystem::remove_all(path_); }

Bytes idx(const std::vector<std::uint32_t>& shape, const Bytes& elements, char type) {
  Bytes bytes{0, 0, type, static_cast<char>(shape.size())};
  for (std::uint32_t length : shape)
    for (int shift : {24, 16, 8, 0}) bytes += static_cast<char>(length >> shift & 255);
  return bytes + elements;
}

Bytes gzip(const Bytes& bytes) {
  z_stream stream{};
  if (deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::runtime_error("deflate");
  Bytes out(deflateBound(&stream, bytes.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) throw std::runtime_error("deflate");
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

void write(const std::filesystem::path& file, const Bytes& bytes) {
  std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace composer::test
