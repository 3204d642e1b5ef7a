#pragma once
// A model as a function of some tensors of its batches, to be recorded. Internal to exports.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "composer/core/tensors.h"
#include "composer/formats/torch_script.h"

namespace torch::jit {
struct Module;
}

namespace composer {
class Model;
}

namespace composer::predict {

// A batch of two to four samples like the given ones, which is enough for a recording. One sample is repeated, because
// its number, 1, would be taken for a size that is broadcast. Batches without one row for each sample stay as they are.
Batch few_samples(const Batch& sample);

// The model's eval_forward() for the tensors of these names.
formats::TracedFunction function_of(Model& model, const std::vector<std::string>& names, const Batch& sample,
                                    at::Device device);

// Dimensions besides the first that may have other sizes than in the example, by the name of the tensor.
using DynamicSizes = std::map<std::string, std::vector<std::int64_t>>;

// Where the recorded program has the function's outputs.
enum class Agreement : std::uint8_t {
  EVERYWHERE,          // for the examples, and for other values in tensors of their shapes
  FOR_EXAMPLES_ALONE,  // not for other values, because forward() reads numbers from tensors or decides by them
  NOWHERE              // because forward() makes tensors from numbers, or draws random ones
};
Agreement agreement_of(torch::jit::Module& program, const formats::TracedFunction& function);

// What a recorded program takes that the example did not have.
struct OtherSizes {
  bool works = false;  // the program has the function's outputs for one sample less, and dynamic sizes one less
  formats::TracedFunction::Tensors outputs;  // the function's for these; empty if they cannot be made
};
OtherSizes try_other_sizes(torch::jit::Module& program, const formats::TracedFunction& function,
                           const DynamicSizes& dynamic = {});
// The function with examples of one sample more, and dynamic sizes one less: for a second recording of a function that
// takes other sizes.
formats::TracedFunction resized(const formats::TracedFunction& function, const DynamicSizes& dynamic);

}  // namespace composer::predict
