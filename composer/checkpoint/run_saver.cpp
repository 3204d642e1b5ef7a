#include "composer/checkpoint/run_saver.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <functional>
#include <string_view>
#include <utility>

#include <c10/util/ScopeExit.h>
#include <torch/version.h>

#include "composer/checkpoint/conflicts.h"
#include "composer/checkpoint/described_options.h"
#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/ignore_keys.h"
#include "composer/checkpoint/measured_values.h"
#include "composer/checkpoint/moment.h"
#include "composer/checkpoint/name_format.h"
#include "composer/checkpoint/run_folder.h"
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

// As the name of a checkpoint, and the name of none. One that is that of all is told when a fit begins.
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

// Of what the list has under a name; null: nothing.
bool is_by_hand(const Saved* there) { return there && there->by_hand; }
bool is_periodic(const Saved* there) { return there && !there->by_hand; }

// Of the program's fits, the one that was begun last, as the run has it; unset: of weights alone.
std::optional<std::int64_t> fit_of(const StateDict& all) {
  const StateValue* fit = all.find("fit");
  if (fit == nullptr) return std::nullopt;
  const StateValue* number = std::get<StateDict>(*fit).find("number");
  return number == nullptr ? std::nullopt : std::optional(std::get<std::int64_t>(*number));
}

// Returns those of the globs that fit nothing.
std::vector<std::string> drop_ignored(StateDict& all, const RunSaverOptions& options, const OptionNames& names) {
  std::vector<std::string> idle = leave_out(all, options.ignore_keys);
  if (all.find("model")) return idle;
  throw ConfigError(names.name("ignore_keys"), ": ", listed(options.ignore_keys),
                    " leaves out all weights, and a checkpoint without weights cannot be loaded");
}

// After a signal. The checkpoint is written in any case: the process may get more time, and an unfinished one does no
// harm.
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
  check({.latest = options.latest_filename, .keep = options.num_checkpoints_to_keep, .best = options.best}, names);
}

RunSaver::RunSaver(RunSaverOptions options, SaverOwner owner, const State& state, const ResumePoint& from)
    : options_(std::move(options)),
      owner_(std::move(owner)),
      schedule_(std::make_unique<SaveSchedule>(options_.save_interval,
                                               /*is_off=*/options_.num_checkpoints_to_keep == 0)),
      begins_again_(from.begins_again) {
  saving::check(options_, owner_.names);
  saver_ = std::make_unique<Saver>(
      SaverOptions{.folder = std::filesystem::absolute(format_name(options_.folder, state.run_name)),
                   .latest = link_name(options_, state.run_name, owner_.names),
                   .keep = options_.num_checkpoints_to_keep,
                   .best = options_.best,
                   .on_failure = options_.on_failure,
                   .asynchronous = options_.async,
                   .overwrite = options_.overwrite,
                   .run_id = from.found ? from.found->manifest.run_id : from.begins_again,
                   .time_left = time_left_of(state),
                   .mirror = owner_.mirror,
                   .names = owner_.names});
  folder_ = std::make_unique<RunFolder>(*saver_,
                                        RunFolder::Run{.name = state.run_name,
                                                       .filename = options_.filename,
                                                       .weights_only = options_.weights_only,
                                                       .goes_back = owner_.goes_back,
                                                       .resumes = owner_.resumes && !options_.weights_only},
                                        from);
  values_ = std::make_unique<MeasuredValues>(saver_->list(), options_.best, owner_.names);
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): it loses sight of the function that Saver now owns

RunSaver::~RunSaver() = default;
RunSaver::RunSaver(RunSaver&&) noexcept = default;
RunSaver& RunSaver::operator=(RunSaver&&) noexcept = default;

void RunSaver::begin_fit(const State& state, std::int64_t number) {
  if (options_.num_checkpoints_to_keep != 0) folder_->lock();
  try {
    if (owner_.goes_back && (folder_->has_resumed() || !begins_again_.empty())) folder_->delete_later();
    const std::vector<std::string> retired = saver_->list().retired();  // prepare() deletes those of this machine
    prepare(state);
    if (owner_.mirror) owner_.mirror->begin(options().folder, options().run_id, saver_->list().names(), retired);
    folder_->forget_resumed();
    begins_again_.clear();
    fit_ = number;
  } catch (...) {
    end_fit();
    throw;
  }
}

void RunSaver::end_fit() {
  folder_->unlock();
  in_fit_ = false;
}

void RunSaver::count_from_zero() {
  saver_->list().forget_moments();
  schedule_->set_last({});
}

