#include "composer/optim/optimizer_state.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>

#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/plugins.h"
#include "composer/formats/byte_source.h"
#include "composer/formats/zip_reader.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/combined.h"
#include "composer/optim/named_optimizer.h"
#include "composer/util/exact_text.h"
#include "composer/util/letters.h"
#include "composer/util/text.h"

namespace composer {
namespace {

namespace libtorch = torch::optim;

using Owns = std::function<bool(const at::Tensor& parameter)>;

// If state is missing or has another shape, the optimizer throws.
void visit_named(StateVisitor& visit, optim::NamedOptimizer& optimizer, const Owns& owns) {
  if (!visit.is_loading()) {
    std::vector<optim::StateTensor> all = optimizer.state_tensors(owns);
    for (auto one = all.begin(); one != all.end();) {  // the tensors of a parameter follow each other
      const std::string& parameter = one->parameter;
      StateVisitor inner = visit.scope(parameter);
      for (; one != all.end() && one->parameter == parameter; ++one) inner(one->key, one->tensor);
    }
    return;
  }
  std::vector<optim::StateTensor> tensors;
  for (const std::string& parameter : visit.names()) {
    StateVisitor inner = visit.scope(parameter);
    for (const std::string& key : inner.names()) {
      at::Tensor tensor;
      inner(key, tensor);
      tensors.push_back({parameter, key, tensor});
    }
  }
  optimizer.load_state_tensors(tensors, owns);
}

// Visits the classes by whose rules the parameters are updated. State of one class may fit another, as that of Adam
// fits AdamW, but a resumed run would train otherwise.
void visit_rules(StateVisitor& visit, const optim::NamedOptimizer& optimizer) {
  const optim::NamedParameters all = optimizer.named_parameters();
  std::map<std::string, std::string> now;
  auto one = all.begin();
  for (std::size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    const optim::NamedOptimizer& rule = optimizer.rule(g);
    for (std::size_t i = 0; i < optimizer.param_groups()[g].params().size(); ++i)
      now[one++->name] = class_name(typeid(rule));
  }
  std::map<std::string, std::string> saved = now;
  visit("rules", saved);
  for (const auto& [parameter, rule] : saved) {
    const auto here = now.find(parameter);
    if (here == now.end() || here->second == rule) continue;
    throw CheckpointError(visit.path(), ": has the state of ", parameter, " for ", rule, ", but this run has ",
                          here->second, " for it; give it the same, or set load_ignore_keys = {\"optimizer\"}");
  }
}

// Visits the fields of the state of one parameter. Loaded tensors are moved to the parameter's device.
struct StateFields {
  StateVisitor& visit;
  const at::Tensor& parameter;

