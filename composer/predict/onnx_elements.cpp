// Activations, arithmetic, comparisons and types. Beside each function stand the arguments of libtorch's schema.
#include <cmath>
#include <numbers>

#include <ATen/ops/tensor.h>

#include "composer/predict/onnx_operators.h"

namespace composer::onnx {
namespace {

// (self) -> the operator of ONNX of the same meaning
Translate same(const char* name) {
  return [name](Call& call) { return call.add(name, {call.tensor("self")}); };
}

// (self, ...): another type, device, memory format or copy
std::string converted(Call& call) {
  const std::string self = call.tensor("self");
  return call.type("self") == call.result_type() ? self : call.cast(self, call.result_type());
}

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

// (self, beta, threshold)
std::string softplus(Call& call) {
  if (call.number("beta") != 1) call.fail("its beta is not 1");
  return call.add("Softplus", {call.tensor("self")});
}

}  // namespace

const Translations& element_operators() {
  static const Translations all = {
      {"abs", same("Abs")},
      {"add", add},
      {"ceil", same("Ceil")},
      {"clamp", clamp},
      {"cos", same("Cos")},
      {"div", div},
      {"elu", elu},
      {"eq", compared("Equal")},
      {"erf", same("Erf")},
      {"exp", same("Exp")},
      {"floor", same("Floor")},
      {"ge", compared("GreaterOrEqual")},
      {"gelu", gelu},
      {"gt", compared("Greater")},
      {"hardsigmoid", hardsigmoid},
      {"hardswish", same("HardSwish")},
      {"hardtanh", hardtanh},
      {"le", compared("LessOrEqual")},
      {"leaky_relu", leaky_relu},
      {"log", same("Log")},
      {"log_softmax", log_softmax},
      {"logical_and", logical("And")},
      {"logical_not", logical_not},
      {"logical_or", logical("Or")},
      {"lt", compared("Less")},
      {"masked_fill", masked_fill},
      {"mish", mish},
      {"mul", mul},
      {"ne", not_equal},
      {"neg", same("Neg")},
      {"pow", pow},
      {"reciprocal", same("Reciprocal")},
      {"relu", same("Relu")},
      {"relu6", relu6},
      {"round", same("Round")},
      {"rsqrt", rsqrt},
      {"rsub", rsub},
      {"sigmoid", same("Sigmoid")},
      {"sign", same("Sign")},
      {"silu", silu},
      {"sin", same("Sin")},
      {"softmax", softmax},
      {"softplus", softplus},
      {"sqrt", same("Sqrt")},
      {"square", square},
      {"sub", sub},
      {"tanh", same("Tanh")},
      {"to", converted},
      {"type_as", converted},
      {"where", where},
  };
  return all;
}

}  // namespace composer::onnx
