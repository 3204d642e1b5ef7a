#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include "composer/checkpoint/save_options.h"
#include "composer/core/engine.h"
#include "composer/core/export.h"
#include "composer/core/interval.h"
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
#include "composer/trainer/evaluator.h"
#include "composer/trainer/lr_finder.h"

namespace composer {

namespace dist {
class World;
}  // namespace dist

struct TrainerOptions {
  std::shared_ptr<Model> model = {};  // required

  AnyDataSpec train_dataloader = {};  // or given to fit()
  std::string train_dataloader_label = "train";
  std::int64_t train_subset_num_batches = -1;  // an epoch is so many batches at most; -1: all
  Evaluators eval_dataloader = {};
  Interval eval_interval = "1ep";             // of evaluators that have none; 0 disables
  std::int64_t eval_subset_num_batches = -1;  // of evaluators that have none

  // Of all parameters that require gradients; required for fit(). Made after INIT, where algorithms may replace
  // modules; a ready one is refitted then.
  optim::AnyOptimizer optimizer = {};
  std::vector<optim::Scheduler> schedulers = {};  // the product of them times the optimizer's learning rates
  double scale_schedule_ratio = 1;                // of schedules and max_duration
  bool step_schedulers_every_batch = true;        // false: the learning rate changes between epochs only

  OptionalTime max_duration = {};      // not in seconds or shares; or given to fit()
  OptionalTime iteration_length = {};  // in epochs or tokens; unset: no iteration ends

  Algorithms algorithms = {};
  std::vector<AlgorithmPass> algorithm_passes = {};
  Callbacks callbacks = {};
  Loggers loggers = {};

  std::string run_name = {};              // empty: $COMPOSER_RUN_NAME, $RUN_NAME, or made of the time and chance
  std::optional<at::Device> device = {};  // unset: CUDA if there is any, else CPU
  Precision precision = Precision::FP32;
  // How losses are scaled; unset: as GradScalerOptions say with amp_fp16, else not at all.
  std::optional<optim::GradScalerOptions> grad_scaler = {};
  bool allow_tf32 = true;  // on an NVIDIA GPU: float32 products and convolutions round their inputs to 10 bits
  MicrobatchSize device_train_microbatch_size = 0;  // samples; 0: the whole batch at once; "auto": what memory allows
  std::int64_t microbatch_memory = 0;  // with "auto": bytes that a batch may allocate; 0: what the device has left
  bool copy_ahead = false;  // to a GPU: the next training batch is copied while this one trains (docs/data.md)
  // On a CUDA device: record forward, loss and backward of a batch as a CUDA graph, after three batches, and repeat it
  // for all of that shape. What cannot be recorded runs as without it, and a warning says why (docs/tuning.md).
  bool cuda_graph = false;
  bool accumulate_train_batch_on_tokens = false;  // weigh microbatches by their loss-generating tokens
  std::optional<std::uint64_t> seed = {};         // of random numbers and training loaders; unset: from libtorch
  bool deterministic_mode = false;                // libtorch's deterministic kernels, or its error where there is none

  // The processes that train together (docs/distributed.md); null: those that the launcher of this one has started.
  // Without a launcher there is one.
  std::shared_ptr<dist::World> world = {};
  dist::DistributedOptions distributed = {};

  // When the first fit of a run begins, log as hyperparameters what its checkpoints say of it: these options, those of
  // the model, optimizer, schedules, algorithms and callbacks (docs/hyperparameters.md).
  bool auto_log_hparams = true;

  // Before the first batch, time a few steps in each of the ways that may train faster here, and go on in the fastest:
  // channels-last weights, as many threads as help, fp32 where the precision above is slower, and matrix products by
  // kernels of our own (products). Nothing else of the trial steps stays. What was found is kept in tune_cache for
  // later runs of the same model on the same machine.
  bool tune = false;
  std::filesystem::path tune_cache = {};  // empty: libcomposer/tune.json among the user's caches
  // Who multiplies float matrices on a CPU: libtorch's library, our kernels, or (TUNED) the library unless tune finds
  // ours faster, shape by shape. Ours give the same bits with any number of threads (docs/tuning.md).
  Products products = Products::TUNED;

