#include "composer/predict/summary.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <typeinfo>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Type.h>

#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/model.h"
#include "composer/core/model_access.h"
#include "composer/predict/recording.h"
#include "composer/surgery/layer.h"
#include "composer/util/flop_counter.h"
#include "composer/util/layer_watch.h"
#include "composer/util/text_table.h"

namespace composer {
namespace {

// "Conv2d" of torch::nn::Conv2dImpl
std::string short_type(const torch::nn::Module& module) {
  const torch::nn::Module& held = bare(module);
  std::string name = c10::demangle(typeid(held).name());
  name = name.substr(0, name.find('<'));
  if (const std::size_t colon = name.rfind(':'); colon != std::string::npos) name.erase(0, colon + 1);
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

struct Size {
  std::int64_t numbers = 0, trainable = 0, bytes = 0;
};

// Each tensor once.
Size size_of(const std::vector<at::Tensor>& tensors) {
  Size size;
  std::set<const void*> seen;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    size.numbers += tensor.numel();
    size.trainable += tensor.requires_grad() ? tensor.numel() : 0;
    size.bytes += static_cast<std::int64_t>(tensor.nbytes());
  }
  return size;
}

// The innermost module that two are in: "h.0" of "h.0.attn.c_proj" and "h.0.mlp.c_fc".
std::string common_parent(const std::string& a, const std::string& b) {
  const std::size_t length = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  if (length == a.size() && length == b.size()) return a;
  const bool whole = (length == a.size() && b[length] == '.') || (length == b.size() && a[length] == '.');
  if (whole) return a.substr(0, length);
  const std::size_t dot = a.rfind('.', length == 0 ? 0 : length - 1);
  return dot == std::string::npos || length == 0 ? std::string() : a.substr(0, dot);
}

// What a forward pass shows. Operators between two layers, such as attention, count for the module that both are in.
class ForwardPass {
 public:
  void run(Model& model, const Batch& example) {
    const at::NoGradGuard no_grad;
    const EvaluationMode evaluating(as_module(model));
    {
      const LayerWatch watch(as_module(model), [this](const std::string& layer, LayerWatch::Side side,
                                                      const at::Tensor& tensor) { see(layer, side, tensor); });
      counts_ = counter_.start();  // after the watch, which so learns of an operator before it is counted
      static_cast<void>(eval_forward_of(model, example, nullptr));
    }
    count_for("");
    if (counts_) counter_.stop();
  }

  const std::vector<std::int64_t>* output_of(const std::string& layer) const {
    const auto found = outputs_.find(layer);
    return found == outputs_.end() ? nullptr : &found->second.shape;
  }
  std::int64_t output_bytes() const {
    std::int64_t bytes = 0;
    for (const auto& [layer, output] : outputs_) bytes += output.bytes;
    return bytes;
  }
  // With all that is below it.
  std::int64_t flops_of(const std::string& module) const {
    std::int64_t flops = 0;
    for (const auto& [name, own] : flops_)
      if (module.empty() || name == module || (name.starts_with(module) && name[module.size()] == '.')) flops += own;
    return flops;
  }

 private:
  struct Output {
    std::vector<std::int64_t> shape;
    std::int64_t bytes = 0;
  };

  void see(const std::string& layer, LayerWatch::Side side, const at::Tensor& tensor) {
    if (side == LayerWatch::Side::INPUT) return count_for(common_parent(last_, layer));
    count_for(layer);
    last_ = layer;
    outputs_[layer] = {tensor.sizes().vec(), static_cast<std::int64_t>(tensor.nbytes())};
  }
  void count_for(const std::string& module) {
    if (!counts_) return;
    flops_[module] += counter_.so_far() - counted_;
    counted_ = counter_.so_far();
  }