void RunSaver::prepare(const State& state) {
  in_fit_ = true;
  if (!state.previous_timestamp) count_from_zero();  // nothing is trained yet, or time was reset
  if (options_.num_checkpoints_to_keep == 0) return;
  try {
    if (folder_->is_locked()) folder_->check_newest();
    saver_->writer().free_links();
    values_->ask_direction(state);
    folder_->check_conflicts(state.timestamp);
    StateDict all = state.run->snapshot(options_.weights_only);
    drop_ignored(all, options_, owner_.names);
    saver_->check_writable(manifest(options_.filename, state), all);
    if (!folder_->is_locked()) saver_->writer().folder().probe();
    saver_->list().note_loaded();
    saver_->clean_up();
  } catch (const std::filesystem::filesystem_error& error) {
    folder_->fail(error);
  }
}

// What was not written is not saved.
void RunSaver::check() {
  if (owner_.mirror) owner_.mirror->check();
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
  if (!owner_.mirror) return;
  std::optional<std::chrono::duration<double>> limit;
  if (const std::optional<Seconds> left = state.run->time_left()) limit = *left;
  try {
    owner_.mirror->wait(limit);
  } catch (const CheckpointError& error) {
    if (!state.run->interrupted()) throw;
    warn(error.what());  // the run ends as one that was interrupted and goes on from this machine
  }
}

void RunSaver::save_if_due(Event event, const State& state) {
  if (is_due(event, state)) save_periodic(state);
}

bool RunSaver::is_due(Event event, const State& state) {
  check();
  if (state.timestamp.batch < schedule_->last_batch()) count_from_zero();  // another state was loaded
  return schedule_->is_due(event, state);
}

bool RunSaver::is_saved(const State& state) const { return schedule_->is_saved(state, values_->begun()); }

void RunSaver::save_last(const State& state) {
  if (is_due_last(state)) save_periodic(state);
}

bool RunSaver::is_due_last(const State& state) {
  check();
  return !is_saved(state);
}

std::string RunSaver::open_parts(int ranks) {
  wait();
  return saver_->open_parts(ranks);
}

// What is saved with it says already that it is.
void RunSaver::save(const std::string& name, const State& state) {
  wait();  // what was not written is not saved
  warn_if_late(saver_->writer(), newest(), state);
  Manifest made = manifest(name, state);
  const auto before = schedule_->set_last(SaveSchedule::Last{.moment = moment_of(state.timestamp),
                                                             .weights = state.run->weights_version(),
                                                             .knows_finish = is_finished(state)});
  try {
    take(name, std::move(made), state, /*by_hand=*/false);
  } catch (...) {
    schedule_->set_last(before);
    throw;
  }
}

std::string RunSaver::save_by_hand(const std::string& name, const State& state) {
  Manifest made = manifest(name, state);
  check_by_hand(made.name, state);
  const std::string path = options().folder / take(name, std::move(made), state, /*by_hand=*/true);
  wait();
  if (!saver_->writer().failure().empty()) throw CheckpointError(saver_->writer().failure());
  return path;
}

// The name that a periodic one has now is another name for that one, which is kept then, unless it has other weights.
void RunSaver::check_by_hand(const std::string& name, const State& state) const {
  constexpr const char* kWho = "save_checkpoint";
  if (is_periodic(saver_->list().find(name)) &&
      name != format_name(options_.filename, state.run_name, &state.timestamp))
    throw ConfigError(kWho, ": ", (options().folder / name).string(), " is a checkpoint that the run has saved by its ",
                      "save_interval, and would be replaced; give this one another name");
  check_name(name, options().latest, kWho);
  if (options_.best && !options().latest.empty()) check_beside(name, Best::kLink, "save_best", kWho);
}

void RunSaver::check_name_by_hand(const std::string& name, const State& state) const {
  check_by_hand(format_name(name, state.run_name, &state.timestamp), state);
}

// A mirror may have one that this machine has not.
std::string RunSaver::made_before(const std::string& name, const State& state) const {
  std::string made = format_name(name, state.run_name, &state.timestamp);
  check_by_hand(made, state);
  if (const Saved* const by_hand = saver_->list().find_by_hand(made))
    made = by_hand->name;
  else if (saver_->list().find(made))
    return "";  // it is saved again, as one by hand
  const std::filesystem::path path = options().folder / made;
  try {
    const Found found = open_checkpoint(path, saver_->writer().files());
    return found.manifest.run_id == options().run_id && has_all_files(found, saver_->writer().files()) ? path : "";
  } catch (const CheckpointError&) {
    return owner_.mirror && saver_->list().find(made) ? path : "";
  }
}

// What it had cannot be made again, and the program may not need it.
void RunSaver::check_answer(const std::string& path) {
  if (!checked_.insert(path).second) return;
  try {
    if (std::filesystem::exists(path)) verify(open_checkpoint(path, saver_->writer().files()));
  } catch (const std::exception& damaged) {
    warn(join("save_checkpoint: ", describe(damaged), "; it stays as it is, and cannot be loaded"));
  }
}

void RunSaver::lock_by_hand() {
  if (folder_->is_locked() || (in_fit_ && options_.num_checkpoints_to_keep != 0)) return;
  folder_->lock_between_fits();
  locked_by_hand_ = true;
}

void RunSaver::unlock_by_hand() {
  if (std::exchange(locked_by_hand_, false)) folder_->unlock();
}

