#include "composer/checkpoint/run_saver.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <functional>
#include <string_view>
#include <utility>

#include <c10/util/ScopeExit.h>

#include "composer/checkpoint/conflicts.h"
#include "composer/checkpoint/described_options.h"
#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/ignore_keys.h"
#include "composer/checkpoint/measured_values.h"
#include "composer/checkpoint/moment.h"
#include "composer/checkpoint/name_format.h"
#include "composer/checkpoint/run_folder.h"
#include "composer/checkpoint/run_manifest.h"
#include "composer/checkpoint/save_schedule.h"
#include "composer/checkpoint/saver.h"
#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/run.h"
#include "composer/core/state.h"
#include "composer/util/name_format.h"

namespace composer::saving {

namespace {

std::function<std::optional<std::chrono::steady_clock::duration>()> time_left_of(const State& state) {
  return [run = state.run]() -> std::optional<std::chrono::steady_clock::duration> {
    const std::optional<Seconds> left = run->time_left();
    if (!left) return std::nullopt;
    return std::chrono::duration_cast<std::chrono::steady_clock::duration>(*left);
  };
}

// A name that a checkpoint could have but does not get. If all checkpoints would get it, prepare() reports that.
std::string link_name(const RunSaverOptions& options, const std::string& run_name, const OptionNames& names) {
  const std::string option = names.name("latest_filename");
  std::string link = format_name(options.latest_filename, run_name, /*time=*/nullptr, option);
  if (link.empty()) return link;
  check_name(link, "", option.c_str());
  if (!util::has_time(options.filename)) return link;
  for (std::filesystem::path path = link; !path.empty(); path = path.parent_path())
    if (is_name_of(options.filename, run_name, path))
      throw ConfigError(option, ": the name ", link, " is that of a checkpoint, because ", names.name("filename"),
                        " is ", options.filename, "; choose another name");
  return link;
}

// Options that do not depend on the run: `latest` still has its placeholders.
SaverOptions saver_options(const RunSaverOptions& options) {
  return {.latest = options.latest_filename,
          .keep = options.num_checkpoints_to_keep,
          .best = options.best,
          .on_failure = options.on_failure,
          .asynchronous = options.async,
          .overwrite = options.overwrite};
}

SaverOptions saver_options(const RunSaverOptions& options, const SaverContext& context, const State& state,
                           const ResumePoint& from) {
  SaverOptions all = saver_options(options);
  all.folder = std::filesystem::absolute(format_name(options.folder, state.run_name));
  all.latest = link_name(options, state.run_name, context.names);
  all.run_id = from.found ? from.found->manifest.run_id : from.begins_again;
  all.time_left = time_left_of(state);
  all.mirror = context.mirror;
  all.names = context.names;
  return all;
}

// Returns the globs that match nothing.
std::vector<std::string> drop_ignored(StateDict& all, const RunSaverOptions& options, const OptionNames& names) {
  std::vector<std::string> idle = leave_out(all, options.ignore_keys);
  if (all.find("model")) return idle;
  throw ConfigError(names.name("ignore_keys"), ": ", listed(options.ignore_keys),
                    " leaves out all weights, and a checkpoint without weights cannot be loaded");
}

// Warns after a signal if the write may take too long. The checkpoint is written in any case: the process may get more
// time, and an unfinished checkpoint does no harm.
void warn_if_late(const CheckpointWriter& writer, const std::string& newest, const State& state) {
  const std::optional<Seconds> left = state.run->time_left();
  const Seconds needed = writer.last_write_time();
  if (!left || needed <= *left) return;
  warn(join("checkpoint: the last one took ", needed.count(), " s, and ", std::max(0.0, left->count()),
            " s of the grace_period are left; if the process is killed before it is written, the run resumes from ",
            newest.empty() ? "its beginning" : newest));
}

}  // namespace

void check(const RunSaverOptions& options, OptionNames names) {
  const auto name = [&](const char* option) { return names.name(option); };
  if (options.folder.empty()) throw ConfigError(name("folder"), ": is required");
  if (options.folder.find("://") != std::string::npos)
    throw ConfigError(name("folder"), ": ", options.folder,
                      " is a URI, which only the save_folder of a Trainer may be; set a folder of this machine");
  check_format(name("folder"), options.folder, /*with_time=*/false);
  check_format(name("filename"), options.filename, /*with_time=*/true);
  check_format(name("latest_filename"), options.latest_filename, /*with_time=*/false);
  if (options.best && !util::has_time(options.filename))
    throw ConfigError(name("filename"), ": ", options.filename, " is the name of every checkpoint, so each replaces ",
                      "the one before, and ", names.prefix, "best cannot keep the best; add {epoch} or {batch}");
  composer::check(options, run_saver_options(), names.name(""));
  check(saver_options(options), names);
}

RunSaver::RunSaver(RunSaverOptions options, SaverContext context, const State& state, const ResumePoint& from)
    : options_(std::move(options)), context_(std::move(context)), begins_again_(from.begins_again) {
  saving::check(options_, context_.names);
  saver_ = std::make_unique<Saver>(saver_options(options_, context_, state, from));
  folder_ = std::make_unique<RunFolder>(*saver_,
                                        RunFolder::Run{.name = state.run_name,
                                                       .filename = options_.filename,
                                                       .weights_only = options_.weights_only,
                                                       .goes_back = context_.goes_back,
                                                       .resumes = context_.resumes && !options_.weights_only},
                                        from);
  schedule_ = std::make_unique<SaveSchedule>(options_.save_interval, /*is_off=*/options_.num_checkpoints_to_keep == 0);
  measured_ = std::make_unique<MeasuredValues>(saver_->list(), *schedule_, options_.best, context_.names);
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): it loses sight of the function that Saver now owns

RunSaver::~RunSaver() = default;

void RunSaver::begin_fit(const State& state, std::int64_t number) {
  if (options_.num_checkpoints_to_keep != 0) folder_->lock();
  try {
    if (context_.goes_back && (folder_->has_resumed() || !begins_again_.empty())) folder_->delete_later();
    const std::vector<std::string> retired = list().retired();  // prepare() deletes those on this machine
    prepare(state);
    if (options().mirror) options().mirror->begin(options().folder, options().run_id, list().names(), retired);
    folder_->forget_resumed();
    begins_again_.clear();
    schedule_->set_fit(number);
  } catch (...) {
    end_fit();
    throw;
  }
}

void RunSaver::end_fit() {
  folder_->unlock();
  schedule_->end_fit();
}

void RunSaver::count_from_zero() {
  saver_->list().forget_moments();
  schedule_->set_last({});
}

void RunSaver::prepare(const State& state) {
  schedule_->begin_fit();
  if (!state.previous_timestamp) count_from_zero();  // nothing is trained yet, or time was reset
  if (options_.num_checkpoints_to_keep == 0) return;
  try {
    if (folder_->is_locked()) folder_->check_newest();
    saver_->writer().free_links();
    measured_->ask_direction(state);
    folder_->check_conflicts(state.timestamp);
    StateDict all = state.run->snapshot(options_.weights_only);
    drop_ignored(all, options_, context_.names);
    saver_->check_writable(manifest_of(state, options_.filename), all);
    if (!folder_->is_locked()) saver_->writer().folder().probe();
    saver_->list().queue_loaded();
    saver_->clean_up();
  } catch (const std::filesystem::filesystem_error& error) {
    folder_->fail(error);
  }
}

// If the write has failed, the checkpoint no longer counts as saved.
void RunSaver::rethrow_error() {
  if (options().mirror) options().mirror->check();
  try {
    saver_->rethrow_error();
  } catch (...) {
    schedule_->set_last({});
    throw;
  }
}

void RunSaver::wait() {
  try {
    saver_->wait();
  } catch (...) {
    schedule_->set_last({});
    throw;
  }
}

void RunSaver::finish() {
  wait();
  saver_->write_notes();
  folder_->link_best();
}

void RunSaver::wait_for_mirror(const State& state) {
  if (!options().mirror) return;
  std::optional<std::chrono::duration<double>> limit;
  if (const std::optional<Seconds> left = state.run->time_left()) limit = *left;
  try {
    options().mirror->wait(limit);
  } catch (const CheckpointError& error) {
    if (!state.run->interrupted()) throw;
    warn(error.what());  // the run ends as interrupted, and can be resumed on this machine
  }
}

bool RunSaver::is_due(Event event, const State& state) {
  rethrow_error();
  if (state.timestamp.batch < schedule_->last_batch()) count_from_zero();  // another state was loaded
  return schedule_->is_due(event, state);
}

bool RunSaver::is_due_at_end(const State& state) {
  rethrow_error();
  return !is_saved(state);
}

bool RunSaver::is_saved(const State& state) const {
  return schedule_->is_saved(state, measured_->weights_of_program());
}

std::string RunSaver::open_parts(int ranks) {
  wait();
  return saver_->open_parts(ranks);
}

std::string RunSaver::periodic_name(const State& state) const {
  return format_name(options_.filename, state.run_name, &state.timestamp);
}

// The saved state already includes its own checkpoint.
void RunSaver::save(const State& state) {
  wait();  // a failed write no longer counts as saved
  warn_if_late(saver_->writer(), list().newest(), state);
  const auto before = schedule_->set_last(SaveSchedule::Last{.moment = moment_of(state.timestamp),
                                                             .weights = state.run->weights_version(),
                                                             .knows_finish = is_finished(state)});
  try {
    write(options_.filename, state, /*by_hand=*/false);
  } catch (...) {
    schedule_->set_last(before);
    throw;
  }
}

// Writes all checkpoints, periodic and by hand.
std::string RunSaver::write(const std::string& name, const State& state, bool by_hand) {
  Manifest manifest = manifest_of(state, name);
  manifest.program = context_.program;
  manifest.weights_only = options_.weights_only;
  folder_->lock_if_missed();
  if (folder_->is_lost()) {
    wait();
    folder_->replace_lost();
  }
  measured_->ask_direction(state);
  const Planned planned{
      .by_hand = by_hand,
      .weights = state.run->weights_version(),
      .is_rolling = !util::has_time(name),
      // Trainers that resume together may have the end of a fit in common, but not the beginning of the next fit.
      .fit = context_.goes_back ? schedule_->fit() : std::nullopt};
  saver_->choose_name(manifest, planned);
  const Saved* const there = list().find(manifest.name);
  manifest.by_hand = by_hand || (there && there->by_hand);
  saver_->plan(manifest, planned);
  const auto drop = c10::make_scope_exit([&] { saver_->list().drop_plan(); });  // does nothing once it is sent
  StateDict all = state.run->snapshot(options_.weights_only);
  manifest.fit = fit_of(all);
  const std::vector<std::string> idle = drop_ignored(all, options_, context_.names);
  if (!has_saved_)
    for (const std::string& glob : idle)
      warn(join(context_.names.name("ignore_keys"), ": ", glob, " matches nothing in the checkpoint"));
  std::string given = manifest.name;
  saver_->save(std::move(manifest), all);
  has_saved_ = true;
  return given;
}

void RunSaver::save_state(StateDict& into, std::uint64_t weights) const {
  StateVisitor visit = StateVisitor::saving(into);
  saver_->visit_state(visit, weights);
}

void RunSaver::load_state(const StateDict& saved, std::int64_t last_batch, const Timestamp& now,
                          std::uint64_t weights) {
  StateVisitor visit = StateVisitor::loading(saved, "saver");
  saver_->visit_state(visit, weights, now.batch);
  schedule_->set_last({});
  if (last_batch < 0) return;
  Moment moment = moment_of(now);
  moment.batch = last_batch;
  schedule_->set_last(SaveSchedule::Last{.moment = moment, .weights = weights});
}

// A plug-in's last checkpoint may have been written after the trainer's last one, which contains the list. In that case
// this moment is already saved.
void RunSaver::adopt_unlisted(const State& state, std::uint64_t weights) try {
  const Moment now = moment_of(state.timestamp);
  for (const Manifest& one : saver_->adopt_unlisted(now.batch)) {
    if (!state.previous_timestamp || moment_of(one.time) != now) continue;
    saver_->list().set_weights(one.name, weights);
    if (!one.by_hand) schedule_->set_last(SaveSchedule::Last{.moment = now, .weights = weights});
  }
} catch (const FileError&) {  // NOLINT(bugprone-empty-catch): who writes there says so
}

void RunSaver::warn_without_best(const State& state) const {
  if (has_saved_) measured_->warn_without_best(state);
}

void RunSaver::warn_if_changed(const State& state) const {
  const bool is_last = state.max_duration && state.timestamp.reached(*state.max_duration);
  if (!has_saved_ || !is_last || options_.save_interval.function() || state.timestamp.batch != schedule_->last_batch())
    return;
  const std::uint64_t now = state.run->weights_version();
  if (now == schedule_->last()->weights || list().has_weights(now)) return;
  warn(join(context_.names.name("folder"), ": the weights were changed at FIT_END, after ", list().newest(),
            " was saved, so ",
            "no checkpoint has them; change them at EPOCH_END, or call save_checkpoint() after fit()"));
}

std::optional<std::string> RunSaver::best_path(const State& state) {
  measured_->ask_direction(state);
  const Saved* const best = list().best();
  return best ? std::optional<std::string>(options().folder / best->name) : std::nullopt;
}

const SaverOptions& RunSaver::options() const { return saver_->options(); }

const SavedList& RunSaver::list() const { return std::as_const(*saver_).list(); }

CheckpointWriter& RunSaver::writer() { return saver_->writer(); }

std::vector<std::string> RunSaver::paths() const {
  std::vector<std::string> paths;
  for (const std::string& name : list().names()) paths.push_back(options().folder / name);
  return paths;
}

}  // namespace composer::saving