  void operator()(const char* name, std::int64_t& value) { visit(name, value); }
  void operator()(const char* name, double& value) { visit(name, value); }
  void operator()(const char* name, at::Tensor& value) {
    visit(name, value);
    if (visit.is_loading() && value.defined()) value = value.to(parameter.device());
  }
  // Visits a tensor that must have the parameter's shape.
  void tensor_like_parameter(const char* name, at::Tensor& value) {
    (*this)(name, value);
    if (visit.is_loading() && value.defined() && value.sizes() != parameter.sizes())
      throw CheckpointError(visit.path(), '/', name, ": has the shape ", value.sizes(), ", must have ",
                            parameter.sizes());
  }
  void operator()(const char* name, std::deque<at::Tensor>& value) {
    std::vector<at::Tensor> list(value.begin(), value.end());
    visit(name, list);
    if (!visit.is_loading()) return;
    value.clear();
    for (const at::Tensor& tensor : list) value.push_back(tensor.to(parameter.device()));
  }
};

void visit_fields(StateFields fields, libtorch::SGDParamState& state) {
  fields.tensor_like_parameter("momentum_buffer", state.momentum_buffer());
}

template <class State>
requires std::is_same_v<State, libtorch::AdamParamState> || std::is_same_v<State, libtorch::AdamWParamState>
void visit_fields(StateFields fields, State& state) {
  fields("step", state.step());
  fields.tensor_like_parameter("exp_avg", state.exp_avg());
  fields.tensor_like_parameter("exp_avg_sq", state.exp_avg_sq());
  fields.tensor_like_parameter("max_exp_avg_sq", state.max_exp_avg_sq());
}

void visit_fields(StateFields fields, libtorch::AdagradParamState& state) {
  fields("step", state.step());
  fields.tensor_like_parameter("sum", state.sum());
}

void visit_fields(StateFields fields, libtorch::RMSpropParamState& state) {
  fields("step", state.step());
  fields.tensor_like_parameter("square_avg", state.square_avg());
  fields.tensor_like_parameter("momentum_buffer", state.momentum_buffer());
  fields.tensor_like_parameter("grad_avg", state.grad_avg());
}

// L-BFGS has one state for all parameters in their order, stored under the first one. `al` is omitted, because each
// step computes it anew.
void visit_fields(StateFields fields, libtorch::LBFGSParamState& state) {
  fields("func_evals", state.func_evals());
  fields("n_iter", state.n_iter());
  fields("t", state.t());
  fields("prev_loss", state.prev_loss());
  fields("d", state.d());
  fields("H_diag", state.H_diag());
  fields("prev_flat_grad", state.prev_flat_grad());
  fields("old_dirs", state.old_dirs());
  fields("old_stps", state.old_stps());
  fields("ro", state.ro());
}

using optim::NamedParameters;

template <class State>
void save_states(StateVisitor& visit, const libtorch::Optimizer& optimizer, const NamedParameters& all,
                 const Owns& owns) {
  for (const auto& [name, tensor] : all) {
    const auto found = optimizer.state().find(tensor.unsafeGetTensorImpl());
    if (found == optimizer.state().end() || (owns && !owns(tensor))) continue;
    StateVisitor inner = visit.scope(name);
    visit_fields({inner, tensor}, static_cast<State&>(*found->second));
  }
}

// Reads everything before it changes anything.
template <class State>
void load_states(StateVisitor& visit, libtorch::Optimizer& optimizer, const NamedParameters& all, const Owns& owns) {
  std::vector<std::pair<void*, std::unique_ptr<State>>> loaded;
  const std::vector<std::string> names = visit.names();
  std::unordered_set<std::string_view> unknown(names.begin(), names.end());
  for (const auto& [name, tensor] : all) {
    auto& [key, state] = loaded.emplace_back(tensor.unsafeGetTensorImpl(), nullptr);
    if (unknown.erase(name) == 0 || (owns && !owns(tensor))) continue;
    state = std::make_unique<State>();
    StateVisitor inner = visit.scope(name);
    visit_fields({inner, tensor}, *state);
  }
  const auto is_unknown = [&](const std::string& name) { return unknown.count(name) > 0; };
  if (!unknown.empty())
    throw CheckpointError(visit.path(), ": contains state of ", *std::ranges::find_if(names, is_unknown),
                          ", which is not a parameter of this optimizer");
  for (auto& [key, state] : loaded) {
    if (state) optimizer.state()[key] = std::move(state);
    // Adagrad makes the states of all parameters at construction, and requires them.
    else if (!std::is_same_v<State, libtorch::AdagradParamState>)
      optimizer.state().erase(key);
  }
}

template <class Optimizer, class State>
bool visit_if(StateVisitor& visit, libtorch::Optimizer& optimizer, const torch::nn::Module& model, const Owns& owns) {
  if (typeid(optimizer) != typeid(Optimizer)) return false;  // a derived class may have more state
  const NamedParameters all = parameters_of(optimizer, model);
  if (visit.is_loading())
    load_states<State>(visit, optimizer, all, owns);
  else
    save_states<State>(visit, optimizer, all, owns);
  return true;
}

bool visit_libtorch(StateVisitor& visit, libtorch::Optimizer& optimizer, const torch::nn::Module& model,
                    const Owns& owns) {
  return visit_if<libtorch::SGD, libtorch::SGDParamState>(visit, optimizer, model, owns) ||
         visit_if<libtorch::Adam, libtorch::AdamParamState>(visit, optimizer, model, owns) ||
         visit_if<libtorch::AdamW, libtorch::AdamWParamState>(visit, optimizer, model, owns) ||
         visit_if<libtorch::Adagrad, libtorch::AdagradParamState>(visit, optimizer, model, owns) ||
         visit_if<libtorch::RMSprop, libtorch::RMSpropParamState>(visit, optimizer, model, owns) ||
         visit_if<libtorch::LBFGS, libtorch::LBFGSParamState>(visit, optimizer, model, owns);
}

// Visits the names of the parameters that a joint state belongs to. Checkpoints of earlier versions do not contain
// them.
void visit_order(StateVisitor& visit, const NamedParameters& all) {
  if (visit.is_loading() && !visit.has("parameters")) return;
  std::vector<std::string> now, saved;
  for (const auto& [name, tensor] : all) now.push_back(name);
  saved = now;
  visit("parameters", saved);
  if (saved == now) return;
  const auto [was, is] = std::ranges::mismatch(saved, now);
  throw CheckpointError(visit.path(), ": LBFGS keeps one state for all parameters in their order, and this run has ",
                        is == now.end() ? "nothing" : *is, " where ", was == saved.end() ? "nothing" : *was,
                        " was. Register them in the same order, or set load_ignore_keys = {\"optimizer\"}");
}

std::string bytes_of(torch::serialize::OutputArchive& archive) {
  util::OutText text;
  archive.save_to(text);
  return std::move(text).str();
}

void save_archive(StateVisitor& visit, const libtorch::Optimizer& optimizer) {
  torch::serialize::OutputArchive archive, nothing;
  optimizer.save(archive);
  const std::string all = bytes_of(archive);
  // libtorch's Optimizer::save() writes nothing if a class does not override it.
  if (!optimizer.state().empty() && all.size() == bytes_of(nothing).size())
    throw CheckpointError("checkpoint: ", class_name(typeid(optimizer)),
                          " has state but does not save it; override its save() and load()");
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(all.size())}, at::kByte);
  std::copy(all.begin(), all.end(), bytes.mutable_data_ptr<std::uint8_t>());
  visit("archive", bytes);
}

