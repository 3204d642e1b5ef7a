#include "composer/formats/zip_reader.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <zlib.h>

#include "composer/core/error.h"
#include "composer/formats/byte_source.h"
#include "composer/formats/json_reader.h"
#include "composer/formats/zip_record.h"
#include "composer/util/utf8.h"

namespace composer::formats {
namespace {

constexpr std::size_t kZipPiece = 1 << 18;                                   // bytes read at once
constexpr std::size_t kEnd = 22, kLocator = 20, kEnd64 = 56, kCentral = 46;  // bytes of the records

template <class Number>
Number number_at(std::string_view bytes, std::size_t at) {
  Number number = 0;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

std::uint16_t two(std::string_view bytes, std::size_t at) { return number_at<std::uint16_t>(bytes, at); }
std::uint32_t four(std::string_view bytes, std::size_t at) { return number_at<std::uint32_t>(bytes, at); }
std::uint64_t eight(std::string_view bytes, std::size_t at) { return number_at<std::uint64_t>(bytes, at); }

struct Directory {
  std::uint64_t at = 0, size = 0, count = 0;
};

// Throws an error that names the file and the byte.
struct FailAt {
  const std::string& file;
  [[noreturn]] void operator()(std::string_view what, std::uint64_t at) const {
    throw CheckpointError(file, ": ", what, " at byte ", at);
  }
};

// If a locator before the end record names a zip64 record, reads it; its numbers take precedence.
bool read_end64(const ByteSource& file, std::uint64_t end, Directory& directory) {
  const FailAt fail{file.name()};
  if (end < kLocator) return false;
  const std::string locator = file.read(end - kLocator, kLocator);
  if (four(locator, 0) != 0x07064b50) return false;
  const std::uint64_t at = eight(locator, 8);
  if (four(locator, 4) != 0 || four(locator, 16) > 1) fail("a zip file in several parts", end - kLocator);
  if (end - kLocator < kEnd64 || at != end - kLocator - kEnd64) fail("the zip64 record is not before its locator", end);
  const std::string record = file.read(at, kEnd64);
  if (four(record, 0) != 0x06064b50 || eight(record, 4) != kEnd64 - 12) fail("a wrong zip64 record", at);
  if (eight(record, 24) != eight(record, 32)) fail("a zip file in several parts", at);
  const Directory large{.at = eight(record, 48), .size = eight(record, 40), .count = eight(record, 32)};
  const auto fits = [](std::uint64_t small, std::uint64_t most, std::uint64_t number) {
    return small == most || small == number;
  };
  if (!fits(directory.at, kIn64, large.at) || !fits(directory.size, kIn64, large.size) ||
      !fits(directory.count, 0xFFFF, large.count))
    fail("the two end records differ", at);
  directory = large;
  if (directory.at > at || directory.size != at - directory.at) fail("a wrong offset of the directory", at);
  return true;
}

Directory find_directory(const ByteSource& file) {
  const FailAt fail{file.name()};
  const std::uint64_t size = file.size();
  if (size < kEnd) fail("not a zip file: it ends", size);
  const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(size, kEnd + 0xFFFF));
  const std::string tail = file.read(size - length, length);
  for (std::size_t i = length - kEnd + 1; i-- > 0;) {
    if (four(tail, i) != 0x06054b50 || i + kEnd + two(tail, i + 20) != length) continue;
    const std::uint64_t end = size - length + i;
    if (two(tail, i + 4) != 0 || two(tail, i + 6) != 0 || two(tail, i + 8) != two(tail, i + 10))
      fail("a zip file in several parts", end);
    Directory directory{.at = four(tail, i + 16), .size = four(tail, i + 12), .count = two(tail, i + 10)};
    if (!read_end64(file, end, directory) && (directory.at > end || directory.size != end - directory.at))
      fail("the directory is not where the end record says", end);
    return directory;
  }
  fail("not a zip file, or cut off: it has no end record", size);
}

// Rejects names that would be unpacked outside of the folder, or that other readers interpret differently.
bool safe_name(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find_first_of(std::string_view("\\\0", 2)) != std::string_view::npos)
    return false;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part == ".." || part == "." || (part.empty() && end != name.size())) return false;
    begin = end + 1;
  }
  return util::is_utf8(name);
}

