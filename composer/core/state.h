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

// fp32, or fp32 weights with autocast of forward and loss to the shorter type.
enum class Precision : std::uint8_t { FP32, AMP_BF16, AMP_FP16 };
COMPOSER_EXPORT std::string_view to_string(Precision precision);
// Parses "fp32", "amp_bf16" or "amp_fp16". Throws ConfigError for anything else.
COMPOSER_EXPORT Precision parse_precision(std::string_view text);

// A shared_ptr that propagates const: through a const Handle only const members can be called.
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
  bool is_current = false;       // measured on the current weights
  bool of_last_step = false;     // measured by the last step, on the weights before it
  std::optional<Better> better;  // which values are better; unset: unknown
};

// The last value of every metric, by loader ("train" or an evaluator's label) and name. A value belongs to the weights
// that it was measured on: when they change, it stays but is no longer current. Changes by a step or by loading are
// noticed immediately. Other changes of the weights are noticed when the trainer evaluates or saves, or when
// state.run->weights_version() is called: call it first to learn what is current after a change of your own.
class COMPOSER_EXPORT MetricValues {
 public:
  // Sets a value that was measured on the current weights. `better` keeps its previous value if it is not given.
  void set(std::string_view label, std::string_view name, at::Tensor value, std::optional<Better> better = {});
  const at::Tensor* find(std::string_view label, std::string_view name) const;  // nullptr: never reported
  // The value as a number, read on the host; not for use in every step. Throws ConfigError, which lists the reported
  // metrics, if this one has not been reported.
  double at(std::string_view label, std::string_view name) const;
  const auto& all() const { return all_; }  // by label and name

  bool is_current(std::string_view label, std::string_view name) const;
  // For code that changes the weights. The trainer calls it after each step, before training metrics are set.
  void weights_changed();
  void stepped();  // like weights_changed(), at the end of a step: values that were current become of_last_step
  // Marks the values of this loader as not current, for example because they do not cover all of its data.
  void outdate(std::string_view label);
  void declare(std::string_view label, std::string_view name, Better better);  // of a metric that has been reported
  std::optional<Better> better(std::string_view label, std::string_view name) const;

 private:
  const Reported* known(std::string_view label, std::string_view name) const;

  std::map<std::string, std::map<std::string, Reported, std::less<>>, std::less<>> all_;
};

// Everything that changes during training, as plain data that the trainer keeps consistent. Callbacks see it const;
// algorithms may change it. docs/reference/events.md says what the temporary fields (batch, outputs, loss) contain at
// each event.
struct State {
  std::string run_name;
  std::uint64_t seed = 0;        // of all random streams of this trainer
  int rank = 0, world_size = 1;  // of the processes that train together
  Handle<Model> model;
  Handle<torch::optim::Optimizer> optimizer;  // null: nothing to train, or at INIT; it is made after INIT
  at::Device device = at::kCPU;
  Precision precision = Precision::FP32;
  std::int64_t device_train_microbatch_size = 0;  // samples

  bool resumes = false;  // whether this run resumes from a checkpoint, which is loaded after INIT
  Timestamp timestamp;   // of training
  std::optional<Timestamp> previous_timestamp;  // before the last batch or epoch was counted
  Timestamp eval_timestamp, predict_timestamp;  // of the current evaluation and prediction, or of the last ones
  OptionalTime max_duration;
  OptionalTime iteration_length;  // in epochs or tokens

  std::string dataloader_label;                // label of the active loader: "train", an evaluator's label, "predict"
  std::optional<std::int64_t> dataloader_len;  // its batches per epoch, if known
  bool has_dataloader = false;

  Batch batch;
  Outputs outputs;    // of the last forward pass
  Losses loss;        // of the last microbatch
  Losses batch_loss;  // of the last batch: means over its samples, detached; "total" first

  MetricValues metrics;
  Stop stop;
  Handle<Run> run;  // null: no trainer owns this state

  // The elapsed share of max_duration, >= 0; above 1 if the last batch overshot. 1 if max_duration is 0. Throws
  // ConfigError without a max_duration.
  COMPOSER_EXPORT double elapsed_duration() const;
};

}  // namespace composer
