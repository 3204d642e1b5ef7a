#include "composer/trainer/checkpoints.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>

#include <c10/util/ScopeExit.h>

#include "composer/checkpoint/checkpoint_writer.h"
#include "composer/checkpoint/moment.h"
#include "composer/checkpoint/name_format.h"
#include "composer/core/error.h"
#include "composer/core/fit_outline.h"
#include "composer/core/run.h"
#include "composer/core/state.h"
#include "composer/net/remote_store.h"
#include "composer/remote/checkpoints.h"
#include "composer/trainer/fit_checks.h"
#include "composer/trainer/ranks.h"
#include "composer/trainer/replicas.h"
#include "composer/trainer/resume_with.h"
#include "composer/trainer/resumption.h"
#include "composer/trainer/trainer_options.h"
#include "composer/util/checksum.h"

namespace composer {
namespace {

// Whether that checkpoint was written at this moment of this fit.
bool is_of(const std::string& path, std::int64_t fit, const Timestamp& time) {
  try {
    const saving::Manifest there = saving::open_checkpoint(path).manifest;
    return there.fit == fit && saving::moment_of(there.time) == saving::moment_of(time);
  } catch (const CheckpointError&) {
    return false;
  }
}

// What the loaders declare of the metric of save_best, whether it has been measured yet or not.
void tell_direction(saving::RunSaver& saver, const saving::Best& best, const FitOutline& fit) {
  for (const FitOutline::Source& source : fit.sources)
    for (std::size_t i = 0; i < source.better.size(); ++i)
      if (join(source.label, '/', source.metrics[i]) == best.metric) saver.prefer(source.better[i]);
}

// As two lists: a name may be anything.
void visit_calls(StateVisitor visit, std::map<std::string, std::int64_t>& calls) {
  std::vector<std::string> names;
  std::vector<std::int64_t> counts;
  for (const auto& [name, count] : calls) names.push_back(name), counts.push_back(count);
  visit("calls", names);
  visit("call_counts", counts);
  if (!visit.is_loading()) return;
  if (names.size() != counts.size()) throw CheckpointError("checkpoint: saver/call_counts does not match saver/calls");
  for (std::size_t i = 0; i < names.size(); ++i) calls[names[i]] = counts[i];
}

// Where a plug-in writes, or the trainer.
std::string place_of(const std::filesystem::path& folder, const std::string& filename) {
  return (saving::canonical_folder(folder) / filename).lexically_normal();
}

}  // namespace

Checkpoints::Checkpoints(const TrainerOptions& options, const Ranks& ranks, const State& state, ReplicaCheck& replicas,
                         const saving::ResumePoint& from, SavingTogether::Shares shares)
    : options_(options),
      ranks_(ranks),
      state_(state),
      replicas_(replicas),
      together_(options, ranks, state, std::move(shares)) {
  ranks.together([&] {
    if (ranks.first() && !options.save_folder.empty()) make_saver(from);
  });
}

Checkpoints::~Checkpoints() = default;

void Checkpoints::make_saver(const saving::ResumePoint& from) {
  const SaveFolder folder = save_folder_of(options_, state_.run_name);
  saving::SaverOwner owner{.goes_back = !options_.resume_with.empty(), .resumes = options_.autoresume};
  if (!net::is_uri(folder.given)) {
    trainers_ = std::make_unique<ResumesTogether>(options_, state_.run_name, from.found);
    owner.program = trainers_->program();
  }
  begins_again_ = !from.begins_again.empty();
  if (options_.save_num_checkpoints_to_keep == 0)
    warn(join("save_num_checkpoints_to_keep: is 0, so save_folder, ", folder.given, ", gets no checkpoint but those ",
              "of save_checkpoint(); -1 keeps all"));
  saving::RunSaverOptions chosen = save_options_of(options_);
  if (folder.is_remote()) {
    owner.mirror = make_remote_mirror({.uri = folder.given,
                                       .run_name = state_.run_name,
                                       .overwrite = options_.save_overwrite,
                                       .on_failure = options_.save_on_failure,
                                       .longest_wait = options_.save_upload_timeout});
    chosen.folder = folder.local;
  }
  saver_ = std::make_unique<saving::RunSaver>(std::move(chosen), std::move(owner), state_, from);
}

bool Checkpoints::is_resumable() const {
  return !options_.save_folder.empty() && options_.autoresume && !options_.save_weights_only &&
         options_.save_num_checkpoints_to_keep != 0;
}

std::string Checkpoints::identity() const {
  if (!is_resumable()) return {};
  std::string folder = saving::format_name(options_.save_folder, state_.run_name);
  if (!net::is_uri(folder)) folder = std::filesystem::absolute(folder).lexically_normal();
  while (folder.ends_with('/')) folder.pop_back();
  return options_.run_name + '\n' + folder;
}

std::string Checkpoints::claim(const void* by, const char* who, const std::string& folder, const std::string& filename,
                               bool whole) {
  const std::string place = place_of(folder, filename);
  const bool is_trainers =
      saver_ && (place == place_of(saver_->options().folder, options_.save_filename) ||
                 (whole && saving::canonical_folder(folder) == saving::canonical_folder(saver_->options().folder)));
  if (is_trainers)
    throw ConfigError(who, folder, " is the trainer's save_folder, whose checkpoints would be taken for these, and ",
                      "these for the trainer's; set another folder", whole ? "" : ", or another filename");
  if (writers_.try_emplace(place, by).first->second != by)
    throw ConfigError(who, folder, " is where another one writes, with the names ", filename,
                      ", so that each would meet the other's; set another folder, or another filename");
  if (!is_resumable() || !saver_) return {};
  util::Checksum sum;
  for (const std::string& text : {saver_->options().run_id, filename}) sum.update(text.c_str(), text.size() + 1);
  const std::string text = sum.text();
  return text.substr(text.find(':') + 1);
}

void Checkpoints::begin_run(bool has_callbacks) {
  ranks_.together([&] {  // on all ranks, whose options have not been compared yet
    if (!is_resumable() || !saver_ || !has_callbacks) return;
    const std::filesystem::path& folder = saver_->options().folder;
    if (state_.resumes) return saving::RunMark::end_left(folder, options_.run_name);
    mark_.emplace(folder, options_.run_name, saver_->options().run_id);
    if (mark_->was_left() && !begins_again_) saver_->writer().take_run_id(mark_->run_id());
    begins_again_ = begins_again_ || mark_->was_left();
  });
  begins_again_ = ranks_.same(std::uint64_t{begins_again_}) != 0;
}

void Checkpoints::refuse_run() {
  if (mark_ && !mark_->was_left()) mark_->end();
}

void Checkpoints::end_run(bool well) {
  try {
    if (saver_ && saver_->has_notes()) saver_->finish();
  } catch (...) {
    warn(join("checkpoint: ", describe(std::current_exception())));
  }
  if (saver_ && well) saver_->tell_without_best(state_);
  if (mark_ && well) mark_->end();
}

// Once there is a checkpoint to resume from.
void Checkpoints::end_mark_if_saved() {
  if (!mark_ || saver_->newest().empty()) return;
  mark_->end();
  mark_.reset();
}

void Checkpoints::check_trainers() const {
  if (trainers_) trainers_->check();
}

void Checkpoints::check_fit(const FitOutline& fit, const Feed& feed, bool may_set_metrics) const {
  if (!saver_) return;
  check_share(options_.save_interval, "save_interval", feed);
  fit.check_interval("save_interval", options_.save_interval, kOnlyAtEnd, state_);
  if (!options_.save_best) return;
  saving::check_best("save_best", *options_.save_best, fit, state_, may_set_metrics);
  tell_direction(*saver_, *options_.save_best, fit);
}

void Checkpoints::begin_fit(std::int64_t number) const {
  if (saver_) saver_->begin_fit(state_, number);
  if (trainers_) trainers_->begin_fit();
}

void Checkpoints::check_first_batch() const {
  if (saver_) check_without_tokens(options_.save_interval, "save_interval");
}

void Checkpoints::count_from_zero() {
  if (saver_) saver_->count_from_zero();
}

void Checkpoints::abandon_fit() {
  if (saver_) saver_->writer().abandon();
}

void Checkpoints::end_fit() {
  if (saver_) saver_->end_fit();
}

bool Checkpoints::have_batch() const { return saver_ && saver_->last_saved_batch() == state_.timestamp.batch; }

void Checkpoints::warn_of_unsaved() const {
  if (!saver_ || have_batch() || saver_->is_saved(state_)) return;
  const std::int64_t saved = std::max<std::int64_t>(saver_->last_saved_batch(), 0);
  warn(join("save_folder: the fit is dropped without end(), so what was trained from batch ", saved, " to batch ",
            state_.timestamp.batch, " is not saved"));
}

// Whether rank 0 has it for due, if all ranks are needed for it.
bool Checkpoints::is_agreed(bool due) const { return need_all_ranks() ? ranks_.any(due) : due; }

// A periodic one.
void Checkpoints::save() {
  if (need_all_ranks())
    together_.save(saver_.get(), [this] { write(); });
  else if (saver_)
    write();
}

// Of rank 0.
void Checkpoints::write() {
  if (options_.resume_with.empty()) return saver_->save_periodic(state_);
  saver_->wait();  // what fails here is not planned
  trainers_->plan_save({.fit = saver_->fit(), .batch = state_.timestamp.batch});
  try {
    saver_->save_periodic(state_);
  } catch (...) {
    trainers_->drop_plan();
    throw;
  }
  trainers_->note_writing(saver_->writer().written());
}

void Checkpoints::save_begin(bool due) {
  if (!ranks_.any(due && is_resumable())) return;
  replicas_.compare();
  save();
  if (saver_) saver_->wait();
  together_.wait();
}

void Checkpoints::save_if_due(Event event) {
  if (mark_ && saver_->paths().size() > 1) end_mark_if_saved();  // all but the last are on disk
  const bool compared = event != Event::BATCH_CHECKPOINT;
  if (compared) replicas_.compare();
  together_.rethrow_error();
  if (is_agreed(saver_ && saver_->is_due(event, state_))) {
    if (need_all_ranks()) replicas_.compare();
    save();
  }
  if (compared && !need_all_ranks()) replicas_.take_saved();  // else the others hear of it
}

void Checkpoints::save_last() {
  replicas_.compare();
  if (is_agreed(saver_ && saver_->is_due_last(state_))) save();
}

void Checkpoints::check_name(const std::string& name) const {
  ranks_.together([&] {
    if (saver_) saver_->check_name_by_hand(name, state_);
  });
}

// As long as nothing new is trained, the program repeats what it did before: what the run has under that name keeps its
// weights, unless the program had not come to this call. Once a fit goes on, that is what was saved at this moment: the
// program had not come to a later call.
std::string Checkpoints::made_before(const std::string& name, const Resumption& resumption, std::int64_t fit,
                                     bool is_new) const {
  const bool goes_on = !resumption.found;
  if (goes_on && resumption.went_on != saving::moment_of(state_.timestamp)) return {};
  const std::string path = ranks_.same(ranks_.together([&] {
    std::string found = saver_ && !is_new ? saver_->made_before(name, state_) : "";
    if (goes_on && !found.empty() && !is_of(found, fit, state_.timestamp)) found.clear();
    if (!found.empty()) saver_->check_answer(found);
    return found;
  }));
  if (!path.empty() && ranks_.first())
    warn(join("save_checkpoint: ", path, " stays as the run has saved it before ", resumption.loaded_from,
              ", because a program that is started again repeats its calls until it trains on; to save what there is ",
              "now, give it another name"));
  return path;
}

// Of this name, and more than there were when what the run goes on from was saved.
bool Checkpoints::is_new_call(const std::string& name) const {
  if (!calls_before_) return false;
  const auto before = calls_before_->find(name), now = calls_.find(name);
  return now != calls_.end() && now->second > (before == calls_before_->end() ? 0 : before->second);
}

std::string Checkpoints::save_by_hand(const std::string& name, const Resumption& resumption, std::int64_t fit,
                                      bool in_fit) {
  if (!in_fit) ++calls_[name];
  bool well = false;
  const auto not_made = c10::make_scope_exit([&] {
    if (!in_fit && !well) --calls_[name];
  });
  std::string path = made_before(name, resumption, fit, !in_fit && is_new_call(name));
  well = !path.empty();
  if (well) return path;
  replicas_.compare(/*modes=*/false);
  const auto write = [&] { path = saver_->save_by_hand(name, state_); };
  const auto unlock = c10::make_scope_exit([this] {
    if (saver_) saver_->unlock_by_hand();
  });
  ranks_.together([&] {
    if (saver_) saver_->lock_by_hand();
  });
  if (need_all_ranks())
    together_.save(saver_.get(), write, /*by_hand=*/true);
  else
    ranks_.together([&] {
      if (saver_) write();
    });
  well = true;
  replicas_.take_saved();
  share_paths();
  return ranks_.same(path);
}

void Checkpoints::finish() {
  if (saver_) {
    saver_->note_metrics(state_);  // the last evaluation of a fit comes after its last checkpoint
    saver_->finish();
  }
  together_.wait();
  end_mark_if_saved();
  share_paths();
}

void Checkpoints::write_notes() {
  if (saver_ && saver_->has_notes()) saver_->finish();
  share_paths();
}

// As text: the best, then all, each with a zero behind it, which no path contains.
void Checkpoints::share_paths() {
  if (ranks_.alone()) return;
  std::string text;
  if (saver_) {
    text = saver_->best_path(state_).value_or("") + '\0';
    for (const std::string& path : saver_->paths()) text += path + '\0';
  }
  text = ranks_.same(text);
  of_rank_0_ = {};
  std::vector<std::string> paths;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = text.find('\0', begin);
    paths.push_back(text.substr(begin, end - begin));
  }
  if (paths.empty()) return;
  if (!paths.front().empty()) of_rank_0_.best = paths.front();
  of_rank_0_.all.assign(paths.begin() + 1, paths.end());
}

