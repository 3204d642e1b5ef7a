#pragma once
// The owners in a trainer, without the trainer: as they are when one is made.
#include <optional>
#include <utility>

#include <torch/optim/optimizer.h>

#include "composer/core/engine.h"
#include "composer/core/logger.h"
#include "composer/core/model_access.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/step/model_settings.h"
#include "composer/step/train_step.h"
#include "composer/step/weights_in_use.h"
#include "composer/trainer/checkpoints.h"
#include "composer/trainer/evaluations.h"
#include "composer/trainer/fit.h"
#include "composer/trainer/fit_history.h"
#include "composer/trainer/hyperparameters.h"
#include "composer/trainer/learning_rates.h"
#include "composer/trainer/process_state.h"
#include "composer/trainer/ranks.h"
#include "composer/trainer/replicas.h"
#include "composer/trainer/resumption.h"
#include "composer/trainer/training_data.h"
#include "composer/trainer/tuning.h"
#include "tests/support/tiny.h"

namespace composer::test {

struct TrainerParts {
  explicit TrainerParts(TrainerOptions given = tiny_options()) : options(std::move(given)) {
    options.world = ranks.shared_world();
    state.run_name = "tiny";
    state.model = options.model;
    state.device = at::kCPU;
    state.max_duration = options.max_duration;
    state.optimizer = options.optimizer.make(optim::parameters_of(as_module(*state.model)));
    settings.begin(as_module(*state.model));
    train_step.set_metrics(MetricSet(metrics_of(*state.model, /*is_train=*/true), options.train_dataloader_label));
    rates.begin(*state.optimizer);
    rates.begin(SchedulePlan(options.schedulers, 1, true), state);
    data.begin(options, ranks, state);
  }
  TrainerParts(const TrainerParts&) = delete;
  TrainerParts& operator=(const TrainerParts&) = delete;

  TrainerOptions options;
  Ranks ranks{nullptr, {}};
  State state;
  ProcessState process{.random = OwnRandom(at::kCPU, 3)};
  loggers::InMemoryLogger log;
  Logger logger{state, {&log}};
  TrainStep train_step{state, logger, /*weigh_by_tokens=*/false};
  ReplicaCheck replicas{ranks, state, train_step};
  TrainingData data;
  LearningRates rates;
  Evaluations evaluations;
  KeptSettings settings;
  FitHistory fits;
  std::optional<Fit> fit;
  Resumption resumption;
  Checkpoints checkpoints{options, ranks, state, replicas, saving::ResumePoint{}, {}};
  Engine engine{state, logger, options.algorithms, options.callbacks, {}};
  WeightsInUse weights_in_use{state, engine};
  Tuning tuning{{.options = options,
                 .ranks = ranks,
                 .state = state,
                 .train_step = train_step,
                 .weights_in_use = weights_in_use,
                 .logger = logger,
                 .data = data,
                 .process = process,
                 .stops = [] { return false; }}};
  Hyperparameters hyperparameters{{.options = options,
                                   .state = state,
                                   .ranks = ranks,
                                   .logger = logger,
                                   .engine = engine,
                                   .data = data,
                                   .rates = rates}};
};

}  // namespace composer::test