// Numbers that do not fit into the record are in the zip64 field, in this order.
void read_zip64_field(std::string_view extra, ZipEntry& entry, const FailAt& fail, std::uint64_t at) {
  std::uint64_t* const numbers[] = {&entry.size, &entry.stored, &entry.header};
  for (std::size_t i = 0; i + 4 <= extra.size();) {
    const std::size_t size = two(extra, i + 2);
    if (i + 4 + size > extra.size()) fail("an extra field exceeds its record", at);
    if (two(extra, i) == 1) {
      std::size_t from = i + 4;
      for (std::uint64_t* number : numbers) {
        if (*number != kIn64) continue;
        if (from + 8 > i + 4 + size) fail("a zip64 field is too short", at);
        *number = eight(extra, from);
        from += 8;
      }
      return;
    }
    i += 4 + size;
  }
}

}  // namespace

ZipReader::ZipReader(const ByteSource& file, std::uint64_t most_inflation) : file_(file) {
  const Directory directory = find_directory(file);
  read_directory(directory.at, directory.size, directory.count);
  read_local_headers(directory.at);
  std::uint64_t inflated = 0;
  const std::uint64_t most = file.size() > UINT64_MAX / most_inflation ? UINT64_MAX : file.size() * most_inflation;
  for (const ZipEntry& entry : entries_) {
    if (!entry.deflated) continue;
    if (entry.size > most - inflated)
      throw CheckpointError(file.name(), ": ", shown(entry.name), " would make its content more than ", most_inflation,
                            " times the file's size");
    inflated += entry.size;
  }
}

void ZipReader::read_directory(std::uint64_t at, std::uint64_t size, std::uint64_t count) {
  const FailAt fail{file_.name()};
  if (count > size / kCentral) fail("more entries than fit into the directory", at);
  const std::string directory = file_.read(at, static_cast<std::size_t>(size));
  const std::string_view bytes = directory;
  std::size_t i = 0;
  for (std::uint64_t k = 0; k < count; ++k) {
    if (bytes.size() - i < kCentral || four(bytes, i) != 0x02014b50) fail("not a directory entry", at + i);
    const std::size_t name = two(bytes, i + 28), extra = two(bytes, i + 30), comment = two(bytes, i + 32);
    if (bytes.size() - i - kCentral < name + extra + comment) fail("an entry exceeds the directory", at + i);
    const unsigned flags = two(bytes, i + 8), method = two(bytes, i + 10);
    if (flags & 0x2061U) fail("an encrypted entry", at + i);  // encryption, patches, or hidden headers
    if (method != 0 && method != 8) fail("an entry that is neither stored nor deflated", at + i);
    ZipEntry entry{.name = std::string(bytes.substr(i + kCentral, name)),
                   .size = four(bytes, i + 24),
                   .stored = four(bytes, i + 20),
                   .header = four(bytes, i + 42),
                   .crc = four(bytes, i + 16),
                   .deflated = method == 8};
    read_zip64_field(bytes.substr(i + kCentral + name, extra), entry, fail, at + i);
    if (!safe_name(entry.name)) fail("the name of an entry leaves the folder: " + shown(entry.name), at + i);
    if (!entry.deflated && entry.size != entry.stored)
      fail(shown(entry.name) + ": two sizes of a stored entry", at + i);
    entries_.push_back(std::move(entry));
    i += kCentral + name + extra + comment;
  }
  has_crcs_ = std::ranges::any_of(entries_, [](const ZipEntry& entry) { return entry.crc != 0; });
  if (i != bytes.size()) fail("extra bytes after the last entry of the directory", at + i);
  std::sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (std::size_t k = 1; k < entries_.size(); ++k)
    if (entries_[k].name == entries_[k - 1].name) fail("two entries are called " + shown(entries_[k].name), at);
}

