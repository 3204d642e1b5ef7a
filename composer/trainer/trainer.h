#pragma once
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include "composer/checkpoint/save_options.h"
#include "composer/core/any_model.h"
#include "composer/core/engine.h"
#include "composer/core/error.h"
#include "composer/core/export.h"
#include "composer/core/interval.h"
#include "composer/core/metric.h"
#include "composer/core/plugins.h"
#include "composer/core/state.h"
#include "composer/core/weights_use.h"
#include "composer/data/data_spec.h"
#include "composer/dist/options.h"
#include "composer/formats/rename.h"
#include "composer/kernels/choice.h"
#include "composer/optim/grad_scaler.h"
#include "composer/optim/optimizer.h"
#include "composer/optim/schedule.h"
#include "composer/step/microbatch_size.h"
#include "composer/step/on_nan.h"
#include "composer/trainer/evaluator.h"
#include "composer/trainer/lr_finder.h"

namespace composer {

namespace dist {
class World;
}  // namespace dist

struct TrainerOptions {
  AnyModel model = {};  // required: a std::shared_ptr to a Model

  AnyDataSpec train_dataloader = {};  // or given to fit()
  std::string train_dataloader_label = "train";
  std::int64_t train_subset_num_batches = -1;  // limits an epoch to this number of batches; -1: all
  Evaluators eval_dataloader = {};
  Interval eval_interval = "1ep";             // for evaluators without an interval; 0: none
  std::int64_t eval_subset_num_batches = -1;  // for evaluators without a subset, in batches; -1: all

  // Updates all parameters that require gradients; required for fit(). Made after INIT, where algorithms may replace
  // modules; an optimizer that was made before is then adapted to the new modules.
  optim::AnyOptimizer optimizer = {};
  std::vector<optim::Scheduler> schedulers = {};  // the learning rates are multiplied by the product of all
  double scale_schedule_ratio = 1;                // scales schedules and max_duration; > 0
  bool step_schedulers_every_batch = true;        // false: the learning rate changes only between epochs

  // In any unit but shares, such as "10ep", or "2h" spent in training; unset: given to fit().
  OptionalTime max_duration = {};
  OptionalTime iteration_length = {};  // in epochs or tokens; unset: iterations do not end

  Algorithms algorithms = {};
  std::vector<AlgorithmPass> algorithm_passes = {};
  Callbacks callbacks = {};
  Loggers loggers = {};

  std::string run_name = {};  // empty: $COMPOSER_RUN_NAME, $RUN_NAME, or made from the time and a random text
  std::optional<at::Device> device = {};  // unset: CUDA if it is available, otherwise CPU
  Precision precision = Precision::FP32;
  // How losses are scaled. Unset: with the defaults of GradScalerOptions for amp_fp16, otherwise not at all.
  std::optional<optim::GradScalerOptions> grad_scaler = {};
  // On an NVIDIA GPU: float32 products and convolutions round their inputs to 10 bits of mantissa.
  bool allow_tf32 = true;
  // Samples; 0: the whole batch at once; "auto": as many as fit into memory.
  MicrobatchSize device_train_microbatch_size = 0;
  std::int64_t microbatch_memory = 0;  // with "auto": bytes that a batch may allocate; 0: the free memory of the device
  bool copy_ahead =
      false;  // to a GPU: copies the next training batch while the current one is trained (docs/reference/data.md)
  // On a CUDA device: captures forward, loss and backward of a batch as a CUDA graph, after three batches, and replays
  // it for all batches of that shape. If capturing is not possible, batches are trained without a graph, and a warning
  // gives the reason (docs/reference/tuning.md).
  bool cuda_graph = false;
  bool accumulate_train_batch_on_tokens = false;  // weights microbatches by their loss-generating tokens
  std::optional<std::uint64_t> seed = {};         // of random numbers and training loaders; unset: taken from libtorch
  bool deterministic_mode = false;                // uses libtorch's deterministic kernels; operators without one throw
  // What happens when a training loss is NaN. STOP ends the fit with an error that says where the NaN comes from, on a
  // CPU before the weights are changed. No step waits for another device: its last loss is read when an epoch ends.
  OnNaN nan = OnNaN::STOP;