// Every checkpoint that is written comes this way. Returns the name that it gets.
std::string RunSaver::take(const std::string& name, Manifest manifest, const State& state, bool by_hand) {
  folder_->lock_if_missed();
  if (folder_->is_lost()) {
    wait();
    folder_->replace_lost();
  }
  values_->ask_direction(state);
  const Planned planned{
      .by_hand = by_hand,
      .weights = state.run->weights_version(),
      .is_rolling = !util::has_time(name),
      // Trainers that resume together may have the end of a fit in common, and not the beginning of the next.
      .fit = owner_.goes_back ? fit_ : std::nullopt};
  saver_->choose_name(manifest, planned);
  manifest.by_hand = by_hand || is_by_hand(saver_->list().find(manifest.name));
  saver_->plan(manifest, planned);
  const auto drop = c10::make_scope_exit([&] { saver_->list().drop_plan(); });  // unless it is sent
  StateDict all = state.run->snapshot(options_.weights_only);
  manifest.fit = fit_of(all);
  const std::vector<std::string> idle = drop_ignored(all, options_, owner_.names);
  if (!has_saved_)
    for (const std::string& glob : idle)
      warn(join(owner_.names.name("ignore_keys"), ": ", glob, " matches nothing in the checkpoint"));
  const std::string given = manifest.name;
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

// The last one may have been written after the trainer's, in which the list is: then this moment is saved.
void RunSaver::adopt_left(const State& state, std::uint64_t weights) try {
  const Moment now = moment_of(state.timestamp);
  for (const Manifest& left : saver_->adopt_left(now.batch)) {
    if (!state.previous_timestamp || moment_of(left.time) != now) continue;
    saver_->list().note_weights(left.name, weights);
    if (!left.by_hand) schedule_->set_last(SaveSchedule::Last{.moment = now, .weights = weights});
  }
} catch (const FileError&) {  // NOLINT(bugprone-empty-catch): who writes there says so
}

void RunSaver::note_begun(const State& state, std::uint64_t loaded) { values_->note_begun(state, loaded); }

void RunSaver::note_metrics(const State& state) { values_->note_metrics(state); }

void RunSaver::note_trained(const State& state) { values_->note_trained(state); }

// Between two fits the program may measure what it likes.
void RunSaver::note_evaluation(const State& state) {
  values_->note_metrics(state);
  if (in_fit_) values_->note_evaluation(state);
}

void RunSaver::note_step(const State& state) {
  if (!in_fit_) return values_->note_metrics(state);
  values_->note_step(state, /*is_saved=*/schedule_->last_batch() == state.timestamp.batch);
}

void RunSaver::note_finish() { schedule_->note_finish(); }

std::int64_t RunSaver::last_saved_batch() const { return schedule_->last_batch(); }

void RunSaver::prefer(Better better) { values_->prefer(better); }

void RunSaver::tell_without_best(const State& state) const {
  if (has_saved_) values_->tell_without_best(state);
}

void RunSaver::tell_changed(const State& state) const {
  const bool is_last = state.max_duration && state.timestamp.reached(*state.max_duration);
  if (!has_saved_ || !is_last || options_.save_interval.function() || state.timestamp.batch != schedule_->last_batch())
    return;
  const std::uint64_t now = state.run->weights_version();
  if (now == schedule_->last()->weights || saver_->list().has_weights(now)) return;
  warn(join(owner_.names.name("folder"), ": the weights were changed at FIT_END, after ", newest(), " was saved, so ",
            "no checkpoint has them; change them at EPOCH_END, or call save_checkpoint() after fit()"));
}

std::optional<std::string> RunSaver::best_path(const State& state) {
  values_->ask_direction(state);
  const Saved* const best = saver_->list().best();
  return best ? std::optional<std::string>(options().folder / best->name) : std::nullopt;
}

bool RunSaver::has_notes() const { return saver_->list().has_notes(); }

const SaverOptions& RunSaver::options() const { return saver_->options(); }

CheckpointWriter& RunSaver::writer() { return saver_->writer(); }

std::string RunSaver::newest() const { return saver_->list().newest(); }

Manifest RunSaver::manifest(const std::string& name, const State& state) const {
  Manifest manifest;
  manifest.name = format_name(name, state.run_name, &state.timestamp);
  manifest.run_name = state.run_name;
  manifest.time = state.timestamp;
  manifest.program = owner_.program;
  manifest.weights_only = options_.weights_only;
  manifest.composer_version = COMPOSER_VERSION;
  manifest.libtorch_version = TORCH_VERSION;
  state.run->weights_version();  // values of others are not current from now on
  manifest.metrics = current_metrics(state);
  return manifest;
}

std::vector<std::string> RunSaver::paths() const {
  std::vector<std::string> paths;
  for (const std::string& name : saver_->list().names()) paths.push_back(options().folder / name);
  return paths;
}

}  // namespace composer::saving
