#pragma once
#include <optional>

#include <ATen/core/Tensor.h>

#include "composer/optim/parameter_group.h"
#include "composer/step/model_settings.h"
#include "composer/step/train_step.h"
#include "composer/step/weights_in_use.h"
#include "composer/trainer/call_guard.h"
#include "composer/trainer/calls.h"
#include "composer/trainer/checkpoints.h"
#include "composer/trainer/evaluation_loop.h"
#include "composer/trainer/evaluations.h"
#include "composer/trainer/events.h"
#include "composer/trainer/fit.h"
#include "composer/trainer/fit_history.h"
#include "composer/trainer/fit_plan.h"
#include "composer/trainer/hyperparameters.h"
#include "composer/trainer/learning_rates.h"
#include "composer/trainer/process_state.h"
#include "composer/trainer/ranks.h"
#include "composer/trainer/replicas.h"
#include "composer/trainer/resumption.h"
#include "composer/trainer/stopping.h"
#include "composer/trainer/trainer.h"
#include "composer/trainer/trainer_run.h"
#include "composer/trainer/training_data.h"
#include "composer/trainer/training_time.h"
#include "composer/trainer/tuning.h"

namespace composer {

// Throws ConfigError for errors that can be found without a run. Called before any callback is opened.
void check_options(const TrainerOptions& options, at::Device device);

// The state of a trainer for its whole lifetime; `fit` has the state of one fit.
struct Trainer::Impl {
  explicit Impl(TrainerOptions options);
  // Takes the model, optimizer, loader and algorithms of another trainer, and a copy of its state, without callbacks
  // and loggers.
  struct ForTrial {};
  Impl(const Impl& other, ForTrial);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // loop.cpp: when each event of training fires
  void construct();
  void begin();
  void finish_pending();
  bool step();
  void end_epoch();
  void end_iteration();
  at::Tensor train_batch(bool counts);
  void end();
  void fire_end(Event event);
  void evaluate_if_due(Event event);
  void checkpoint(Event event);

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

  std::vector<PredictedBatch> predict(const AnyDataSpec& dataloader, PredictOptions options);  // as EvaluationLoop's

  // trainer.cpp: how it is made, and how it ends
  void close();
  void release();

  // The members keep references to one another, also to members declared later, and do not use them during
  // construction. The exception is `run`, which uses `state` and `stopping`.
  TrainerOptions options;
  Ranks ranks;
  Calls calls;
  Resumption resumption;
  State state;
  ProcessState process;
  LearningRates rates;
  Logger logger;
  TrainingData data;  // for the next fit, unless that is given another loader
  Evaluations evaluators;
  KeptSettings settings;
  FitHistory fits;
  TrainStep train_step;
  ReplicaCheck replicas{ranks, state, train_step};
  Tuning tuning{{.options = options,
                 .ranks = ranks,
                 .state = state,
                 .train_step = train_step,
                 .weights_in_use = weights_in_use,
                 .logger = logger,
                 .data = data,
                 .process = process,
                 .stops = [this] { return stopping.look_for_signal() || stopping.is_asked_here(); }}};
  Hyperparameters hyperparameters{{.options = options,
                                   .state = state,
                                   .ranks = ranks,
                                   .logger = logger,
                                   .engine = engine,
                                   .data = data,
                                   .rates = rates}};
  std::optional<Fit> fit;  // set between begin() and end()
  TrainingTime time{state, logger, ranks, rates, fits, fit};
  Stopping stopping{ranks, state, time, replicas};
  Events events{state, ranks, calls, engine};
  EvaluationLoop evaluation_loop{{.state = state,
                                  .logger = logger,
                                  .ranks = ranks,
                                  .events = events,
                                  .evaluators = evaluators,
                                  .weights_in_use = weights_in_use,
                                  .replicas = replicas,
                                  .rates = rates,
                                  .checkpoints = checkpoints,
                                  .time = time,
                                  .stopping = stopping,
                                  .fit = fit},
                                 {options.inference_mode, options.fold_batch_norms || options.tune}};
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
  std::optional<TrainerRun> run;  // unset in a trial
  Checkpoints checkpoints;
  WeightsInUse weights_in_use{state, engine};
  Engine engine;  // declared last: callbacks that its destructor closes may use all of the above
};

}  // namespace composer
