// The bias of a layer before a batch norm. The norm subtracts it again, so its gradient is nothing but rounding errors,
// and what it becomes is different on every machine.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/callback.h"
#include "tests/replay/replay.h"

namespace composer::replay {

struct BiasPath {
  std::vector<at::Tensor> values;     // in double: at the start of each batch, and at the end
  std::vector<at::Tensor> gradients;  // in double: of each batch, as the optimizer gets them
  std::vector<double> rates;          // the learning rate of each batch
  std::vector<double> largest;        // of each batch: the largest gradient of the parameters other than this bias
};

constexpr const char* kNoisyBias = "module.0.bias";
constexpr const char* kShiftedMean = "module.1.running_mean";

// Whether the model of a case has such a bias.
bool has_noisy_bias(const Json& c);

// How far numbers of a run may be from what was recorded.
Tolerance tolerance_of(const Json& c);

// Notes the path of the bias, if there is one.
std::shared_ptr<Callback> record_bias(BiasPath& path);

// Replaces what was recorded for the bias, for the running mean that it shifts and, in single precision or if the bias
// differs notably, for the metrics of evaluation. The bias becomes what the formula of the optimizer makes of its
// gradients, the others what a plain loop computes with that bias; everything else stays as recorded. Throws
// std::runtime_error if a gradient of the bias is more than rounding errors, or if the bias took another path.
void replace_noise(Json& expected, const Json& c, const Context& context, const BiasPath& path);

// Without the entries that replace_noise() may replace.
Json without_noise(Json result, const Json& c);

}  // namespace composer::replay
