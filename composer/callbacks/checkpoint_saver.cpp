#include "composer/callbacks/checkpoint_saver.h"

#include <filesystem>
#include <vector>

#include "composer/checkpoint/described_options.h"
#include "composer/checkpoint/measured_values.h"
#include "composer/checkpoint/name_format.h"
#include "composer/checkpoint/save_schedule.h"
#include "composer/checkpoint/saved_list.h"
#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/fit_outline.h"
#include "composer/core/run.h"
#include "composer/core/state.h"
#include "composer/util/absolute_format.h"

namespace composer::callbacks {
namespace {

constexpr saving::OptionNames kNames{.owner = "CheckpointSaver: ", .prefix = ""};

}  // namespace

CheckpointSaver::CheckpointSaver(CheckpointSaverOptions options) : options_(std::move(options)) {
  saving::check(options_, kNames);
}

void CheckpointSaver::Memory::visit_state(StateVisitor& visit) {
  visit("folder", folder);
  visit("run_id", run_id);
  visit("newest", newest);
  visit("batch", batch);
  visit("saver", saver);
}

void CheckpointSaver::check_fit(const FitOutline& fit, const State& state) const {
  fit.check_interval("CheckpointSaver: save_interval", options_.save_interval,
                     "so a checkpoint is written by end() alone", state);
  if (options_.best) saving::check_best("CheckpointSaver: best", *options_.best, fit, state, /*settable=*/true);
  if (fit.zero_stage > 0 && !options_.weights_only)
    throw ConfigError("CheckpointSaver: with distributed.zero_stage no rank has the optimizer's state of all ",
                      "parameters, and only the trainer's own checkpoints gather it; set weights_only, or use the ",
                      "trainer's save_folder");
}

CheckpointSaver::Memory CheckpointSaver::memory() const {
  if (!saver_) return before_;
  Memory memory{.folder = folder_,
                .run_id = saver_->options().run_id,
                .newest = saver_->list().newest(),
                .batch = saver_->schedule().last_batch()};
  saver_->save_state(memory.saver, run_->weights_version());
  return memory;
}

void CheckpointSaver::visit_state(StateVisitor& visit) {
  if (!visit.is_loading()) {
    Memory now = memory();
    now.visit_state(visit);
  } else if (visit.is_of_this_run()) {  // checkpoints of another run must not be deleted
    before_.visit_state(visit);
  }
}

void CheckpointSaver::open(const State& state) {
  if (saver_) return;
  folder_ = saving::format_name(options_.folder, state.run_name);
  const bool goes_on = !before_.run_id.empty() && before_.folder == folder_;
  CheckpointSaverOptions options = options_;
  options.folder = absolute_folder_;
  if (options.num_checkpoints_to_keep == 0)
    warn(join("CheckpointSaver: num_checkpoints_to_keep is 0, so ", folder_, " gets no checkpoint; -1 keeps all"));
  const std::string id = state.run->claim_checkpoints(
      this, "CheckpointSaver: folder: ", saving::format_name(options.folder, state.run_name), options.filename,
      /*whole=*/!options.weights_only);
  saving::ResumePoint from;
  if (goes_on) {
    saving::Manifest& newest = from.found.emplace().manifest;
    newest.run_id = before_.run_id;
    newest.name = before_.newest;
  } else {
    from.begins_again = id;
  }
  saver_ = std::make_unique<saving::RunSaver>(std::move(options), saving::SaverContext{.names = kNames}, state, from);
  run_ = &*state.run;
  if (goes_on) saver_->load_state(before_.saver, before_.batch, state.timestamp, loaded_weights_);
  if (state.resumes || state.run->begins_again()) saver_->adopt_unlisted(state, loaded_weights_);
  if (!state.resumes) return;
  saver_->measured().note_resumed(state, loaded_weights_);
  const bool is_lost = before_.batch == state.timestamp.batch && !before_.newest.empty() &&
                       !std::filesystem::exists(saver_->options().folder / before_.newest);
  if (goes_on && is_lost && run_->weights_version() == loaded_weights_) saver_->save(state);
}

void CheckpointSaver::init(const State&, Logger&) {
  saver_.reset();  // may be left from another trainer
  before_ = {};
  absolute_folder_ = util::absolute_format(options_.folder);
}

// The program may still set other weights before the fit.
void CheckpointSaver::after_load(const State& state, Logger&) {
  if (state.run) loaded_weights_ = state.run->weights_version();
}

void CheckpointSaver::fit_start(const State& state, Logger&) {
  if (state.rank != 0) return;  // rank 0 saves for all ranks
  open(state);
  saver_->prepare(state);
}

// Takes values measured since the last step, before the weights change.
void CheckpointSaver::batch_start(const State& state, Logger&) {
  if (saver_) saver_->measured().before_step(state);
}

void CheckpointSaver::batch_end(const State& state, Logger&) {
  if (saver_) saver_->measured().after_step(state);
}

void CheckpointSaver::save_if_due(Event event, const State& state) {
  if (saver_ && saver_->is_due(event, state)) saver_->save(state);
}

void CheckpointSaver::batch_checkpoint(const State& state, Logger&) { save_if_due(Event::BATCH_CHECKPOINT, state); }

void CheckpointSaver::epoch_checkpoint(const State& state, Logger&) { save_if_due(Event::EPOCH_CHECKPOINT, state); }

void CheckpointSaver::iteration_checkpoint(const State& state, Logger&) {
  save_if_due(Event::ITERATION_CHECKPOINT, state);
}

void CheckpointSaver::fit_end(const State& state, Logger&) {
  if (!saver_) return;
  if (saver_->is_due_at_end(state)) saver_->save(state);
  saver_->measured().take_metrics(state);
  saver_->wait();
  saver_->end_fit();
}

// The last evaluation of a fit comes after fit_end.
void CheckpointSaver::eval_end(const State& state, Logger&) {
  if (saver_) saver_->measured().after_evaluation(state);
}

void CheckpointSaver::eval_after_all(const State&, Logger&) { write_measured(); }
void CheckpointSaver::eval_standalone_end(const State&, Logger&) {
  in_call_ = false;
  write_measured();
}

// Writes the values outside of a fit, because the process may end before the next checkpoint.
void CheckpointSaver::write_measured() {
  if (saver_ && !saver_->schedule().in_fit() && saver_->list().has_notes()) saver_->finish();
}

void CheckpointSaver::eval_standalone_start(const State&, Logger&) { in_call_ = true; }
void CheckpointSaver::predict_start(const State&, Logger&) { in_call_ = true; }
void CheckpointSaver::predict_end(const State&, Logger&) { in_call_ = false; }

// FIT_END is not fired after an error, unless an eval() or predict() has failed between two steps.
void CheckpointSaver::run_fails(const std::exception_ptr&, const State&, Logger&) {
  if (!std::exchange(in_call_, false) && saver_) saver_->end_fit();
}

void CheckpointSaver::close(const State& state, Logger&) {
  if (!saver_) return;
  saver_->finish();
  saver_->warn_without_best(state);
}

std::vector<std::string> CheckpointSaver::saved_checkpoints() const {
  return saver_ ? saver_->paths() : std::vector<std::string>();
}

StateDict CheckpointSaver::local_hparams() const { return describe(options_, saving::run_saver_options()); }

namespace entries {

Entry<Callbacks> checkpoint_saver() {
  return entry<CheckpointSaver>("checkpoint_saver", "Writes additional checkpoints", saving::run_saver_options());
}

}  // namespace entries
}  // namespace composer::callbacks
