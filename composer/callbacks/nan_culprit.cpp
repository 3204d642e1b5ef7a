#include "composer/callbacks/nan_culprit.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/core/model.h"
#include "composer/util/operator_watch.h"

namespace composer::callbacks {
namespace {

struct Counts {
  std::int64_t nan = 0, inf = 0;
};

Counts count(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0 || tensor.layout() != at::kStrided) return {};
  if (!tensor.is_floating_point() && !tensor.is_complex()) return {};
  return {tensor.isnan().sum().item<std::int64_t>(), tensor.isinf().sum().item<std::int64_t>()};
}

bool is_finite(const at::Tensor& tensor) {
  const Counts found = count(tensor);
  return found.nan == 0 && found.inf == 0;
}

// "float [32, 10], -3.1 to 4.2, mean 0.1, 3 NaN, 1 inf"
std::string statistics(const at::Tensor& tensor) {
  std::string text = join(tensor.scalar_type(), ' ', tensor.sizes());
  if (tensor.numel() == 0 || tensor.is_complex() || tensor.layout() != at::kStrided) return text;
  const at::Tensor values = tensor.detach().to(at::kDouble).flatten();
  const at::Tensor finite = values.masked_select(values.isfinite());
  if (finite.numel() > 0)
    text += join(", ", finite.min().item<double>(), " to ", finite.max().item<double>(), ", mean ",
                 finite.mean().item<double>());
  const Counts found = count(values);
  if (found.nan > 0) text += join(", ", found.nan, " NaN");
  if (found.inf > 0) text += join(", ", found.inf, " inf");
  return text;
}

// The rows of [N, ...] that are not finite, as "rows 3, 7"; "" unless they are some of several.
std::string rows_of(const at::Tensor& tensor) {
  constexpr std::int64_t kNamed = 8;
  if (tensor.dim() == 0 || tensor.size(0) < 2 || tensor.layout() != at::kStrided) return "";
  const at::Tensor rows = tensor.isfinite().logical_not().flatten(1 < tensor.dim() ? 1 : 0);
  const at::Tensor bad = (rows.dim() > 1 ? rows.any(1) : rows).nonzero().flatten().cpu();
  if (bad.numel() == 0 || bad.numel() == tensor.size(0)) return "";
  std::string text = bad.numel() == 1 ? "row " : "rows ";
  for (std::int64_t i = 0; i < std::min(bad.numel(), kNamed); ++i)
    text += join(i == 0 ? "" : ", ", bad[i].item<std::int64_t>());
  if (bad.numel() > kNamed) text += join(", ... (", bad.numel(), " of ", tensor.size(0), ')');
  return text;
}

// An operator that writes the values it is told to: an infinity that it makes is meant, as in the mask of an attention.
bool fills(std::string_view name) {
  constexpr std::array<std::string_view, 8> kFilling = {"fill",         "full",  "scalar_tensor", "where",
                                                        "constant_pad", "empty", "lift",          "scatter"};
  return std::ranges::any_of(kFilling,
                             [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

struct Found {
  std::string name, outer, place;  // aten::div, the operator that called it, "in fc1"
  bool finite_inputs = true;
  std::vector<std::string> inputs;
  std::string output, rows;
};

// Keeps the first operators whose outputs are NaN and infinite.
class Finder final : public OperatorWatch::Listener {
 public:
  explicit Finder(const Model& model) {
    for (const auto& item : model.named_parameters()) add(item.key(), item.value());
    for (const auto& item : model.named_buffers()) add(item.key(), item.value());
  }

  void begin(const OperatorCall& call) override {
    open_.push_back({std::string(call.name), call.is_node});
    if (call.is_node) {
      const auto found = places_.find(call.sequence);
      if (found != places_.end()) place_ = found->second;
      return;
    }
    for (const at::Tensor& input : call.inputs) {
      const auto module = modules_.find(input.unsafeGetTensorImpl());
      if (module == modules_.end()) continue;
      last_ = module->second;
      place_ = "in " + last_;
      if (in_module_ == 0) in_module_ = open_.size();  // not one that it calls
      break;
    }
    if (call.sequence >= 0) places_.try_emplace(call.sequence, place_);
  }

  void end(const OperatorCall& call) override {
    if (!call.is_node) look(call);
    if (!open_.empty()) open_.pop_back();
    if (in_module_ > open_.size()) {  // what has weights is over; what follows belongs to nobody, or to what is around
      in_module_ = 0;
      if (!last_.empty()) place_ = "after " + last_;
    }
  }

  const std::optional<Found>& culprit() const {
    // An infinity that came before a NaN counts if the NaN was made of what is not finite.
    if (nan_ && (nan_->finite_inputs || !inf_)) return nan_;
    return inf_ ? inf_ : nan_;
  }
  const std::optional<Found>& nan() const { return nan_; }

 private:
  struct Open {
    std::string name;
    bool is_node;
  };

  void add(const std::string& name, const at::Tensor& tensor) {
    const std::size_t dot = name.rfind('.');
    modules_.try_emplace(tensor.unsafeGetTensorImpl(), dot == std::string::npos ? "the model" : name.substr(0, dot));
  }

  void look(const OperatorCall& call) {
    if (nan_) return;
    for (const at::Tensor& output : call.outputs) {
      const Counts counts = count(output);
      if (counts.nan == 0 && (counts.inf == 0 || inf_ || fills(call.name))) continue;
      Found found = describe(call, output);
      if (counts.nan > 0)
        nan_ = std::move(found);
      else if (found.finite_inputs)
        inf_ = std::move(found);
      return;
    }
  }

  Found describe(const OperatorCall& call, const at::Tensor& output) const {
    Found found{.name = std::string(call.name), .place = place_, .output = statistics(output), .rows = rows_of(output)};
    if (open_.size() > 1) found.outer = open_.front().name;
    for (const at::Tensor& input : call.inputs) {
      found.finite_inputs = found.finite_inputs && (input.is_same(output) || is_finite(input));
      found.inputs.push_back(statistics(input));
    }
    return found;
  }

  std::unordered_map<const c10::TensorImpl*, std::string> modules_;  // by the weights that they have
  std::unordered_map<std::int64_t, std::string> places_;             // of operators, for their nodes
  std::vector<Open> open_;
  std::string last_, place_ = "before the first layer";
  std::size_t in_module_ = 0;  // the depth of the operator that has the weights
  std::optional<Found> nan_, inf_;
};

std::string sentence(const Found& found) {
  std::string text =
      join(found.name, found.outer.empty() || found.outer == found.name ? "" : " (of " + found.outer + ")", ' ',
           found.place);
  text += found.finite_inputs ? " made it of finite numbers:" : " had it from its inputs:";
  for (std::size_t i = 0; i < found.inputs.size(); ++i) text += join("\n  input ", i + 1, ": ", found.inputs[i]);
  text += "\n  output: " + found.output;
  if (!found.rows.empty()) text += " in " + found.rows;
  return text;
}

// What was not finite before the step began; "" if all was.
std::string in_batch(const State& state) {
  for (const auto& [name, tensor] : state.batch)
    if (!is_finite(tensor)) {
      const std::string rows = rows_of(tensor);
      return join("the batch has it already: \"", name, "\" is ", statistics(tensor), rows.empty() ? "" : " in ", rows);
    }
  return "";
}

std::string in_weights(const State& state) {
  for (const auto& item : state.model->named_parameters())
    if (!is_finite(item.value()))
      return join("the weights had it already, from the gradients of an earlier batch: ", item.key(), " is ",
                  statistics(item.value()),
                  "\nto find that batch, its samples and the operator, set check_gradients = true and start again from "
                  "the last checkpoint");
  return "";
}

}  // namespace

Culprit find_culprit(const State& state, bool gradients, const std::function<void()>& repeat) {
  const at::NoGradGuard no_grad;
  if (std::string before = in_weights(state); !before.empty()) return {before, /*of_this_batch=*/false};
  if (std::string before = in_batch(state); !before.empty()) return {before};
  Finder finder(*state.model);
  {
    const OperatorWatch watch(finder);
    repeat();
  }
  const auto& culprit = finder.culprit();
  if (!culprit)
    return {join("all was finite when ", gradients ? "forward, loss and backward" : "forward and loss",
                 " ran again without algorithms, so one of them may have made it")};
  std::string text = sentence(*culprit);
  if (const auto& nan = finder.nan(); nan && nan->name != culprit->name)
    text += join("\nthe infinity became NaN in ", nan->name, ' ', nan->place);
  return {text};
}

}  // namespace composer::callbacks
