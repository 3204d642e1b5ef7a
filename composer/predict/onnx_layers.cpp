// Layers with weights, attention, pooling and reductions. Beside each function stand the arguments of libtorch's
// schema.
#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "composer/predict/onnx_operators.h"

namespace composer::onnx {
namespace {

// (input, p, train)
std::string dropped(Call& call) {
  if (call.flag("train") && call.number("p") > 0) call.fail("the model is in training mode");
  return call.tensor("input");
}

// (input, weight, bias)
std::string linear(Call& call) {
  const bool bias = call.has("bias");
  if (call.rank("input") == 2 && bias)
    return call.add("Gemm", {call.tensor("input"), call.tensor("weight"), call.tensor("bias")},
                    {{"transB", std::int64_t{1}}});
  const std::string weight = transposed(call, call.tensor("weight"), 2, 0, 1);
  const std::string product = call.add("MatMul", {call.tensor("input"), weight});
  return bias ? plus(call, product, call.tensor("bias")) : product;
}

// (self, mat1, mat2, beta, alpha)
std::string addmm(Call& call) {
  return call.add(
      "Gemm", {call.tensor("mat1"), call.tensor("mat2"), call.tensor("self")},
      {{"alpha", static_cast<float>(call.number("alpha"))}, {"beta", static_cast<float>(call.number("beta"))}});
}

// (self, other), or (self, mat2)
std::string matmul(Call& call) {
  return call.add("MatMul", {call.tensor("self"), call.tensor(call.has("other") ? "other" : "mat2")});
}

Sizes repeated(Sizes sizes, std::size_t count) { return sizes.size() == 1 ? Sizes(count, sizes.front()) : sizes; }
Sizes twice(const Sizes& sizes) {  // ONNX pads both ends
  Sizes both = sizes;
  both.insert(both.end(), sizes.begin(), sizes.end());
  return both;
}

// (input, weight, bias, stride, padding, dilation, groups); some also (transposed, output_padding)
std::string convolution(Call& call) {
  const std::size_t count = static_cast<std::size_t>(call.rank("weight")) - 2;
  if (call.rank("input") != call.rank("weight")) call.fail("the input has no dimension of samples");
  std::vector<std::string> inputs = {call.tensor("input"), call.tensor("weight")};
  if (call.has("bias")) inputs.push_back(call.tensor("bias"));
  Attributes attributes = {{"strides", repeated(call.wholes("stride"), count)},
                           {"pads", twice(repeated(call.wholes("padding"), count))},
                           {"dilations", repeated(call.wholes("dilation"), count)},
                           {"group", call.whole("groups")}};
  if (!call.has("transposed") || !call.flag("transposed")) return call.add("Conv", inputs, attributes);
  attributes.push_back({"output_padding", repeated(call.wholes("output_padding"), count)});
  return call.add("ConvTranspose", inputs, attributes);
}

// (input, weight, bias, stride, padding, output_padding, groups, dilation)
std::string transposed_convolution(Call& call) {
  const std::size_t count = static_cast<std::size_t>(call.rank("weight")) - 2;
  std::vector<std::string> inputs = {call.tensor("input"), call.tensor("weight")};
  if (call.has("bias")) inputs.push_back(call.tensor("bias"));
  return call.add("ConvTranspose", inputs,
                  {{"strides", repeated(call.wholes("stride"), count)},
                   {"pads", twice(repeated(call.wholes("padding"), count))},
                   {"output_padding", repeated(call.wholes("output_padding"), count)},
                   {"dilations", repeated(call.wholes("dilation"), count)},
                   {"group", call.whole("groups")}});
}

// The named tensor, or one number for each channel if there is none.
std::string or_filled(Call& call, const char* argument, double value, std::int64_t channels) {
  if (call.has(argument)) return call.tensor(argument);
  return call.constant(at::full({channels}, value, at::TensorOptions().dtype(call.type("input"))));
}

// (input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled)
std::string batch_norm(Call& call) {
  if (call.flag("training") || !call.has("running_mean") || !call.has("running_var"))
    call.fail("it has no running statistics, or is in training mode");
  const std::int64_t channels = call.sizes("input").at(1);
  return call.add("BatchNormalization",
                  {call.tensor("input"), or_filled(call, "weight", 1, channels), or_filled(call, "bias", 0, channels),
                   call.tensor("running_mean"), call.tensor("running_var")},
                  {{"epsilon", static_cast<float>(call.number("eps"))}});
}

// (input, normalized_shape, weight, bias, eps, cudnn_enable)
std::string layer_norm(Call& call) {
  const Sizes shape = call.wholes("normalized_shape");
  const std::string weight = call.has("weight")
                                 ? call.tensor("weight")
                                 : call.constant(at::ones(shape, at::TensorOptions().dtype(call.type("input"))));
  std::vector<std::string> inputs = {call.tensor("input"), weight};
  if (call.has("bias")) inputs.push_back(call.tensor("bias"));
  return call.add(
      "LayerNormalization", inputs,
      {{"axis", -static_cast<std::int64_t>(shape.size())}, {"epsilon", static_cast<float>(call.number("eps"))}});
}

// (input, num_groups, weight, bias, eps, cudnn_enabled)
std::string group_norm(Call& call) {
  const std::int64_t groups = call.whole("num_groups");
  const Sizes sizes = call.sizes("input");
  const auto numbers = at::TensorOptions().dtype(call.type("input"));
  const std::string input = call.tensor("input");
  const std::string normalized =
      call.add("InstanceNormalization",
               {reshaped(call, input, {0, groups, -1}), call.constant(at::ones({groups}, numbers)),
                call.constant(at::zeros({groups}, numbers))},
               {{"epsilon", static_cast<float>(call.number("eps"))}});
  std::string result = call.add("Reshape", {normalized, call.add("Shape", {input})});
  Sizes channels(sizes.size() - 1, 1);
  channels.front() = sizes.at(1);
  if (call.has("weight")) result = times(call, result, reshaped(call, call.tensor("weight"), channels));
  if (call.has("bias")) result = plus(call, result, reshaped(call, call.tensor("bias"), channels));
  return result;
}

// (weight, indices, padding_idx, scale_grad_by_freq, sparse)
std::string embedding(Call& call) { return call.add("Gather", {call.tensor("weight"), call.tensor("indices")}); }

// (query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
std::string attention(Call& call) {
  if (call.number("dropout_p") > 0) call.fail("the model is in training mode");
  if (call.has("enable_gqa") && call.flag("enable_gqa")) call.fail("its keys are shared by groups of queries");
  const std::int64_t rank = call.rank("key");
  const double infinity = std::numeric_limits<double>::infinity();
  const double scale =
      call.has("scale") ? call.number("scale") : 1 / std::sqrt(static_cast<double>(call.sizes("query").back()));
  const std::string query = times(call, call.tensor("query"), call.number_like(scale, "query"));
  std::string scores = call.add("MatMul", {query, transposed(call, call.tensor("key"), rank, rank - 2, rank - 1)});
  if (call.flag("is_causal")) {
    const std::string shape =
        call.add("Slice", {call.add("Shape", {scores}), call.constant(Sizes{rank - 2}), call.constant(Sizes{rank})});
    const at::Tensor never = at::full({1}, -infinity, at::TensorOptions().dtype(call.type("query")));
    const std::string later = call.add(
        "Trilu",
        {call.add("ConstantOfShape", {shape}, {{"value", never}}), call.constant(at::tensor(1, at::kLong).squeeze())},
        {{"upper", std::int64_t{1}}});
    scores = plus(call, scores, later);
  }
  if (call.has("attn_mask")) {
    std::string bias = call.tensor("attn_mask");
    if (call.type("attn_mask") == at::kBool)
      bias = call.add("Where", {bias, call.number_like(0, "query"), call.number_like(-infinity, "query")});
    scores = plus(call, scores, bias);
  }
  return call.add("MatMul", {call.add("Softmax", {scores}, {{"axis", std::int64_t{-1}}}), call.tensor("value")});
}

// (self, kernel_size, stride, padding, dilation, ceil_mode)
std::string max_pool(Call& call) {
  const std::size_t count = static_cast<std::size_t>(call.rank("self")) - 2;
  const Sizes kernel = repeated(call.wholes("kernel_size"), count), stride = call.wholes("stride");
  return call.add("MaxPool", {call.tensor("self")},
                  {{"kernel_shape", kernel},
                   {"strides", stride.empty() ? kernel : repeated(stride, count)},
                   {"pads", twice(repeated(call.wholes("padding"), count))},
                   {"dilations", repeated(call.wholes("dilation"), count)},
                   {"ceil_mode", std::int64_t{call.flag("ceil_mode")}}});
}

// (self, kernel_size, stride, padding, ceil_mode, count_include_pad), in two dimensions also (divisor_override)
std::string average_pool(Call& call) {
  if (call.has("divisor_override")) call.fail("it has a divisor of its own");
  const std::size_t count = static_cast<std::size_t>(call.rank("self")) - 2;
  const Sizes kernel = repeated(call.wholes("kernel_size"), count), stride = call.wholes("stride");
  return call.add("AveragePool", {call.tensor("self")},
                  {{"kernel_shape", kernel},
                   {"strides", stride.empty() ? kernel : repeated(stride, count)},
                   {"pads", twice(repeated(call.wholes("padding"), count))},
                   {"ceil_mode", std::int64_t{call.flag("ceil_mode")}},
                   {"count_include_pad", std::int64_t{call.flag("count_include_pad")}}});
}

// (self, output_size)
std::string adaptive_average_pool(Call& call) {
  if (std::ranges::any_of(call.wholes("output_size"), [](std::int64_t size) { return size != 1; }))
    call.fail("its output has more than one number for each channel");
  return call.add("GlobalAveragePool", {call.tensor("self")});
}

// (self), or (self, dim, keepdim)
std::string reduced_by(Call& call, const char* operation, bool axes_are_input) {
  std::string self = call.tensor("self");
  if (call.type("self") != call.result_type()) self = call.cast(self, call.result_type());
  const bool all = !call.has("dim") || call.wholes("dim").empty();
  Attributes attributes = {{"keepdims", std::int64_t{!all && call.flag("keepdim")}}};
  if (all) return call.add(operation, {self}, attributes);
  if (axes_are_input) return call.add(operation, {self, call.constant(call.wholes("dim"))}, attributes);
  attributes.push_back({"axes", call.wholes("dim")});
  return call.add(operation, {self}, attributes);
}
std::string mean(Call& call) { return reduced_by(call, "ReduceMean", false); }
std::string sum(Call& call) { return reduced_by(call, "ReduceSum", true); }
std::string amax(Call& call) { return reduced_by(call, "ReduceMax", false); }
std::string amin(Call& call) { return reduced_by(call, "ReduceMin", false); }

// (self, dim, keepdim)
std::string argmax(Call& call) {
  if (!call.has("dim")) call.fail("it has no dimension");
  return call.add("ArgMax", {call.tensor("self")},
                  {{"axis", call.whole("dim")}, {"keepdims", std::int64_t{call.flag("keepdim")}}});
}

// (self, dim, dtype)
std::string cumsum(Call& call) {
  const std::string dim = call.constant(at::tensor(call.whole("dim"), at::kLong).squeeze());
  return call.add("CumSum", {call.tensor_as("self", call.result_type()), dim});
}

}  // namespace

const Translations& layer_operators() {
  static const Translations all = {
      {"_convolution", convolution},
      {"adaptive_avg_pool1d", adaptive_average_pool},
      {"adaptive_avg_pool2d", adaptive_average_pool},
      {"adaptive_avg_pool3d", adaptive_average_pool},
      {"addmm", addmm},
      {"alpha_dropout", dropped},
      {"amax", amax},
      {"amin", amin},
      {"argmax", argmax},
      {"avg_pool1d", average_pool},
      {"avg_pool2d", average_pool},
      {"avg_pool3d", average_pool},
      {"batch_norm", batch_norm},
      {"bmm", matmul},
      {"conv1d", convolution},
      {"conv2d", convolution},
      {"conv3d", convolution},
      {"conv_transpose1d", transposed_convolution},
      {"conv_transpose2d", transposed_convolution},
      {"conv_transpose3d", transposed_convolution},
      {"convolution", convolution},
      {"cumsum", cumsum},
      {"dropout", dropped},
      {"embedding", embedding},
      {"feature_alpha_dropout", dropped},
      {"feature_dropout", dropped},
      {"group_norm", group_norm},
      {"layer_norm", layer_norm},
      {"linear", linear},
      {"matmul", matmul},
      {"max_pool1d", max_pool},
      {"max_pool2d", max_pool},
      {"max_pool3d", max_pool},
      {"mean", mean},
      {"mm", matmul},
      {"scaled_dot_product_attention", attention},
      {"sum", sum},
  };
  return all;
}

}  // namespace composer::onnx
