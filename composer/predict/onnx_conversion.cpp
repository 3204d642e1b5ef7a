#include "composer/predict/onnx_conversion.h"

#include <exception>
#include <optional>

#include <ATen/ops/empty.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/jit/ir/constants.h>

#include "composer/core/error.h"
#include "composer/predict/onnx_call.h"

namespace composer::onnx {
namespace {

namespace jit = torch::jit;

const c10::TensorType& tensor_type(const jit::Value* value) {
  const auto* const type = value->type()->castRaw<c10::TensorType>();
  if (!type) throw Error("export_onnx: ", value->debugName(), " is no tensor");
  return *type;
}

}  // namespace

Conversion::Conversion(const jit::Module& program, std::vector<std::string> inputs, std::vector<std::string> outputs)
    : program_(program), input_names_(std::move(inputs)), output_names_(std::move(outputs)) {
  taken_.insert(input_names_.begin(), input_names_.end());
  taken_.insert(output_names_.begin(), output_names_.end());
}

OnnxModel Conversion::run() {
  const auto graph = program_.get_method("forward").graph();
  const auto inputs = graph->inputs();
  attributes_[inputs[0]] = {"", program_._ivalue()};
  const auto described = [this](const std::string& name, const jit::Value* value) {
    GraphValue one{name, type_of(value), {}};
    for (const std::int64_t size : sizes_of(value)) one.shape.push_back({size});
    return one;
  };
  for (std::size_t i = 0; i < input_names_.size(); ++i) {
    names_[inputs[i + 1]] = input_names_[i];
    model_.inputs.push_back(described(input_names_[i], inputs[i + 1]));
  }
  for (const jit::Node* node : graph->nodes()) convert(*node);

  const jit::Value* const result = graph->outputs()[0];
  std::vector<const jit::Value*> outputs = {result};
  if (result->node()->kind() == c10::prim::TupleConstruct)
    outputs = {result->node()->inputs().begin(), result->node()->inputs().end()};
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    model_.operations.push_back({"Identity", {name_of(outputs[i])}, {output_names_.at(i)}, {}});
    model_.outputs.push_back(described(output_names_[i], outputs[i]));
  }
  return std::move(model_);
}

// A value that is known before the program runs, but for weights.
std::optional<c10::IValue> Conversion::known_value(const jit::Value* value) const {
  if (const auto folded = constants_.find(value); folded != constants_.end()) return folded->second;
  if (value->node()->kind() != c10::prim::ListConstruct) return jit::toIValue(value);
  c10::List<std::int64_t> numbers;
  for (const jit::Value* element : value->node()->inputs()) {
    const auto number = known_value(element);
    if (!number || !number->isInt()) return std::nullopt;
    numbers.push_back(number->toInt());
  }
  return numbers;
}

// A tensor that is known before the program runs.
std::optional<at::Tensor> Conversion::known_tensor(const jit::Value* value) const {
  if (const auto weight = attributes_.find(value); weight != attributes_.end() && weight->second.second.isTensor())
    return weight->second.second.toTensor();
  const auto constant = known_value(value);
  return constant && constant->isTensor() ? std::optional(constant->toTensor()) : std::nullopt;
}

std::vector<std::int64_t> Conversion::sizes_of(const jit::Value* value) const {
  if (const auto known = known_tensor(value)) return known->sizes().vec();
  const auto sizes = tensor_type(value).sizes().concrete_sizes();
  if (!sizes) throw Error("export_onnx: the shape of ", value->debugName(), " is unknown");
  return *sizes;
}

at::ScalarType Conversion::type_of(const jit::Value* value) const {
  if (const auto known = known_tensor(value)) return known->scalar_type();
  const auto type = tensor_type(value).scalarType();
  if (!type) throw Error("export_onnx: the type of ", value->debugName(), " is unknown");
  return *type;
}

std::string Conversion::fresh_name() {
  std::string name;
  do name = "/" + std::to_string(next_name_++);
  while (!taken_.insert(name).second);
  return name;
}

