#include "composer/predict/traced_model.h"

#include <algorithm>
#include <exception>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <torch/csrc/jit/api/module.h>

#include "composer/core/model_access.h"

namespace composer::predict {
namespace {

using formats::TracedFunction;

// The tensors with one sample less, and one less in each dynamic dimension; empty if some size is 1.
TracedFunction::Tensors smaller(const TracedFunction& function, const DynamicSizes& dynamic) {
  TracedFunction::Tensors inputs;
  for (std::size_t i = 0; i < function.examples.size(); ++i) {
    at::Tensor input = function.examples[i];
    std::vector<std::int64_t> dimensions = {0};
    if (const auto more = dynamic.find(function.names[i]); more != dynamic.end())
      dimensions.insert(dimensions.end(), more->second.begin(), more->second.end());
    for (const std::int64_t dimension : dimensions) {
      if (dimension >= input.dim() || input.size(dimension) < 2) return {};
      input = input.narrow(dimension, 0, input.size(dimension) - 1);
    }
    inputs.push_back(input.contiguous());
  }
  return inputs;
}

TracedFunction::Tensors run_program(torch::jit::Module& program, const TracedFunction::Tensors& inputs) {
  const c10::IValue result = program.forward({inputs.begin(), inputs.end()});
  if (result.isTensor()) return {result.toTensor()};
  TracedFunction::Tensors outputs;
  for (const c10::IValue& output : result.toTuple()->elements()) outputs.push_back(output.toTensor());
  return outputs;
}

bool is_close(const at::Tensor& got, const at::Tensor& expected) {
  return got.sizes() == expected.sizes() &&
         at::allclose(got.to(expected.device()), expected, /*rtol=*/1e-3, /*atol=*/1e-5, /*equal_nan=*/true);
}

}  // namespace

Batch few_samples(const Batch& sample) {
  constexpr std::int64_t kEnough = 4;
  std::int64_t samples = -1;
  for (const auto& [name, tensor] : sample) {
    const std::int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
    if (rows == 0 || (samples >= 0 && rows != samples)) return sample;
    samples = rows;
  }
  Batch few;
  for (const auto& [name, tensor] : sample)
    few.set(name,
            samples == 1 ? tensor.repeat_interleave(2, 0) : tensor.narrow(0, 0, std::min(samples, kEnough)).clone());
  return few;
}

TracedFunction function_of(Model& model, const std::vector<std::string>& names, const Batch& sample,
                           at::Device device) {
  TracedFunction function{.call = {}, .examples = {}, .names = names};
  for (const std::string& name : names) function.examples.push_back(sample.at(name).to(device));
  function.call = [&model, names](const TracedFunction::Tensors& inputs) {
    Batch batch;
    for (std::size_t i = 0; i < names.size(); ++i) batch.set(names[i], inputs[i]);
    TracedFunction::Tensors outputs;
    for (const auto& [name, tensor] : eval_forward_of(model, batch, nullptr)) outputs.push_back(tensor);
    return outputs;
  };
  return function;
}

bool is_faithful(torch::jit::Module& program, const TracedFunction& function) {
  const at::NoGradGuard no_grad;
  try {
    return std::ranges::equal(run_program(program, function.examples), function.call(function.examples), is_close);
  } catch (const std::exception&) {  // the program does not run
    return false;
  }
}

OtherSizes try_other_sizes(torch::jit::Module& program, const TracedFunction& function, const DynamicSizes& dynamic) {
  const at::NoGradGuard no_grad;
  const TracedFunction::Tensors inputs = smaller(function, dynamic);
  if (inputs.empty()) return {};
  OtherSizes other;
  try {
    other.outputs = function.call(inputs);
    const TracedFunction::Tensors got = run_program(program, inputs);
    other.works = std::ranges::equal(got, other.outputs, is_close);
  } catch (const std::exception&) {  // one of the two does not run
  }
  return other;
}

}  // namespace composer::predict
