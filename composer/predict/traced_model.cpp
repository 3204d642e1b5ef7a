#include "composer/predict/traced_model.h"

#include <algorithm>
#include <exception>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/where.h>
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
  if (got.sizes() != expected.sizes() || got.scalar_type() != expected.scalar_type()) return false;
  const at::Tensor here = got.to(expected.device());
  if (!expected.is_floating_point() && !expected.is_complex()) return here.equal(expected);
  return at::allclose(here, expected, /*rtol=*/1e-3, /*atol=*/1e-5, /*equal_nan=*/true);
}

// forward() may write into its inputs.
TracedFunction::Tensors copies_of(const TracedFunction::Tensors& tensors) {
  TracedFunction::Tensors copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.clone());
  return copies;
}

// Throws what the function throws.
bool agree(torch::jit::Module& program, const TracedFunction& function, const TracedFunction::Tensors& inputs,
           TracedFunction::Tensors* expected_outputs = nullptr) {
  const TracedFunction::Tensors expected = function.call(copies_of(inputs));
  if (expected_outputs) *expected_outputs = expected;
  try {
    return std::ranges::equal(run_program(program, copies_of(inputs)), expected, is_close);
  } catch (const std::exception&) {  // the program does not run
    return false;
  }
}

// Other values that a model most likely takes: rows in another order, and other fractions. The second kind also has
// whole numbers at other places; an index that is too large there is an exception on the CPU, but on a GPU it would
// make the whole device unusable, so whole numbers stay in their columns there.
at::Tensor other_values(const at::Tensor& example, bool second) {
  if (example.dim() == 0 && !example.is_floating_point()) return example;
  const at::Tensor rolled = example.dim() == 0 ? example : example.roll(1, 0);
  if (!example.is_floating_point())
    return second && example.is_cpu() ? rolled.flatten().flip(0).view(example.sizes()) : rolled;
  const at::Tensor scaled = second ? rolled.mul(1.3).add(0.1) : rolled.mul(-1.7).add(0.3);
  return example.is_cpu() ? scaled : at::where(rolled.eq(rolled.round()), rolled, scaled);
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

Agreement agreement_of(torch::jit::Module& program, const TracedFunction& function) {
  const at::NoGradGuard no_grad;
  if (!agree(program, function, function.examples)) return Agreement::NOWHERE;
  for (const bool second : {false, true}) {
    TracedFunction::Tensors inputs;
    for (const at::Tensor& example : function.examples) inputs.push_back(other_values(example, second));
    try {
      if (!agree(program, function, inputs)) return Agreement::FOR_EXAMPLES_ALONE;
    } catch (const std::exception&) {  // forward() does not take such values
    }
  }
  return Agreement::EVERYWHERE;
}

OtherSizes try_other_sizes(torch::jit::Module& program, const TracedFunction& function, const DynamicSizes& dynamic) {
  const at::NoGradGuard no_grad;
  const TracedFunction::Tensors inputs = smaller(function, dynamic);
  if (inputs.empty()) return {};
  OtherSizes other;
  try {
    other.works = agree(program, function, inputs, &other.outputs);
  } catch (const std::exception&) {  // forward() does not take such sizes
  }
  return other;
}

TracedFunction resized(const TracedFunction& function, const DynamicSizes& dynamic) {
  TracedFunction other = function;
  for (std::size_t i = 0; i < other.examples.size(); ++i) {
    at::Tensor& example = other.examples[i];
    if (example.dim() > 0) example = at::cat({example, example.narrow(0, 0, 1)});
    if (const auto more = dynamic.find(function.names[i]); more != dynamic.end())
      for (const std::int64_t dimension : more->second)
        example = example.narrow(dimension, 0, example.size(dimension) - 1).contiguous();
  }
  return other;
}

}  // namespace composer::predict
