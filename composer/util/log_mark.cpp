#include "composer/util/log_mark.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "composer/core/error.h"
#include "composer/core/state_dict.h"
#include "composer/util/checksum.h"

namespace composer::util {
namespace {

constexpr std::int64_t kBytes = 4096;

// The checksum of `count` bytes at `from`; empty if they cannot be read.
std::string checksum_of(const std::string& path, std::int64_t from, std::int64_t count) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes(static_cast<std::size_t>(count), '\0');
  if (!file.seekg(from) || !file.read(bytes.data(), count)) return {};
  Checksum sum;
  sum.update(bytes.data(), bytes.size());
  return sum.text();
}

std::int64_t length_of(std::int64_t size) { return std::min(size, kBytes); }

}  // namespace

LogMark LogMark::of(const std::string& path, std::int64_t size) {
  const std::int64_t length = length_of(size);
  return {.size = size, .head = checksum_of(path, 0, length), .tail = checksum_of(path, size - length, length)};
}

LogMark::Match LogMark::compare(const std::string& path) const {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return Match::OTHER;
  const auto now = static_cast<std::int64_t>(std::filesystem::file_size(path, error));
  if (error) return Match::OTHER;
  if (now == 0) return size == 0 ? Match::SAME : Match::SHORTER;  // an empty log cannot be damaged
  if (size == 0 || head.empty() || tail.empty()) return Match::OTHER;
  const std::int64_t length = length_of(size);
  if (now < length || checksum_of(path, 0, length) != head) return Match::OTHER;
  if (now < size) return Match::SHORTER;
  return checksum_of(path, size - length, length) == tail ? Match::SAME : Match::OTHER;
}

void LogMark::visit_state(StateVisitor& visit) {
  visit("size", size);
  if (size < 0) throw CheckpointError("checkpoint: ", visit.path(), "/size is ", size, ", which no file has");
  if (!visit.is_loading() || visit.has("head")) visit("head", head);
  if (!visit.is_loading() || visit.has("tail")) visit("tail", tail);
}

}  // namespace composer::util