void ZipReader::read_local_headers(std::uint64_t directory) {
  const FailAt fail{file_.name()};
  std::vector<const ZipEntry*> order;
  for (ZipEntry& entry : entries_) {
    if (entry.header > directory || directory - entry.header < kLocalRecord)
      fail("a wrong offset of an entry", entry.header);
    const std::string local = file_.read(entry.header, kLocalRecord);
    const std::uint64_t rest = directory - entry.header - kLocalRecord;
    const std::size_t name = two(local, 26), extra = two(local, 28);
    if (four(local, 0) != 0x04034b50 || name + extra > rest || name != entry.name.size() ||
        file_.read(entry.header + kLocalRecord, name) != entry.name || two(local, 8) != (entry.deflated ? 8 : 0))
      fail(shown(entry.name) + ": its header differs from the directory", entry.header);
    if (entry.stored > rest - name - extra) fail(shown(entry.name) + ": reaches into the directory", entry.header);
    entry.data = entry.header + kLocalRecord + name + extra;
    order.push_back(&entry);
  }
  std::sort(order.begin(), order.end(), [](const ZipEntry* a, const ZipEntry* b) { return a->header < b->header; });
  for (std::size_t i = 1; i < order.size(); ++i)
    if (order[i]->header < order[i - 1]->data + order[i - 1]->stored)
      fail(shown(order[i]->name) + ": overlaps " + shown(order[i - 1]->name), order[i]->header);
}

const ZipEntry* ZipReader::find(std::string_view name) const {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), name,
                                   [](const ZipEntry& entry, std::string_view wanted) { return entry.name < wanted; });
  return at == entries_.end() || at->name != name ? nullptr : &*at;
}

void ZipReader::inflate(const ZipEntry& entry, unsigned char* to) const {
  const auto fail = [&](const char* what) {
    throw CheckpointError(file_.name(), ": ", shown(entry.name), " at byte ", entry.data, ": ", what);
  };
  z_stream stream = {};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) fail("out of memory while unpacking");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  std::string piece(static_cast<std::size_t>(std::min<std::uint64_t>(entry.stored, kZipPiece)), '\0');
  std::uint64_t read = 0, written = 0;
  int result = Z_OK;
  while (result != Z_STREAM_END) {
    if (stream.avail_in == 0 && read < entry.stored) {
      const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(entry.stored - read, piece.size()));
      file_.read(entry.data + read, piece.data(), size);
      read += size;
      stream.next_in = reinterpret_cast<unsigned char*>(piece.data());
      stream.avail_in = static_cast<unsigned>(size);
    }
    const auto room = static_cast<unsigned>(std::min<std::uint64_t>(entry.size - written, 1U << 30));
    unsigned char nowhere = 0;  // zlib needs an output buffer even if nothing is left to write
    stream.next_out = room > 0 ? to + written : &nowhere;
    stream.avail_out = room;
    result = ::inflate(&stream, Z_NO_FLUSH);
    written += room - stream.avail_out;
    if (result != Z_OK && result != Z_STREAM_END)
      fail("the compressed data is damaged, cut off or longer than declared");
  }
  if (written != entry.size || read != entry.stored || stream.avail_in != 0)
    fail("its size differs from the declared one");
}

void ZipReader::read(const ZipEntry& entry, void* to) const {
  auto* bytes = static_cast<unsigned char*>(to);
  auto crc = static_cast<std::uint32_t>(::crc32(0, nullptr, 0));
  const auto add = [&](const unsigned char* piece, std::size_t size) {
    crc = static_cast<std::uint32_t>(::crc32(crc, piece, static_cast<unsigned>(size)));
  };
  if (entry.deflated) inflate(entry, bytes);
  for (std::uint64_t at = 0; at < entry.size; at += kZipPiece) {
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(kZipPiece, entry.size - at));
    if (!entry.deflated) file_.read(entry.data + at, bytes + at, size);
    add(bytes + at, size);
  }
  if (has_crcs_ && crc != entry.crc)
    throw CheckpointError(file_.name(), ": ", shown(entry.name), " is damaged: the ", entry.stored, " bytes from byte ",
                          entry.data, " do not match their CRC");
}

std::string ZipReader::read(const ZipEntry& entry) const {
  std::string bytes(static_cast<std::size_t>(entry.size), '\0');
  read(entry, bytes.data());
  return bytes;
}

}  // namespace composer::formats
