#include <exception>
#include <locale>
#include <memory>
#include <ostream>
#include <set>

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/ir/ir.h>

#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/model_access.h"
#include "composer/formats/torch_trace.h"
#include "composer/util/letters.h"

namespace composer::formats {
namespace {

namespace jit = torch::jit;

// A name of Python's own would make a program that cannot be read: it gets a _ at its end.
std::string allowed(const std::string& name) {
  static const std::set<std::string> kKeywords = {
      "False",   "None",     "True",  "and",    "as",   "assert", "async",  "await",    "break",
      "class",   "continue", "def",   "del",    "elif", "else",   "except", "for",      "from",
      "finally", "global",   "if",    "import", "in",   "is",     "lambda", "nonlocal", "not",
      "or",      "pass",     "raise", "return", "try",  "while",  "with",   "yield"};
  return kKeywords.contains(name) ? name + "_" : name;
}

// A script module with the same tensors under the same names.
jit::Module as_script(const torch::nn::Module& module, const std::shared_ptr<jit::CompilationUnit>& unit) {
  jit::Module script(c10::QualifiedName("__torch__.composer.Module"), unit, /*shouldMangle=*/true);
  script.register_attribute("training", c10::BoolType::get(), false);
  for (const auto& [name, tensor] : named_parameters(module, /*recurse=*/false))
    if (tensor.defined()) script.register_parameter(allowed(name), tensor, /*is_buffer=*/false);
  for (const auto& [name, tensor] : named_buffers(module, /*recurse=*/false))
    if (tensor.defined()) script.register_buffer(allowed(name), tensor);
  for (const auto& [name, child] : named_children(module))
    script.register_module(allowed(name), as_script(*child, unit));
  return script;
}

std::string identifier(const std::string& name) {
  std::string valid = name;
  for (char& letter : valid)
    if (!util::is_letter_or_digit(letter)) letter = '_';
  if (valid.empty() || util::is_digit(valid.front())) valid.insert(valid.begin(), '_');
  return valid;
}

void collect_foreign(const jit::Block& block, std::set<std::string>& names) {
  for (const jit::Node* node : block.nodes()) {
    const std::string space = node->kind().ns().toUnqualString();
    if (space != "aten" && space != "prim") names.insert(node->kind().toQualString());
    for (const jit::Block* inner : node->blocks()) collect_foreign(*inner, names);
  }
}

void check_operators(const jit::Graph& graph) {
  std::set<std::string> names;
  collect_foreign(*graph.block(), names);
  if (names.empty()) return;
  throw Error("TorchScript: operators that libtorch does not have: ", listed(names));
}

// Copies, because the function may write into its inputs.
jit::Stack to_stack(const TracedFunction::Tensors& tensors) {
  jit::Stack stack;
  for (const at::Tensor& tensor : tensors) stack.emplace_back(tensor.clone());
  return stack;
}

jit::Stack result_of(const TracedFunction::Tensors& outputs) {
  if (outputs.size() == 1) return {outputs.front()};
  return {c10::ivalue::Tuple::create({outputs.begin(), outputs.end()})};
}

jit::Module recorded(const torch::nn::Module& module, const TracedFunction& function, InPlace in_place) {
  const auto unit = std::make_shared<jit::CompilationUnit>();
  jit::Module script = as_script(module, unit);
  std::vector<std::string> names;
  names.reserve(function.names.size());
  for (const std::string& name : function.names) names.push_back(identifier(name));
  const auto call = [&](const jit::Stack& inputs) {
    TracedFunction::Tensors tensors;
    tensors.reserve(inputs.size());
    for (const c10::IValue& input : inputs) tensors.push_back(input.toTensor());
    return result_of(function.call(tensors));
  };
  const auto no_names = [](const at::Tensor&) { return std::string(); };
  const auto graph = jit::tracer::trace(to_stack(function.examples), call, no_names, /*strict=*/true,
                                        /*force_outplace=*/in_place == InPlace::REPLACED, &script, names)
                         .first->graph;
  check_operators(*graph);
  script.type()->addMethod(unit->create_function(c10::QualifiedName(*script.type()->name(), "forward"), graph));
  return script;
}

// Errors of libtorch lose its stack frames.
template <class Run>
auto in_words(const Run& run) {
  try {
    return run();
  } catch (const c10::Error& error) {
    throw Error("TorchScript: ", error.what_without_backtrace());
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {  // before libtorch 2.15, exceptions of a program are not c10::Error
    throw Error("TorchScript: ", error.what());
  }
}

}  // namespace

void check_locale_for_torch_script() {
  const std::locale locale;
  const auto& form = std::use_facet<std::numpunct<char>>(locale);
  if (form.decimal_point() == '.' && form.grouping().empty()) return;
  throw ConfigError("TorchScript: libtorch would write 1234.5 in the form of the locale \"", locale.name(),
                    "\", which it cannot read. Call std::locale::global(std::locale::classic()) before the fit");
}

jit::Module trace(const torch::nn::Module& module, const TracedFunction& function, InPlace in_place) {
  const at::NoGradGuard no_grad;
  return in_words([&] { return recorded(module, function, in_place); });
}

void write_torch_script(std::ostream& out, const torch::nn::Module& module, const TracedFunction& function) {
  check_locale_for_torch_script();
  const jit::Module program = trace(module, function);
  in_words([&] { program.deepcopy(at::kCPU).save(out); });
}

}  // namespace composer::formats
