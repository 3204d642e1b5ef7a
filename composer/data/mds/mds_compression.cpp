#include "composer/data/mds/mds_compression.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <vector>
#include <zlib.h>

#if COMPOSER_HAS_ZSTD
#include <zstd.h>
#endif

#include "composer/core/error.h"
#include "composer/data/byte_stream.h"
#include "composer/formats/json_reader.h"
#include "composer/util/new_file.h"

namespace composer::data::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPiece = 1 << 20;  // bytes

// Counts what is written, so that a small file cannot become a large one that nobody expected.
class Decompressed {
 public:
  Decompressed(const fs::path& from, const fs::path& to, std::uint64_t bytes) : from_(from), bytes_(bytes), file_(to) {}

  void write(const char* data, std::size_t size) {
    if (size > bytes_ - written_) wrong("more than");
    file_.write(data, size);
    written_ += size;
  }
  void commit() {
    if (written_ != bytes_) wrong(join("only ", written_, " of"));
    file_.commit();
  }

 private:
  [[noreturn]] void wrong(const std::string& how_much) const {
    throw DataError(from_.string(), ": holds ", how_much, " the ", bytes_,
                    " bytes that index.json tells; it is damaged");
  }

  const fs::path& from_;
  const std::uint64_t bytes_;
  std::uint64_t written_ = 0;
  util::NewFile file_;
};

std::string gzipped(std::string_view bytes, int level) {
  z_stream stream{};
  constexpr int kGzip = 16;
  if (deflateInit2(&stream, level, Z_DEFLATED, MAX_WBITS + kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw Error("zlib cannot start");
  const std::unique_ptr<z_stream, decltype(&deflateEnd)> end(&stream, deflateEnd);
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) throw Error("zlib: cannot compress ", bytes.size(), " bytes");
  out.resize(out.size() - stream.avail_out);
  return out;
}

void decompress_gzip(const fs::path& from, Decompressed& to) {
  const auto in = open_bytes(from);
  std::vector<char> piece(kPiece);
  while (const std::size_t got = in->read(piece.data(), piece.size())) to.write(piece.data(), got);
}

#if COMPOSER_HAS_ZSTD

std::string zstd_compressed(std::string_view bytes, int level) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  const std::size_t size = ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), level);
  if (ZSTD_isError(size) != 0) throw Error("zstd: ", ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

void decompress_zstd(const fs::path& from, Decompressed& to) {
  const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  if (!context) throw Error("zstd cannot start");
  const auto in = open_raw_bytes(from);
  std::vector<char> read(ZSTD_DStreamInSize()), written(ZSTD_DStreamOutSize());
  std::size_t left = 1;  // 0: at the end of a frame
  while (const std::size_t got = in->read(read.data(), read.size())) {
    for (ZSTD_inBuffer input{read.data(), got, 0}; input.pos < input.size;) {
      ZSTD_outBuffer output{written.data(), written.size(), 0};
      left = ZSTD_decompressStream(context.get(), &output, &input);
      if (ZSTD_isError(left) != 0)
        throw DataError(from.string(), ": not zstd data, or damaged: ", ZSTD_getErrorName(left));
      to.write(written.data(), output.pos);
    }
  }
  for (;;) {  // what the context still holds
    ZSTD_inBuffer input{nullptr, 0, 0};
    ZSTD_outBuffer output{written.data(), written.size(), 0};
    if (left == 0) break;
    left = ZSTD_decompressStream(context.get(), &output, &input);
    if (ZSTD_isError(left) != 0 || output.pos == 0) break;
    to.write(written.data(), output.pos);
  }
  if (left != 0) throw DataError(from.string(), ": the file is cut off: its zstd data has no end");
}

#else

std::string zstd_compressed(std::string_view /*bytes*/, int /*level*/) { return {}; }  // parse_mds_compression() throws
void decompress_zstd(const fs::path& /*from*/, Decompressed& /*to*/) {}

#endif

}  // namespace

MdsCompression parse_mds_compression(const std::string& who, std::string_view text) {
  MdsCompression how;
  const std::size_t colon = std::min(text.find(':'), text.size());
  how.name = text.substr(0, colon);
  const bool is_zstd = how.name == "zstd";
  if (!is_zstd && how.name != "gz") {
    const bool is_known = how.name == "br" || how.name == "bz2" || how.name == "snappy";
    throw ConfigError(who, "the compression \"", formats::shown(text), "\" is ", is_known ? "not read here" : "unknown",
                      "; zstd and gz are");
  }
#if !COMPOSER_HAS_ZSTD
  if (is_zstd) throw ConfigError(who, "this libcomposer was built without zstd (Debian's package is libzstd-dev)");
#endif
  const int highest = is_zstd ? 22 : 9;
  how.level = is_zstd ? 3 : 9;  // the levels that mosaicml-streaming takes
  if (colon == text.size()) return how;
  const char *begin = text.data() + colon + 1, *end = text.data() + text.size();
  const auto [last, error] = std::from_chars(begin, end, how.level);
  if (error != std::errc() || last != end || how.level < (is_zstd ? 1 : 0) || how.level > highest)
    throw ConfigError(who, "the compression \"", formats::shown(text), "\" needs a level from ", is_zstd ? 1 : 0,
                      " to ", highest);
  return how;
}

std::string mds_compressed(const MdsCompression& how, std::string_view bytes) {
  return how.name == "gz" ? gzipped(bytes, how.level) : zstd_compressed(bytes, how.level);
}

void mds_decompress(const MdsCompression& how, const fs::path& from, const fs::path& to, std::uint64_t bytes) {
  Decompressed out(from, to, bytes);
  if (how.name == "gz")
    decompress_gzip(from, out);
  else
    decompress_zstd(from, out);
  out.commit();
}

}  // namespace composer::data::detail
