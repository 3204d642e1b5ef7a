// What each operator of libtorch is in ONNX. Beside each function stand the arguments of libtorch's schema.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <unordered_map>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "composer/predict/onnx_call.h"

namespace composer::onnx {
namespace {

using Sizes = std::vector<std::int64_t>;

// (self) -> the operator of ONNX of the same meaning
Translate same(const char* name) {
  return [name](Call& call) { return call.add(name, {call.tensor("self")}); };
}

std::string unchanged(Call& call) { return call.tensor("self"); }

// (self, ...): another type, device, memory format or copy
std::string converted(Call& call) {
  const std::string self = call.tensor("self");
  return call.type("self") == call.result_type() ? self : call.cast(self, call.result_type());
}

// (input, p, train)
std::string dropped(Call& call) {
  if (call.flag("train") && call.number("p") > 0) call.fail("the model is in training mode");
  return call.tensor("input");
}

std::string transposed(Call& call, const std::string& value, std::int64_t rank, std::int64_t a, std::int64_t b) {
  Sizes order;
  for (std::int64_t i = 0; i < rank; ++i) order.push_back(i);
  std::swap(order[static_cast<std::size_t>(a)], order[static_cast<std::size_t>(b)]);
  return call.add("Transpose", {value}, {{"perm", order}});
}

// Sizes of 0 are those of the input at their place.
std::string reshaped(Call& call, const std::string& value, const Sizes& sizes) {
  return call.add("Reshape", {value, call.constant(sizes)});
}

std::string plus(Call& call, std::string a, std::string b) { return call.add("Add", {std::move(a), std::move(b)}); }
std::string times(Call& call, std::string a, std::string b) { return call.add("Mul", {std::move(a), std::move(b)}); }

// --- layers ---

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

// --- pooling and reductions ---

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

// --- activations ---

// (self, dim, dtype)
std::string softmax(Call& call) {
  return call.add("Softmax", {call.tensor_as("self", call.result_type())}, {{"axis", call.whole("dim")}});
}
std::string log_softmax(Call& call) {
  return call.add("LogSoftmax", {call.tensor_as("self", call.result_type())}, {{"axis", call.whole("dim")}});
}

// (self, approximate)
std::string gelu(Call& call) {
  const std::string x = call.tensor("self");
  const auto number = [&](double value) { return call.number_like(value, "self"); };
  std::string inner;
  if (call.text("approximate") == "tanh") {
    constexpr double kCubic = 0.044715;
    const std::string cube = times(call, times(call, times(call, x, x), x), number(kCubic));
    const double factor = std::sqrt(2 / std::numbers::pi);
    inner = call.add("Tanh", {times(call, plus(call, x, cube), number(factor))});
  } else {
    inner = call.add("Erf", {times(call, x, number(1 / std::numbers::sqrt2))});
  }
  return times(call, times(call, x, number(0.5)), plus(call, inner, number(1)));
}

std::string silu(Call& call) {
  const std::string x = call.tensor("self");
  return times(call, x, call.add("Sigmoid", {x}));
}
std::string mish(Call& call) {
  const std::string x = call.tensor("self");
  return times(call, x, call.add("Tanh", {call.add("Softplus", {x})}));
}
// (self, negative_slope)
std::string leaky_relu(Call& call) {
  return call.add("LeakyRelu", {call.tensor("self")}, {{"alpha", static_cast<float>(call.number("negative_slope"))}});
}
// (self, alpha, scale, input_scale)
std::string elu(Call& call) {
  if (call.number("scale") != 1 || call.number("input_scale") != 1) call.fail("it has a scale");
  return call.add("Elu", {call.tensor("self")}, {{"alpha", static_cast<float>(call.number("alpha"))}});
}
std::string hardsigmoid(Call& call) {
  return call.add("HardSigmoid", {call.tensor("self")}, {{"alpha", 1.F / 6}, {"beta", 0.5F}});
}
std::string relu6(Call& call) {
  return call.add("Clip", {call.tensor("self"), call.number_like(0, "self"), call.number_like(6, "self")});
}
// (self, min_val, max_val)
std::string hardtanh(Call& call) {
  return call.add("Clip", {call.tensor("self"), call.number_like(call.number("min_val"), "self"),
                           call.number_like(call.number("max_val"), "self")});
}
// (self, min, max)
std::string clamp(Call& call) {
  std::vector<std::string> inputs = {call.tensor_as("self", call.result_type())};
  inputs.push_back(call.has("min") ? call.tensor_as("min", call.result_type()) : std::string());
  if (call.has("max")) inputs.push_back(call.tensor_as("max", call.result_type()));
  return call.add("Clip", inputs);
}
std::string rsqrt(Call& call) { return call.add("Reciprocal", {call.add("Sqrt", {call.tensor("self")})}); }
std::string square(Call& call) { return times(call, call.tensor("self"), call.tensor("self")); }

// --- arithmetic ---

// (self, other, alpha): other may be a number
std::string scaled_other(Call& call, const char* other) {
  const std::string value = call.tensor_as(other, call.result_type());
  if (!call.has("alpha") || call.number("alpha") == 1) return value;
  const at::Tensor alpha = at::tensor(call.number("alpha"), at::kDouble).to(call.result_type()).squeeze();
  return times(call, value, call.constant(alpha));
}
std::string add(Call& call) {
  return plus(call, call.tensor_as("self", call.result_type()), scaled_other(call, "other"));
}
std::string sub(Call& call) {
  return call.add("Sub", {call.tensor_as("self", call.result_type()), scaled_other(call, "other")});
}
std::string rsub(Call& call) {
  return call.add("Sub", {call.tensor_as("other", call.result_type()), scaled_other(call, "self")});
}
std::string mul(Call& call) {
  return times(call, call.tensor_as("self", call.result_type()), call.tensor_as("other", call.result_type()));
}
std::string div(Call& call) {
  if (call.has("rounding_mode")) call.fail("it rounds");
  return call.add("Div", {call.tensor_as("self", call.result_type()), call.tensor_as("other", call.result_type())});
}
std::string pow(Call& call) {
  return call.add("Pow", {call.tensor_as("self", call.result_type()), call.tensor_as("exponent", call.result_type())});
}

Translate compared(const char* name) {
  return [name](Call& call) {
    const at::ScalarType type = call.common_type("self", "other");
    return call.add(name, {call.tensor_as("self", type), call.tensor_as("other", type)});
  };
}
std::string not_equal(Call& call) { return call.add("Not", {compared("Equal")(call)}); }
Translate logical(const char* name) {
  return [name](Call& call) {
    return call.add(name, {call.tensor_as("self", at::kBool), call.tensor_as("other", at::kBool)});
  };
}
std::string logical_not(Call& call) { return call.add("Not", {call.tensor_as("self", at::kBool)}); }

// (self, mask, value)
std::string masked_fill(Call& call) {
  return call.add("Where", {call.tensor("mask"), call.tensor_as("value", call.type("self")), call.tensor("self")});
}
// (condition, self, other)
std::string where(Call& call) {
  return call.add("Where", {call.tensor("condition"), call.tensor_as("self", call.result_type()),
                            call.tensor_as("other", call.result_type())});
}

// --- shapes ---

// Self with these sizes instead of those before the dimension `rest`. Sizes from there on are read in the program,
// because they may be other ones than in the example.
std::string reshaped_before(Call& call, std::int64_t rest, const Sizes& sizes) {
  const std::string self = call.tensor("self");
  const std::int64_t rank = call.rank("self");
  if (rest == rank) return reshaped(call, self, sizes);
  const std::string kept =
      call.add("Slice", {call.add("Shape", {self}), call.constant(Sizes{rest}), call.constant(Sizes{rank})});
  return call.add("Reshape", {self, call.add("Concat", {call.constant(sizes), kept}, {{"axis", std::int64_t{0}}})});
}

// (self, start_dim, end_dim)
std::string flatten(Call& call) {
  const Sizes sizes = call.sizes("self");
  if (sizes.empty()) return reshaped(call, call.tensor("self"), {1});
  const auto start = static_cast<std::size_t>(call.dimension("start_dim", "self"));
  const auto end = static_cast<std::size_t>(call.dimension("end_dim", "self"));
  if (start == end) return call.tensor("self");
  Sizes result(start, 0);
  result.push_back(-1);
  return reshaped_before(call, static_cast<std::int64_t>(end) + 1, result);
}

// (self, dim, sizes)
std::string unflatten(Call& call) {
  const Sizes inner = call.wholes("sizes");
  const auto dim = call.dimension("dim", "self");
  Sizes result(static_cast<std::size_t>(dim), 0);
  result.insert(result.end(), inner.begin(), inner.end());
  return reshaped_before(call, dim + 1, result);
}

// (self, size), or (self, shape)
std::string view(Call& call) {
  if (call.has("dtype")) call.fail("it gives the bytes another type");
  return reshaped(call, call.tensor("self"), call.wholes(call.has("size") ? "size" : "shape"));
}
// (self, other)
std::string view_as(Call& call) {
  return call.add("Reshape", {call.tensor("self"), call.add("Shape", {call.tensor("other")})});
}
// (self, size, implicit)
std::string expand(Call& call) {
  Sizes sizes = call.wholes("size");
  std::ranges::replace(sizes, -1, 1);
  return call.add("Expand", {call.tensor("self"), call.constant(sizes)});
}
std::string expand_as(Call& call) {
  return call.add("Expand", {call.tensor("self"), call.add("Shape", {call.tensor("other")})});
}
// (self, repeats)
std::string repeat(Call& call) {
  const Sizes repeats = call.wholes("repeats");
  std::string self = call.tensor("self");
  Sizes sizes = call.sizes("self");
  if (repeats.size() > sizes.size()) {
    Sizes axes(repeats.size() - sizes.size());
    for (std::size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<std::int64_t>(i);
    self = call.add("Unsqueeze", {self, call.constant(axes)});
  }
  return call.add("Tile", {self, call.constant(repeats)});
}
// (self, dim0, dim1)
std::string transpose(Call& call) {
  if (call.rank("self") == 0) return call.tensor("self");
  return transposed(call, call.tensor("self"), call.rank("self"), call.dimension("dim0", "self"),
                    call.dimension("dim1", "self"));
}
std::string matrix_transpose(Call& call) {
  return call.rank("self") < 2 ? call.tensor("self") : transposed(call, call.tensor("self"), 2, 0, 1);
}
// (self, dims)
std::string permute(Call& call) {
  Sizes order = call.wholes("dims");
  for (std::int64_t& dim : order) dim += dim < 0 ? call.rank("self") : 0;
  return call.add("Transpose", {call.tensor("self")}, {{"perm", order}});
}
// (self, dim)
std::string unsqueeze(Call& call) {
  return call.add("Unsqueeze", {call.tensor("self"), call.constant(Sizes{call.dimension("dim", "self", 1)})});
}
// (self), or (self, dim)
std::string squeeze(Call& call) {
  const Sizes sizes = call.sizes("self");
  Sizes axes;
  if (call.has("dim")) {
    for (const std::int64_t dim : call.wholes("dim")) axes.push_back(dim < 0 ? dim + call.rank("self") : dim);
  } else {
    for (std::size_t i = 0; i < sizes.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  }
  std::erase_if(axes, [&](std::int64_t axis) { return sizes[static_cast<std::size_t>(axis)] != 1; });
  return axes.empty() ? call.tensor("self") : call.add("Squeeze", {call.tensor("self"), call.constant(axes)});
}
// (self, dim, index)
std::string select(Call& call) {
  const std::string index = call.constant(at::tensor(call.whole("index"), at::kLong).squeeze());
  return call.add("Gather", {call.tensor("self"), index}, {{"axis", call.dimension("dim", "self")}});
}
// (self, dim, index)
std::string index_select(Call& call) {
  return call.add("Gather", {call.tensor("self"), call.tensor("index")}, {{"axis", call.dimension("dim", "self")}});
}
std::string sliced(Call& call, std::int64_t start, std::int64_t end, std::int64_t step) {
  return call.add("Slice", {call.tensor("self"), call.constant(Sizes{start}), call.constant(Sizes{end}),
                            call.constant(Sizes{call.dimension("dim", "self")}), call.constant(Sizes{step})});
}
// (self, dim, start, end, step)
std::string slice(Call& call) {
  constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();
  return sliced(call, call.has("start") ? call.whole("start") : 0, call.has("end") ? call.whole("end") : kEnd,
                call.whole("step"));
}
// (self, dim, start, length)
std::string narrow(Call& call) {
  const std::int64_t start = call.whole("start");
  if (start < 0) call.fail("it begins at a place that is counted from the end");
  return sliced(call, start, start + call.whole("length"), 1);
}
// (tensors, dim)
std::string cat(Call& call) { return call.add("Concat", call.tensors("tensors"), {{"axis", call.whole("dim")}}); }
std::string stack(Call& call) {
  const std::int64_t given = call.whole("dim");
  const std::int64_t dim = given < 0 ? given + static_cast<std::int64_t>(call.result_sizes().size()) : given;
  std::vector<std::string> parts;
  for (const std::string& tensor : call.tensors("tensors"))
    parts.push_back(call.add("Unsqueeze", {tensor, call.constant(Sizes{dim})}));
  return call.add("Concat", parts, {{"axis", dim}});
}
// (self, pad, value), pairs from the last dimension on
std::string constant_pad(Call& call) {
  const Sizes pairs = call.wholes("pad");
  const auto rank = static_cast<std::size_t>(call.rank("self"));
  Sizes pads(2 * rank, 0);
  for (std::size_t i = 0; i < pairs.size() / 2; ++i) {
    pads[rank - 1 - i] = pairs[2 * i];
    pads[2 * rank - 1 - i] = pairs[2 * i + 1];
  }
  return call.add("Pad", {call.tensor("self"), call.constant(pads), call.tensor_as("value", call.type("self"))});
}
// (self, ...): of the shape of self
std::string filled_like(Call& call, double value) {
  const at::Tensor number = at::full({1}, value, at::TensorOptions().dtype(call.result_type()));
  return call.add("ConstantOfShape", {call.add("Shape", {call.tensor("self")})}, {{"value", number}});
}
std::string ones_like(Call& call) { return filled_like(call, 1); }
std::string zeros_like(Call& call) { return filled_like(call, 0); }
// (self, fill_value)
std::string full_like(Call& call) { return filled_like(call, call.number("fill_value")); }

// --- lists ---

std::vector<std::string> split_into(Call& call, const Sizes& sizes) {
  return call.add_list("Split", {call.tensor("self"), call.constant(sizes)}, sizes.size(),
                       {{"axis", call.dimension("dim", "self")}});
}
std::vector<std::string> split_by(Call& call, std::int64_t size) {
  std::int64_t left = call.sizes("self").at(static_cast<std::size_t>(call.dimension("dim", "self")));
  Sizes sizes;
  for (; left > 0; left -= size) sizes.push_back(std::min(left, size));
  return split_into(call, sizes);
}
// (self, chunks, dim)
std::vector<std::string> chunk(Call& call) {
  const std::int64_t all = call.sizes("self").at(static_cast<std::size_t>(call.dimension("dim", "self")));
  const std::int64_t chunks = call.whole("chunks");
  return split_by(call, (all + chunks - 1) / chunks);
}
// (self, split_size, dim), in some versions with sizes
std::vector<std::string> split(Call& call) {
  const Sizes sizes = call.wholes(call.has("split_size") ? "split_size" : "split_sizes");
  return sizes.size() == 1 ? split_by(call, sizes.front()) : split_into(call, sizes);
}
// (self, dim)
std::vector<std::string> unbind(Call& call) {
  const std::int64_t dim = call.dimension("dim", "self");
  std::vector<std::string> parts;
  for (std::int64_t i = 0; i < call.sizes("self").at(static_cast<std::size_t>(dim)); ++i)
    parts.push_back(
        call.add("Gather", {call.tensor("self"), call.constant(at::tensor(i, at::kLong).squeeze())}, {{"axis", dim}}));
  return parts;
}

// (self, beta, threshold)
std::string softplus(Call& call) {
  if (call.number("beta") != 1) call.fail("its beta is not 1");
  return call.add("Softplus", {call.tensor("self")});
}

const std::unordered_map<std::string_view, Translate>& translations() {
  static const std::unordered_map<std::string_view, Translate> all = {
      {"_convolution", convolution},
      {"abs", same("Abs")},
      {"adaptive_avg_pool1d", adaptive_average_pool},
      {"adaptive_avg_pool2d", adaptive_average_pool},
      {"adaptive_avg_pool3d", adaptive_average_pool},
      {"add", add},
      {"addmm", addmm},
      {"alias", unchanged},
      {"alpha_dropout", dropped},
      {"amax", amax},
      {"amin", amin},
      {"argmax", argmax},
      {"avg_pool1d", average_pool},
      {"avg_pool2d", average_pool},
      {"avg_pool3d", average_pool},
      {"batch_norm", batch_norm},
      {"bmm", matmul},
      {"cat", cat},
      {"ceil", same("Ceil")},
      {"clamp", clamp},
      {"clone", unchanged},
      {"constant_pad_nd", constant_pad},
      {"contiguous", unchanged},
      {"conv1d", convolution},
      {"conv2d", convolution},
      {"conv3d", convolution},
      {"conv_transpose1d", transposed_convolution},
      {"conv_transpose2d", transposed_convolution},
      {"conv_transpose3d", transposed_convolution},
      {"convolution", convolution},
      {"cos", same("Cos")},
      {"cumsum", cumsum},
      {"detach", unchanged},
      {"div", div},
      {"dropout", dropped},
      {"elu", elu},
      {"embedding", embedding},
      {"eq", compared("Equal")},
      {"erf", same("Erf")},
      {"exp", same("Exp")},
      {"expand", expand},
      {"expand_as", expand_as},
      {"feature_alpha_dropout", dropped},
      {"feature_dropout", dropped},
      {"flatten", flatten},
      {"floor", same("Floor")},
      {"full_like", full_like},
      {"ge", compared("GreaterOrEqual")},
      {"gelu", gelu},
      {"group_norm", group_norm},
      {"gt", compared("Greater")},
      {"hardsigmoid", hardsigmoid},
      {"hardswish", same("HardSwish")},
      {"hardtanh", hardtanh},
      {"index_select", index_select},
      {"layer_norm", layer_norm},
      {"le", compared("LessOrEqual")},
      {"leaky_relu", leaky_relu},
      {"linear", linear},
      {"log", same("Log")},
      {"log_softmax", log_softmax},
      {"logical_and", logical("And")},
      {"logical_not", logical_not},
      {"logical_or", logical("Or")},
      {"lt", compared("Less")},
      {"masked_fill", masked_fill},
      {"matmul", matmul},
      {"max_pool1d", max_pool},
      {"max_pool2d", max_pool},
      {"max_pool3d", max_pool},
      {"mean", mean},
      {"mish", mish},
      {"mm", matmul},
      {"mul", mul},
      {"narrow", narrow},
      {"ne", not_equal},
      {"neg", same("Neg")},
      {"ones_like", ones_like},
      {"permute", permute},
      {"pow", pow},
      {"reciprocal", same("Reciprocal")},
      {"relu", same("Relu")},
      {"relu6", relu6},
      {"repeat", repeat},
      {"reshape", view},
      {"reshape_as", view_as},
      {"round", same("Round")},
      {"rsqrt", rsqrt},
      {"rsub", rsub},
      {"scaled_dot_product_attention", attention},
      {"select", select},
      {"sigmoid", same("Sigmoid")},
      {"sign", same("Sign")},
      {"silu", silu},
      {"sin", same("Sin")},
      {"slice", slice},
      {"softmax", softmax},
      {"softplus", softplus},
      {"sqrt", same("Sqrt")},
      {"square", square},
      {"squeeze", squeeze},
      {"stack", stack},
      {"sub", sub},
      {"sum", sum},
      {"t", matrix_transpose},
      {"tanh", same("Tanh")},
      {"to", converted},
      {"transpose", transpose},
      {"type_as", converted},
      {"unflatten", unflatten},
      {"unsqueeze", unsqueeze},
      {"view", view},
      {"view_as", view_as},
      {"where", where},
      {"zeros_like", zeros_like},
  };
  return all;
}

const std::unordered_map<std::string_view, TranslateToList>& list_translations() {
  static const std::unordered_map<std::string_view, TranslateToList> all = {
      {"chunk", chunk}, {"split", split}, {"split_with_sizes", split}, {"unbind", unbind}};
  return all;
}

}  // namespace

const Translate* find_translation(std::string_view name) {
  const auto found = translations().find(name);
  return found == translations().end() ? nullptr : &found->second;
}

TranslateToList find_list_translation(std::string_view name) {
  const auto found = list_translations().find(name);
  return found == list_translations().end() ? nullptr : found->second;
}

}  // namespace composer::onnx