std::string Conversion::name_of(const jit::Value* value) {
  if (const auto found = names_.find(value); found != names_.end()) return found->second;
  if (const auto weight = attributes_.find(value); weight != attributes_.end() && weight->second.second.isTensor()) {
    const std::string& path = weight->second.first;
    const auto [known, is_new] = weights_.try_emplace(path);
    if (is_new) {
      known->second = taken_.insert(path).second ? path : fresh_name();  // an input or output may have this name
      model_.weights.emplace_back(known->second, weight->second.second.toTensor());
    }
    return names_[value] = known->second;
  }
  if (const auto constant = known_tensor(value)) return names_[value] = add_constant(*constant);
  throw Error("export_onnx: ", value->debugName(), " is no tensor that is known");
}

const std::vector<std::string>* Conversion::list_of(const jit::Value* value) const {
  const auto found = lists_.find(value);
  return found == lists_.end() ? nullptr : &found->second;
}

std::vector<std::string> Conversion::add(const char* operation, std::vector<std::string> inputs, std::size_t outputs,
                                         Attributes attributes) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < outputs; ++i) names.push_back(fresh_name());
  model_.operations.push_back({operation, std::move(inputs), names, std::move(attributes)});
  return names;
}

std::string Conversion::add_constant(const at::Tensor& value) {
  std::string name = fresh_name();
  model_.weights.emplace_back(name, value);
  return name;
}

void Conversion::convert(const jit::Node& node) {
  switch (node.kind()) {
    case c10::prim::Constant:
    case c10::prim::TupleConstruct:
      return;
    case c10::prim::GetAttr: {
      const auto& [path, owner] = attributes_.at(node.input());
      const std::string& name = node.s(c10::attr::name);
      attributes_[node.output()] = {path.empty() ? name : path + "." + name, owner.toObject()->getAttr(name)};
      return;
    }
    case c10::prim::ListConstruct: {
      if (node.output()->type()->isSubtypeOf(*c10::ListType::ofTensors())) {
        std::vector<std::string> names;
        for (const jit::Value* input : node.inputs()) names.push_back(name_of(input));
        lists_[node.output()] = std::move(names);
      }
      return;
    }
    case c10::prim::ListUnpack: {
      const std::vector<std::string>* const names = list_of(node.input());
      if (!names || names->size() != node.outputs().size()) break;
      for (std::size_t i = 0; i < names->size(); ++i) names_[node.outputs()[i]] = (*names)[i];
      return;
    }
    default:
      break;
  }
  convert_operator(node);
}

void Conversion::convert_operator(const jit::Node& node) {
  for (const jit::Value* input : node.inputs())
    if (const auto weight = attributes_.find(input); weight != attributes_.end()) {
      const std::string& path = weight->second.first;
      last_layer_ = path.substr(0, std::min(path.rfind('.'), path.size()));
    }
  Call call(*this, node);
  if (node.kind().ns().toUnqualString() == std::string("aten")) {
    std::string name = node.kind().toUnqualString();
    // Such operators are recorded as those that return the result, but for some that have no such form.
    if (name.size() > 2 && name.ends_with('_') && !name.ends_with("__")) name.pop_back();
    if (const Translate* const translate = find_translation(name))
      return void(names_[node.output()] = (*translate)(call));
    if (const TranslateToList translate = find_list_translation(name))
      return void(lists_[node.output()] = translate(call));
    if (fold(node)) return;
  }
  call.fail("there is no translation of it");
}

// Computes the result of an operator whose arguments are all constants.
bool Conversion::fold(const jit::Node& node) {
  jit::Stack stack;
  for (const jit::Value* input : node.inputs()) {
    const auto constant = known_value(input);
    if (!constant) return false;
    stack.push_back(*constant);
  }
  if (node.outputs().size() != 1) return false;
  node.getOperation()(stack);
  constants_[node.output()] = stack.at(0);
  return true;
}

const jit::Value* Call::value(const char* argument) const { return node_.namedInput(argument); }

bool Call::has(const char* argument) const {
  if (!node_.hasNamedInput(argument)) return false;
  const auto constant = jit::toIValue(value(argument));
  return !constant || !constant->isNone();
}

bool Call::is_tensor(const char* argument) const {
  return value(argument)->type()->castRaw<c10::TensorType>() != nullptr;
}
std::string Call::tensor(const char* argument) const { return conversion_.name_of(value(argument)); }

