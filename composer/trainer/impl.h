#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/run_saver.h"
#include "composer/core/model.h"
#include "composer/core/run.h"
#include "composer/core/state_dict.h"
#include "composer/step/feed.h"
#include "composer/step/module_modes.h"
#include "composer/step/train_step.h"
#include "composer/trainer/aside_forward.h"
#include "composer/trainer/process_scope.h"
#include "composer/trainer/schedule_plan.h"
#include "composer/trainer/signals.h"
#include "composer/trainer/trainer.h"
#include "composer/trainer/tune_cache.h"
#include "composer/util/own_random.h"

namespace composer {

// Time on the wall clock since the last lap, without what was skipped.
class Stopwatch {
 public:
  using Clock = std::chrono::steady_clock;
  Seconds lap() {
    const auto now = Clock::now();
    return now - std::exchange(from_, now);
  }
  void skip(Clock::duration time) { from_ += time; }

 private:
  Clock::time_point from_ = Clock::now();
};

// An evaluator while a trainer has it.
struct EvalRun {
  Evaluator evaluator;
  Feed feed;
  Interval interval;
  MetricSet metrics;
  std::int64_t last_due_batch = -1;
};

// The state while another loader than the training one is read: evaluation mode, no gradients. The end of the scope
// brings back the training loader, batch and each module's mode, also after an exception.
class AsideScope {
 public:
  AsideScope(State& state, const Feed& feed);
  ~AsideScope();
  AsideScope(const AsideScope&) = delete;
  AsideScope& operator=(const AsideScope&) = delete;

 private:
  data::LoaderLease lease_;
  State& state_;
  at::NoGradGuard no_grad_;
  std::string label_;
  std::optional<std::int64_t> len_;
  bool had_loader_;
  ModuleModes modes_;
  Batch batch_;
};

// Throws ConfigError for what can be told without a run; before any callback is opened.
void check_options(const TrainerOptions& options, at::Device device);

// The newest checkpoint of this run, if it is to go on from there.
std::optional<saving::Found> checkpoint_to_resume(const TrainerOptions& options);

struct Trainer::Impl {
  explicit Impl(TrainerOptions options);
  // The model, optimizer, loader and algorithms of another, with a copy of its state, and without callbacks and
  // loggers.
  struct ForTrial {};
  Impl(const Impl& other, ForTrial);

  // loop.cpp: when each event fires
  void construct();
  void begin();
  bool step();
  void end_iteration();
  at::Tensor train_batch();
  void end();
  void evaluate_if_due(Event event);
  void evaluate_all(const std::vector<EvalRun*>& runs);
  bool evaluate(EvalRun& run, Feed& feed);
  void eval(std::vector<EvalRun>& runs, std::int64_t subset_num_batches);
  std::vector<Outputs> predict(Feed feed, bool return_outputs);
  void fire(Event event) {
    last_event = event;
    engine.run_event(event);
  }

  // setup.cpp: what options mean, and whether it can be done
  void set_up();
  void start_fit(const FitOptions& fit, bool needs_loader);
  Feed feed_of(const FitOptions& fit) const;
  Time end_of(const FitOptions& fit, const Timestamp& from, const Feed& feed, bool needs_limit) const;
  void tune();
  void finish_fit();
  std::vector<EvalRun> make_runs(const Evaluators& evaluators, const Interval& interval, std::int64_t subset) const;
  void activate(const Feed& feed);
  void log_hyperparameters();

  // checkpoints.cpp: when they are written, and which is loaded
  void open_checkpoints();
  StateDict read_resumed();
  void load_checkpoint();
  void load(const LoadOptions& from);
  void save_if_due(Event event);

  // run_state.cpp: what is in them
  class AsRun;
  std::shared_ptr<Run> as_run();
  StateDict run_state(bool weights_only);
  void load_run_state(const StateDict& saved);
  void load_weights(const StateDict& saved, const std::string& from, bool strict);
  void visit_state(StateVisitor& visit);
  void visit_evaluators(StateVisitor& visit);
  void resume_fit();

  // progress.cpp: what is counted, logged and decided between the events
  bool next_batch();
  bool next_batch_aside(Feed& feed, Timestamp& timestamp);
  void count_batch_aside(const Feed& feed, Timestamp& timestamp);
  void count_batch();
  void count_epoch();
  void count_iteration();
  void log_epoch();
  void log_batch_time();
  void log_final_time();
  bool limit_reached();
  bool epoch_is_complete() const;
  bool token_iteration_is_over() const;
  bool epoch_iteration_is_over() const;
  bool iteration_is_over() const { return token_iteration_is_over() || epoch_iteration_is_over(); }
  bool interrupted();
  std::optional<Seconds> time_left() const;
  IntervalMoment moment_of(Event event) const;
  std::vector<EvalRun*> due(Event event);
  void postpone(const std::vector<EvalRun*>& runs);
  template <class F>
  auto located(F&& run);
  template <class F>
  auto training(F&& run);

  TrainerOptions options;
  std::optional<saving::Found> resumed;  // the checkpoint to go on from, until the first fit has begun
  State state;
  OwnRandom random;
  ProcessSettings process;
  Logger logger;
  Engine engine;
  Feed train;
  bool positioned = false;  // whether the training loader stands where state.timestamp says
  std::vector<EvalRun> evaluators;
  std::vector<double> base_lr;  // of each parameter group, before any schedule
  SchedulePlan schedules;
  TrainStep train_step;
  AsidePlan aside_plan;
  std::optional<Batch> given_batch;  // by step(batch): comes instead of the loader's next
  SignalWatch signals;               // within a fit, with handle_signals
  struct Holds {
    data::LoaderLease loader;
    ProcessClaim process;
  };
  std::optional<Holds> holds;       // within a fit
  std::vector<std::string> tuning;  // what .tune has chosen
  std::optional<Tuned> tuned;       // likewise, or the saved run
  int interrupted_by = 0;
  std::string loaded_from;
  std::unique_ptr<saving::RunSaver> saver;
  std::vector<std::string> pending_evaluations;  // labels of evaluators that were due when the run was interrupted
  StateDict hyperparameters_before;              // of the run that goes on
  StateDict pending_random;                      // to be restored when training begins
  std::string pending_stop;                      // why the saved run had been asked to stop
  bool fitting = false;                          // between begin() and end()
  Stopwatch stopwatch, aside_stopwatch;          // of training; of evaluation and prediction
  Event last_event = Event::INIT;                // for errors
};

// Runs it; what is thrown leaves as RunError that says where, after the loggers have written what they have: the
// program may be about to end.
template <class F>
auto Trainer::Impl::located(F&& run) {
  const ProcessScope in_force(process);
  const RandomScope draws(random);
  try {
    return run();
  } catch (...) {
    logger.flush();
    try {
      throw;
    } catch (const RunError&) {
      throw;  // the engine has said where
    } catch (...) {
      std::throw_with_nested(RunError("failed after ", to_string(last_event), ", epoch ", state.timestamp.epoch,
                                      ", batch ", state.timestamp.batch));
    }
  }
}

// The same for a part of a fit, which an error ends.
template <class F>
auto Trainer::Impl::training(F&& run) {
  try {
    return located(run);
  } catch (...) {
    finish_fit();
    throw;
  }
}

}  // namespace composer