  // The processes that train together (docs/reference/distributed.md). Null: those that this process's launcher has
  // started, or this process alone if there is no launcher.
  std::shared_ptr<dist::World> world = {};
  dist::DistributedOptions distributed = {};

  // When the first fit of a run begins, logs as hyperparameters what the run's checkpoints contain about how it is
  // trained: these options, and those of the model, optimizer, schedules, algorithms and callbacks
  // (docs/reference/hyperparameters.md).
  bool auto_log_hparams = true;

  // Before the first batch, times a few steps with each setting that may be faster on this machine, and trains with the
  // fastest: channels-last weights, the number of threads, fp32 if the precision above is slower, and matrix products
  // by our own kernels (products). All other effects of the trial steps are undone. The choices are stored in
  // tune_cache for later runs of the same model on the same machine.
  bool tune = false;
  std::filesystem::path tune_cache = {};  // empty: libcomposer/tune.json in the user's cache folder
  // What multiplies float matrices on a CPU: libtorch's library, our kernels, or (TUNED) the library unless tune finds
  // our kernels faster, for each shape. Our kernels give the same bits with any number of threads
  // (docs/reference/tuning.md).
  Products products = Products::TUNED;

  // Use it for evaluation and prediction; false: for models that keep tensors from there and train on them.
  bool inference_mode = true;
  // Fold batch norms into the convolutions before them in evaluations and predictions of eight batches or more, if the
  // outputs of the first batch then differ by at most 1e-5 of the largest value; tune does so, too. The model is not
  // changed.
  bool fold_batch_norms = false;

  // Each checkpoint is a folder below save_folder that appears completely or not at all
  // (docs/reference/checkpoints.md). In the name of save_folder, {run_name} is replaced; in the other names also
  // counts, such as {epoch} and {batch:06}. If save_folder is a URI, s3://bucket/folder or file:///folder, copies are
  // uploaded in the background.
  std::string save_folder = {};  // empty: no checkpoints are written
  std::string save_filename = "ep{epoch}-ba{batch}";
  std::string save_latest_filename = "latest";  // a link to the newest checkpoint; empty: none
  Interval save_interval = "1ep";               // also at the end of training; 0: never
  bool save_overwrite = false;                  // also replaces what other runs have written; false: that is an error
  bool save_weights_only = false;
  std::int64_t save_num_checkpoints_to_keep = -1;  // of this run; -1: all
  std::optional<saving::Best> save_best = {};  // keeps this number of the best by a metric, and the newest in addition
  saving::OnFailure save_on_failure = saving::OnFailure::FAIL;
  bool save_async = true;                          // written by a background thread while training continues
  std::vector<std::string> save_ignore_keys = {};  // globs of entries that are not saved: "optimizer/*"
  // If save_folder is a URI: the folder on this machine to which checkpoints are written before they are uploaded
  // (empty: below ~/.cache/libcomposer/uploads), and how long the end of a fit waits for uploads.
  std::string save_staging_folder = {};
  Seconds save_upload_timeout{3600};
  // Resumes from the newest checkpoint of this run in save_folder (of any run, if run_name is empty), if there is one.
  // load_path is then ignored.
  bool autoresume = true;
  // The save_folders of other trainers of the program that are saved at the same batches. Training resumes from the
  // newest batch that all of them have saved, and later checkpoints are deleted when the fit begins.
  std::vector<std::string> resume_with = {};

  // A checkpoint from which a new run starts, or a file of weights; a path or an s3://, file://, http:// or https://
  // URI.
  std::string load_path = {};
  bool load_weights_only = false;
  bool load_strict_model_weights = true;  // false: the model may have more or fewer weights than the file
  std::vector<Rename> load_rename = {};   // renames the file's weights to names of the model, with load_weights_only
  std::vector<std::string> load_ignore_keys = {};  // globs of entries that are not loaded, applied after load_rename

