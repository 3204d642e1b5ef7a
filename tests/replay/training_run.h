// What a case of training.json trains, and what is left of it at the end.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "composer/core/callback.h"
#include "composer/core/model.h"
#include "composer/core/plugins.h"
#include "tests/replay/make.h"
#include "tests/replay/recorded.h"
#include "tests/replay/replay.h"

namespace composer::replay {

struct TrainingRun {
  std::shared_ptr<Model> model;  // with the recorded initial weights
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  Batch train, eval;
  std::int64_t batch_size = 0;
};

// Made with the default dtype of the case in force. Throws Unsupported for what the library does not have.
TrainingRun make_training_run(const Json& c, const Context& context);

// Whether an algorithm replaces modules or lays out weights. Before a run these do so, and the model is filled with the
// weights that were recorded after it.
bool is_surgery(const Json& algorithm);
void replace_modules_of(const Json& c, const Context& context, torch::nn::Module& model);

// The others. They keep a reference to the log, from which they draw. Throws Unsupported.
Algorithms make_training_algorithms(const Json& config, RandomLog& log);
// CutMix, CutOut, ColOut, MixUp or SelectiveBackprop; false for any other.
bool add_augmentation(Algorithms& list, const Json& one, RandomLog& log);
bool has_algorithm(const Json& c, const std::string& name);

// {"final": parameters and buffers, "optimizer": its state if the case has it saved, ...}
Json final_json(const Json& config, const Model& model, const torch::optim::Optimizer& optimizer);

// How far numbers of a run may be from what was recorded.
Tolerance tolerance_of(const Json& c);

// The bias of a layer before a batch norm. The norm subtracts it again, so its gradient is nothing but rounding errors,
// and what it becomes is different on every machine.
struct BiasPath {
  std::vector<at::Tensor> values;     // in double: at the start of each batch, and at the end
  std::vector<at::Tensor> gradients;  // in double: of each batch, as the optimizer gets them
  std::vector<double> rates;          // the learning rate of each batch
  std::vector<double> largest;        // of each batch: the largest gradient of the parameters other than this bias
  at::Tensor shifted_mean;            // what the running mean of the norm has to be, from what the layer gives
  Json eval_history;                  // what evaluations have to give, from the model as it was then
};

constexpr const char* kNoisyBias = "module.0.bias";
constexpr const char* kShiftedMean = "module.1.running_mean";

// Whether the model of a case has such a bias.
bool has_noisy_bias(const Json& c);

// Notes the path of the bias, if there is one.
std::shared_ptr<Callback> record_bias(BiasPath& path, const TrainingRun& run);

// Replaces what was recorded for the bias, for the running mean that it shifts and, in single precision or if the bias
// differs notably, for the metrics of evaluation. The bias becomes what the optimizer makes of its gradients alone, the
// others what follows from the path; everything else stays as recorded. Throws std::runtime_error if a gradient of the
// bias is more than rounding errors, or if the bias took another path.
void replace_noise(Json& expected, const Json& c, const BiasPath& path);

// Without the entries that replace_noise() may replace.
Json without_noise(Json result, const Json& c);

// The deliberate differences of runs whose modules are replaced. Without a context: to be listed only.
Rules surgery_run_rules(const Context* context);

// What a case of training.json comes to; `faults` are further algorithms, by which tests show that faults are found.
Outcome run_training(const Json& c, const Context& context, const Algorithms& faults = {});

}  // namespace composer::replay