// A trial says nothing.
void Checkpoints::tell_interrupted(int signal) const {
  if (signal == 0 || !state_.run || !ranks_.first()) return;
  std::string text =
      join("interrupted (", signal == SIGINT ? "SIGINT" : "SIGTERM", ") after batch ", state_.timestamp.batch);
  if (!saver_)
    text += "; nothing is saved, because there is no save_folder";
  else if (saver_->newest().empty())
    text += "; nothing is saved, because of save_interval";
  else if (const std::string newest = saver_->options().folder / saver_->newest(); have_batch())
    text += join("; saved to ", newest,
                 options_.save_weights_only || !options_.autoresume ? "" : "; start again to resume");
  else
    text += join("; what came after ", newest, " is not saved, because of save_interval");
  if (saver_ && net::is_uri(options_.save_folder)) {
    const auto left = state_.run->time_left();
    text += "; waiting for uploads to " + saving::format_name(options_.save_folder, state_.run_name);
    if (left) text += join(", up to ", std::lround(std::max(0.0, left->count())), " s");
    text += "; another signal ends the process, and the next start uploads what is missing";
  }
  warn(text);
}

void Checkpoints::wait_for_mirror() const {
  ranks_.while_first([this] {
    if (saver_) saver_->wait_for_mirror(state_);
  });
}

void Checkpoints::note_begun(const Resumption& resumption) {
  if (saver_ && resumption.found) saver_->note_begun(state_, resumption.weights);
}

std::vector<std::string> Checkpoints::paths() const { return saver_ ? saver_->paths() : of_rank_0_.all; }

std::optional<std::string> Checkpoints::best() const { return saver_ ? saver_->best_path(state_) : of_rank_0_.best; }

void Checkpoints::visit_state(StateVisitor& visit, std::uint64_t weights) {
  if (!saver_ || (visit.is_loading() && !visit.has("saver"))) return;
  StateDict saved;
  if (!visit.is_loading()) {
    saver_->save_state(saved, weights);
    Calls all = calls_before_.value_or(Calls());  // the program may repeat only some of them
    for (const auto& [name, count] : calls_) all[name] = std::max(all[name], count);
    visit_calls(StateVisitor::saving(saved), all);
  }
  visit("saver", saved);
  if (!visit.is_loading()) return;
  saver_->load_state(saved, state_.timestamp.batch, state_.timestamp, weights);
  StateVisitor inner = StateVisitor::loading(saved, "saver");
  if (inner.has("calls")) visit_calls(std::move(inner), calls_before_.emplace());
}

}  // namespace composer
