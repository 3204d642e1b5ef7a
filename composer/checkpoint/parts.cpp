#include "composer/checkpoint/parts.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>

#include "composer/checkpoint/state_file.h"
#include "composer/core/error.h"
#include "composer/formats/safetensors.h"

namespace composer::saving {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Type = FileSystem::Type;

constexpr Clock::duration kLongestWait = std::chrono::minutes(10);
constexpr Clock::duration kLook = std::chrono::milliseconds(5);
constexpr std::uint64_t kLongestText = 1 << 20;

[[noreturn]] void fail_of_part(const fs::path& part, const std::string& why) {
  throw FileError(why, part, std::make_error_code(std::errc::io_error));
}

// Number of ranks that have written the checkpoint; 1: it has no parts.
int ranks_of(const Manifest& manifest) {
  int ranks = 1;
  for (const Manifest::File& file : manifest.files)
    if (is_part_name(file.name)) ++ranks;
  return ranks;
}

StateDict& dict_in(StateDict& state, const std::string& name) {
  if (!state.find(name)) state[name] = StateDict();
  auto* dict = std::get_if<StateDict>(&state[name]);
  if (!dict) throw CheckpointError("its ", name, " is not a group of values");
  return *dict;
}

void add_optimizer(StateDict& part, StateDict& state) {
  if (!part.find("optimizer")) return;
  StateDict& to = dict_in(dict_in(state, "optimizer"), "state");
  for (const auto& [parameter, fields] : dict_in(dict_in(part, "optimizer"), "state").entries()) {
    if (to.find(parameter)) throw CheckpointError("has state of ", parameter, ", which another part has, too");
    to[parameter] = fields;
  }
}

}  // namespace

std::string part_name(int rank, int ranks) { return join("state-", rank, "-of-", ranks, ".safetensors"); }
bool is_part_name(std::string_view file) { return file.starts_with("state-") && file.ends_with(".safetensors"); }
std::string failure_name(const std::string& part) { return part + ".failed"; }

std::string PartTicket::text() const { return join(id, '\n', folder.string()); }

PartTicket PartTicket::parse(const std::string& text) {
  const std::size_t end = text.find('\n');
  return {.folder = text.substr(end + 1), .id = text.substr(0, end)};
}

std::vector<Manifest::File> await_parts(const fs::path& folder, const std::vector<std::string>& names,
                                        FileSystem& files, const CheckpointFolder::Patience& patience) {
  std::vector<Manifest::File> parts;
  parts.reserve(names.size());
  Clock::time_point until = Clock::now() + kLongestWait;
  bool is_lost = false;
  for (const std::string& name : names) {
    const fs::path part = folder / name, failure = folder / failure_name(name);
    while (files.type(part) == Type::NONE) {
      if (files.type(failure) != Type::NONE) {
        const std::string why = files.read(failure, kLongestText);
        fail_of_part(part, why.empty() ? "its rank could not write it" : why);
      }
      if (const auto left = patience && !is_lost ? patience() : std::nullopt) {
        is_lost = true;
        until = Clock::now() + *left;
      }
      if (Clock::now() > until)
        fail_of_part(part, is_lost ? "its rank is lost" : "its rank has not written it in ten minutes");
      std::this_thread::sleep_for(kLook);
    }
    const formats::SafetensorsFile file(part, {.require_checksums = true});
    parts.push_back({name, files.size(part), file.checksum()});
  }
  return parts;
}

void add_parts(const Found& checkpoint, StateDict& state, int rank, int ranks) {
  const int count = ranks_of(checkpoint.manifest);
  for (int other = 1; other < count; ++other) {
    const std::string name = part_name(other, count);
    StateDict part = read_state(checkpoint, name);
    try {
      add_optimizer(part, state);
    } catch (const CheckpointError& error) {
      throw CheckpointError((checkpoint.path / name).string(), ": ", error.what());
    }
    if (other != rank || count != ranks) continue;
    for (const char* group : {"algorithms", "callbacks"})
      if (part.find(group)) state[group] = dict_in(part, group);
  }
}

}  // namespace composer::saving
