#include "composer/trainer/trainer_options.h"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "composer/checkpoint/name_format.h"
#include "composer/checkpoint/run_saver.h"
#include "composer/core/listed.h"
#include "composer/core/precision_names.h"
#include "composer/device/device_support.h"
#include "composer/optim/described_options.h"
#include "composer/optim/grad_scaler.h"
#include "composer/remote/checkpoints.h"
#include "composer/step/feed.h"
#include "composer/step/loss_scaling.h"
#include "composer/trainer/hyperparameters.h"
#include "composer/trainer/microbatch_option.h"

namespace composer {
namespace {

constexpr const char* kOfRank0 = "rank 0 alone saves, loads and logs, and tells the others what is due";
constexpr const char* kOfMachine = "the machines of the ranks may differ";
constexpr const char* kSame = "the results are the same, up to rounding";
constexpr const char* kWrites = "decides what is written, not what is trained";
constexpr const char* kBegins = "a run that goes on has begun already";
constexpr const char* kNameAlone = "a name trains nothing";
constexpr const char* kEnds = "ends a run, and trains nothing";

std::string time_or_none(const OptionalTime& time) { return time ? to_string(*time) : "none"; }
std::string interval_text(const Interval& interval) { return to_string(interval); }
std::string text_or_none(const std::string& text) { return text.empty() ? "none" : text; }
std::int64_t as_digit(bool yes) { return yes ? 1 : 0; }

std::string schedulers_text(const std::vector<optim::Scheduler>& schedulers) {
  return text_or_none(listed(schedulers, &optim::Scheduler::to_string));
}

std::string renames_text(const std::vector<Rename>& rules) {
  return listed(rules,
                [](const Rename& rule) { return join(rule.from, rule.regex ? " -> (regex) " : " -> ", rule.to); });
}

bool is_iteration(Time length) {
  return (length.unit() == TimeUnit::EPOCH || length.unit() == TimeUnit::TOKEN) && length.count() >= 1;
}

void tell_loader(StateDict& into, const TrainerOptions&, const InRun& run) {
  if (const auto size = run.train.batch_size()) into["train_batch_size"] = *size;
  if (const auto samples = run.train.num_samples()) into["train_samples"] = *samples;
}

void tell_optimizer(StateDict& into, const TrainerOptions&, const InRun& run) {
  if (run.state.optimizer) add_optimizer(into, *run.state.optimizer, run.made_lr);
}

void tell_max_duration(StateDict& into, const TrainerOptions&, const InRun& run) {
  if (run.state.max_duration) into["max_duration"] = to_string(*run.state.max_duration);
}

// Adds the options of the loss scaling; "none" if there is none.
void tell_grad_scaler(StateDict& into, const TrainerOptions& options, const InRun&) {
  if (!scales_losses(options.precision, options.grad_scaler)) {
    into["grad_scaler"] = std::string("none");
    return;
  }
  into["grad_scaler"] = text_of(options.grad_scaler.value_or(optim::GradScalerOptions{}), optim::grad_scaler_options());
}

template <class Field>
auto of_rank_0(Field field) {
  return std::move(field).free(kOfRank0).unlogged(kWrites);
}

template <class Field>
auto at_init(Field field) {
  return std::move(field).compared(Compared::AT_INIT).unlogged(kBegins);
}

auto fields_of_training() {
  using O = TrainerOptions;
  using enum Compared;
  return std::tuple(
      part("model", &O::model, "a module").told(tell_model),
      part("train_dataloader", &O::train_dataloader, "a loader").compared(IF_SPLIT).told(tell_loader),
      option("train_dataloader_label", &O::train_dataloader_label).compared(BY_FIT).unlogged(kNameAlone),
      option("train_subset_num_batches", &O::train_subset_num_batches).unit("batches").compared(IF_SPLIT),
      part("eval_dataloader", &O::eval_dataloader, "evaluators")
          .compared(BY_FIT)
          .unlogged("is measured, and trains nothing"),
      option("eval_interval", &O::eval_interval).unit("ep, iter, ba, sp, tok, sec or dur").shown(interval_text),
      option("eval_subset_num_batches", &O::eval_subset_num_batches).unit("batches").compared(IF_SPLIT),
      part("optimizer", &O::optimizer, "an optimizer").told(tell_optimizer),
      part("schedulers", &O::schedulers, "functions").shown(schedulers_text),
      option("scale_schedule_ratio", &O::scale_schedule_ratio).above(0),
      option("step_schedulers_every_batch", &O::step_schedulers_every_batch),
      option("max_duration", &O::max_duration)
          .unit("ep, iter, ba, sp, tok or sec")
          .compared(BY_FIT)
          .told(tell_max_duration),
      option("iteration_length", &O::iteration_length)
          .unit("ep or tok")
          .must("be at least 1, in ep or tok", is_iteration)
          .shown(time_or_none));
}

auto fields_of_plugins() {
  using O = TrainerOptions;
  using enum Compared;
  return std::tuple(part("algorithms", &O::algorithms, "plug-ins").compared(AT_BOTH).told(tell_algorithms),
                    part("algorithm_passes", &O::algorithm_passes, "functions").shown([](const auto& passes) {
                      return static_cast<std::int64_t>(passes.size());
                    }),
                    part("callbacks", &O::callbacks, "plug-ins")
                        .free("one that makes no collective may be on some ranks alone")
                        .unlogged("of a callback, the options that it tells are"),
                    of_rank_0(part("loggers", &O::loggers, "plug-ins")));
}

auto fields_of_run() {
  using O = TrainerOptions;
  using enum Compared;
  return std::tuple(
      option("run_name", &O::run_name).compared(AT_INIT).left_to_first().unlogged(kNameAlone),
      part("device", &O::device, "a device")
          .free("of each rank its own: cuda:0, cuda:1")
          .told([](StateDict& into, const O&, const InRun& run) { into["device"] = run.state.device.str(); }),
      option("precision", &O::precision, kPrecisions),
      part("grad_scaler", &O::grad_scaler, "options").told(tell_grad_scaler),
      option("allow_tf32", &O::allow_tf32).told([](StateDict& into, const O& options, const InRun& run) {
        if (device_support(run.state.device.type()).tf32_backend()) into["allow_tf32"] = options.allow_tf32;
      }),
      microbatch_option("device_train_microbatch_size", &O::device_train_microbatch_size)
          .free("GPUs may have different memory; only \"auto\" is compared"),
      option("microbatch_memory", &O::microbatch_memory)
          .above(0, "bytes")
          .or_else(0, "what there is")
          .free(kOfMachine)
          .unlogged(kSame),
      option("copy_ahead", &O::copy_ahead).free("the results are the same").unlogged(kSame),
      option("cuda_graph", &O::cuda_graph).free("is refused with several ranks").unlogged(kSame),
      option("accumulate_train_batch_on_tokens", &O::accumulate_train_batch_on_tokens),
      option("seed", &O::seed)
          .free("that of rank 0 counts")
          .told([](StateDict& into, const O& options, const InRun& run) {
            if (options.seed)
              into["seed"] = static_cast<std::int64_t>(run.state.seed);  // a resumed run keeps its own seed
          }),
      option("deterministic_mode", &O::deterministic_mode),
      option("nan", &O::nan, {{"stop", OnNaN::STOP}, {"warn", OnNaN::WARN}, {"ignore", OnNaN::IGNORE}}).unlogged(kEnds),
      part("world", &O::world, "processes")
          .free("is what makes it this rank")
          .unlogged("of the number of ranks, the results are the same, up to rounding, or the batch size says it"),
      part("distributed", &O::distributed, "options").told(tell_distributed),
      option("auto_log_hparams", &O::auto_log_hparams).free(kOfRank0).unlogged(kWrites),
      option("tune", &O::tune).unlogged("what it chooses is one"),
      option("tune_cache", &O::tune_cache).free(kOfMachine).unlogged("what tune chooses is one"),
      option("products", &O::products,
             {{"tuned", Products::TUNED}, {"library", Products::LIBRARY}, {"own", Products::OWN}}),
      option("inference_mode", &O::inference_mode).free("the results are the same").unlogged(kSame),
      option("fold_batch_norms", &O::fold_batch_norms).free(kSame).unlogged(kSame));
}

auto fields_of_saving() {
  using O = TrainerOptions;
  using enum Compared;
  using saving::OnFailure;
  return std::tuple(
      option("save_folder", &O::save_folder).compared(AT_INIT).left_to_first().unlogged(kWrites),
      of_rank_0(option("save_filename", &O::save_filename)),
      of_rank_0(option("save_latest_filename", &O::save_latest_filename)),
      of_rank_0(option("save_interval", &O::save_interval).unit("ep, iter, ba, sp, tok, sec or dur")),
      of_rank_0(option("save_overwrite", &O::save_overwrite)),
      of_rank_0(option("save_weights_only", &O::save_weights_only)),  // compared with zero_stage
      of_rank_0(option("save_num_checkpoints_to_keep", &O::save_num_checkpoints_to_keep)),
      of_rank_0(part("save_best", &O::save_best, "a metric")),
      of_rank_0(option("save_on_failure", &O::save_on_failure,
                       {{"fail", OnFailure::FAIL}, {"retry", OnFailure::RETRY}, {"continue", OnFailure::CONTINUE}})),
      of_rank_0(option("save_async", &O::save_async)),
      of_rank_0(option("save_ignore_keys", &O::save_ignore_keys)),  // compared with sharded_checkpoints
      of_rank_0(option("save_staging_folder", &O::save_staging_folder)),
      of_rank_0(option("save_upload_timeout", &O::save_upload_timeout).above(0, "seconds")),
      option("autoresume", &O::autoresume).free(kOfRank0).unlogged(kBegins),
      option("resume_with", &O::resume_with).free(kOfRank0).unlogged(kBegins));
}

auto fields_of_loading() {
  using O = TrainerOptions;
  return std::tuple(
      at_init(option("load_path", &O::load_path).shown(text_or_none)),
      at_init(option("load_weights_only", &O::load_weights_only).shown(as_digit)),
      at_init(option("load_strict_model_weights", &O::load_strict_model_weights).shown(as_digit)),
      at_init(part("load_rename", &O::load_rename, "rules").shown(renames_text)),
      at_init(option("load_ignore_keys", &O::load_ignore_keys).shown([](const auto& keys) { return listed(keys); })));
}

auto fields_of_ending() {
  using O = TrainerOptions;
  return std::tuple(option("handle_signals", &O::handle_signals)
                        .free("ranks tell each other of the signals that they get")
                        .unlogged(kEnds),
                    option("grace_period", &O::grace_period).above(0, "seconds").free(kOfMachine).unlogged(kEnds));
}

std::vector<Option<TrainerOptions>> described_trainer() {
  return std::apply([](auto... fields) { return all_options(std::move(fields)...); },
                    std::tuple_cat(fields_of_training(), fields_of_plugins(), fields_of_run(), fields_of_saving(),
                                   fields_of_loading(), fields_of_ending()));
}

}  // namespace

// Never destroyed: a trainer may be a global, which is destroyed later.
const std::vector<Option<TrainerOptions>>& trainer_options() {
  static const auto* const described = new std::vector<Option<TrainerOptions>>(described_trainer());
  return *described;
}

bool resumes(const TrainerOptions& options) { return options.autoresume && !options.save_weights_only; }

SaveFolder save_folder_of(const TrainerOptions& options, const std::string& run_name) {
  const std::string given = saving::format_name(options.save_folder, run_name);
  return {given, local_save_folder(given, options.save_staging_folder)};
}

saving::RunSaverOptions save_options_of(const TrainerOptions& options) {
  return {.folder = options.save_folder,
          .filename = options.save_filename,
          .latest_filename = options.save_latest_filename,
          .save_interval = options.save_interval,
          .overwrite = options.save_overwrite,
          .weights_only = options.save_weights_only,
          .num_checkpoints_to_keep = options.save_num_checkpoints_to_keep,
          .best = options.save_best,
          .on_failure = options.save_on_failure,
          .async = options.save_async,
          .ignore_keys = options.save_ignore_keys};
}

}  // namespace composer
