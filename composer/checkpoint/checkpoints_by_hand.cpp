#include "composer/checkpoint/checkpoints_by_hand.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <utility>
#include <vector>

#include <c10/util/ScopeExit.h>

#include "composer/checkpoint/checkpoint_writer.h"
#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/moment.h"
#include "composer/checkpoint/name_format.h"
#include "composer/checkpoint/run_saver.h"
#include "composer/checkpoint/save_schedule.h"
#include "composer/checkpoint/saver.h"
#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"

namespace composer::saving {
namespace {

// Whether the checkpoint was written at this moment of this fit.
bool is_of(const std::string& path, std::int64_t fit, const Timestamp& time) {
  try {
    const Manifest there = open_checkpoint(path).manifest;
    return there.fit == fit && moment_of(there.time) == moment_of(time);
  } catch (const CheckpointError&) {
    return false;
  }
}

// Saved as two lists, because a name may contain anything.
void visit_counts(StateVisitor& visit, std::map<std::string, std::int64_t>& calls) {
  std::vector<std::string> names;
  std::vector<std::int64_t> counts;
  for (const auto& [name, count] : calls) names.push_back(name), counts.push_back(count);
  visit("calls", names);
  visit("call_counts", counts);
  if (!visit.is_loading()) return;
  if (names.size() != counts.size()) throw CheckpointError("checkpoint: saver/call_counts does not match saver/calls");
  for (std::size_t i = 0; i < names.size(); ++i) calls[names[i]] = counts[i];
}

}  // namespace

// A name that a periodic checkpoint would get now refers to that checkpoint, which is then kept, unless it has other
// weights.
void CheckpointsByHand::check_name(const std::string& name, const State& state) const {
  constexpr const char* kWho = "save_checkpoint";
  const std::string made = format_name(name, state.run_name, &state.timestamp);
  const SaverOptions& own = saver_.options();
  const Saved* const there = saver_.list().find(made);
  if (there && !there->by_hand && made != saver_.periodic_name(state))
    throw ConfigError(kWho, ": ", (own.folder / made).string(), " is a checkpoint that the run has saved by its ",
                      "save_interval, and would be replaced; give this one another name");
  saving::check_name(made, own.latest, kWho);
  if (own.best && !own.latest.empty()) check_beside(made, Best::kLink, "save_best", kWho);
}

// Whether this is a new call: there are more calls with this name than there were when the state was saved from which
// the run was resumed.
bool CheckpointsByHand::is_new(const Call& call) const {
  if (call.in_fit || !calls_before_) return false;
  const auto count = [&](const Counts& counts) {
    const auto found = counts.find(call.name);
    return found == counts.end() ? 0 : found->second;
  };
  return count(calls_) + 1 > count(*calls_before_);
}

std::string CheckpointsByHand::find_earlier(const Call& call, const State& state) {
  if (is_new(call)) return "";
  std::string path = find_on_disk(call.name, state);
  if (path.empty() || (call.resumed_in && !is_of(path, *call.resumed_in, state.timestamp))) return "";
  warn_if_damaged(path);
  if (!call.in_fit) ++calls_[call.name];
  return path;
}

// With a mirror, the checkpoint may exist only there.
std::string CheckpointsByHand::find_on_disk(const std::string& name, const State& state) const {
  check_name(name, state);
  const SaverOptions& own = saver_.options();
  FileSystem& files = saver_.writer().files();
  std::string made = format_name(name, state.run_name, &state.timestamp);
  if (const Saved* const by_hand = saver_.list().find_by_hand(made))
    made = by_hand->name;
  else if (saver_.list().find(made))
    return "";  // it is saved again by hand
  const std::filesystem::path path = own.folder / made;
  try {
    const Found found = open_checkpoint(path, files);
    return found.manifest.run_id == own.run_id && has_all_files(found, files) ? path : "";
  } catch (const CheckpointError&) {
    return own.mirror && saver_.list().find(made) ? path : "";
  }
}

// Warns instead of throwing: the saved state cannot be computed again, and the program may not need it.
void CheckpointsByHand::warn_if_damaged(const std::string& path) {
  if (!verified_.insert(path).second) return;
  try {
    if (std::filesystem::exists(path)) verify(open_checkpoint(path, saver_.writer().files()));
  } catch (const std::exception& damaged) {
    warn(join("save_checkpoint: ", describe(damaged), "; it stays as it is, and cannot be loaded"));
  }
}

RunFolder::ShortLock CheckpointsByHand::lock() {
  if (saver_.schedule().in_fit() && saver_.options().keep != 0) return {};
  return saver_.folder().lock_between_fits();
}

// Counts the call first, so that the checkpoint includes it.
std::string CheckpointsByHand::save(const Call& call, const State& state) {
  check_name(call.name, state);
  std::int64_t uncounted = 0;
  std::int64_t& count = call.in_fit ? uncounted : calls_[call.name];
  ++count;
  auto uncount = c10::make_scope_exit([&] { --count; });
  const std::string path = saver_.options().folder / saver_.write(call.name, state, /*by_hand=*/true);
  saver_.wait();
  if (const std::string& failure = saver_.writer().failure(); !failure.empty()) throw CheckpointError(failure);
  uncount.release();
  return path;
}

// The program may repeat only some of its earlier calls.
void CheckpointsByHand::visit_state(StateVisitor& visit) {
  if (visit.is_loading()) {
    if (visit.has("calls")) visit_counts(visit, calls_before_.emplace());
    return;
  }
  Counts all = calls_before_.value_or(Counts());
  for (const auto& [name, count] : calls_) all[name] = std::max(all[name], count);
  visit_counts(visit, all);
}

}  // namespace composer::saving
