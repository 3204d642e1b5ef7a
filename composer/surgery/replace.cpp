#include "composer/surgery/replace.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/sequential.h>

#include "composer/core/error.h"
#include "composer/util/text.h"
#include "composer/util/wildcard.h"

namespace composer {
namespace {

using torch::nn::Module;

// The module as torch prints it, without its children.
std::string text_of(const Module& module) {
  util::OutText stream;
  module.pretty_print(stream);
  return stream.str();
}

// Converts to the device and floating-point type of `like`; whole numbers, such as counts of batches, keep their type.
void move(const at::Tensor& tensor, const at::Tensor& like) {
  const auto type = at::isFloatingType(tensor.scalar_type()) ? like.scalar_type() : tensor.scalar_type();
  tensor.set_data(tensor.detach().to(like.device(), type));
}

bool move_to_parameters(const Module& like, Module& now) {
  for (const at::Tensor& parameter : like.parameters())
    if (at::isFloatingType(parameter.scalar_type())) {
      for (const at::Tensor& one : now.parameters()) move(one, parameter);
      for (const at::Tensor& one : now.buffers()) move(one, parameter);
      return true;
    }
  return false;
}

// Moves new weights and buffers, which libtorch makes on the CPU in its default type.
void move_to_where(const Module& before, const Module& model, Module& now) {
  if (!move_to_parameters(before, now)) move_to_parameters(model, now);
}

// Updates all Layers: modules below the one that a Layer holds may have been replaced.
void refresh_all(Module& module, std::set<const Module*>& seen) {
  if (!seen.insert(&module).second) return;
  for (const auto& child : bare(module).children())
    if (child) refresh_all(*child, seen);
  if (auto* layer = dynamic_cast<LayerImpl*>(&module)) layer->refresh();
}

class ModuleReplacer {
 public:
  ModuleReplacer(const Module& model, const ReplacementPolicy& policy, const LeavesAlone& leaves_alone)
      : model_(model), policy_(policy), leaves_alone_(leaves_alone) {}

  void visit(Module& parent, const std::string& prefix) {
    if (!visited_modules_.insert(&parent).second) return;
    Module& inside = bare(parent);
    auto* const sequential = inside.as<torch::nn::Sequential>();
    std::size_t index = 0;
    for (const auto& child : inside.named_children()) {  // a copy of the list, so new modules are not visited
      const std::size_t at = index++;
      if (!child.value() || (leaves_alone_ && leaves_alone_(bare(*child.value())))) continue;
      const std::string name = prefix.empty() ? child.key() : prefix + "." + child.key();
      const auto place_before = std::dynamic_pointer_cast<LayerImpl>(child.value());
      const std::shared_ptr<Module> before = place_before ? place_before->module() : child.value();
      if (place_before) {
        if (visited_layers_.insert(place_before.get()).second) replace_in_layer(name, Layer(place_before));
      } else if (sequential) {
        replace_in_sequential(name, *sequential, at, child.key());
      } else if (!answers_.contains(child.value().get())) {
        answers_.emplace(child.value().get(), Layer());
        const auto shown = std::make_shared<LayerImpl>(child.value(), LayerImpl::CannotBeCalled{});
        if (!policy_(name, Layer(shown)).is_empty()) result_.out_of_reach.push_back(name);
      }
      visit(*before, name);
    }
  }

  Replacements result() && { return std::move(result_); }

 private:
  // Returns the same result for every place that holds this module.
  Layer replacement_for(const std::string& name, const Layer& place) {
    const auto known = answers_.find(place->module().get());
    if (known != answers_.end()) return known->second;
    kept_alive_.push_back(place->module());  // keeps its address from being reused
    Layer now = policy_(name, place);
    answers_.emplace(kept_alive_.back().get(), now);
    return now;
  }

  void replace_in_layer(const std::string& name, const Layer& place) {
    const Layer now = replacement_for(name, place);
    if (now.is_empty() || now->module() == place->module()) return;
    const std::string before = text_of(*place);
    move_to_where(*place, model_, *now.ptr());
    place.ptr()->hold(*now);
    result_.made.push_back({name, before, text_of(*place), place});
  }

  void replace_in_sequential(const std::string& name, torch::nn::SequentialImpl& sequential, std::size_t index,
                             const std::string& key) {
    torch::nn::AnyModule& entry = *(sequential.begin() + static_cast<std::ptrdiff_t>(index));
    const Layer place(std::make_shared<LayerImpl>(entry));
    replace_in_layer(name, place);
    if (place->module() == entry.ptr()) return;
    entry = torch::nn::AnyModule(place);
    sequential.replace_module(key, place.ptr());
  }

  const Module& model_;
  const ReplacementPolicy& policy_;
  const LeavesAlone& leaves_alone_;
  std::set<const Module*> visited_modules_, visited_layers_;
  std::map<const Module*, Layer> answers_;
  std::vector<std::shared_ptr<Module>> kept_alive_;
  Replacements result_;
};

}  // namespace

ReplacementPolicy named(std::string pattern, ReplacementPolicy policy) {
  return [pattern = std::move(pattern), policy = std::move(policy)](const std::string& name, const Layer& place) {
    return fits_wildcard(pattern, name) ? policy(name, place) : Layer();
  };
}

std::string Replacements::table() const {
  std::size_t width = 0;
  for (const Replacement& one : made) width = std::max(width, one.name.size());
  std::string text;
  for (const Replacement& one : made)
    text += join(one.name, std::string(width - one.name.size(), ' '), "  ", one.before, " -> ", one.after, "\n");
  return text;
}

std::vector<std::string> Replacements::never_called() const {
  std::vector<std::string> names;
  for (const Replacement& one : made)
    if (!one.place->was_called()) names.push_back(one.name);
  return names;
}

Replacements replace_modules(Module& model, const ReplacementPolicy& policy, const LeavesAlone& leaves_alone) {
  if (!policy) throw ConfigError("replace_modules: the policy is empty");
  ModuleReplacer replacer(model, policy, leaves_alone);
  replacer.visit(model, "");
  std::set<const Module*> seen;
  refresh_all(model, seen);
  return std::move(replacer).result();
}

}  // namespace composer
