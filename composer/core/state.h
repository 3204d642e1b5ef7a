#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <c10/core/Device.h>

#include "composer/core/export.h"
#include "composer/core/stop.h"
#include "composer/core/tensors.h"
#include "composer/core/time.h"

namespace torch::optim {
class Optimizer;
}

namespace composer {

class Model;
class Run;
enum class Better : std::uint8_t;  // metric.h

// fp32, or autocast of forward and loss to the shorter type with fp32 weights.
enum class Precision : std::uint8_t { FP32, AMP_BF16, AMP_FP16 };
COMPOSER_EXPORT std::string_view to_string(Precision precision);
// From "fp32", "amp_bf16", "amp_fp16". Throws ConfigError.
COMPOSER_EXPORT Precision parse_precision(std::string_view text);

// A shared_ptr that passes const on: through a const Handle only const members can be called.
template <class T>
class Handle {
 public:
  Handle(std::shared_ptr<T> object = nullptr) : object_(std::move(object)) {}
  T& operator*() { return *object_; }
  T* operator->() { return object_.get(); }
  const T& operator*() const { return *object_; }
  const T* operator->() const { return object_.get(); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  std::shared_ptr<T> object_;
};

// The last value of a metric.
struct Reported {
  at::Tensor value;              // 0-d
  bool is_current = false;       // measured on the weights of now
  bool of_last_step = false;     // measured by the last step, on the weights before it
  std::optional<Better> better;  // which values are better; unset: nobody has said
};

// The last value of every metric, by loader ("train" or an evaluator's label) and name. A value belongs to the weights
// that it was measured on: when they change it stays, and is not current any more. Of a step and of what is loaded that
// is known at once. What else writes to the weights is noticed when the trainer evaluates or saves, or when somebody
// asks for state.run->weights_version(): call that first to know what is current after a change of your own.
class COMPOSER_EXPORT MetricValues {
 public:
  // Measured on the weights of now. Which values are better stays what it was, unless it is given.
  void set(std::string_view label, std::string_view name, at::Tensor value, std::optional<Better> better = {});
  const at::Tensor* find(std::string_view label, std::string_view name) const;  // nullptr: never reported
  // The number, read on the host: not for the step. Throws ConfigError with what is reported, if this is not.
  double at(std::string_view label, std::string_view name) const;
  const auto& all() const { return all_; }  // by label and name

  bool is_current(std::string_view label, std::string_view name) const;
  // For who changes the weights: the trainer does it after each step, before the metrics of training are set.
  void weights_changed();
  void stepped();  // the same at the end of a step: what was current until now is of_last_step
  // The values of this loader are not those of all its data: what follows the current ones leaves them out.
  void outdate(std::string_view label);
  void declare(std::string_view label, std::string_view name, Better better);  // of one that is there
  std::optional<Better> better(std::string_view label, std::string_view name) const;

 private:
  const Reported* known(std::string_view label, std::string_view name) const;

  std::map<std::string, std::map<std::string, Reported, std::less<>>, std::less<>> all_;
};

// Everything that changes while training, as plain data; the trainer keeps it consistent. Callbacks see it const,
// algorithms may change it. Fields of the moment (batch, outputs, loss) hold what docs/events.md says for each event.
struct State {
  std::string run_name;
  std::uint64_t seed = 0;        // of every random stream of this trainer
  int rank = 0, world_size = 1;  // of the processes that train together
  Handle<Model> model;
  Handle<torch::optim::Optimizer> optimizer;  // null: nothing to train, or at INIT; it is made after that
  at::Device device = at::kCPU;
  Precision precision = Precision::FP32;
  std::int64_t device_train_microbatch_size = 0;  // samples

  bool resumes = false;                         // this run goes on from a checkpoint, which is loaded after INIT
  Timestamp timestamp;                          // of training
  std::optional<Timestamp> previous_timestamp;  // before the last batch or epoch was counted
  Timestamp eval_timestamp, predict_timestamp;  // of the current, or else the last, evaluation and prediction
  OptionalTime max_duration;
  OptionalTime iteration_length;  // in epochs or tokens

  std::string dataloader_label;                // of the active loader: "train", an evaluator's label, "predict"
  std::optional<std::int64_t> dataloader_len;  // its batches an epoch, if known
  bool has_dataloader = false;

  Batch batch;
  Outputs outputs;    // of the last forward
  Losses loss;        // of the last microbatch
  Losses batch_loss;  // of the last batch: means over its samples, detached; "total" first

  MetricValues metrics;
  Stop stop;
  Handle<Run> run;  // null: nobody trains this

  // Share of max_duration that is done, >= 0; beyond 1 if the last batch overshot. 1 if max_duration is 0.
  // Throws ConfigError without a max_duration.
  COMPOSER_EXPORT double elapsed_duration() const;
};

}  // namespace composer
