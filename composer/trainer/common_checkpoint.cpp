#include "composer/trainer/common_checkpoint.h"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <map>
#include <ranges>
#include <utility>

#include "composer/checkpoint/file_system.h"
#include "composer/checkpoint/name_format.h"
#include "composer/checkpoint/saver.h"
#include "composer/core/error.h"
#include "composer/trainer/trainer.h"

namespace composer {
namespace {

// Drops checkpoints of a later position than one that was written after them: the run has been resumed at an earlier
// position since, and only checkpoints by hand were kept. All readers of the folder drop the same ones, so that all
// trainers choose the same position.
void drop_abandoned(std::vector<saving::Found>& all) {
  std::map<std::string, SavedPlace> least;  // by program, of the checkpoints that follow
  std::vector<saving::Found> kept;
  for (saving::Found& found : all | std::views::reverse) {
    const SavedPlace place = place_of(found.manifest);
    const auto [later, is_newest] = least.try_emplace(found.manifest.program, place);
    if (!is_newest && later->second < place) continue;
    later->second = place;
    kept.push_back(std::move(found));
  }
  std::ranges::reverse(kept);
  all = std::move(kept);
}

std::vector<saving::Found> whole_of(std::vector<saving::Found> all, const std::string& run_name) {
  saving::FileSystem files;
  std::erase_if(all, [&](const saving::Found& found) {
    return !can_resume(found.manifest, run_name) || !saving::has_all_files(found, files);
  });
  drop_abandoned(all);
  return all;
}

// A position at which all trainers of one program have a checkpoint.
struct CommonPlace {
  std::string program;
  SavedPlace place;
  auto operator<=>(const CommonPlace&) const = default;
};

CommonPlace common_place(const saving::Found& found) {
  return {.program = found.manifest.program, .place = place_of(found.manifest)};
}

// Whether a program may have been killed between the first checkpoints of its trainers: this trainer has none, or it
// has at most the first one of the run and the next, which is written in the background, while the other trainer has
// none. Checkpoints by hand do not count, because they stay when the program begins again.
bool is_before_first(std::vector<saving::Found> own, const std::string& other) {
  const std::string program = own.back().manifest.program;
  const auto is_periodic = [&](const saving::Found& found) {
    return found.manifest.program == program && !found.manifest.by_hand;
  };
  std::erase_if(own, [&](const saving::Found& found) { return found.manifest.program != program; });
  const auto periodic = static_cast<std::size_t>(std::ranges::count_if(own, is_periodic));
  if (periodic == 0) return true;
  if (periodic > SavedPlaces::kMostOfBeginning || !own.front().manifest.parent.empty()) return false;
  return saving::list_folder(other).unreadable.empty() &&
         std::ranges::none_of(saving::checkpoints_of_saver(other), is_periodic);
}

std::string damage_of(const saving::Found& found) {
  try {
    saving::verify(found);
    return {};
  } catch (const CheckpointError& damaged) {
    return describe(damaged);
  }
}

using ByPlace = std::multimap<CommonPlace, saving::Found>;

// Empty: a checkpoint at that position is undamaged.
std::string damage_at(const CommonPlace& place, const ByPlace& all) {
  std::string damage;
  const auto [begin, end] = all.equal_range(place);
  for (auto one = begin; one != end; ++one) {
    damage = damage_of(one->second);
    if (damage.empty()) break;
  }
  return damage;
}

// Describes the damage of `own`, or of the others' checkpoints at its position. Empty: none is damaged.
std::string damage_in_common(const saving::Found& own, const std::vector<ByPlace>& others) {
  std::string damage = damage_of(own);
  for (auto other = others.begin(); damage.empty() && other != others.end(); ++other)
    damage = damage_at(common_place(own), *other);
  return damage;
}

// Goes back to the newest checkpoint that is undamaged here and in the other folders; the other trainers do the same.
saving::Found newest_whole(std::vector<saving::Found> own, const std::vector<ByPlace>& others) {
  for (;;) {
    const std::string damage = damage_in_common(own.back(), others);
    if (damage.empty()) return std::move(own.back());
    own.pop_back();
    if (own.empty()) throw CheckpointError(damage);
    warn(join("checkpoint: ", damage, "; going back to ", own.back().path.string()));
  }
}

}  // namespace

bool can_resume(const saving::Manifest& manifest, const std::string& run_name) {
  return !manifest.weights_only && (run_name.empty() || manifest.run_name == run_name);
}

SavedPlace place_of(const saving::Manifest& manifest) {
  return {.fit = manifest.fit.value_or(0), .batch = manifest.time.batch};
}

std::vector<saving::Found> whole_checkpoints(const std::string& folder, const std::string& run_name) {
  return whole_of(saving::checkpoints_of_saver(folder), run_name);
}

saving::ResumePoint newest_in_common(const TrainerOptions& options) {
  const std::string folder = saving::format_name(options.save_folder, options.run_name);
  std::vector<saving::Found> there = saving::checkpoints_of_saver(folder);
  saving::ResumePoint chosen{.found = {}, .seen = saving::ids_of(there)};
  std::vector<saving::Found> own = whole_of(std::move(there), options.run_name);
  if (own.empty()) return chosen;
  const saving::Manifest newest = own.back().manifest;
  const std::vector<saving::Found> all = own;
  std::vector<ByPlace> others;
  for (const std::string& given : options.resume_with) {
    ByPlace& places = others.emplace_back();
    const std::string other = saving::format_name(given, options.run_name);
    for (saving::Found& found : whole_checkpoints(other, "")) places.emplace(common_place(found), std::move(found));
    std::erase_if(own, [&](const saving::Found& found) { return !places.contains(common_place(found)); });
    if (own.empty() && is_before_first(all, other)) {
      warn(join("resume_with: beginning again, because the program was killed before ", other, " had a checkpoint; ",
                "what ", folder, " has, up to batch ", newest.time.batch, ", is deleted when the fit begins"));
      chosen.begins_again = newest.run_id;
      return chosen;
    }
    if (own.empty())
      throw CheckpointError(
          "resume_with: ", folder, " and ", other, " have no checkpoint of the same program and batch; the first ",
          "one's newest is of batch ", newest.time.batch, ". Remove the checkpoints of all of these trainers ",
          "to begin again, or restore those that are missing");
  }
  if (own.back().manifest.id != newest.id)
    warn(join("resume_with: going back from batch ", newest.time.batch, " to ", own.back().path.string(),
              ", the newest of a batch that all have saved"));
  chosen.found = newest_whole(std::move(own), others);
  return chosen;
}

}  // namespace composer
