#include "composer/trainer/call_options.h"

#include "composer/core/precision_names.h"
#include "composer/trainer/microbatch_option.h"

namespace composer {
namespace {

constexpr const char* kOfFit = "is of a fit; hyperparameters are of a run, and say what the fit has made of it";
constexpr const char* kMeasures = "is measured, and trains nothing";
constexpr const char* kMemory = "GPUs may have different memory";
constexpr const char* kIntervals = "ep, iter, ba, sp, tok, sec or dur";

std::vector<Option<FitOptions>> described_fit() {
  using O = FitOptions;
  const auto of_fit = [](auto field) { return std::move(field).compared(Compared::BY_FIT).unlogged(kOfFit); };
  return all_options(of_fit(part("train_dataloader", &O::train_dataloader, "a loader")),
                     of_fit(option("train_dataloader_label", &O::train_dataloader_label)),
                     of_fit(option("train_subset_num_batches", &O::train_subset_num_batches).unit("batches")),
                     of_fit(option("duration", &O::duration).unit("ep, iter, ba, sp or tok")),
                     option("reset_time", &O::reset_time).free("where training is, is compared").unlogged(kOfFit),
                     of_fit(part("schedulers", &O::schedulers, "functions")),
                     of_fit(option("scale_schedule_ratio", &O::scale_schedule_ratio).above(0)),
                     of_fit(option("step_schedulers_every_batch", &O::step_schedulers_every_batch)),
                     of_fit(part("eval_dataloader", &O::eval_dataloader, "evaluators")),
                     of_fit(option("eval_interval", &O::eval_interval).unit(kIntervals)),
                     of_fit(option("eval_subset_num_batches", &O::eval_subset_num_batches).unit("batches")),
                     microbatch_option("device_train_microbatch_size", &O::device_train_microbatch_size)
                         .free("GPUs may have different memory; only \"auto\" is compared")
                         .unlogged(kOfFit),
                     of_fit(option("precision", &O::precision, kPrecisions)));
}

std::vector<Option<Evaluator>> described_evaluator() {
  using O = Evaluator;
  const auto of_fit = [](auto field) { return std::move(field).compared(Compared::BY_FIT).unlogged(kMeasures); };
  return all_options(
      of_fit(option("label", &O::label)), of_fit(part("dataloader", &O::dataloader, "a loader")),
      of_fit(part("metrics", &O::metrics, "metrics")),
      of_fit(part("metric_names", &O::metric_names, "regular expressions, or unset")),
      of_fit(part("eval_interval", &O::eval_interval, "a time or a function, or unset")
                 .unit(kIntervals)
                 .must(detail::kIntervalRule, detail::is_an_interval)),
      of_fit(option("subset_num_batches", &O::subset_num_batches).at_least(1).or_else(-1, "all")),
      microbatch_option("device_eval_microbatch_size", &O::device_eval_microbatch_size)
          .must("be >= 1, or \"auto\"", [](MicrobatchSize size) { return size.is_auto() || size.samples() >= 1; })
          .free(kMemory)
          .unlogged(kMeasures));
}

std::vector<Option<EvalOptions>> described_eval() {
  using O = EvalOptions;
  const auto of_call = [](auto field) { return std::move(field).compared(Compared::BY_FIT).unlogged(kMeasures); };
  return all_options(of_call(part("eval_dataloader", &O::eval_dataloader, "evaluators")),
                     of_call(option("subset_num_batches", &O::subset_num_batches).unit("batches")));
}

std::vector<Option<PredictOptions>> described_predict() {
  using O = PredictOptions;
  constexpr const char* kPredicts = "predicts, and trains nothing";
  return all_options(
      option("subset_num_batches", &O::subset_num_batches).compared(Compared::BY_FIT).unlogged(kPredicts),
      option("return_outputs", &O::return_outputs).free("outputs are of a rank's own batches").unlogged(kPredicts));
}

}  // namespace

// Never destroyed, like trainer_options().
const std::vector<Option<FitOptions>>& fit_options() {
  static const auto* const described = new std::vector<Option<FitOptions>>(described_fit());
  return *described;
}
const std::vector<Option<Evaluator>>& evaluator_options() {
  static const auto* const described = new std::vector<Option<Evaluator>>(described_evaluator());
  return *described;
}
const std::vector<Option<EvalOptions>>& eval_options() {
  static const auto* const described = new std::vector<Option<EvalOptions>>(described_eval());
  return *described;
}
const std::vector<Option<PredictOptions>>& predict_options() {
  static const auto* const described = new std::vector<Option<PredictOptions>>(described_predict());
  return *described;
}

}  // namespace composer
