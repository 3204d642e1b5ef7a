#pragma once
// Translates a recorded program to ONNX. Internal.
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include "composer/predict/onnx_model.h"

namespace composer::onnx {

class Conversion {
 public:
  // The names are those of forward()'s inputs, and of its outputs.
  Conversion(const torch::jit::Module& program, std::vector<std::string> inputs, std::vector<std::string> outputs);
  OnnxModel run();  // the shapes of inputs and outputs are those of the example

  // For Call.
  std::string name_of(const torch::jit::Value* value);                       // of a tensor
  std::vector<std::int64_t> sizes_of(const torch::jit::Value* value) const;  // in the example
  at::ScalarType type_of(const torch::jit::Value* value) const;
  const std::vector<std::string>* list_of(const torch::jit::Value* value) const;
  std::vector<std::string> add(const char* operation, std::vector<std::string> inputs, std::size_t outputs,
                               Attributes attributes);
  std::string add_constant(const at::Tensor& value);
  const std::string& last_layer() const { return last_layer_; }

 private:
  void convert(const torch::jit::Node& node);
  void convert_operator(const torch::jit::Node& node);
  bool fold(const torch::jit::Node& node);
  std::string fresh_name();
  std::optional<c10::IValue> known_value(const torch::jit::Value* value) const;
  std::optional<at::Tensor> known_tensor(const torch::jit::Value* value) const;

  const torch::jit::Module& program_;
  std::vector<std::string> input_names_, output_names_;
  OnnxModel model_;
  std::set<std::string> taken_;                                         // names of values
  std::map<std::string, std::string> weights_;                          // names of weights, by their paths
  std::map<const torch::jit::Value*, std::string> names_;               // of tensors
  std::map<const torch::jit::Value*, std::vector<std::string>> lists_;  // of tensors in lists
  std::map<const torch::jit::Value*, std::pair<std::string, c10::IValue>>
      attributes_;                                             // modules and weights, with paths
  std::map<const torch::jit::Value*, c10::IValue> constants_;  // results that were computed
  std::string last_layer_;                                     // whose weights were used last
  std::size_t next_name_ = 0;
};

}  // namespace composer::onnx
