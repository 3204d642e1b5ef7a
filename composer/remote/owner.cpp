#include "composer/remote/owner.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "composer/checkpoint/scratch.h"
#include "composer/core/error.h"
#include "composer/remote/checkpoints.h"
#include "composer/remote/files.h"
#include "composer/util/checksum.h"
#include "composer/util/random_text.h"

namespace composer {
namespace {

namespace fs = std::filesystem;
using Fields = std::map<std::string, std::string>;  // lines "name: value"

// The name includes the run's, because runs with other names may save below the same URI.
std::string file_of(const std::string& run_name) {
  util::Checksum sum;
  sum.update(run_name.data(), run_name.size());
  const std::string text = sum.text();
  return ".owner-" + text.substr(text.find(':') + 1);
}

std::string host() {
  std::array<char, 256> name = {};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "an unknown host";
}

// Identifies the system since its boot, and the container in it: numbers of processes are unique within these.
std::string machine() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::error_code error;
  const fs::path processes = fs::read_symlink("/proc/self/ns/pid", error);
  return boot.empty() || error ? "" : host() + ' ' + boot + ' ' + processes.string();
}

std::string now_in_utc() {
  const std::time_t time = std::time(nullptr);
  std::tm utc = {};
  ::gmtime_r(&time, &utc);
  std::array<char, 32> text = {};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

std::optional<Fields> read_owner(net::RemoteStore& store, const std::string& file, const std::stop_token& stop) {
  const saving::Scratch scratch(fs::temp_directory_path(), kFetchPrefix);
  try {
    store.get(file, scratch.path() / "owner", stop);
  } catch (const net::HttpError& error) {
    if (error.status != 404) throw;
    return std::nullopt;
  }
  Fields fields;
  std::ifstream lines(scratch.path() / "owner");
  for (std::string line; fields.size() < 16 && std::getline(lines, line);)
    if (const std::size_t colon = line.find(": "); colon != std::string::npos)
      fields[line.substr(0, colon)] = line.substr(colon + 2, 256);
  return fields;
}

// Whether the owner may be running. False only if it has certainly ended: it has marked its end, or its process was on
// this machine and no longer exists.
bool may_run(Fields& owner) {
  if (owner["ended"] == "yes") return false;
  if (owner["machine"].empty() || owner["machine"] != machine()) return true;
  const std::string& text = owner["process"];
  pid_t process = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), process).ec != std::errc() || process <= 0) return true;
  return ::kill(process, 0) == 0 || errno != ESRCH;
}

enum class Order : std::uint8_t { EARLIER, ALIKE, LATER };

// Compares when the owner began with when this process began.
Order order_of(Fields& owner, std::optional<std::int64_t> own) {
  const std::string& text = owner["began"];
  std::int64_t its = 0;
  if (!own || std::from_chars(text.data(), text.data() + text.size(), its).ec != std::errc()) return Order::ALIKE;
  constexpr std::int64_t kError = std::chrono::milliseconds(RemoteOwner::kClockError).count();
  if (its > *own && its - *own > kError) return Order::LATER;
  return its<*own&& * own - its> kError ? Order::EARLIER : Order::ALIKE;
}

std::string shown(Fields& owner) {
  if (owner["process"].empty()) return "another process";
  return join("process ", owner["process"], " on ", owner["host"], ", which started at ", owner["since"]);
}

}  // namespace

RemoteOwner::RemoteOwner(std::string run_name)
    : run_name_(std::move(run_name)), file_(file_of(run_name_)), token_(util::random_text(16)), began_(Clock::now()) {}

void RemoteOwner::begin(Clock::time_point at) {
  lost_.clear();
  began_ = at;
}

// The time of the beginning in ms since 1970, by the server's clock.
std::optional<std::int64_t> RemoteOwner::began_at(const net::RemoteStore& store) const {
  const auto now = store.server_time();
  if (!now) return {};
  const auto since_1970 = now->time_since_epoch() - (Clock::now() - began_);
  return std::chrono::duration_cast<std::chrono::milliseconds>(since_1970).count();
}

void RemoteOwner::hold(net::RemoteStore& store, const std::stop_token& stop) {
  if (!lost_.empty()) throw CheckpointError(lost_);
  auto owner = read_owner(store, file_, stop);
  const bool is_own = owner && (*owner)["token"] == token_;
  if (held_ && is_own) return;
  if (owner && !is_own) {
    const Order order = order_of(*owner, began_at(store));
    const bool lost = held_ ? order != Order::EARLIER : order == Order::LATER && may_run(*owner);
    if (lost) {
      lost_ = join("save_folder: ", store.uri(), ": the run ", run_name_, " was taken over by ", shown(*owner),
                   "; this process saves nothing there any more. Train a run in one process at a time, or set ",
                   "another run_name");
      throw CheckpointError(lost_);
    }
    if (may_run(*owner)) {
      leaves_file_ = true;
      warn(join("save_folder: ", store.uri(), ": took the run ", run_name_, " over from ", shown(*owner),
                "; if that is still running, it ends with an error at its next checkpoint"));
    }
    if ((*owner)["stays"] == "yes") leaves_file_ = true;  // for an owner that took the file over before
  }
  write(store, /*ended=*/false, stop);
  held_ = true;
}

void RemoteOwner::release(net::RemoteStore& store, const std::stop_token& stop) {
  if (!std::exchange(held_, false)) return;
  auto owner = read_owner(store, file_, stop);
  if (!owner || (*owner)["token"] != token_) return;
  if (leaves_file_)
    write(store, /*ended=*/true, stop);
  else
    remove(store, stop);
}

void RemoteOwner::remove(net::RemoteStore& store, const std::stop_token& stop) const {
  try {
    store.remove(file_, stop);
  } catch (const net::HttpError& error) {
    if (!is_forbidden(error)) throw;
    write(store, /*ended=*/true, stop);
  }
}

void RemoteOwner::write(net::RemoteStore& store, bool ended, const std::stop_token& stop) const {
  const saving::Scratch scratch(fs::temp_directory_path(), kFetchPrefix);
  const fs::path path = scratch.path() / "owner";
  const auto began = began_at(store);
  std::ofstream file(path);
  file << join("token: ", token_, "\nprocess: ", ::getpid(), "\nhost: ", host(), "\nmachine: ", machine(),
               "\nbegan: ", began ? std::to_string(*began) : "", "\nsince: ", now_in_utc(),
               "\nended: ", ended ? "yes" : "no", "\nstays: ", leaves_file_ ? "yes" : "no", '\n');
  file.close();
  if (!file) throw Error(path.string(), ": cannot be written");
  store.put(path, file_, stop);
}

}  // namespace composer
