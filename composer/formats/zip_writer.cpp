#include "composer/formats/zip_writer.h"

#include <algorithm>
#include <zlib.h>

#include "composer/formats/zip_record.h"

namespace composer::formats {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMostOfCrc = 1 << 30;  // zlib's limit for one call

void append(std::string& to, std::uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) to += static_cast<char>(number >> 8 * i & 0xFF);
}

std::uint64_t or_in64(std::uint64_t number) { return std::min<std::uint64_t>(number, kIn64); }

}  // namespace

void ZipWriter::out(const void* data, std::size_t size) {
  sink_(data, size);
  at_ += size;
}

// CRC and sizes follow the data, so that the data is processed only once.
void ZipWriter::begin(std::string_view name) {
  name_ = name;
  header_ = at_;
  crc_ = static_cast<std::uint32_t>(::crc32(0, nullptr, 0));
  const std::size_t before = static_cast<std::size_t>(at_ % kAlignment) + kLocalRecord + name.size() + 4;
  const std::size_t padding = (kAlignment - before % kAlignment) % kAlignment;
  std::string header;
  append(header, 0x04034b50, 4);
  append(header, 0, 2);
  append(header, 0x0808, 2);  // sizes follow the data; names are UTF-8
  for (int i = 0; i < 9; ++i) append(header, 0, 2);
  append(header, name.size(), 2);
  append(header, padding + 4, 2);
  header += name;
  header += "FB";
  append(header, padding, 2);
  header.append(padding, 'Z');
  out(header.data(), header.size());
  data_ = at_;
}

void ZipWriter::write(const void* data, std::size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (std::size_t at = 0; at < size; at += kMostOfCrc)
    crc_ =
        static_cast<std::uint32_t>(::crc32(crc_, bytes + at, static_cast<unsigned>(std::min(kMostOfCrc, size - at))));
  out(data, size);
}

void ZipWriter::end() {
  const std::uint64_t size = at_ - data_;
  std::string after;
  append(after, 0x08074b50, 4);
  append(after, crc_, 4);
  for (int i = 0; i < 2; ++i) append(after, size, size >= kIn64 ? 8 : 4);
  out(after.data(), after.size());

  std::string large;  // the numbers that do not fit into the entry
  if (size >= kIn64) append(large, size, 8), append(large, size, 8);
  if (header_ >= kIn64) append(large, header_, 8);
  append(directory_, 0x02014b50, 4);
  append(directory_, 0, 2);
  append(directory_, large.empty() ? 0 : 45, 2);
  append(directory_, 0x0808, 2);
  for (int i = 0; i < 3; ++i) append(directory_, 0, 2);
  append(directory_, crc_, 4);
  for (int i = 0; i < 2; ++i) append(directory_, or_in64(size), 4);
  append(directory_, name_.size(), 2);
  append(directory_, large.empty() ? 0 : large.size() + 4, 2);
  append(directory_, 0, 8);
  append(directory_, 0, 2);
  append(directory_, or_in64(header_), 4);
  directory_ += name_;
  if (!large.empty()) append(directory_, 1, 2), append(directory_, large.size(), 2), directory_ += large;
  ++count_;
}

void ZipWriter::entry(std::string_view name, std::string_view data) {
  begin(name);
  write(data.data(), data.size());
  end();
}

void ZipWriter::finish() {
  const std::uint64_t directory = at_;
  out(directory_.data(), directory_.size());
  const std::uint64_t end64 = at_;
  std::string end;
  append(end, 0x06064b50, 4);
  append(end, 44, 8);  // remaining bytes of this record
  append(end, 45, 2);
  append(end, 45, 2);
  append(end, 0, 8);
  for (int i = 0; i < 2; ++i) append(end, count_, 8);
  append(end, directory_.size(), 8);
  append(end, directory, 8);
  append(end, 0x07064b50, 4);
  append(end, 0, 4);
  append(end, end64, 8);
  append(end, 1, 4);
  append(end, 0x06054b50, 4);
  append(end, 0, 4);
  for (int i = 0; i < 2; ++i) append(end, std::min<std::uint64_t>(count_, 0xFFFF), 2);
  append(end, or_in64(directory_.size()), 4);
  append(end, or_in64(directory), 4);
  append(end, 0, 2);
  out(end.data(), end.size());
}

}  // namespace composer::formats
