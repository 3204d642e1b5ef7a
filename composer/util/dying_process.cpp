#include "composer/util/dying_process.h"

#include <charconv>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include <sys/stat.h>

namespace composer::util {
namespace {

// Of the line that begins with it; empty: there is none.
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

bool has_kill(std::string_view signals) {
  std::uint64_t set = 0;
  std::from_chars(signals.data(), signals.data() + signals.size(), set, 16);
  return (set >> (SIGKILL - 1) & 1) != 0;
}

}  // namespace

bool says_dying(std::string_view status) {
  const std::string_view state = value_of(status, "State:");
  return state.starts_with('Z') || state.starts_with('X') || value_of(status, "VmSize:").empty() ||
         has_kill(value_of(status, "SigPnd:")) || has_kill(value_of(status, "ShdPnd:"));
}

bool is_dying(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/status");
  const std::string status{std::istreambuf_iterator<char>(file), {}};
  return !status.empty() && says_dying(status);
}

bool is_locked_by_dying(int descriptor) {
  struct stat file {};
  if (::fstat(descriptor, &file) != 0) return false;
  std::ifstream locks("/proc/locks");  // "1: FLOCK  ADVISORY  WRITE 708 fe:00:1234 0 EOF"
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, advisory, access, place;
    int process = 0;
    if (!(words >> number >> kind >> advisory >> access >> process >> place) || kind != "FLOCK") continue;
    std::uint64_t inode = 0;
    const char* const begin = place.data() + place.rfind(':') + 1;
    std::from_chars(begin, place.data() + place.size(), inode);
    if (inode == file.st_ino && process > 0 && is_dying(process)) return true;
  }
  return false;
}

}  // namespace composer::util