  FlopCounter counter_;
  bool counts_ = false;
  std::int64_t counted_ = 0;  // FLOPs that some module has
  std::string last_;          // the last layer that ended
  std::map<std::string, std::int64_t> flops_;
  std::map<std::string, Output> outputs_;
};

ModelSummary summary_of(Model& model, const Batch* example) {
  ForwardPass pass;
  if (example) pass.run(model, *example);
  const torch::nn::Module& root = as_module(model);
  const Size parameters = size_of(root.parameters());
  ModelSummary all{.type = short_type(root),
                   .layers = {},
                   .parameters = parameters.numbers,
                   .trainable = parameters.trainable,
                   .parameter_bytes = parameters.bytes,
                   .buffer_bytes = size_of(root.buffers()).bytes};
  for (const auto& item : root.named_modules("", /*include_self=*/false)) {
    const torch::nn::Module& module = *item.value();
    const Size size = size_of(module.parameters());
    LayerSummary layer{.name = item.key(),
                       .type = short_type(module),
                       .output = {},
                       .parameters = size.numbers,
                       .trainable = size.trainable,
                       .flops = pass.flops_of(item.key()),
                       .depth = std::ranges::count(item.key(), '.') + 1};
    // Of one with layers below it, what is seen is the last use of its own weights, which need not be its output.
    const auto* const output = pass.output_of(item.key());
    if (output && module.children().empty()) layer.output = *output;
    all.layers.push_back(std::move(layer));
  }
  if (example && !example->empty() && example->front().dim() > 0) all.samples = example->front().size(0);
  all.output_bytes = pass.output_bytes();
  all.flops = pass.flops_of("");
  return all;
}

// Three digits and a prefix: "1.82 G".
std::string prefixed(std::int64_t number) {
  constexpr std::array kPrefixes = {"", "k", "M", "G", "T", "P", "E"};
  auto value = static_cast<double>(number);
  std::size_t prefix = 0;
  for (; value >= 999.5 && prefix + 1 < kPrefixes.size(); ++prefix) value /= 1000;
  return util::printed(prefix == 0     ? "%.0f "
                       : value < 9.995 ? "%.2f "
                       : value < 99.95 ? "%.1f "
                                       : "%.0f ",
                       value) +
         kPrefixes[prefix];
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return shape.empty() ? "" : "[" + listed(shape) + "]";
}

}  // namespace

ModelSummary summarize(Model& model) { return summary_of(model, nullptr); }
ModelSummary summarize(Model& model, const Batch& example) { return summary_of(model, &example); }

std::string to_text(const ModelSummary& summary, std::int64_t depth) {
  const bool counted = summary.flops > 0;
  util::TextTable table("lllrr");
  table.row({"layer", "type", summary.samples > 0 ? "output" : "", "parameters", counted ? "FLOPs" : ""});
  for (const LayerSummary& layer : summary.layers)
    if (layer.depth <= depth)
      table.row({std::string(static_cast<std::size_t>(2 * (layer.depth - 1)), ' ') +
                     layer.name.substr(layer.name.rfind('.') + 1),
                 layer.type, shape_text(layer.output), layer.parameters == 0 ? "" : util::grouped(layer.parameters),
                 layer.flops == 0 ? "" : prefixed(layer.flops)});
  std::string text = table.text();
  text += join(summary.type, ": ", util::grouped(summary.parameters), " parameters");
  if (summary.trainable != summary.parameters)
    text += join(", ", util::grouped(summary.trainable), " of them trainable");
  text += join(" (", prefixed(summary.parameter_bytes), "B); buffers ", prefixed(summary.buffer_bytes), "B\n");
  if (summary.samples > 0) {
    text += join("forward pass of ", summary.samples, summary.samples == 1 ? " sample: " : " samples: ");
    if (counted) text += join(prefixed(summary.flops), "FLOPs, ");
    text += join(prefixed(summary.output_bytes), "B of outputs of layers\n");
  }
  return text;
}

std::string summary(Model& model, std::int64_t depth) { return to_text(summarize(model), depth); }
std::string summary(Model& model, const Batch& example, std::int64_t depth) {
  return to_text(summarize(model, example), depth);
}

}  // namespace composer