// Whether the text contains this word, not as a part of a longer one.
bool has_word(std::string_view text, std::string_view word) {
  const auto in_word = [&](std::size_t at) {
    return at < text.size() && (util::is_letter_or_digit(text[at]) || text[at] == '_');
  };
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string_view::npos; ++at)
    if (!in_word(at - 1) && !in_word(at + word.size())) return true;
  return false;
}

// libtorch compiles the classes in an archive, and would execute their functions. The classes of optimizers have none.
void check_has_no_code(const std::string& archive) {
  const auto source = formats::bytes_in_memory(archive, "the optimizer's archive");
  const formats::ZipReader zip(*source);
  for (const formats::ZipEntry& entry : zip.entries()) {
    if (entry.name.find("/code/") == std::string::npos || !entry.name.ends_with(".py")) continue;
    if (has_word(zip.read(entry), "def")) throw CheckpointError(source->name(), ": contains code, in ", entry.name);
  }
}

void load_archive(StateVisitor& visit, libtorch::Optimizer& optimizer) {
  at::Tensor bytes;
  visit("archive", bytes);
  if (!bytes.defined() || bytes.scalar_type() != at::kByte)
    throw CheckpointError(visit.path(), ": the archive of the optimizer is missing or does not consist of bytes");
  std::string all(reinterpret_cast<const char*>(bytes.const_data_ptr<std::uint8_t>()), bytes.nbytes());
  check_has_no_code(all);
  util::InText text(std::move(all));
  torch::serialize::InputArchive archive;
  try {
    archive.load_from(text);
    optimizer.load(archive);
  } catch (const c10::Error& error) {
    throw CheckpointError(visit.path(), ": ", class_name(typeid(optimizer)),
                          ": its load() failed to read what its save() has written: ", error.what_without_backtrace());
  }
}

std::string text_of(const c10::IValue& value) {
  if (value.isString()) return value.toStringRef();
  if (value.isDouble()) return util::exact_text(value.toDouble());
  if (value.isInt()) return std::to_string(value.toInt());
  if (value.isBool()) return value.toBool() ? "true" : "false";
  if (value.isTuple()) return listed(value.toTupleRef().elements(), [](const auto& one) { return text_of(one); });
  if (value.isList()) return listed(value.toListRef(), [](const auto& one) { return text_of(one); });
  return value.isNone() ? "none" : "?";
}

StateValue option_value(const c10::IValue& value) {
  if (value.isDouble()) return value.toDouble();
  if (value.isInt()) return value.toInt();
  if (value.isBool()) return value.toBool();
  return text_of(value);
}

// Returns what serialize() writes for the options of libtorch's classes. It reads their fields, because an archive
// takes a millisecond for each group. Empty for other classes.
StateDict known_options(const libtorch::OptimizerOptions& given) {
  StateDict all;
  const auto add_adam = [&](const auto& adam) {
    all["betas"] = join(util::exact_text(std::get<0>(adam.betas())), ", ", util::exact_text(std::get<1>(adam.betas())));
    all["eps"] = adam.eps();
    all["weight_decay"] = adam.weight_decay();
    all["amsgrad"] = adam.amsgrad();
  };
  if (typeid(given) == typeid(libtorch::AdamOptions)) add_adam(static_cast<const libtorch::AdamOptions&>(given));
  if (typeid(given) == typeid(libtorch::AdamWOptions)) add_adam(static_cast<const libtorch::AdamWOptions&>(given));
  if (typeid(given) == typeid(libtorch::SGDOptions)) {
    const auto& sgd = static_cast<const libtorch::SGDOptions&>(given);
    all["momentum"] = sgd.momentum();
    all["dampening"] = sgd.dampening();
    all["weight_decay"] = sgd.weight_decay();
    all["nesterov"] = sgd.nesterov();
  }
  if (typeid(given) == typeid(libtorch::RMSpropOptions)) {
    const auto& rmsprop = static_cast<const libtorch::RMSpropOptions&>(given);
    all["alpha"] = rmsprop.alpha();
    all["eps"] = rmsprop.eps();
    all["weight_decay"] = rmsprop.weight_decay();
    all["momentum"] = rmsprop.momentum();
    all["centered"] = rmsprop.centered();
  }
  return all;
}

