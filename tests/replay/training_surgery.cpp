// training.json: runs whose model is changed before they begin.
#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>

#include <ATen/ATen.h>

#include "composer/algorithms/blurpool.h"
#include "composer/algorithms/channels_last.h"
#include "composer/algorithms/factorize.h"
#include "composer/algorithms/ghost_batchnorm.h"
#include "composer/algorithms/squeeze_excite.h"
#include "composer/algorithms/weight_standardization.h"
#include "tests/replay/training_run.h"

namespace composer::replay {
namespace {

using torch::nn::Module;
// Returns how many modules or tensors it has changed.
using ModuleChange = std::size_t (*)(Module& model, const Json& o);
template <auto Change, class Options>
std::size_t change(Module& model, const Json& o) {
  return Change(model, options_of(o, Options{})).made.size();
}

const std::map<std::string, ModuleChange>& changes() {
  using namespace algorithms;
  static const std::map<std::string, ModuleChange> all = {
      {"BlurPool", change<blurpool, BlurPoolOptions>},
      {"ChannelsLast", [](Module& model, const Json&) { return channels_last(model); }},
      {"Factorize", change<factorize, FactorizeOptions>},
      {"GhostBatchNorm", change<algorithms::ghost_batchnorm, GhostBatchNormOptions>},
      {"SqueezeExcite", change<squeeze_excite, SqueezeExciteOptions>},
      {"WeightStandardization", change<weight_standardization, WeightStandardizationOptions>}};
  return all;
}

bool is_filter(const std::string& name) { return name.ends_with(".blur_filter") || name.ends_with(".filt2d"); }

// Throws for a recorded name that the model does not have.
void fill(Module& model, const std::string& prefix, const Context::Tensors& tensors) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> ours;
  for (const auto& one : model.named_parameters()) ours.emplace(one.key(), one.value());
  for (const auto& one : model.named_buffers()) ours.emplace(one.key(), one.value());
  for (auto found = tensors.lower_bound(prefix); found != tensors.end() && found->first.starts_with(prefix); ++found) {
    const std::string name = found->first.substr(prefix.size());
    if (is_filter(name)) continue;  // a constant
    const auto to = ours.find(name);
    if (to == ours.end()) throw std::runtime_error(name + " was recorded, which the model does not have");
    to->second.copy_(found->second);
  }
}

}  // namespace

bool is_surgery(const Json& algorithm) { return changes().contains(algorithm.at("class").get<std::string>()); }

void replace_modules_of(const Json& c, const Context& context, Module& model) {
  bool any = false;
  for (const Json& one : c.at("config").value("algorithms", Json::array())) {
    const auto change = changes().find(one.at("class"));
    if (change == changes().end()) continue;
    if (change->second(model, one) == 0) throw std::runtime_error(change->first + " has changed nothing");
    any = true;
  }
  if (any) fill(model, c.at("id").get<std::string>() + "/after_init.", context.tensors());
}

namespace {

bool has_surgery(const Json& c) {
  const Json algorithms = c.at("config").value("algorithms", Json::array());
  return std::ranges::any_of(algorithms, is_surgery);
}

void order_parameters(Json& expected, const Json& c, const Context& context) {
  Json names = Json::array();
  for (const auto& one : make_training_run(c, context).model->named_parameters()) names.push_back(one.key());
  Json& recorded = expected["optimizer_parameters_at_end"].at(0);
  Json ours = names, theirs = recorded;
  std::sort(ours.begin(), ours.end());
  std::sort(theirs.begin(), theirs.end());
  if (ours == theirs) recorded = names;
}

// A filter is the same for all channels.
void share_filters(Json& expected, const Json&) {
  for (auto& [name, tensor] : expected["final"].items()) {
    if (!is_filter(name)) continue;
    tensor["shape"][0] = 1;
    tensor["values"].erase(tensor["values"].begin() + 9, tensor["values"].end());
  }
}

}  // namespace

Rules surgery_run_rules(const Context* context) {
  return {{.name = "optimizers_have_the_order_of_the_model",
           .applies_to = "The order of parameters in the optimizer of a run whose modules are replaced",
           .composer_does = "New parameters come last, or where the old one was.",
           .we_do = "Parameters have the order in which the model lists them.",
           .why = "It is the order of an optimizer that is made for this model.",
           .matches = has_surgery,
           .ours = [context](Json& expected, const Json& c) { order_parameters(expected, c, *context); }},
          {.name = "blur_filters_are_shared",
           .applies_to = "The filter of a convolution with BlurPool, in a checkpoint",
           .composer_does = "Keeps one for each channel, all alike.",
           .we_do = "Keeps one.",
           .why = "They are all alike.",
           .matches = has_surgery,
           .ours = share_filters},
          {.name = "no_op_models_have_no_metrics",
           .applies_to = "The metrics of a run with `NoOpModel`",
           .composer_does = "Computes `BinaryAccuracy` of its outputs.",
           .we_do = "There are no metrics.",
           .why = "The run measures what is not the model's, and outputs that are the targets are always right.",
           .matches = [](const Json& c) { return has_algorithm(c, "NoOpModel"); },
           .ours =
               [](Json& expected, const Json&) {
                 for (Json& row : expected["rows"]) row[3] = Json::object();
               }}};
}

}  // namespace composer::replay
