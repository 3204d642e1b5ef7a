#include "composer/checkpoint/saver.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <exception>
#include <iterator>
#include <random>
#include <thread>
#include <utility>

#include <c10/core/Event.h>

#include "composer/checkpoint/host_copy.h"
#include "composer/checkpoint/name_format.h"
#include "composer/checkpoint/parts.h"
#include "composer/checkpoint/retry_pauses.h"
#include "composer/checkpoint/state_file.h"
#include "composer/core/error.h"

namespace composer::saving {
namespace {

constexpr const char* kModel = "model";

SaverOptions with_run_id(SaverOptions options) {
  if (options.run_id.empty()) options.run_id = new_id();
  return options;
}

}  // namespace

std::string new_id() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 16; ++i) id += "0123456789abcdef"[random() & 15];
  return id;
}

struct Saver::Job {
  Manifest manifest;
  const StateDict* state;
  std::vector<std::string> retired;
  std::string best;  // the one that the link of `best` is to lead to; empty: none
  bool has_values;
  std::vector<Added> added;
  std::vector<c10::Event> events;
  std::unique_ptr<CheckpointFolder::Parts> parts;
};

Saver::Saver(SaverOptions options, std::shared_ptr<FileSystem> files)
    : options_(with_run_id(std::move(options))),
      files_(std::move(files)),
      folder_(options_.folder, options_.run_id, *files_),
      copy_(std::make_unique<StateDict>()) {
  saving::check(options_, options_.names);
  if (options_.best) better_ = options_.best->better;
}

void check(const SaverOptions& options, OptionNames names) {
  const auto& [owner, prefix] = names;
  if (options.keep < -1)
    throw ConfigError(owner, prefix, "num_checkpoints_to_keep: must be >= 0, or -1 for all, got ", options.keep);
  if (!options.best) return;
  if (options.keep == 0)
    throw ConfigError(owner, prefix, "best: needs ", prefix, "num_checkpoints_to_keep >= 1, or -1 for all, got ",
                      options.keep);
  if (options.latest == Best::kLink)
    throw ConfigError(owner, prefix, "latest_filename: ", options.latest, " is the name of the link that ", prefix,
                      "best makes; set another one");
}

Mirror::~Mirror() = default;

Saver::~Saver() {
  try {
    wait();
  } catch (...) {
    warn(join("checkpoint: ", describe(std::current_exception())));
  }
}

void Saver::rethrow_error() {
  if (writing_.valid() && writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) wait();
}

void Saver::wait() {
  if (writing_.valid()) writing_.wait();
  settle();
  if (writing_.valid()) writing_.get();
}

void Saver::adopt(const Manifest& resumed) {
  list_.parent = resumed.name;
  ids_.push_back(resumed.id);
  count_from(resumed);
}

void Saver::count_from(const Manifest& there) { list_.number = std::max(list_.number, there.number); }

bool Saver::knows(const std::string& id) const { return std::ranges::find(ids_, id) != ids_.end(); }

void Saver::remove_leftovers() {
  if (std::exchange(cleaned_, true)) return;
  try {
    folder_.remove_leftovers();
  } catch (const std::filesystem::filesystem_error& error) {
    warn(join("checkpoint: could not remove temporary files of a killed process: ", error.what()));
  }
}

void Saver::free_links() {
  folder_.free_link(options_.latest);
  folder_.free_link(best_link());
}

void Saver::clean_up() {
  wait();
  remove_leftovers();
  link_best(best_name());
  list_.retired = folder_.remove(list_.retired);
}

std::vector<std::string> Saver::saved() const {
  std::vector<std::string> names;
  names.reserve(list_.saved.size());
  for (const Saved& one : list_.saved) names.push_back(one.name);
  return names;
}

bool Saver::has_periodic(const std::string& name) const {
  return std::ranges::any_of(list_.saved, [&](const Saved& one) { return one.name == name && !one.by_hand; });
}

// Checkpoints that are to be deleted, here or in the mirror, are named in it, too: the process may end before they are.
void Saver::visit_state(StateVisitor& visit) {
  std::vector<std::string> saved, by_hand;
  std::vector<double> values;
  std::vector<std::int64_t> batches;
  for (const Saved& one : list_.saved) {
    saved.push_back(one.name);
    values.push_back(one.value);
    batches.push_back(one.batch);
    if (one.by_hand) by_hand.push_back(one.name);
  }
  const auto optional = [&](const char* name, auto& value) {  // earlier versions lack it
    if (!visit.is_loading() || visit.has(name)) visit(name, value);
  };
  visit("saved", saved);
  visit("values", values);
  std::vector<std::string> retired = list_.retired;
  if (options_.mirror && !visit.is_loading())
    for (std::string& name : options_.mirror->undeleted())
      if (std::ranges::find(saved, name) == saved.end() && std::ranges::find(retired, name) == retired.end())
        retired.push_back(std::move(name));
  optional("retired", retired);
  optional("by_hand", by_hand);
  optional("batches", batches);
  std::string metric = options_.best ? options_.best->metric : "";  // that the values are of
  optional("metric", metric);
  std::int64_t number = list_.number;
  optional("number", number);
  list_.number = std::max(list_.number, number);  // a damaged one that is newer may be there
  std::optional<Better> better = better_;
  visit("better", better);
  if (!visit.is_loading()) return;
  if (options_.best && !options_.best->better && metric == options_.best->metric && better) better_ = better;
  list_.retired = std::move(retired);
  wait();
  if (saved.size() != values.size()) throw CheckpointError("checkpoint: saver/values does not match saver/saved");
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  batches.resize(saved.size(), -1);
  list_.saved.clear();
  for (std::size_t i = 0; i < saved.size(); ++i)
    list_.saved.push_back({saved[i], values[i], has(by_hand, saved[i]), batches[i]});
  if (options_.best)
    for (Saved& one : list_.saved) {
      if (metric != options_.best->metric) one.value = NAN;
      if (!one.has_value()) read_value(one);
    }
  std::erase_if(list_.retired, [&](const std::string& name) { return has(saved, name); });
}

