#include "composer/checkpoint/run_saver.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <functional>
#include <string_view>
#include <utility>

#include "composer/checkpoint/conflicts.h"
#include "composer/checkpoint/described_options.h"
#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/ignore_keys.h"
#include "composer/checkpoint/name_format.h"
#include "composer/checkpoint/run_lock.h"
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

bool is_there(const std::filesystem::path& folder, const Manifest& manifest, FileSystem& files) {
  try {
    return open_checkpoint(folder / manifest.name, files).manifest.id == manifest.id;
  } catch (const CheckpointError&) {
    return false;
  }
}

// Whether it is that name, or the one that Saver::choose_name() makes of it.
bool is_or_follows(std::string_view name, std::string_view other) {
  if (name == other) return true;
  if (!name.starts_with(other) || name.size() < other.size() + 2 || name[other.size()] != '-') return false;
  return name.find_first_not_of("0123456789", other.size() + 1) == std::string_view::npos;
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

// Of the program's fits, the one that was begun last, as the run has it; unset: of weights alone.
std::optional<std::int64_t> fit_of(const StateDict& all) {
  const StateValue* fit = all.find("fit");
  if (fit == nullptr) return std::nullopt;
  const StateValue* number = std::get<StateDict>(*fit).find("number");
  return number == nullptr ? std::nullopt : std::optional(std::get<std::int64_t>(*number));
}

// A checkpoint that was written before a stopper has ended the run, in an evaluation of the same batch, does not know
// it.
bool is_finished(const State& state) { return state.stop.asked() && state.stop.kind() == Stop::FINISHED; }

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

RunSaver::RunSaver(RunSaverOptions options, SaverOwner owner, const State& state, const Manifest* resumed)
    : options_(std::move(options)), owner_(std::move(owner)), run_name_(state.run_name) {
  saving::check(options_, owner_.names);
  saver_ = std::make_unique<Saver>(
      SaverOptions{.folder = std::filesystem::absolute(format_name(options_.folder, state.run_name)),
                   .latest = link_name(options_, state.run_name, owner_.names),
                   .keep = options_.num_checkpoints_to_keep,
                   .best = options_.best,
                   .on_failure = options_.on_failure,
                   .asynchronous = options_.async,
                   .overwrite = options_.overwrite,
                   .run_id = resumed ? resumed->run_id : owner_.begins_again,
                   .time_left = time_left_of(state),
                   .mirror = owner_.mirror,
                   .names = owner_.names});
  if (!resumed) return;
  saver_->adopt(*resumed);
  resumed_ = *resumed;
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): it loses sight of the function that Saver now owns

RunSaver::~RunSaver() = default;
RunSaver::RunSaver(RunSaver&&) noexcept = default;
RunSaver& RunSaver::operator=(RunSaver&&) noexcept = default;

void RunSaver::begin_fit(const State& state) {
  if (!lock_ && options_.num_checkpoints_to_keep != 0) lock_folder(state);
  try {
    if (owner_.goes_back && (resumed_ || !owner_.begins_again.empty())) delete_later(state);
    const std::vector<std::string> retired = saver_->retired();  // prepare() deletes those of this machine
    prepare(state);
    if (owner_.mirror) owner_.mirror->begin(options().folder, options().run_id, saver_->saved(), retired);
    resumed_.reset();
    owner_.begins_again.clear();
    ++fits_begun_;
  } catch (...) {
    lock_.reset();
    throw;
  }
}

void RunSaver::end_fit() {
  lock_.reset();
  in_fit_ = false;
}

void RunSaver::count_from_zero() {
  saver_->forget_moments();
  last_saved_batch_ = -1;
  ends_saved_ = 0;
}

void RunSaver::lock_folder(const State& state) {
  try {
    saver_->probe();  // creates the folder
    lock_ = std::make_unique<RunLock>(options().folder, state.run_name);
  } catch (const std::filesystem::filesystem_error& error) {
    fail_or_warn(error);
  }
}

void RunSaver::fail_or_warn(const std::exception& error) const {
  const std::string what =
      join(owner_.names.name("folder"), ": ", options().folder.string(), ": cannot write checkpoints there");
  if (options_.on_failure != OnFailure::CONTINUE) throw_nested<CheckpointError>(what);
  warn(join(what, " yet: ", error.what()));
}

// A folder that was renamed or removed while the run trains is made again: another process may train the run there.
void RunSaver::keep_lock(const State& state) {
  if (!lock_ || lock_->is_in_place()) return;
  wait();
  warn(join("save_folder: ", options().folder.string(), " was renamed, or it or its lock was removed, while the run ",
            "trains; checkpoints go on in a folder of that name, and those before are where the old one is"));
  lock_.reset();
  lock_folder(state);
}

// Those by hand stay, and are known.
void RunSaver::delete_later(const State& state) {
  for (const Found& found : checkpoints_of_saver(options().folder, saver_->files())) {
    const Manifest& one = found.manifest;
    if (one.run_id != options().run_id || (resumed_ && !is_older(*resumed_, one))) continue;
    if (!one.by_hand && is_or_follows(one.name, format_name(options_.filename, state.run_name, &one.time)))
      saver_->retire(one.name);
    else
      saver_->count_from(one);
    if (one.by_hand && !saver_->has_by_hand(one.name)) saver_->keep_later(one);
  }
  if (!saver_->retired().empty()) saver_->link_latest(resumed_ ? resumed_->name : "", state.run_name);
  saver_->clean_up();
}

// Without the lock, so before the first fit and between two, another process or another Trainer may train the run.
void RunSaver::check_newest() const {
  if (!resumed_ && saver_->saved().empty()) return;
  const SaverOptions& own = options();
  const auto is_own = [&](const Manifest& manifest) {
    const bool is_later = owner_.goes_back && resumed_ && is_older(*resumed_, manifest);
    return manifest.run_id == own.run_id && !manifest.weights_only && !is_later;
  };
  const auto newest = find_latest(own.folder, own.latest, is_own, saver_->files());
  if (!resumed_) {
    if (!newest || saver_->knows(newest->manifest.id)) return;
    throw CheckpointError("save_folder: ", newest->path.string(), " was written by another Trainer that resumed this ",
                          "run; make this Trainer again, so that it resumes from there, or train with the other one");
  }
  if (newest && newest->manifest.id == resumed_->id) return;
  // One that was downloaded is newer than what this machine has had before, where the link still leads.
  if (newest && is_older(newest->manifest, *resumed_) && is_there(own.folder, *resumed_, saver_->files())) return;
  throw CheckpointError("save_folder: ", (own.folder / resumed_->name).string(), ", from which this run was resumed, ",
                        newest ? join("is not its newest checkpoint any more: ", newest->path.string(), " is")
                               : std::string("does not exist any more"),
                        "; make the Trainer again, so that it resumes from what is there now");
}

void RunSaver::check_conflicts(const State& state) const {
  const SaverOptions& own = options();
  const auto conflict =
      find_conflict(own.folder, options_.filename, state.run_name, state.timestamp, own.run_id, saver_->files());
  if (!conflict || (options_.overwrite && conflict->foreign)) return;
  const OptionNames& names = owner_.names;
  const bool never_resumes = options_.weights_only && conflict->foreign && names.are_of_trainer();
  throw ConfigError(
      names.name("folder"), ": ", conflict->path.string(), ' ', conflict->reason,
      ", and has the name of a later checkpoint of this run; ",
      conflict->foreign ? join("set another folder, or ", names.prefix, "overwrite")
                        : "restore or remove it, or set another folder",
      never_resumes ? " (with save_weights_only a run is never resumed: it starts from scratch each time)" : "");
}

void RunSaver::prepare(const State& state) {
  in_fit_ = true;
  if (!state.previous_timestamp) count_from_zero();  // nothing is trained yet, or time was reset
  if (options_.num_checkpoints_to_keep == 0) return;
  try {
    if (lock_) check_newest();
    saver_->free_links();
    ask_direction(state);
    check_conflicts(state);
    StateDict all = state.run->snapshot(options_.weights_only);
    drop_ignored(all);
    saver_->check_writable(manifest(options_.filename, state), all);
    if (!lock_) saver_->probe();
    saver_->note_loaded();
    saver_->clean_up();
  } catch (const std::filesystem::filesystem_error& error) {
    fail_or_warn(error);
  }
}

// What was not written is not saved.
void RunSaver::check() {
  if (owner_.mirror) owner_.mirror->check();
  try {
    saver_->rethrow_error();
  } catch (...) {
    last_saved_batch_ = -1;
    throw;
  }
}

void RunSaver::wait() {
  try {
    saver_->wait();
  } catch (...) {
    last_saved_batch_ = -1;
    throw;
  }
}

// The link is moved only by who knows all checkpoints: another process may have trained on since.
void RunSaver::finish() {
  wait();
  saver_->write_notes();
  if (lock_ || !owner_.names.are_of_trainer()) return saver_->link_best();
  try {
    const RunLock lock(options().folder, run_name_);
    check_newest();
    saver_->link_best();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the next fit moves it
  }
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
  if (state.timestamp.batch < last_saved_batch_) count_from_zero();  // another state was loaded
  if (options_.num_checkpoints_to_keep == 0) return false;
  if (!state.previous_timestamp || state.timestamp.batch == last_saved_batch_) return false;
  IntervalMoment moment = state.run->moment(event);
  moment.last_due_batch = last_saved_batch_;
  const Interval::Function* function = options_.save_interval.function();
  return function ? (*function)(event, state) || state.run->interrupted()
                  : interval_due(options_.save_interval.time(), moment);
}

bool RunSaver::is_saved(const State& state) const {
  if (options_.num_checkpoints_to_keep == 0) return true;
  // A function alone says what is due in a run that reaches its limit.
  const bool wanted = options_.save_interval.function()
                          ? !state.max_duration || !state.timestamp.reached(*state.max_duration)
                          : options_.save_interval.time().as_double() > 0;
  if (!wanted || !state.previous_timestamp) return true;
  const bool has_begun = begun_weights_ != 0 && state.run->weights_version() == begun_weights_;
  if (state.timestamp.batch != last_saved_batch_) return has_begun;  // those of this moment are not there any more
  if (is_finished(state) && !knows_finish_) return false;
  // A run that is stopped goes on later, and must not end its epoch again; one that is complete does not go on.
  if (!state.max_duration || !state.timestamp.reached(*state.max_duration))
    return ends_of(state.timestamp) == ends_saved_;
  return has_begun ||
         state.run->weights_version() == saved_weights_;  // algorithms may have put others into the model since
}

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

void RunSaver::save(const std::string& name, const State& state) {
  warn_if_late(state);
  const std::int64_t before = std::exchange(last_saved_batch_, state.timestamp.batch);
  const std::int64_t ends_before = std::exchange(ends_saved_, ends_of(state.timestamp));
  try {
    take(name, manifest(name, state), state, /*by_hand=*/false);
    knows_finish_ = is_finished(state);
  } catch (...) {
    last_saved_batch_ = before;
    ends_saved_ = ends_before;
    throw;
  }
}

std::string RunSaver::save_by_hand(const std::string& name, const State& state) {
  Manifest made = manifest(name, state);
  check_by_hand(made.name, state);
  const std::string path = options().folder / take(name, std::move(made), state, /*by_hand=*/true);
  wait();
  if (!saver_->failure().empty()) throw CheckpointError(saver_->failure());
  return path;
}

// The name that a periodic one has now is another name for that one, which is kept then, unless it has other weights.
void RunSaver::check_by_hand(const std::string& name, const State& state) const {
  constexpr const char* kWho = "save_checkpoint";
  if (saver_->has_periodic(name) && name != format_name(options_.filename, state.run_name, &state.timestamp))
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
  made = saver_->name_by_hand(made);
  if (saver_->has_periodic(made)) return "";  // it is saved again, as one by hand
  const std::filesystem::path path = options().folder / made;
  try {
    const Found found = open_checkpoint(path, saver_->files());
    return found.manifest.run_id == options().run_id && has_all_files(found, saver_->files()) ? path : "";
  } catch (const CheckpointError&) {
    const std::vector<std::string> known = saver_->saved();
    return owner_.mirror && std::ranges::find(known, made) != known.end() ? path : "";
  }
}

// Returns those of the globs that fit nothing.
std::vector<std::string> RunSaver::drop_ignored(StateDict& all) const {
  std::vector<std::string> idle = leave_out(all, options_.ignore_keys);
  if (all.find("model")) return idle;
  throw ConfigError(owner_.names.name("ignore_keys"), ": ", listed(options_.ignore_keys),
                    " leaves out all weights, and a checkpoint without weights cannot be loaded");
}

// Every checkpoint that is written comes this way. Returns the name that it gets.
std::string RunSaver::take(const std::string& name, Manifest manifest, const State& state, bool by_hand) {
  resumed_.reset();
  keep_lock(state);
  ask_direction(state);
  const Planned planned{
      .by_hand = by_hand,
      .weights = state.run->weights_version(),
      .is_rolling = !util::has_time(name),
      // Trainers that resume together may have the end of a fit in common, and not the beginning of the next.
      .fit = owner_.goes_back ? fits_begun_ : 0};
  saver_->choose_name(manifest, planned);
  manifest.by_hand = by_hand || saver_->has_by_hand(manifest.name);
  saver_->plan(manifest, planned);
  StateDict all = state.run->snapshot(options_.weights_only);
  manifest.fit = fit_of(all);
  const std::vector<std::string> idle = drop_ignored(all);
  if (!has_saved_)
    for (const std::string& glob : idle)
      warn(join(owner_.names.name("ignore_keys"), ": ", glob, " matches nothing in the checkpoint"));
  const std::string given = manifest.name;
  saver_->save(std::move(manifest), all);
  if (!by_hand) saved_weights_ = planned.weights;
  has_saved_ = true;
  return given;
}

// After a signal. The checkpoint is written in any case: the process may get more time, and an unfinished one does no
// harm.
void RunSaver::warn_if_late(const State& state) const {
  const std::optional<Seconds> left = state.run->time_left();
  const Seconds needed = saver_->last_write_time();
  if (!left || needed <= *left) return;
  warn(join("checkpoint: the last one took ", needed.count(), " s, and ", std::max(0.0, left->count()),
            " s of the grace_period are left; if the process is killed before it is written, the run resumes from ",
            newest().empty() ? "its beginning" : newest()));
}

void RunSaver::save_state(StateDict& into, std::uint64_t weights) const {
  StateVisitor visit = StateVisitor::saving(into);
  saver_->visit_state(visit, weights);
}

void RunSaver::load_state(const StateDict& saved, std::int64_t last_batch, const Timestamp& now,
                          std::uint64_t weights) {
  StateVisitor visit = StateVisitor::loading(saved, "saver");
  saver_->visit_state(visit, weights, now.batch);
  last_saved_batch_ = last_batch;
  ends_saved_ = ends_of(now);
  saved_weights_ = weights;
}

// The last one may have been written after the trainer's, in which the list is: then this moment is saved.
void RunSaver::adopt_left(const State& state, std::uint64_t weights) try {
  const Timestamp& now = state.timestamp;
  for (const Manifest& left : saver_->adopt_left(now.batch)) {
    if (!state.previous_timestamp || left.time.batch != now.batch || ends_of(left.time) != ends_of(now)) continue;
    saver_->note_weights(left.name, weights);
    if (left.by_hand) continue;
    last_saved_batch_ = now.batch;
    ends_saved_ = ends_of(now);
    saved_weights_ = weights;
  }
} catch (const FileError&) {  // NOLINT(bugprone-empty-catch): who writes there says so
}

void RunSaver::note_begun(const State& state, std::uint64_t loaded) {
  const std::uint64_t now = state.run->weights_version();
  begun_weights_ = now == loaded ? 0 : now;
}

std::string RunSaver::newest() const { return saver_->saved().empty() ? "" : saver_->saved().back(); }

std::vector<std::string> RunSaver::paths() const {
  std::vector<std::string> paths;
  for (const std::string& name : saver_->saved()) paths.push_back(options().folder / name);
  return paths;
}

}  // namespace composer::saving
