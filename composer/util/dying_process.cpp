#include "composer/util/dying_process.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>

#include <sys/stat.h>

namespace composer::util {
namespace {

// The value in the line that begins with `name`; empty if there is no such line.
std::string_view value_of(std::string_view status, std::string_view name) {
  for (std::size_t begin = 0; begin < status.size();) {
    const std::size_t end = std::min(status.find('\n', begin), status.size());
    std::string_view line = status.substr(begin, end - begin);
    begin = end + 1;
    if (!line.starts_with(name)) continue;
    line.remove_prefix(name.size());
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    return line;
  }
  return {};
}

std::string_view next_word(std::string_view& left) {
  left.remove_prefix(std::min(left.find_first_not_of(' '), left.size()));
  const std::string_view word = left.substr(0, left.find(' '));
  left.remove_prefix(word.size());
  return word;
}

// Returns 0 if the text is not a whole number.
std::uint64_t whole_number(std::string_view text, int base = 10) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number, base);
  return number;
}

bool has_kill(std::string_view signals) { return (whole_number(signals, 16) >> (SIGKILL - 1) & 1) != 0; }

}  // namespace

bool is_status_of_dying(std::string_view status) {
  const std::string_view state = value_of(status, "State:");
  return state.starts_with('Z') || state.starts_with('X') || value_of(status, "VmSize:").empty() ||
         has_kill(value_of(status, "SigPnd:")) || has_kill(value_of(status, "ShdPnd:"));
}

bool is_dying(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/status");
  const std::string status{std::istreambuf_iterator<char>(file), {}};
  return !status.empty() && is_status_of_dying(status);
}

bool is_locked_by_dying(int descriptor) {
  struct stat file {};
  if (::fstat(descriptor, &file) != 0) return false;
  std::ifstream locks("/proc/locks");  // "1: FLOCK  ADVISORY  WRITE 708 fe:00:1234 0 EOF"
  for (std::string line; std::getline(locks, line);) {
    std::string_view left = line;
    std::array<std::string_view, 6> words;
    for (std::string_view& word : words) word = next_word(left);
    const auto& [number, kind, advisory, access, process, place] = words;
    if (kind == "FLOCK" && whole_number(place.substr(place.rfind(':') + 1)) == file.st_ino &&
        is_dying(static_cast<int>(whole_number(process))))
      return true;
  }
  return false;
}

}  // namespace composer::util