  bool handle_signals = true;  // within fit(), SIGINT and SIGTERM end the run after the current batch
  // > 0 seconds from SIGTERM to SIGKILL in your environment. After a signal, neither retries of a failed checkpoint
  // write nor waits for uploads go beyond it.
  Seconds grace_period{30};
};

// Options of a fit() that override those of the trainer.
struct FitOptions {
  AnyDataSpec train_dataloader = {};  // replaces the trainer's loader from now on
  std::string train_dataloader_label = "train";
  std::optional<std::int64_t> train_subset_num_batches = {};  // for this fit only; unset: the trainer's
  OptionalTime duration = {};  // from the current position, in any counted unit; unset: until max_duration
  bool reset_time = false;     // counts from zero again; weights and optimizer are kept
  std::vector<optim::Scheduler> schedulers = {};
  double scale_schedule_ratio = 1;  // scales these schedulers while they are used, and max_duration in this fit
  std::optional<bool> step_schedulers_every_batch = {};
  Evaluators eval_dataloader = {};
  Interval eval_interval = "1ep";             // for evaluators given here without an interval
  std::int64_t eval_subset_num_batches = -1;  // for evaluators given here without a subset
  std::optional<MicrobatchSize> device_train_microbatch_size = {};
  std::optional<Precision> precision = {};
};

struct EvalOptions {
  Evaluators eval_dataloader = {};       // for this call only; empty: the trainer's
  std::int64_t subset_num_batches = -1;  // overrides the evaluators' subsets; -1: each evaluator's own
};

struct PredictOptions {
  std::int64_t subset_num_batches = -1;
  bool return_outputs = true;
};

// Trains one model. One thread drives the trainer; any thread may request a stop. The constructor, or the call that
// gets the options, checks them before any work and throws ConfigError. Later errors leave fit(), eval(), predict() and
// step() as RunError, with the cause nested in it.
class COMPOSER_EXPORT Trainer {
 public:
  explicit Trainer(TrainerOptions options);  // does not match? Trainer(TrainerOptions{...}) tells which option is wrong
  ~Trainer();                                // calls close()
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  // Trains from state().timestamp to the end, and evaluates on the way: begin(), step() until it returns false, end().
  // A request to stop, also one made before the fit begins, ends the fit early, and the next fit() continues from
  // there. Evaluations and checkpoints that were due when an error ended a fit are done first by the next fit. In a
  // resumed run, fits that an earlier process has finished return at once. Fits after one that a signal has ended also
  // return at once, until the program calls state().stop.clear().
  void fit(FitOptions options = {});
  void fit(Time duration) { fit(FitOptions{.duration = duration}); }

  // For programs with their own loop; the steps and events are those of fit(). Without a max_duration the fit lasts
  // until end(). An error in begin(), step() or end() ends the fit; a ConfigError that rejects a call does not.
  void begin(FitOptions options = {});
  bool step();  // trains the next batch, or ends an epoch; false: training is over
  // Trains on the given batch, in a fit without a loader: its batches belong to one endless epoch. False: training is
  // over, and the batch was not used.
  bool step(Batch batch);
  // Whether training is over, that is, whether the next step() would return false. Changes nothing. Throws ConfigError
  // before begin().
  bool done() const;
  // Ends an epoch whose batches are all trained, then saves and evaluates what is still to be saved and evaluated.
  void end();

  // Trains num_batches from here with a rising learning rate, then undoes it: weights, requires_grad, buffers,
  // optimizer, random numbers, timestamp, learning rates and the fields that algorithms list in visit_state() are
  // restored. Algorithms run as in a fit, with the max_duration of the run, unless takes_part_in_trials() returns
  // false; schedulers, callbacks, loggers and metrics do not take part. The optimizer begins without state. Needs
  // memory for one more copy of the weights.
  LrCurve find_lr(const FindLrOptions& options = {});