// Reads an archive back, because libtorch has no other access to what was written.
torch::serialize::InputArchive read_back(torch::serialize::OutputArchive& written) {
  util::InText text(bytes_of(written));
  torch::serialize::InputArchive archive;
  archive.load_from(text);
  return archive;
}

void check_class(const std::string& saved, const libtorch::Optimizer& optimizer) {
  if (const std::string own = class_name(typeid(optimizer)); saved != own)
    throw CheckpointError("checkpoint: was written with the optimizer ", saved, ", but this run has ", own);
}

}  // namespace

void check_optimizer(const StateDict& saved, const libtorch::Optimizer& optimizer) {
  const StateValue* found = saved.find("class");
  if (const auto* type = found ? std::get_if<std::string>(found) : nullptr) check_class(*type, optimizer);
}

// Parameters that are not in the model are named by their position.
NamedParameters parameters_of(const libtorch::Optimizer& optimizer, const torch::nn::Module& model) {
  if (const auto* named = dynamic_cast<const optim::NamedOptimizer*>(&optimizer)) return named->named_parameters();
  std::unordered_map<const void*, std::string> names;
  for (auto& [name, tensor] : optim::parameters_of(model)) names.emplace(tensor.unsafeGetTensorImpl(), name);
  NamedParameters all;
  for (std::size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    const std::vector<at::Tensor>& tensors = optimizer.param_groups()[g].params();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto found = names.find(tensors[i].unsafeGetTensorImpl());
      all.push_back({found != names.end() ? found->second : join("param_groups/", g, "/params/", i), tensors[i]});
    }
  }
  return all;
}

std::vector<StateDict> serialized_options(const libtorch::Optimizer& optimizer) {
  const auto& groups = optimizer.param_groups();
  std::vector<StateDict> all(groups.size());
  if (dynamic_cast<const optim::NamedOptimizer*>(&optimizer)) return all;
  torch::serialize::OutputArchive archive;
  std::vector<std::size_t> written;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (!groups[i].has_options()) continue;
    all[i] = known_options(groups[i].options());
    if (!all[i].entries().empty()) continue;
    torch::serialize::OutputArchive one(archive.compilation_unit());
    try {
      groups[i].options().serialize(one);
    } catch (...) {  // serialize() is not overridden, or failed
      continue;
    }
    archive.write(std::to_string(i), one);
    written.push_back(i);
  }
  if (written.empty()) return all;
  torch::serialize::InputArchive options;
  try {
    options = read_back(archive);
  } catch (const c10::Error&) {  // an option has a type that archives do not support
    return all;
  }
  for (const std::size_t i : written) {
    torch::serialize::InputArchive one;
    options.read(std::to_string(i), one);
    for (const std::string& name : one.keys()) {
      c10::IValue value;
      if (name != "lr" && one.try_read(name, value)) all[i][name] = option_value(value);
    }
  }
  return all;
}

bool can_be_sharded(const libtorch::Optimizer& optimizer) {
  if (dynamic_cast<const optim::NamedOptimizer*>(&optimizer)) return true;
  const std::type_info& type = typeid(optimizer);
  return type == typeid(libtorch::SGD) || type == typeid(libtorch::Adam) || type == typeid(libtorch::AdamW) ||
         type == typeid(libtorch::RMSprop);
}

void visit_optimizer(StateVisitor& visit, libtorch::Optimizer& optimizer, const torch::nn::Module& model,
                     const Owns& owns) {
  std::string type = class_name(typeid(optimizer));
  visit("class", type);
  check_class(type, optimizer);
  if (typeid(optimizer) == typeid(libtorch::LBFGS)) visit_order(visit, parameters_of(optimizer, model));
  auto* const named = dynamic_cast<optim::NamedOptimizer*>(&optimizer);
  if (typeid(optimizer) == typeid(optim::Combined)) visit_rules(visit, *named);
  StateVisitor state = visit.scope("state");
  if (named) return visit_named(state, *named, owns);
  if (visit_libtorch(state, optimizer, model, owns)) return;
  if (visit.is_loading())
    load_archive(state, optimizer);
  else
    save_archive(state, optimizer);
}

}  // namespace composer