  bool inference_mode = true;  // evaluate and predict in it; false: for models that train on tensors kept from there
  // Fold batch norms into the convolutions before them while evaluating or predicting eight batches or more, if that
  // leaves the outputs of the first batch equal to 1e-5 of the largest; tune does so, too. The model is not changed.
  bool fold_batch_norms = false;

  // Checkpoints: each a folder below save_folder that appears whole or not at all (docs/checkpoints.md). In the
  // folder's name {run_name} is replaced, in the others also counts, as {epoch} and {batch:06}. To a URI,
  // s3://bucket/folder or file:///folder, copies of them are uploaded meanwhile.
  std::string save_folder = {};  // empty: none are written
  std::string save_filename = "ep{epoch}-ba{batch}";
  std::string save_latest_filename = "latest";  // a link to the newest; empty: none
  Interval save_interval = "1ep";               // and at the end of training; 0: never
  bool save_overwrite = false;                  // also what other runs have written; false: that is an error
  bool save_weights_only = false;
  std::int64_t save_num_checkpoints_to_keep = -1;  // of this run; -1: all
  std::optional<saving::Best> save_best = {};  // keep so many of the best by this metric, and the newest in addition
  saving::OnFailure save_on_failure = saving::OnFailure::FAIL;
  bool save_async = true;                          // written by another thread while training goes on
  std::vector<std::string> save_ignore_keys = {};  // globs of what is not saved: "optimizer/*"
  // If save_folder is a URI: where on this machine checkpoints are written before they are uploaded (empty: below
  // ~/.cache/libcomposer/uploads), and for how long the end of a fit waits for uploads.
  std::string save_staging_folder = {};
  Seconds save_upload_timeout{3600};
  // A save_folder that has a checkpoint of this run (of any run, if run_name is empty) is where training goes on, from
  // the newest, whatever load_path says.
  bool autoresume = true;
  // The save_folders of other trainers of the program that are saved at the same batches: training goes on from the
  // newest batch that all of them have saved, and later checkpoints are deleted when the fit begins.
  std::vector<std::string> resume_with = {};

  // A checkpoint to start from, as another run, or a file of weights; also as s3://, file://, http:// or https:// URI.
  std::string load_path = {};
  bool load_weights_only = false;
  bool load_strict_model_weights = true;           // false: the model may have more or fewer weights
  std::vector<Rename> load_rename = {};            // from names of weights to the model's, with load_weights_only
  std::vector<std::string> load_ignore_keys = {};  // globs of what is not loaded, after load_rename

  bool handle_signals = true;  // within fit(), SIGINT and SIGTERM end the run after the current batch
  // From SIGTERM to SIGKILL, as whoever sends them has it: what of a checkpoint does not fit into it is not tried.
  Seconds grace_period{30};
};

// For a fit() that differs from what the trainer was built with.
struct FitOptions {
  AnyDataSpec train_dataloader = {};  // replaces the trainer's from now on
  std::string train_dataloader_label = "train";
  std::optional<std::int64_t> train_subset_num_batches = {};  // in this fit only; unset: the trainer's
  OptionalTime duration = {};  // from where training is, in any counted unit; unset: to max_duration
  bool reset_time = false;     // count from zero again; weights and optimizer stay
  std::vector<optim::Scheduler> schedulers = {};
  double scale_schedule_ratio = 1;  // of these schedulers while they are in force, and of max_duration in this fit
  std::optional<bool> step_schedulers_every_batch = {};
  Evaluators eval_dataloader = {};
  Interval eval_interval = "1ep";             // of the evaluators given here
  std::int64_t eval_subset_num_batches = -1;  // likewise
  std::optional<MicrobatchSize> device_train_microbatch_size = {};
  std::optional<Precision> precision = {};
};

struct EvalOptions {
  Evaluators eval_dataloader = {};       // for this call only; empty: the trainer's
  std::int64_t subset_num_batches = -1;  // whatever the evaluators say; -1: as each of them says
};

struct PredictOptions {
  std::int64_t subset_num_batches = -1;
  bool return_outputs = true;
};

// Trains one model. One thread drives it, any thread may ask it to stop. Options are checked by the constructor or at
// the call that gets them, before any work: ConfigError. What goes wrong later leaves fit(), eval(), predict() and
// step() as RunError, with the cause nested in it.
class COMPOSER_EXPORT Trainer {
 public:
  explicit Trainer(TrainerOptions options);
  ~Trainer();  // closes
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  // Trains from state().timestamp to the end, evaluating on the way: begin(), step() until it is false, end(). A stop
  // that somebody asks for, also before it begins, ends it early; the next fit() goes on from there. What was due when
  // an error ended a fit (evaluations, a checkpoint) is done first by the next one. In a run that goes on, the fits
  // that a process before has finished return at once; so do those after one that a signal has ended, until the program
  // calls state().stop.clear().
  void fit(FitOptions options = {});
  void fit(Time duration) { fit(FitOptions{.duration = duration}); }