std::string Call::tensor_as(const char* argument, at::ScalarType type) const {
  if (!is_tensor(argument)) return conversion_.add_constant(at::tensor(number(argument)).to(type).squeeze(0));
  std::string name = tensor(argument);
  if (conversion_.type_of(value(argument)) == type) return name;
  return conversion_.add("Cast", {std::move(name)}, 1, {{"to", onnx_type(type)}}).front();
}

std::vector<std::string> Call::tensors(const char* argument) const {
  const std::vector<std::string>* const list = conversion_.list_of(value(argument));
  if (!list) fail(join("its ", argument, " is no list of tensors"));
  return *list;
}

namespace {

c10::IValue constant_of(const Call& call, const jit::Value* value, const char* argument) {
  const auto constant = jit::toIValue(value);
  if (!constant) call.fail(join("its ", argument, " is computed in the program"));
  return *constant;
}

}  // namespace

std::int64_t Call::whole(const char* argument) const {
  return constant_of(*this, value(argument), argument).toScalar().toLong();
}
double Call::number(const char* argument) const {
  return constant_of(*this, value(argument), argument).toScalar().toDouble();
}
bool Call::flag(const char* argument) const { return constant_of(*this, value(argument), argument).toBool(); }
std::string Call::text(const char* argument) const {
  return constant_of(*this, value(argument), argument).toStringRef();
}

std::vector<std::int64_t> Call::wholes(const char* argument) const {
  const jit::Value* const list = value(argument);
  if (list->node()->kind() != c10::prim::ListConstruct) {
    const c10::IValue constant = constant_of(*this, list, argument);
    return constant.isInt() ? std::vector{constant.toInt()} : constant.toIntVector();
  }
  std::vector<std::int64_t> values;
  for (const jit::Value* element : list->node()->inputs())
    values.push_back(constant_of(*this, element, argument).toInt());
  return values;
}

std::int64_t Call::dimension(const char* argument, const char* of, std::int64_t extra) const {
  const std::int64_t given = whole(argument);
  return given < 0 ? given + rank(of) + extra : given;
}

at::ScalarType Call::common_type(const char* a, const char* b) const {
  const auto like = [&](const char* argument) {  // what libtorch's rules depend on
    return at::empty(std::vector<std::int64_t>(sizes(argument).size()), type(argument));
  };
  if (is_tensor(b)) return at::result_type(like(a), like(b));
  return at::result_type(like(a), constant_of(*this, value(b), b).toScalar());
}

at::ScalarType Call::type(const char* argument) const { return conversion_.type_of(value(argument)); }
std::vector<std::int64_t> Call::sizes(const char* argument) const { return conversion_.sizes_of(value(argument)); }
at::ScalarType Call::result_type() const { return conversion_.type_of(node_.output()); }
std::vector<std::int64_t> Call::result_sizes() const { return conversion_.sizes_of(node_.output()); }

std::string Call::add(const char* operation, std::vector<std::string> inputs, Attributes attributes) {
  return conversion_.add(operation, std::move(inputs), 1, std::move(attributes)).front();
}
std::vector<std::string> Call::add_list(const char* operation, std::vector<std::string> inputs, std::size_t outputs,
                                        Attributes attributes) {
  return conversion_.add(operation, std::move(inputs), outputs, std::move(attributes));
}
std::string Call::constant(const at::Tensor& value) { return conversion_.add_constant(value); }
std::string Call::constant(const std::vector<std::int64_t>& values) { return constant(at::tensor(values, at::kLong)); }
std::string Call::number_like(double value, const char* argument) {
  return constant(at::tensor(value, at::kDouble).to(type(argument)).squeeze());
}
std::string Call::cast(std::string value, at::ScalarType type) {
  return add("Cast", {std::move(value)}, {{"to", onnx_type(type)}});
}

void Call::fail(const std::string& why) const {
  const std::string& layer = conversion_.last_layer();
  throw ConfigError("export_onnx: ", node_.kind().toQualString(), layer.empty() ? "" : " in or after ", layer, ": ",
                    why, "; use export_torchscript(), or replace the operator");
}

}  // namespace composer::onnx
