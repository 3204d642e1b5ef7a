#include "composer/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <array>
#include <exception>
#include <thread>
#include <utility>

#include <c10/core/Event.h>
#include <c10/util/ScopeExit.h>

#include "composer/checkpoint/host_copy.h"
#include "composer/checkpoint/name_format.h"
#include "composer/checkpoint/parts.h"
#include "composer/checkpoint/retry_pauses.h"
#include "composer/checkpoint/state_file.h"
#include "composer/core/error.h"
#include "composer/util/random_text.h"

namespace composer::saving {
namespace {

using Outcome = SavedList::Outcome;

constexpr const char* kModelGroup = "model";

SaverOptions with_run_id(SaverOptions options) {
  if (options.run_id.empty()) options.run_id = new_id();
  return options;
}

}  // namespace

std::string new_id() { return util::random_text(16); }

struct CheckpointWriter::Job {
  Manifest manifest;
  SavedList::Sent sent;
  const StateDict* state;
  std::vector<c10::Event> events;
  std::unique_ptr<CheckpointFolder::Parts> parts;
  std::promise<bool> written;
};

Mirror::~Mirror() = default;

CheckpointWriter::CheckpointWriter(SaverOptions options, std::shared_ptr<FileSystem> files)
    : options_(with_run_id(std::move(options))),
      files_(std::move(files)),
      folder_(options_.folder, options_.run_id, *files_, options_.names),
      copy_(std::make_unique<StateDict>()) {}

CheckpointWriter::~CheckpointWriter() {
  wait();
  try {
    rethrow();
  } catch (...) {
    warn(join("checkpoint: ", describe(std::current_exception())));
  }
}

bool CheckpointWriter::has_ended() const {
  return writing_.valid() && writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

CheckpointWriter::Result CheckpointWriter::wait() {
  if (writing_.valid()) writing_.wait();
  return std::exchange(result_, {});
}

void CheckpointWriter::rethrow() {
  if (writing_.valid()) writing_.get();
}

void CheckpointWriter::take_run_id(const std::string& run_id) {
  options_.run_id = run_id;
  folder_.take_run_id(run_id);
}

void CheckpointWriter::remove_leftovers() {
  if (std::exchange(cleaned_, true)) return;
  try {
    folder_.remove_leftovers();
  } catch (const std::filesystem::filesystem_error& error) {
    warn(join("checkpoint: could not remove temporary files of a killed process: ", error.what()));
  }
}

void CheckpointWriter::free_links() {
  folder_.free_link(options_.latest);
  folder_.free_link(best_link());
}

std::vector<std::string> CheckpointWriter::clean_up(const std::vector<std::string>& retired, const std::string& best) {
  remove_leftovers();
  link_best(best);  // away from a checkpoint that is to be deleted
  return folder_.remove(retired);
}

// A value that cannot be noted is still in the list, which is loaded when the run is resumed from this checkpoint.
void CheckpointWriter::note(const std::vector<Note>& notes) {
  for (const Note& one : notes) try {
      if (folder_.add_metrics(one.name, one.id, one.metrics) && options_.mirror)
        options_.mirror->saved(options_.folder, one.name, {});
    } catch (const std::exception& error) {
      warn(join("checkpoint: what was measured of ", one.name, " could not be noted in it: ", error.what()));
    }
}

// Removes the link of `best` if no checkpoint has a value yet: it could only lead to a checkpoint of an earlier run
// with this name.
void CheckpointWriter::unlink_others(const std::string& run_name) {
  if (best_link().empty()) return;
  linked_.clear();  // a later checkpoint may have this name
  try {
    folder_.unlink(best_link(), run_name);
  } catch (const std::exception& error) {
    warn(join("checkpoint: the link ", best_link(), " of an earlier run could not be removed: ", error.what()));
  }
}

void CheckpointWriter::link_best(const std::string& name) {
  if (best_link().empty() || name.empty() || name == linked_) return;
  try {
    folder_.point(best_link(), name);
    linked_ = name;
  } catch (const std::exception& error) {
    warn(join("checkpoint: the link ", best_link(), " could not be moved to ", name, ": ", error.what()));
  }
}

void CheckpointWriter::link_latest(const std::string& name, const std::string& run_name) {
  if (options_.latest.empty()) return;
  try {
    if (name.empty())
      folder_.unlink(options_.latest, run_name);
    else
      folder_.point(options_.latest, name);
  } catch (const std::exception& error) {
    warn(join("checkpoint: the link ", options_.latest, " could not be moved back: ", error.what()));
  }
}

std::string CheckpointWriter::open_parts(int ranks) {
  parts_.reset();
  try {
    remove_leftovers();
    std::vector<std::string> names;
    names.reserve(static_cast<std::size_t>(ranks));
    for (int rank = 1; rank < ranks; ++rank) names.push_back(part_name(rank, ranks));
    parts_ =
        folder_.open_parts(std::move(names), new_id(), [this]() -> std::optional<std::chrono::steady_clock::duration> {
          const std::int64_t patience = patience_;
          if (patience < 0) return std::nullopt;
          return std::chrono::milliseconds(patience);
        });
  } catch (const std::filesystem::filesystem_error& error) {
    constexpr const char* kWhat = "checkpoint: no folder for the parts of all ranks can be made";
    if (options_.on_failure != OnFailure::CONTINUE) std::throw_with_nested(CheckpointError(kWhat));
    warn(join(kWhat, ": ", error.what()));
    return {};
  }
  return PartTicket{.folder = parts_->path(), .id = parts_->id()}.text();
}

// Deleting takes a third of the time of writing, so it is always done in the background.
void CheckpointWriter::write(Manifest manifest, SavedList::Sent sent, const StateDict& state) {
  failure_.clear();
  result_ = {.outcome = Outcome::FAILED, .undeleted = {}};  // until the checkpoint is there
  StateDict taken;
  StateDict& copy = options_.asynchronous ? *copy_ : taken;
  const auto job = std::make_shared<Job>(Job{.manifest = std::move(manifest),
                                             .sent = std::move(sent),
                                             .state = &copy,
                                             .events = copy_to_host(state, copy, options_.asynchronous),
                                             .parts = std::move(parts_),
                                             .written = {}});
  written_ = job->written.get_future().share();
  if (!options_.asynchronous) write_and_tell(*job);
  writing_ = std::async(std::launch::async, [this, job, is_written = !options_.asynchronous] {
    if (!is_written) write_and_tell(*job);
    delete_retired(*job);
  });
}

// Deletes only once the new checkpoint is certain to survive a power failure. The link is first moved to a checkpoint
// that stays.
void CheckpointWriter::delete_retired(const Job& job) {
  if (result_.outcome != Outcome::WRITTEN) return;
  link_best(job.sent.best);
  if (!job.sent.has_values) unlink_others(job.manifest.run_name);
  note(job.sent.notes);
  if (options_.mirror) options_.mirror->saved(options_.folder, job.manifest.name, job.sent.retired);
  result_.undeleted = folder_.remove(job.sent.retired);
}

void CheckpointWriter::write_and_tell(Job& job) {
  const auto tell = c10::make_scope_exit([&] { job.written.set_value(result_.outcome == Outcome::WRITTEN); });
  try_write(job);
}

void CheckpointWriter::try_write(const Job& job) {
  for (std::size_t attempt = 0;; ++attempt) try {
      const auto start = std::chrono::steady_clock::now();
      write_files(job);
      write_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      result_.outcome = Outcome::WRITTEN;
      return;
    } catch (const std::filesystem::filesystem_error& error) {
      const bool in_place = folder_.holds(job.manifest);
      if (in_place) result_.outcome = Outcome::IN_PLACE, result_.undeleted = job.sent.retired;
      const char* what = in_place ? " was written, but may not survive a loss of power" : " was not written";
      if (options_.on_failure == OnFailure::CONTINUE) {
        failure_ = join("checkpoint: ", job.manifest.name, what, ": ", error.what());
        return warn(failure_);
      }
      const bool again =
          options_.on_failure == OnFailure::RETRY && attempt < kRetryPauses.size() && pause(kRetryPauses[attempt]);
      if (!again) std::throw_with_nested(CheckpointError("checkpoint: ", job.manifest.name, what));
    }
}

// Returns false if there is no time left for another write. In that case it does not wait.
bool CheckpointWriter::pause(std::chrono::steady_clock::duration pause) const {
  using Clock = std::chrono::steady_clock;
  constexpr Clock::duration kLook = std::chrono::milliseconds(50);
  const Clock::time_point until = Clock::now() + pause;
  for (;;) {
    const Clock::duration rest = until - Clock::now();
    if (const auto left = options_.time_left ? options_.time_left() : std::nullopt) {
      const auto spare = *left - std::chrono::duration_cast<Clock::duration>(last_write_time());
      if (spare <= Clock::duration::zero()) return false;
      if (spare < rest) return true;
    }
    if (rest <= Clock::duration::zero()) return true;
    std::this_thread::sleep_for(std::min(rest, kLook));
  }
}

void CheckpointWriter::write_files(const Job& job) {
  for (const c10::Event& event : job.events) event.synchronize();
  remove_leftovers();
  const std::string& id = job.manifest.id;
  std::vector<NewFile> files;
  StateDict rest;
  for (const auto& [name, value] : job.state->entries()) {
    if (name != kModelGroup)
      rest[name] = value;
    else
      files.push_back({kModelFile, [&id, weights = &std::get<StateDict>(value)](const PlacedSink& sink) {
                         return write_weights(*weights, id, sink);
                       }});
  }
  if (!rest.empty())
    files.push_back({kStateFile, [&id, &rest](const PlacedSink& sink) { return write_state(rest, id, sink); }});
  folder_.write(job.manifest, files, options_.latest, options_.overwrite, job.parts.get());
}

void CheckpointWriter::check_writable(Manifest manifest, const StateDict& state) const {
  const OptionNames& names = options_.names;
  const std::string filename = names.name("filename");
  check_name(manifest.name, options_.latest, filename.c_str());
  check_beside(manifest.name, best_link(), names.name("best").c_str(), filename.c_str());
  manifest.run_id = options_.run_id;
  manifest.to_json();
  StateDict rest;
  for (const auto& [name, value] : state.entries())
    if (name == kModelGroup)
      check_weights(std::get<StateDict>(value), options_.run_id);
    else
      rest[name] = value;
  check_state(rest, options_.run_id);
}

}  // namespace composer::saving
