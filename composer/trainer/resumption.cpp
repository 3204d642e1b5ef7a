#include "composer/trainer/resumption.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "composer/checkpoint/name_format.h"
#include "composer/checkpoint/saver.h"
#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/net/remote_store.h"
#include "composer/remote/checkpoints.h"
#include "composer/step/model_settings.h"
#include "composer/step/train_step.h"
#include "composer/trainer/common_checkpoint.h"
#include "composer/trainer/evaluations.h"
#include "composer/trainer/hyperparameters.h"
#include "composer/trainer/progress.h"
#include "composer/trainer/ranks.h"
#include "composer/trainer/schedule_plan.h"
#include "composer/trainer/shared_files.h"
#include "composer/trainer/trainer_options.h"
#include "composer/util/own_random.h"

namespace composer {
namespace {

std::optional<saving::Found> newest_of_run(const TrainerOptions& options, const SaveFolder& folder) {
  const auto fits = [&](const saving::Manifest& manifest) { return can_resume(manifest, options.run_name); };
  const auto is_own = [&](const RemoteCheckpoint& there) { return there.is_in_place() && fits(there.manifest); };
  const std::string latest = saving::format_name(options.save_latest_filename, options.run_name);
  std::optional<saving::Found> found = saving::find_latest(folder.local, latest, fits);
  if (!folder.is_remote()) return found;
  // Another machine may have trained since, or this machine may never have had the run.
  const auto store = net::open_store(folder.given);
  const auto newest = find_newest(*store, is_own);
  if (!newest || (found && !saving::is_older(found->manifest, newest->manifest))) return found;
  std::uint64_t bytes = 0;
  for (const auto& file : newest->manifest.files) bytes += file.size;
  warn(join("save_folder: downloading ", store->uri_of(newest->name()), ", ", bytes, " bytes, to ", folder.local));
  const auto again = [&] { return find_newest(*store, is_own); };
  return saving::open_checkpoint(download_unreplaced(*store, *newest, again, folder.local));
}

// Lists the checkpoints of the folder before choosing one, so that those written meanwhile do not count as seen.
saving::ResumePoint choose_resume_point(const TrainerOptions& options) {
  saving::ResumePoint chosen;
  if (options.save_folder.empty()) return chosen;
  const bool goes_on = resumes(options);
  if (goes_on && !options.resume_with.empty()) return newest_in_common(options);
  const SaveFolder folder = save_folder_of(options, options.run_name);
  if (!folder.is_remote()) chosen.seen = ids_in(folder.local);
  if (goes_on) chosen.found = newest_of_run(options, folder);
  return chosen;
}

// The newest checkpoint that is older than `found`.
std::optional<saving::Found> one_before(const saving::Found& found, const std::string& folder) {
  std::optional<saving::Found> before;
  for (saving::Found& other : saving::checkpoints_of_saver(folder)) {
    if (!saving::is_older(other.manifest, found.manifest)) break;
    if (can_resume(other.manifest, found.manifest.run_name) && other.manifest.run_id == found.manifest.run_id)
      before = std::move(other);
  }
  return before;
}

// The newest checkpoint below a URI that is older than `found`, if this machine has no other. It is downloaded.
std::optional<saving::Found> one_before_in_store(const saving::Found& found, const SaveFolder& folder) {
  const saving::Manifest& damaged = found.manifest;
  const auto store = net::open_store(folder.given);
  try {
    const auto find = [&] {
      return find_newest(*store, [&](const RemoteCheckpoint& there) {
        const saving::Manifest& other = there.manifest;
        return there.is_in_place() && can_resume(other, damaged.run_name) && other.run_id == damaged.run_id &&
               saving::is_older(other, damaged);
      });
    };
    if (const auto newest = find())
      return saving::open_checkpoint(download_unreplaced(*store, *newest, find, folder.local));
  } catch (const CheckpointError&) {  // NOLINT(bugprone-empty-catch): the damage of `found` is the error
  }
  return std::nullopt;
}

// Goes back to earlier checkpoints of this run if its newest one is damaged.
StateDict read_whole(saving::Found& found, const TrainerOptions& options, const Ranks& ranks,
                     const std::string& run_name) {
  for (;;) try {
      return saving::load(found, ranks.rank(), ranks.size());
    } catch (const CheckpointError& damaged) {
      if (!options.resume_with.empty()) throw;  // the other trainers would not go back with it
      const SaveFolder folder = save_folder_of(options, run_name);
      std::optional<saving::Found> before = one_before(found, folder.local);
      if (!before && folder.is_remote()) before = one_before_in_store(found, folder);
      if (!before) throw;
      warn(join("checkpoint: ", describe(damaged), "; going back to ", before->path.string()));
      found = *std::move(before);
    }
}

// Whether the callback that has finished the run, with whose name `finished` begins, has other options now or is gone.
bool judges_anew(const std::string& finished, const StateDict& before, const StateDict& now) {
  const std::string name = finished.substr(0, finished.find(':')) + '/';
  const auto has_its_name = [&](const StateDict::Entry& entry) { return entry.first.starts_with(name); };
  const StateDict differing = changed(before, now), missing = changed(now, before);
  return std::ranges::any_of(differing.entries(), has_its_name) || std::ranges::any_of(missing.entries(), has_its_name);
}

}  // namespace

void name_file_in_errors(const std::string& from, const std::function<void()>& load) {
  try {
    load();
  } catch (const CheckpointError& error) {
    constexpr std::string_view kWho = "checkpoint: ";
    const std::string text = error.what();
    if (!text.starts_with(kWho)) throw;
    throw CheckpointError(from, ": ", text.substr(kWho.size()));
  }
}

const StateDict* group_in(const StateDict& saved, const char* name) {
  const StateValue* found = saved.find(name);
  const auto* group = found ? std::get_if<StateDict>(found) : nullptr;
  if (found && !group) throw CheckpointError("checkpoint: ", name, " is a single value, where there should be several");
  return group;
}

std::optional<std::set<std::string>> ids_in(const std::string& folder) {
  try {
    return saving::ids_of(saving::checkpoints_of_saver(folder));
  } catch (const std::filesystem::filesystem_error&) {  // the code that saves there reports it
    return std::nullopt;
  }
}

void look_into_named(const std::string& folder, const TrainerOptions& options, saving::ResumePoint& chosen) {
  if (!options.run_name.empty() || save_folder_of(options, "").local == folder) return;
  chosen.seen = ids_in(folder);
}

saving::ResumePoint checkpoint_to_resume(const TrainerOptions& options, const Ranks& ranks) {
  saving::ResumePoint chosen =
      ranks.together([&] { return ranks.first() ? choose_resume_point(options) : saving::ResumePoint(); });
  if (ranks.alone()) return chosen;
  std::optional<saving::Found>& found = chosen.found;
  const std::string path = ranks.same(found ? found->path.string() : std::string());
  const std::string manifest = ranks.same(found ? found->manifest.to_json() : std::string());
  if (!path.empty() && !found) found = saving::Found{path, saving::Manifest::parse(manifest, path)};
  return chosen;
}

StateDict Resumption::read(const TrainerOptions& options, const Ranks& ranks, const std::string& run_name) {
  if (ranks.alone()) return read_whole(*found, options, ranks, run_name);
  StateDict saved =
      ranks.together([&] { return ranks.first() ? read_whole(*found, options, ranks, run_name) : StateDict(); });
  const SharedFiles files(*ranks.world(), found->path);
  const std::string path = ranks.same(found->path.string());  // rank 0 may have gone back to an earlier checkpoint
  const std::string manifest = ranks.same(found->manifest.to_json());
  return ranks.together([&] {
    if (ranks.first()) return std::move(saved);
    found = saving::Found{path, saving::Manifest::parse(manifest, path)};
    return saving::load(saving::open_checkpoint(files.path()), ranks.rank(), ranks.size());
  });
}

void Resumption::keep_random(const OwnRandom& random) {
  if (!unrestored.find("rng")) unrestored.keep("rng", random.state());
}

void Resumption::compare_options(const Ranks& ranks, const std::function<StateDict()>& now) {
  const StateDict& before = hyperparameters_before;
  if (!found || before.empty()) return;
  const StateDict all = now();
  if (ranks.first()) warn_of_changes(before, all);
  const std::string why = finished();
  if (why.empty() || ranks.same(std::uint64_t{judges_anew(why, before, all)}) == 0) return;
  if (ranks.first())
    warn(join("checkpoint: the run was complete (", why, "), and goes on, because who has decided that has other ",
              "options now"));
  unrestored.drop({"stop"});
}

void Resumption::report_resume(const TrainerOptions& options, const State& state, Progress progress,
                               bool in_first_fit) const {
  if (!found || state.rank != 0) return;
  // Only the end of the epoch is left to do.
  if (progress.epoch_is_complete()) progress.now = progress.now.to_next_epoch();
  const SaveFolder folder = save_folder_of(options, state.run_name);
  const std::string path = folder.is_remote()
                               ? folder.given + "/" + std::filesystem::relative(loaded_from, folder.local).string()
                               : loaded_from;
  const std::string from = join(path, " (epoch ", state.timestamp.epoch, ", batch ", state.timestamp.batch, ')');
  if (const std::string why = finished(); !why.empty())
    warn(join("this run is complete: ", from, " was saved after a stop: ", why,
              "; to train on, change the options of who has decided that, or call fit() a second time"));
  else if (progress.limit_reached())
    warn(join("this ", in_first_fit ? "run" : "fit", " is complete: ", from, " has reached max_duration, ",
              *state.max_duration));
  else
    warn(join("resumed from ", from));
}

void Resumption::restore_given(SchedulePlan& schedules, Evaluations& evaluations) const {
  name_file_in_errors(loaded_from, [&] {
    StateVisitor visit = unrestored.visitor();
    schedules.visit_state(visit);
    if (visit.has("evaluated")) evaluations.visit_evaluated(visit, weights);
  });
}

void Resumption::restore_scale(TrainStep& step) {
  if (!step.has_scaler()) return;
  StateVisitor visit = unrestored.visitor();
  step.visit_state(visit);
  unrestored.drop({"scaler"});
}

void Resumption::restore_settings(torch::nn::Module& model) const {
  StateVisitor visit = unrestored.visitor();
  if (!visit.has("settings")) return;
  ModelSettings saved;
  visit("settings", saved);
  saved.set_in(model);
}

void Resumption::restore_random(OwnRandom& random) {
  const StateValue* const saved = unrestored.find("rng");
  if (!saved) return;
  random.restore(std::get<StateDict>(*saved));
  unrestored.drop({"rng"});
}

}  // namespace composer
