#include "composer/trainer/checkpoints.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <string>
#include <utility>

#include "composer/checkpoint/checkpoint_writer.h"
#include "composer/checkpoint/moment.h"
#include "composer/checkpoint/name_format.h"
#include "composer/checkpoint/save_schedule.h"
#include "composer/checkpoint/saved_list.h"
#include "composer/core/error.h"
#include "composer/core/fit_outline.h"
#include "composer/core/run.h"
#include "composer/core/state.h"
#include "composer/net/remote_store.h"
#include "composer/remote/checkpoints.h"
#include "composer/trainer/fit_checks.h"
#include "composer/trainer/ranks.h"
#include "composer/trainer/replicas.h"
#include "composer/trainer/resumption.h"
#include "composer/trainer/trainer_options.h"

namespace composer {
namespace {

// Declares the direction of save_best's metric as the loaders give it, whether the metric has been measured yet or not.
void declare_direction(saving::MeasuredValues& measured, const saving::Best& best, const FitOutline& fit) {
  for (const FitOutline::Source& source : fit.sources)
    for (std::size_t i = 0; i < source.better.size(); ++i)
      if (join(source.label, '/', source.metrics[i]) == best.metric) measured.prefer(source.better[i]);
}

// Returns null without a save_folder. `trainers` is set if the folder is on this machine.
std::unique_ptr<saving::RunSaver> make_saver(const TrainerOptions& options, const State& state,
                                             const saving::ResumePoint& resumed,
                                             std::unique_ptr<ResumesTogether>& trainers) {
  if (options.save_folder.empty()) return nullptr;
  const SaveFolder folder = save_folder_of(options, state.run_name);
  saving::ResumePoint from = resumed;
  saving::SaverContext context{.goes_back = !options.resume_with.empty(), .resumes = options.autoresume};
  if (!folder.is_remote()) look_into_named(folder.local, options, from);
  if (!net::is_uri(folder.given)) {
    trainers = std::make_unique<ResumesTogether>(options, state.run_name, from.found);
    context.program = trainers->program();
  }
  saving::RunSaverOptions chosen = save_options_of(options);
  if (chosen.num_checkpoints_to_keep == 0)
    warn(join("save_num_checkpoints_to_keep: is 0, so save_folder, ", folder.given, ", gets no checkpoint but those ",
              "of save_checkpoint(); -1 keeps all"));
  if (folder.is_remote()) {
    context.mirror = make_remote_mirror({.uri = folder.given,
                                         .run_name = state.run_name,
                                         .overwrite = chosen.overwrite,
                                         .on_failure = chosen.on_failure,
                                         .longest_wait = options.save_upload_timeout});
    chosen.folder = folder.local;
  }
  return std::make_unique<saving::RunSaver>(std::move(chosen), std::move(context), state, from);
}

// Returns null on other ranks, which hear of an error all the same.
std::unique_ptr<saving::RunSaver> make_saver_of_first(const Ranks& ranks, const TrainerOptions& options,
                                                      const State& state, const saving::ResumePoint& resumed,
                                                      std::unique_ptr<ResumesTogether>& trainers) {
  std::unique_ptr<saving::RunSaver> saver;
  ranks.together([&] {
    if (ranks.first()) saver = make_saver(options, state, resumed, trainers);
  });
  return saver;
}

}  // namespace

Checkpoints::Checkpoints(const TrainerOptions& options, const Ranks& ranks, const State& state, ReplicaCheck& replicas,
                         const saving::ResumePoint& from, CollectiveSaving::Shares shares)
    : options_(options),
      ranks_(ranks),
      state_(state),
      replicas_(replicas),
      saver_(make_saver_of_first(ranks, options, state, from, trainers_)),
      by_hand_(saver_ ? std::make_optional<saving::CheckpointsByHand>(*saver_) : std::nullopt),
      identity_(options, ranks, state, saver_.get(), !from.begins_again.empty()),
      paths_(ranks, state, saver_.get()),
      collective_(options, ranks, state, saver_.get(), std::move(shares)) {}

void Checkpoints::end_run(bool well) {
  try {
    if (saver_ && saver_->list().has_notes()) saver_->finish();
  } catch (...) {
    warn(join("checkpoint: ", describe(std::current_exception())));
  }
  if (!well) return;
  if (saver_) saver_->warn_without_best(state_);
  identity_.end();
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
  declare_direction(saver_->measured(), *options_.save_best, fit);
}

void Checkpoints::begin_fit(std::int64_t number) const {
  if (saver_) saver_->begin_fit(state_, number);
  if (trainers_) trainers_->begin_fit();
}

void Checkpoints::check_first_batch() const {
  if (saver_) check_without_tokens(options_.save_interval, "save_interval");
}

void Checkpoints::note_resumed(const Resumption& resumption) {
  if (saver_ && resumption.found) saver_->measured().note_resumed(state_, resumption.weights);
}

void Checkpoints::set_finished() {
  if (saver_) saver_->schedule().set_finished();
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

bool Checkpoints::have_batch() const { return saver_ && saver_->schedule().last_batch() == state_.timestamp.batch; }

void Checkpoints::warn_of_unsaved() const {
  if (!saver_ || have_batch() || saver_->is_saved(state_)) return;
  const std::int64_t saved = std::max<std::int64_t>(saver_->schedule().last_batch(), 0);
  warn(join("save_folder: the fit is dropped without end(), so what was trained from batch ", saved, " to batch ",
            state_.timestamp.batch, " is not saved"));
}

void Checkpoints::save() {
  const auto write = [this] {
    if (options_.resume_with.empty()) return saver_->save(state_);
    saver_->wait();  // if that fails, nothing is planned
    trainers_->plan_save({.fit = saver_->schedule().fit().value_or(0), .batch = state_.timestamp.batch});
    try {
      saver_->save(state_);
    } catch (...) {
      trainers_->drop_plan();
      throw;
    }
    trainers_->begin_writing(saver_->writer().written());
  };
  if (collective_.is_needed())
    collective_.save(write);
  else if (saver_)
    write();
}

void Checkpoints::save_begin(bool due) {
  if (!ranks_.any(due && identity_.is_resumable())) return;
  replicas_.compare();
  save();
  if (saver_) saver_->wait();
  collective_.wait();
}

// If all ranks are needed to write a checkpoint, rank 0 tells the others whether one is due.
void Checkpoints::save_if_due(Event event) {
  identity_.end_mark_if_saved(/*all_on_disk=*/false);
  const bool compares = event != Event::BATCH_CHECKPOINT, all_save = collective_.is_needed();
  if (compares) replicas_.compare();
  collective_.rethrow_error();
  const bool due = saver_ && saver_->is_due(event, state_);
  if (all_save ? ranks_.any(due) : due) {
    if (all_save) replicas_.compare();
    save();
  }
  if (compares && !all_save) replicas_.take_saved();  // otherwise the other ranks learn of it in their next vote
}

void Checkpoints::save_last() {
  replicas_.compare();
  const bool due = saver_ && saver_->is_due_at_end(state_);
  if (collective_.is_needed() ? ranks_.any(due) : due) save();
}

void Checkpoints::warn_if_changed() const {
  if (saver_) saver_->warn_if_changed(state_);
}

void Checkpoints::check_name(const std::string& name) const {
  ranks_.together([&] {
    if (by_hand_) by_hand_->check_name(name, state_);
  });
}

// Until something new is trained, a resumed program repeats the calls that it made before. The checkpoint of the run
// under that name then keeps its weights, unless the program had not come to this call. Once a fit continues, the
// checkpoint is the one that was saved at this moment.
std::string Checkpoints::save_by_hand(const std::string& name, const Resumption& resumption, std::int64_t fit,
                                      bool in_fit) {
  saving::CheckpointsByHand::Call call{.name = name, .in_fit = in_fit};
  std::string path;
  if (!resumption.found) call.resumed_in = fit;
  if (resumption.found || resumption.resumed_at == saving::moment_of(state_.timestamp))
    path = ranks_.same(ranks_.together([&] { return by_hand_ ? by_hand_->find_earlier(call, state_) : ""; }));
  if (!path.empty()) {
    if (ranks_.first())
      warn(join("save_checkpoint: ", path, " stays as the run has saved it before ", resumption.loaded_from,
                ", because a program that is started again repeats its calls until it trains on; to save what there ",
                "is now, give it another name"));
    return path;
  }
  replicas_.compare(/*modes=*/false);
  const auto write = [&] { path = by_hand_->save(call, state_); };
  saving::RunFolder::ShortLock lock;
  ranks_.together([&] {
    if (by_hand_) lock = by_hand_->lock();
  });
  if (collective_.is_needed())
    collective_.save(write, /*by_hand=*/true);
  else
    ranks_.together([&] {
      if (by_hand_) write();
    });
  lock.reset();
  replicas_.take_saved();
  paths_.share();
  return ranks_.same(path);
}

void Checkpoints::finish() {
  if (saver_) {
    saver_->measured().take_metrics(state_);  // the last evaluation of a fit comes after its last checkpoint
    saver_->finish();
  }
  collective_.wait();
  identity_.end_mark_if_saved(/*all_on_disk=*/true);
  paths_.share();
}

void Checkpoints::write_measured() {
  if (saver_ && saver_->list().has_notes()) saver_->finish();
  paths_.share();
}

// Does not warn in a trial.
void Checkpoints::warn_of_signal(int signal) const {
  if (signal == 0 || !state_.run || !ranks_.first()) return;
  std::string text =
      join("interrupted (", signal == SIGINT ? "SIGINT" : "SIGTERM", ") after batch ", state_.timestamp.batch);
  if (!saver_)
    text += "; nothing is saved, because there is no save_folder";
  else if (saver_->list().newest().empty())
    text += "; nothing is saved, because of save_interval";
  else if (const std::string newest = saver_->options().folder / saver_->list().newest(); have_batch())
    text += join("; saved to ", newest, resumes(options_) ? "; start again to resume" : "");
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

void Checkpoints::visit_state(StateVisitor& visit, std::uint64_t weights) {
  if (!saver_ || (visit.is_loading() && !visit.has("saver"))) return;
  StateDict saved;
  if (!visit.is_loading()) {
    saver_->save_state(saved, weights);
    StateVisitor inner = StateVisitor::saving(saved);
    by_hand_->visit_state(inner);
  }
  visit("saver", saved);
  if (!visit.is_loading()) return;
  saver_->load_state(saved, state_.timestamp.batch, state_.timestamp, weights);
  StateVisitor inner = StateVisitor::loading(saved, "saver");
  by_hand_->visit_state(inner);
}

}  // namespace composer