  void eval(EvalOptions options = {});  // results are in state().metrics
  // The metric of an evaluator with what its last evaluation has measured, over all ranks, for what is not in
  // state().metrics: trainer.metric<metrics::ConfusionMatrix>("eval", "ConfusionMatrix").matrix(). Evaluators of eval()
  // are there until the next eval() or fit. Throws ConfigError if there is none, nothing was evaluated, or it is of
  // another class.
  template <std::derived_from<Metric> M>
  const M& metric(std::string_view label, std::string_view name) const {
    if (const auto* metric = dynamic_cast<const M*>(&found_metric(label, name))) return *metric;
    throw ConfigError("metric(): ", label, "/", name, " is of another class than the one that was asked for");
  }
  std::vector<Outputs> predict(const AnyDataSpec& dataloader, PredictOptions options = {});  // tensors on the CPU
  // Like predict(), but returns one row for each sample, on all ranks, in the order of the data if the loader tells it.
  // Throws RunError, with a DataError in it, if an output has no row for each, or rows that differ in shape.
  Outputs predict_all(const AnyDataSpec& dataloader, std::int64_t subset_num_batches = -1);
  // Calls `act` while the model has the weights that an algorithm returns for this use, or the trained weights if none
  // does. Afterwards, also after an exception, the model has the trained weights.
  void with_weights(WeightsUse use, const std::function<void(Model& model)>& act);
  void close();  // closes callbacks and loggers; later calls do nothing. After it, every event is an error

  // Writes a checkpoint now, to `name` (with placeholders) below save_folder, and returns its path once it is on disk.
  // It does not count for save_interval or save_num_checkpoints_to_keep. Within a fit it may be called between two
  // steps, or at a *_CHECKPOINT event, FIT_START or FIT_END. Throws ConfigError anywhere else, or if the weights are
  // exchanged.
  std::string save_checkpoint(const std::string& name = "ep{epoch}-ba{batch}");
  // The paths of the checkpoints that this run has written and not deleted, including those by save_checkpoint(), in
  // the order of writing. The last one may still be being written. Ranks other than 0 get the list when the trainer is
  // made, at the end of a fit, and in save_checkpoint().
  std::vector<std::string> saved_checkpoints() const;
  // The path of the checkpoint with the best value of save_best's metric; of equal values, the newest. nullopt: no
  // checkpoint has a value yet.
  std::optional<std::string> best_checkpoint() const;
  // Loads the weights of best_checkpoint() into the model, between two fits; on all ranks. All else stays as it is, the
  // optimizer and the timestamp, too. Returns its path. Throws ConfigError within a fit, without such a checkpoint, and
  // if an algorithm such as EMA evaluates weights of its own, which these are not.
  std::string restore_best();
  const std::string& resumed_from() const;  // the path of the checkpoint that was loaded; empty: none

  // The generator that this trainer's operators draw from on the device, for random numbers that a program draws
  // between two steps: at::rand({4}, trainer.generator()). Checkpoints contain its state, and begin() restores it, so
  // the numbers drawn between begin() and end() are the same after a resume, except for a batch that was being prepared
  // when a signal ended the fit; docs/reference/trainer.md shows how to draw from the timestamp instead. Throws
  // ConfigError for a device that the trainer does not use.
  at::Generator generator(at::Device device = at::kCPU) const;
  State& state();
  const State& state() const;
  Engine& engine();
  Logger& logger();
  const std::vector<std::string>& tuning() const;  // the choices of .tune, one line each; empty before the first fit
  int interrupted_by() const;                      // the signal that ended the last fit(); 0: none

 private:
  struct Impl;
  const Metric& found_metric(std::string_view label, std::string_view name) const;
  Impl& impl() const;  // throws Error if this trainer has been moved from
  std::unique_ptr<Impl> impl_;
};

}  // namespace composer