// Takes in how the last write has ended. A checkpoint that was not written was never planned; what could not be noted
// or deleted is noted and deleted next time.
void Saver::settle() {
  const Outcome outcome = std::exchange(outcome_, Outcome::WRITTEN);
  if (outcome == Outcome::FAILED) list_ = before_;
  if (outcome != Outcome::WRITTEN) added_.insert(added_.begin(), sent_.begin(), sent_.end());
  sent_.clear();
  for (std::string& name : std::exchange(undeleted_, {})) list_.retired.push_back(std::move(name));
}

// NaN: the metric was not measured on these weights.
double Saver::value_of(const std::map<std::string, double>& metrics) const {
  const auto found = options_.best ? metrics.find(options_.best->metric) : metrics.end();
  return found == metrics.end() ? NAN : found->second;
}

// An evaluation that came after it, as the last one of a fit, has noted its value in the manifest alone.
void Saver::read_value(Saved& saved) const {
  try {
    const Manifest manifest = open_checkpoint(options_.folder / saved.name, *files_).manifest;
    const bool is_same = manifest.run_id == options_.run_id && manifest.time.batch == saved.batch;
    if (is_same) saved.value = value_of(manifest.metrics);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): then it has none
  }
}

bool Saver::lacks_value(std::int64_t batch) const {
  return options_.best && !list_.saved.empty() && list_.saved.back().batch == batch && !list_.saved.back().has_value();
}

// Both also change the list that there is again if the checkpoint that is being written fails.
void Saver::close(std::int64_t batch) {
  for (List* const list : {&list_, &before_})
    for (Saved& one : list->saved)
      if (one.batch == batch && !one.has_value()) one.batch = -1;
}

void Saver::add_metrics(std::int64_t batch, const std::map<std::string, double>& metrics) {
  const double value = value_of(metrics);
  if (std::isnan(value)) return;
  for (List* const list : {&list_, &before_})
    for (auto one = list->saved.rbegin(); one != list->saved.rend() && one->batch == batch; ++one) {
      if (one->has_value()) continue;
      one->value = value;
      if (list == &list_) added_.push_back({.name = one->name, .batch = batch, .metrics = metrics});
    }
}

void Saver::finish() {
  wait();
  note(std::exchange(added_, {}));
  link_best(best_name());
}

bool Saver::has_values() const {
  return std::ranges::any_of(list_.saved, [](const Saved& one) { return one.has_value(); });
}

const Saved* Saver::best() const { return options_.best && better_ ? best_of(list_.saved, *better_) : nullptr; }

// The list has the values in any case: manifests show them, and tell them to a run that goes on from this checkpoint.
void Saver::note(const std::vector<Added>& added) {
  for (const Added& one : added) try {
      if (folder_.add_metrics(one.name, one.batch, one.metrics) && options_.mirror)
        options_.mirror->saved(options_.folder, one.name, {});
    } catch (const std::exception& error) {
      warn(join("checkpoint: what was measured of ", one.name, " could not be noted in it: ", error.what()));
    }
}

// What has no value yet is not the best, whatever had its name in an earlier run of this name.
void Saver::unlink_others(const std::string& run_name) {
  if (best_link().empty()) return;
  linked_.clear();  // a later one of the same name is another checkpoint
  try {
    folder_.unlink(best_link(), run_name);
  } catch (const std::exception& error) {
    warn(join("checkpoint: the link ", best_link(), " of an earlier run could not be removed: ", error.what()));
  }
}

void Saver::link_best(const std::string& name) {
  if (best_link().empty() || name.empty() || name == linked_) return;
  try {
    folder_.point(best_link(), name);
    linked_ = name;
  } catch (const std::exception& error) {
    warn(join("checkpoint: the link ", best_link(), " could not be moved to ", name, ": ", error.what()));
  }
}

