#pragma once
// One operator of a recorded program, while it is translated to ONNX. Internal.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/predict/onnx_model.h"

namespace torch::jit {
struct Node;
struct Value;
}  // namespace torch::jit

namespace composer::onnx {

class Conversion;

// Arguments have the names of libtorch's schemas: call.whole("dim").
class Call {
 public:
  Call(Conversion& conversion, const torch::jit::Node& node) : conversion_(conversion), node_(node) {}

  bool has(const char* argument) const;            // the operator has such an argument, and it is not None
  std::string tensor(const char* argument) const;  // the name of its value
  std::string tensor_as(const char* argument, at::ScalarType type) const;  // converted; a number becomes a tensor
  std::vector<std::string> tensors(const char* argument) const;            // a list
  std::int64_t whole(const char* argument) const;
  double number(const char* argument) const;
  bool flag(const char* argument) const;
  std::string text(const char* argument) const;
  std::vector<std::int64_t> wholes(const char* argument) const;
  // A dimension of the tensor `of`, counted from the front.
  std::int64_t dimension(const char* argument, const char* of, std::int64_t extra = 0) const;

  // What the recording knows.
  at::ScalarType type(const char* argument) const;
  std::vector<std::int64_t> sizes(const char* argument) const;  // of the example
  std::int64_t rank(const char* argument) const { return static_cast<std::int64_t>(sizes(argument).size()); }
  bool is_tensor(const char* argument) const;
  // In which libtorch computes with both: the first is a tensor, the second a tensor or a number.
  at::ScalarType common_type(const char* a, const char* b) const;
  at::ScalarType result_type() const;
  std::vector<std::int64_t> result_sizes() const;

  // Adds an operator of ONNX, and returns the name of its result.
  std::string add(const char* operation, std::vector<std::string> inputs, Attributes attributes = {});
  std::vector<std::string> add_list(const char* operation, std::vector<std::string> inputs, std::size_t outputs,
                                    Attributes attributes = {});
  std::string constant(const at::Tensor& value);
  std::string constant(const std::vector<std::int64_t>& values);
  std::string number_like(double value, const char* argument);  // a scalar of the type of that tensor
  std::string cast(std::string value, at::ScalarType type);

  [[noreturn]] void fail(const std::string& why) const;

 private:
  const torch::jit::Value* value(const char* argument) const;

  Conversion& conversion_;
  const torch::jit::Node& node_;
};

using Translate = std::function<std::string(Call&)>;
using TranslateToList = std::vector<std::string> (*)(Call&);
// By the name of the operator without "aten::"; null: it has no translation.
const Translate* find_translation(std::string_view name);
TranslateToList find_list_translation(std::string_view name);

}  // namespace composer::onnx
