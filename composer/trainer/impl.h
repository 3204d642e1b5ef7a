#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/error.h"
#include "composer/core/run.h"
#include "composer/core/state_dict.h"
#include "composer/dist/world.h"
#include "composer/optim/parameter_group.h"
#include "composer/step/feed.h"
#include "composer/step/model_settings.h"
#include "composer/step/train_step.h"
#include "composer/step/weights_in_use.h"
#include "composer/trainer/asides.h"
#include "composer/trainer/call_guard.h"
#include "composer/trainer/calls.h"
#include "composer/trainer/checkpoints.h"
#include "composer/trainer/evaluations.h"
#include "composer/trainer/fit.h"
#include "composer/trainer/fit_plan.h"
#include "composer/trainer/fits.h"
#include "composer/trainer/hyperparameters.h"
#include "composer/trainer/learning_rates.h"
#include "composer/trainer/process_state.h"
#include "composer/trainer/progress.h"
#include "composer/trainer/ranks.h"
#include "composer/trainer/replicas.h"
#include "composer/trainer/resumption.h"
#include "composer/trainer/signals.h"
#include "composer/trainer/trainer.h"
#include "composer/trainer/trainer_run.h"
#include "composer/trainer/training_data.h"
#include "composer/trainer/tuning.h"
#include "composer/util/own_random.h"

namespace composer {

// Throws ConfigError for what can be told without a run; before any callback is opened.
void check_options(const TrainerOptions& options, at::Device device);

// What a trainer has for as long as it lives; what belongs to one fit alone is in `fit`.
struct Trainer::Impl {
  explicit Impl(TrainerOptions options);
  // The model, optimizer, loader and algorithms of another, with a copy of its state, and without callbacks and
  // loggers.
  struct ForTrial {};
  Impl(const Impl& other, ForTrial);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // loop.cpp: when each event fires
  void construct();
  void open_plugins();
  void begin();
  void make_up();
  bool step();
  bool stop_asked();
  void end_epoch();
  void end_iteration();
  at::Tensor train_batch(bool counts);
  void end();
  void fire_end(Event event);
  void evaluate_if_due(Event event);
  void checkpoint(Event event);
  void evaluate_all(const std::vector<EvalRun*>& runs);
  bool evaluate(EvalRun& run, Feed& feed, bool judges = true, bool to_the_end = false);
  void evaluate_batch(EvalRun& run, const Feed& feed, AsideForward& forward);
  void eval(std::vector<EvalRun>& runs, std::int64_t subset_num_batches, bool to_the_end);
  std::vector<Outputs> predict(Feed feed, bool return_outputs);
  class Opened;
  void fire(Event event, bool to_all = true) {
    calls.note(event);
    if (dist::World* world = ranks.world()) world->at(to_string(event), state.timestamp.epoch, state.timestamp.batch);
    to_all ? engine.run_event(event) : engine.run_algorithms_alone(event);
  }

  // setup.cpp: how options and plans come into force
  void set_up();
  void start_fit(const FitOptions& given, bool needs_loader);
  void commit(FitPlan plan);
  void commit_lasting(FitPlan& plan);
  void skip_fit(FitPlan plan);
  TrainerRun::Needs needs_of_run();
  void join_ranks();
  void make_optimizer(optim::NamedParameters before_init);
  void check_first_batch();
  void finish_fit();
  void abandon_fit();

  // counting.cpp: what is counted and logged between the events
  Progress progress() const;
  bool next_batch();
  std::optional<Batch> read_batch(std::int64_t batch_in_epoch);
  std::optional<Batch> next_of_own_loader();
  bool next_batch_aside(Feed& feed, Timestamp& timestamp);
  void count_batch_aside(const Feed& feed, Timestamp& timestamp);
  void tell_nan() const;
  void note_signal(int signal);
  OwnRandom random_aside(std::string_view label, std::int64_t call = 0) const;
  // What several ranks do in addition; nothing for one.
  void draw_by_rank();
  std::vector<EvalRun*> due_on_all_ranks(std::vector<EvalRun*> due, bool may_differ);
  Seconds time_of_ranks();
  void share_buffers();
  void share_last_buffers();
  void share_model();
  void count_batch();
  template <class F>
  void count_batch_after(F&& report);
  void count_epoch();
  void count_iteration();
  void log_epoch();
  void log_batch_time();
  void log_final_time();
  bool poll_signals();
  bool interrupted() const { return fit && fit->ending.interrupted(); }
  bool pauses() const;

  // trainer.cpp: how it is made, and ends
  void close();
  void release();

  TrainerOptions options;
  Ranks ranks;
  Calls calls;
  Resumption resumption;
  State state;
  ProcessState process;
  std::shared_ptr<SignalWatch> signals = std::make_shared<SignalWatch>();  // within a fit, with handle_signals
  LearningRates rates;
  Logger logger;
  TrainingData data;  // of the next fit, unless it is given another
  Evaluations evaluations;
  KeptSettings settings;
  Fits fits;
  TrainStep train_step;
  ReplicaCheck replicas{ranks, state, train_step};
  Asides asides;
  Tuning tuning{{.options = options,
                 .ranks = ranks,
                 .state = state,
                 .train_step = train_step,
                 .weights_in_use = weights_in_use,
                 .logger = logger,
                 .data = data,
                 .process = process,
                 .stops = [this] { return poll_signals() || signals->pending() != 0 || state.stop.asked(); }}};
  Hyperparameters hyperparameters{{.options = options,
                                   .state = state,
                                   .ranks = ranks,
                                   .logger = logger,
                                   .engine = engine,
                                   .data = data,
                                   .rates = rates}};
  std::optional<Fit> fit;  // between begin() and end()
  CallGuard guard{{.calls = calls,
                   .ranks = ranks,
                   .state = state,
                   .engine = engine,
                   .logger = logger,
                   .process = process,
                   .tuning = tuning,
                   .fits = fits,
                   .fit = fit,
                   .abandon_fit = [this] { abandon_fit(); }}};
  std::optional<TrainerRun> run;  // unset: this one only tries
  Checkpoints checkpoints;
  WeightsInUse weights_in_use{state, engine};
  Engine engine;  // the last: callbacks that it closes may ask for all of the above
};

// An event that opens something, and the one that closes it: on every way out.
class Trainer::Impl::Opened {
 public:
  Opened(Impl& trainer, Event opens, Event closes) : Opened(trainer, std::pair(opens, closes)) { trainer_.fire(opens); }
  // After an error, the algorithms that have seen the first event see the second.
  ~Opened() {
    if (open_) trainer_.engine.unwind(opens_, closes_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  void close() {
    open_ = false;
    trainer_.fire(closes_);
  }
  // After a signal: there are no results, so what a callback throws that wants to read them is a warning, and the run
  // comes to its end all the same.
  void cut_short();

 private:
  // It is made when this returns, so that what the first event throws ends it as well.
  Opened(Impl& trainer, std::pair<Event, Event> events)
      : trainer_(trainer), opens_(events.first), closes_(events.second) {}

  Impl& trainer_;
  Event opens_, closes_;
  bool open_ = true;
};

// Reports what the step has shown, then counts the batch, also if that fails: the weights have been stepped, and must
// not be so twice.
template <class F>
void Trainer::Impl::count_batch_after(F&& report) {
  try {
    report();
  } catch (...) {
    count_batch();
    throw;
  }
  count_batch();
}

}  // namespace composer