  // For programs that own their loop: the same loop, the same events. Without a max_duration it lasts until end(). An
  // error in begin(), step() or end() ends the fit; a ConfigError that refuses a call does not.
  void begin(FitOptions options = {});
  bool step();  // the next batch, or the end of an epoch; false: training is over
  // Trains on that batch, in a fit without a loader: its batches belong to one endless epoch. False: training is over,
  // nothing was done.
  bool step(Batch batch);
  // Whether training is over: the next step() would be false. Changes nothing. Throws ConfigError before begin().
  bool done() const;
  // Ends an epoch whose batches are all trained; saves and evaluates what has not been saved and evaluated yet.
  void end();

  // Trains num_batches from here with a rising learning rate, then undoes it: weights, requires_grad, buffers,
  // optimizer, random numbers, timestamp, learning rates and what algorithms name in visit_state() are what they were.
  // Algorithms run as in a fit, and see the run's own max_duration, unless takes_part_in_trials() says no; schedulers,
  // callbacks, loggers and metrics do not. The optimizer begins without state. Costs one more copy of the weights.
  LrCurve find_lr(const FindLrOptions& options = {});

  void eval(EvalOptions options = {});                                                       // results: state().metrics
  std::vector<Outputs> predict(const AnyDataSpec& dataloader, PredictOptions options = {});  // on the CPU
  // Calls `act` while the model has the weights that an algorithm hands out for this use, else the trained ones. Then,
  // also after an exception, the model has the trained ones again.
  void with_weights(WeightsUse use, const std::function<void(Model& model)>& act);
  void close();  // closes callbacks and loggers; again: does nothing. Every event after it is an error

  // Writes one now, to `name` (its placeholders replaced) below save_folder, and returns its path when it is on the
  // disk. It counts neither as one of save_interval's nor among save_num_checkpoints_to_keep. Within a fit: between two
  // steps, or at a *_CHECKPOINT event, FIT_START or FIT_END; throws ConfigError elsewhere, or if weights are exchanged.
  std::string save_checkpoint(const std::string& name = "ep{epoch}-ba{batch}");
  // The paths of those that this run has written and not deleted, also by name, in the order in which they were
  // written; the last may still be being written. Ranks other than 0 hear of them when the trainer is made, at the end
  // of a fit and in save_checkpoint().
  std::vector<std::string> saved_checkpoints() const;
  // Likewise that with the best value of save_best's metric, of equal ones the newest. nullopt: none has a value yet.
  std::optional<std::string> best_checkpoint() const;
  const std::string& resumed_from() const;  // the path of the checkpoint that was loaded; empty: none

  // The generator that this trainer's operators draw from on that device, for what a program draws between two steps:
  // at::rand({4}, trainer.generator()). Checkpoints contain its state, and begin() restores it, so what is drawn
  // between begin() and end() is the same after a resume, but for a batch that was being prepared when a signal ended
  // the fit; docs/trainer.md shows how to draw from the timestamp. ConfigError for a device that it does not use.
  at::Generator generator(at::Device device = at::kCPU) const;
  State& state();
  const State& state() const;
  Engine& engine();
  Logger& logger();
  const std::vector<std::string>& tuning() const;  // what .tune has chosen, one line each; empty before the first fit
  int interrupted_by() const;                      // the signal that ended the last fit(); 0: none

 private:
  struct Impl;
  Impl& impl() const;  // throws Error if this has been moved from
  std::unique_ptr<Impl> impl_;
};

}  // namespace composer
