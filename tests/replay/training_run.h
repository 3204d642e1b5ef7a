// What a case of training.json trains, and what is left of it at the end.
#pragma once
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include <torch/optim/optimizer.h>

#include "composer/algorithms/mixup.h"
#include "composer/core/model.h"
#include "composer/core/plugins.h"
#include "tests/replay/replay.h"
#include "tests/replay/schedule_walk.h"
#include "tests/replay/training_noise.h"

namespace composer::replay {

struct TrainingRun {
  std::shared_ptr<Model> model;  // with the recorded initial weights
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  Batch train, eval;
  std::int64_t batch_size = 0;
};

// Throws Unsupported, saying what has it, for an argument that is not known.
void require_known(const Json& arguments, const char* what, const std::set<std::string>& known);

// Made with the default dtype of the case in force. Throws Unsupported for what the library does not have.
TrainingRun make_training_run(const Json& c, const Context& context);

// The random choices of a run, in the order in which they were recorded.
class RandomLog {
 public:
  explicit RandomLog(const Json& log) : log_(log) {}
  // Throws if the next choice is another one.
  const Json& next(const std::string& fn, const Json& args);
  bool finished() const { return next_ == log_.size(); }

 private:
  const Json& log_;
  std::size_t next_ = 0;
};

// The choices of MixUp for a microbatch.
algorithms::MixUpDraw next_mixup(RandomLog& log, double alpha, std::int64_t samples);

// Likewise; both throw Unsupported. The algorithms keep a reference to the log.
Algorithms make_training_algorithms(const Json& config, RandomLog& log);

// Shape and values.
Json tensor_json(const at::Tensor& tensor);
// {"final": parameters and buffers, "optimizer": its state if the case has it saved, ...}
Json final_json(const Json& config, const Model& model, const torch::optim::Optimizer& optimizer);

struct ByHand {
  Rates rates = Rates::OURS;
  const BiasPath* bias = nullptr;  // the values that the bias before a batch norm takes, instead of being trained
  bool both_passes = false;        // with SAM: metrics and running statistics count both of them
};

// The rows and the final weights of a case, trained by a plain loop of libtorch. Targets are smoothed before they are
// mixed. Throws Unsupported for algorithms other than gradient clipping, label smoothing, MixUp and SAM.
Json train_by_hand(const Json& c, const Context& context, const ByHand& how = {});

// What a case of training.json comes to; `faults` are further algorithms, by which tests show that faults are found.
Outcome run_training(const Json& c, const Context& context, const Algorithms& faults = {});

}  // namespace composer::replay
