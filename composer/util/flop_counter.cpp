#include "composer/util/flop_counter.h"

#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace composer {
namespace {

using Inputs = c10::ArrayRef<const c10::IValue>;
using Shape = std::vector<std::int64_t>;

Shape shape_of(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() ? value.toTensor().sizes().vec() : Shape();
}

Shape numbers_of(const c10::IValue& value) {
  if (value.isIntList()) return value.toIntVector();
  Shape numbers;
  if (value.isSymIntList())
    for (const c10::SymInt& number : value.toSymIntVector()) numbers.push_back(number.guard_int(__FILE__, __LINE__));
  return numbers;
}

std::int64_t product(const Shape& shape, std::size_t from = 0) {
  std::int64_t product = 1;
  for (std::size_t i = from; i < shape.size(); ++i) product *= shape[i];
  return product;
}

// The product of [..., m, k] and [..., k, n].
std::int64_t matrices(const Shape& a, const Shape& b) { return a.empty() || b.empty() ? 0 : 2 * product(a) * b.back(); }

// `positions`: the shape of the tensor whose positions each use the whole filter: the output, or the input if
// transposed.
std::int64_t filters(const Shape& positions, const Shape& weight) {
  return positions.empty() ? 0 : 2 * positions[0] * product(positions, 2) * product(weight);
}

Shape convolved(const Shape& input, const Shape& weight, Inputs inputs) {
  const Shape stride = numbers_of(inputs[3]), padding = numbers_of(inputs[4]), dilation = numbers_of(inputs[5]);
  const auto at = [](const Shape& list, std::size_t i) { return list.size() == 1 ? list[0] : list.at(i); };
  Shape output = {input.at(0), weight.at(0)};
  for (std::size_t i = 0; i + 2 < input.size(); ++i)
    output.push_back(
        (input[i + 2] + 2 * at(padding, i) - at(dilation, i) * (weight.at(i + 2) - 1) - 1) / at(stride, i) + 1);
  return output;
}

// (input, weight, bias, stride, padding, dilation, transposed, ...)
std::int64_t convolution(Inputs inputs) {
  const Shape input = shape_of(inputs[0]), weight = shape_of(inputs[1]);
  return filters(inputs[6].toBool() ? input : convolved(input, weight, inputs), weight);
}

// (grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask)
std::int64_t convolution_backward(Inputs inputs) {
  const auto mask = inputs[10].toBoolList();
  return filters(shape_of(inputs[inputs[7].toBool() ? 1 : 0]), shape_of(inputs[2])) *
         (static_cast<int>(mask[0]) + static_cast<int>(mask[1]));
}

// The products of queries and keys, and of the result with values; all have the shapes [batch, heads, length, size].
struct Attention {
  explicit Attention(Inputs inputs, std::size_t from) {
    const Shape q = shape_of(inputs[from]), k = shape_of(inputs[from + 1]), v = shape_of(inputs[from + 2]);
    if (q.size() != 4 || k.size() != 4 || v.size() != 4) return;
    scores = 2 * product(q) * k[2];
    values = 2 * q[0] * q[1] * q[2] * k[2] * v[3];
  }
  std::int64_t scores = 0, values = 0;
};
std::int64_t attention(Inputs inputs) {
  const Attention one(inputs, 0);
  return one.scores + one.values;
}
// The arguments follow grad_output. The scores are computed again.
std::int64_t attention_backward(Inputs inputs) {
  const Attention one(inputs, 1);
  return 3 * one.scores + 2 * one.values;
}

// The input is [steps, samples, size] in one of its layouts.
std::int64_t recurrent(const Shape& input, std::int64_t weights) {
  return input.size() < 3 ? 0 : 2 * input[0] * input[1] * weights;
}
// (input, weight_ih, weight_hh, ...)
std::int64_t lstm_layer(Inputs inputs) {
  return recurrent(shape_of(inputs[0]), product(shape_of(inputs[1])) + product(shape_of(inputs[2])));
}
// (input, weights, ...)
std::int64_t cudnn_rnn(Inputs inputs) {
  std::int64_t matrices = 0;
  for (const at::Tensor& weight : inputs[1].toTensorVector())
    if (weight.dim() == 2) matrices += weight.numel();
  return recurrent(shape_of(inputs[0]), matrices);
}

std::int64_t mm(Inputs inputs) { return matrices(shape_of(inputs[0]), shape_of(inputs[1])); }
std::int64_t addmm(Inputs inputs) { return matrices(shape_of(inputs[1]), shape_of(inputs[2])); }

using Formula = std::int64_t (*)(Inputs);
const std::unordered_map<std::string_view, Formula>& formulas() {
  static const std::unordered_map<std::string_view, Formula> all = {
      {"aten::mm", mm},
      {"aten::bmm", mm},
      {"aten::addmm", addmm},
      {"aten::baddbmm", addmm},
      {"aten::convolution", convolution},
      {"aten::convolution_backward", convolution_backward},
      {"aten::_scaled_dot_product_flash_attention", attention},
      {"aten::_scaled_dot_product_efficient_attention", attention},
      {"aten::_scaled_dot_product_cudnn_attention", attention},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", attention},
      {"aten::_scaled_dot_product_flash_attention_backward", attention_backward},
      {"aten::_scaled_dot_product_efficient_attention_backward", attention_backward},
      {"aten::_scaled_dot_product_cudnn_attention_backward", attention_backward},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward},
      {"aten::mkldnn_rnn_layer", lstm_layer},
      {"aten::mkldnn_rnn_layer_backward", [](Inputs inputs) { return 2 * lstm_layer(inputs); }},
      {"aten::_cudnn_rnn", cudnn_rnn},
      {"aten::_cudnn_rnn_backward", [](Inputs inputs) { return 2 * cudnn_rnn(inputs); }},
  };
  return all;
}

// Only the outermost operator is counted; an operator that it calls is part of it.
thread_local int depth = 0;
struct Counted final : at::ObserverContext {};

}  // namespace

FlopCounter::~FlopCounter() { stop(); }

bool FlopCounter::start() {
  FlopCounter* none = nullptr;
  if (counts()) {
    flops_ = 0;
    return true;
  }
  if (!active.compare_exchange_strong(none, this)) return false;
  flops_ = 0;
  depth = 0;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&FlopCounter::begin, &FlopCounter::end)
                                           .needsInputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
  return true;
}

std::int64_t FlopCounter::stop() {
  if (!counts()) return 0;
  active = nullptr;
  at::removeCallback(handle_);
  return flops_;
}

// Backward passes on other threads use the callback of the thread that called them.
std::unique_ptr<at::ObserverContext> FlopCounter::begin(const at::RecordFunction& function) {
  FlopCounter* counter = active;
  if (!counter) return nullptr;
  const auto formula = formulas().find(function.name());
  if (formula == formulas().end()) return nullptr;
  if (depth++ == 0) counter->flops_ += formula->second(function.inputs());
  return std::make_unique<Counted>();
}

void FlopCounter::end(const at::RecordFunction&, at::ObserverContext* context) {
  if (context) --depth;
}

}  // namespace composer
