#include "composer/loggers/event_names.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <unistd.h>
#include <utility>

#include "composer/core/error.h"
#include "composer/util/checksum.h"
#include "composer/util/wall_clock.h"

namespace composer::loggers {
namespace {

constexpr std::string_view kEvents = "events.out.tfevents.";

// The time in the name of an event file, in seconds since 1970; 0 for another name.
std::int64_t seconds_in(std::string_view name) {
  std::int64_t seconds = 0;
  if (name.starts_with(kEvents)) std::from_chars(name.data() + kEvents.size(), name.data() + name.size(), seconds);
  return seconds;
}

constexpr std::string_view kEnd = ".run-";

std::vector<std::string> event_files_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (std::string name = it->path().filename(); name.starts_with(kEvents)) names.push_back(std::move(name));
  std::ranges::sort(names, [](const auto& a, const auto& b) { return is_later_event_file(b, a); });
  return names;
}

}  // namespace

std::string end_of_event_files(std::string_view run_name, std::string_view identity) {
  const std::string_view of = identity.empty() ? run_name : identity;
  util::Checksum sum;
  sum.update(of.data(), of.size());
  const std::string text = sum.text();
  return std::string(kEnd) + text.substr(text.find(':') + 1);
}

std::string end_of_event_file(std::string_view name) {
  const std::size_t at = name.rfind(kEnd);
  return at == std::string_view::npos ? "" : std::string(name.substr(at));
}

std::string new_event_file_name(const std::string& folder, std::string_view end) {
  static std::atomic<int> number = 0;
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = 'x';
  const std::vector<std::string> before = event_files_in(folder);
  const std::int64_t last = before.empty() ? 0 : seconds_in(before.back());
  const std::int64_t seconds = std::max(static_cast<std::int64_t>(seconds_since_1970()), last + 1);
  return join(kEvents, seconds, '.', host.data(), '.', ::getpid(), '.', number++, end);
}

std::vector<std::string> event_files_of(const std::string& folder, std::string_view end) {
  if (end.empty()) return {};
  std::vector<std::string> names = event_files_in(folder);
  std::erase_if(names, [end](const std::string& name) { return !name.ends_with(end); });
  return names;
}

bool is_later_event_file(std::string_view name, std::string_view other) {
  return std::pair(seconds_in(name), name) > std::pair(seconds_in(other), other);
}

}  // namespace composer::loggers
