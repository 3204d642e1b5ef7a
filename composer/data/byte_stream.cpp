#include "composer/data/byte_stream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>
#include <zlib.h>

#include "composer/core/error.h"

namespace composer::data::detail {
namespace {

namespace fs = std::filesystem;

class PlainFile final : public ByteStream {
 public:
  explicit PlainFile(const fs::path& file) : file_(file), in_(file, std::ios::binary) {
    std::error_code error;
    if (fs::is_directory(file, error)) throw DataError(file.string(), ": is a folder");
    if (!in_) throw DataError(file.string(), ": cannot be opened: ", std::strerror(errno));
    size_ = fs::file_size(file, error);
    if (error) throw DataError(file.string(), ": ", error.message());
  }

  std::size_t read(void* to, std::size_t count) override {
    in_.read(static_cast<char*>(to), static_cast<std::streamsize>(count));
    if (in_.bad()) throw DataError(file_.string(), ": cannot be read: ", std::strerror(errno));
    return static_cast<std::size_t>(in_.gcount());
  }
  std::uint64_t at_most() const override { return size_; }

 private:
  fs::path file_;
  std::ifstream in_;
  std::uint64_t size_ = 0;
};

// Reads one or more gzip members that fill the file: gzip writes one, and concatenated files have several. Zeros may
// follow, which tapes and blocks of devices are filled up with. zlib verifies the checksum at the end of each member.
class GzipFile final : public ByteStream {
 public:
  explicit GzipFile(const fs::path& file) : file_(file), compressed_(file), buffer_(1 << 16) {
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) throw DataError(file.string(), ": zlib cannot start");
  }
  ~GzipFile() override { inflateEnd(&stream_); }
  GzipFile(const GzipFile&) = delete;
  GzipFile& operator=(const GzipFile&) = delete;

  std::size_t read(void* to, std::size_t count) override {
    std::size_t done = 0;
    while (done < count && !ended_) {
      const std::size_t piece = std::min<std::size_t>(count - done, 1 << 30);
      stream_.next_out = static_cast<Bytef*>(to) + done;
      stream_.avail_out = static_cast<uInt>(piece);
      inflate_some();
      done += piece - stream_.avail_out;
    }
    return done;
  }
  // The highest compression ratio of deflate.
  std::uint64_t at_most() const override { return compressed_.at_most() * 1032; }

 private:
  void inflate_some() {
    if (!refill()) throw DataError(file_.string(), ": the file is cut off: its gzip data has no end");
    const int code = inflate(&stream_, Z_NO_FLUSH);
    if (code == Z_STREAM_END) {
      ended_ = !refill() || are_zeros_left();
      constexpr Bytef kMagic = 0x1f;  // the first byte of another member
      if (!ended_ && *stream_.next_in != kMagic) fail_of_rest();
      if (!ended_) inflateReset(&stream_);
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      throw DataError(file_.string(), ": not gzip data, or damaged: ", stream_.msg ? stream_.msg : zError(code),
                      "; if it is not compressed, remove .gz from its name");
    }
  }

  // Whether the rest of the file, of which a byte is there, is zeros. If it begins with one, it is read.
  bool are_zeros_left() {
    if (*stream_.next_in != 0) return false;
    while (refill() && *stream_.next_in == 0) {
      ++stream_.next_in;
      --stream_.avail_in;
    }
    if (stream_.avail_in > 0) fail_of_rest();
    return true;
  }

  [[noreturn]] void fail_of_rest() const {
    throw DataError(file_.string(), ": there are more bytes after the end of its gzip data");
  }

  // Returns false at the end of the file.
  bool refill() {
    if (stream_.avail_in > 0) return true;
    stream_.next_in = buffer_.data();
    stream_.avail_in = static_cast<uInt>(compressed_.read(buffer_.data(), buffer_.size()));
    return stream_.avail_in > 0;
  }

  fs::path file_;
  PlainFile compressed_;
  std::vector<Bytef> buffer_;
  z_stream stream_{};
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> open_bytes(const fs::path& file) {
  if (file.extension() == ".gz") return std::make_unique<GzipFile>(file);
  return open_raw_bytes(file);
}

std::unique_ptr<ByteStream> open_raw_bytes(const fs::path& file) { return std::make_unique<PlainFile>(file); }

}  // namespace composer::data::detail
