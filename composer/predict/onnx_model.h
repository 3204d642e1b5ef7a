#pragma once
// A model in the terms of ONNX, and its file. Internal.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

namespace composer::onnx {

inline constexpr std::int64_t kOpset = 17;

struct Attribute {
  std::string name;
  std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>, at::Tensor> value;
};
using Attributes = std::vector<Attribute>;

struct Operation {
  std::string name;  // "Gemm"
  std::vector<std::string> inputs, outputs;
  Attributes attributes;
};

struct Dimension {
  std::int64_t size = 0;
  std::string symbol = {};  // not empty: the size may be any
};

struct GraphValue {
  std::string name;
  at::ScalarType type;
  std::vector<Dimension> shape;
};

struct OnnxModel {
  std::vector<Operation> operations;  // in the order in which they run
  std::vector<std::pair<std::string, at::Tensor>> weights;
  std::vector<GraphValue> inputs, outputs;
};

// The number of a type in ONNX. Throws ConfigError if it has none.
std::int64_t onnx_type(at::ScalarType type);

// The bytes of the file. Throws ConfigError for 2 GiB or more, which protocol buffers cannot hold.
std::string onnx_bytes(const OnnxModel& model);

}  // namespace composer::onnx