void Saver::link_latest(const std::string& name, const std::string& run_name) {
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

void Saver::plan(const Manifest& manifest, bool by_hand) {
  if (options_.keep == 0 && !by_hand) return;
  wait();
  if (std::exchange(planned_, true)) list_ = before_;  // what was planned was never saved
  before_ = list_;
  ++list_.number;
  const std::string& name = manifest.name;
  const auto replaced = std::ranges::find(list_.saved, name, &Saved::name);
  if (replaced != list_.saved.end()) {
    by_hand = by_hand || replaced->by_hand;  // who asked for it by name still wants it
    list_.saved.erase(replaced);
  }
  std::erase(list_.retired, name);
  list_.saved.push_back({name, value_of(manifest.metrics), by_hand, manifest.time.batch});
  if (options_.best && !better_ && has_values()) return;  // nobody knows which is the worst: all are kept until then
  const auto better = options_.best ? std::optional(better_.value_or(Better::HIGHER)) : std::nullopt;
  Retention retention = retain(std::move(list_.saved), options_.keep, better);
  list_.saved = std::move(retention.keep);
  std::ranges::move(retention.remove, std::back_inserter(list_.retired));
}

std::string Saver::open_parts(int ranks) {
  wait();
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

void Saver::save(Manifest manifest, const StateDict& state) {
  if (!std::exchange(planned_, false)) return parts_.reset();
  wait();
  failure_.clear();
  manifest.id = parts_ ? parts_->id() : new_id();
  ids_.push_back(manifest.id);
  manifest.run_id = options_.run_id;
  manifest.parent = std::exchange(list_.parent, manifest.name);
  manifest.number = list_.number;
  sent_ = std::exchange(added_, {});
  StateDict taken;
  StateDict& copy = options_.asynchronous ? *copy_ : taken;
  Job job{.manifest = std::move(manifest),
          .state = &copy,
          .retired = std::exchange(list_.retired, {}),
          .best = best_name(),
          .has_values = has_values(),
          .added = sent_,
          .events = copy_to_host(state, copy, options_.asynchronous),
          .parts = std::move(parts_)};
  if (options_.asynchronous)
    start_writing(std::move(job));
  else
    write_now(std::move(job));
}

// Deleting takes as long as a third of the writing, so it is done in the background in any case.
void Saver::write_now(Job job) {
  try_write(job);
  writing_ =
      std::async(std::launch::async, [this, job = std::make_shared<Job>(std::move(job))] { delete_retired(*job); });
}

void Saver::start_writing(Job job) {
  writing_ = std::async(std::launch::async, [this, job = std::make_shared<Job>(std::move(job))] {
    try_write(*job);
    delete_retired(*job);
  });
}

// Only once the new one is certain to survive a loss of power. The link leads to one that stays before the other goes.
void Saver::delete_retired(const Job& job) {
  if (outcome_ != Outcome::WRITTEN) return;
  link_best(job.best);
  if (!job.has_values) unlink_others(job.manifest.run_name);
  note(job.added);
  if (options_.mirror) options_.mirror->saved(options_.folder, job.manifest.name, job.retired);
  undeleted_ = folder_.remove(job.retired);
}

void Saver::try_write(const Job& job) {
  outcome_ = Outcome::FAILED;  // until it is there
  for (std::size_t attempt = 0;; ++attempt) try {
      const auto start = std::chrono::steady_clock::now();
      write(job);
      write_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      outcome_ = Outcome::WRITTEN;
      return;
    } catch (const std::filesystem::filesystem_error& error) {
      const bool in_place = folder_.holds(job.manifest);
      if (in_place) outcome_ = Outcome::IN_PLACE, undeleted_ = job.retired;
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

// False if there is no time left for another write; it does not wait where that would take the time away.
bool Saver::pause(std::chrono::steady_clock::duration pause) const {
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

void Saver::write(const Job& job) {
  for (const c10::Event& event : job.events) event.synchronize();
  remove_leftovers();
  const std::string& id = job.manifest.id;
  std::vector<NewFile> files;
  StateDict rest;
  for (const auto& [name, value] : job.state->entries()) {
    if (name != kModel)
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

void Saver::check_writable(Manifest manifest, const StateDict& state) const {
  const OptionNames& names = options_.names;
  const std::string filename = names.name("filename");
  check_name(manifest.name, options_.latest, filename.c_str());
  check_beside(manifest.name, best_link(), names.name("best").c_str(), filename.c_str());
  manifest.run_id = options_.run_id;
  manifest.parent = list_.parent;
  manifest.to_json();
  StateDict rest;
  for (const auto& [name, value] : state.entries())
    if (name == kModel)
      check_weights(std::get<StateDict>(value), options_.run_id);
    else
      rest[name] = value;
  check_state(rest, options_.run_id);
}

StateDict load(const Found& checkpoint, int rank, int ranks) {
  StateDict state;
  if (checkpoint.manifest.find(kStateFile)) state = read_state(checkpoint, kStateFile);
  add_parts(checkpoint, state, rank, ranks);
  state[kModel] = read_weights(checkpoint, kModelFile);
  return state;
}

void verify(const Found& checkpoint) {
  for (const Manifest::File& part : checkpoint.manifest.files) {
    const formats::SafetensorsFile file = open_file(checkpoint, part.name);
    for (const formats::TensorEntry& tensor : file.tensors()) file.read(tensor);
  }
}

}  // namespace composer::saving
