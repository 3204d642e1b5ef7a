#include "composer/step/nan_culprit.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/SequenceNumber.h>

#include "composer/core/error.h"
#include "composer/core/model.h"
#include "composer/core/run.h"
#include "composer/surgery/layer.h"
#include "composer/util/operator_watch.h"

namespace composer::nan {
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

// Describes a tensor: "float [32, 10], -3.1 to 4.2, mean 0.1, 3 NaN, 1 inf".
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

// The rows of [N, ...] that are not finite; none if all rows are not finite, or there is only one.
struct Rows {
  std::vector<std::int64_t> first;  // at most 8
  std::int64_t count = 0, of = 0;

  bool empty() const { return first.empty(); }
};

Rows rows_of(const at::Tensor& tensor) {
  constexpr std::int64_t kNamed = 8;
  if (tensor.dim() == 0 || tensor.size(0) < 2 || tensor.layout() != at::kStrided) return {};
  const at::Tensor rows = tensor.isfinite().logical_not().flatten(1 < tensor.dim() ? 1 : 0);
  const at::Tensor bad = (rows.dim() > 1 ? rows.any(1) : rows).nonzero().flatten().cpu();
  if (bad.numel() == 0 || bad.numel() == tensor.size(0)) return {};
  Rows found{.count = bad.numel(), .of = tensor.size(0)};
  for (std::int64_t i = 0; i < std::min(bad.numel(), kNamed); ++i) found.first.push_back(bad[i].item<std::int64_t>());
  return found;
}

// " in rows 3, 7", or "".
std::string in_rows(const Rows& rows) {
  if (rows.empty()) return "";
  std::string text = rows.count == 1 ? " in row " : " in rows ";
  for (std::size_t i = 0; i < rows.first.size(); ++i) text += join(i == 0 ? "" : ", ", rows.first[i]);
  if (static_cast<std::size_t>(rows.count) > rows.first.size())
    text += join(", ... (", rows.count, " of ", rows.of, ')');
  return text;
}

// Whether the operator writes values that it is given: an infinity that it writes is intended, as in an attention mask.
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
  std::string output;
  Rows rows;
};

// Whether nothing was computed: the output is an input, or a part of one.
bool is_view(const OperatorCall& call, const at::Tensor& output) {
  if (call.inputs.size() == 1 && !call.name.ends_with('_') && call.inputs.front().is_same(output)) return true;
  bool is_alias = false;
  for (const at::Tensor& input : call.inputs) {
    if (input.is_same(output)) return false;  // the operator writes into its input
    is_alias = is_alias || (output.has_storage() && input.is_alias_of(output));
  }
  return is_alias;
}

// Whether the output is uninitialised memory; with deterministic algorithms it is filled with NaN.
bool only_allocates(std::string_view name) {
  return name.find("empty") != std::string_view::npos || name == "aten::resize_";
}

// Keeps the first operator whose output has NaN, and the first whose output has infinities.
class CulpritFinder final : public OperatorWatch::Listener, public LayerImpl::Observer {
 public:
  explicit CulpritFinder(const Model& model) {
    for (const auto& item : model.named_parameters()) add(item.key(), item.value());
    for (const auto& item : model.named_buffers()) {
      add(item.key(), item.value());
      buffers_.insert(item.value().unsafeGetTensorImpl());
    }
    for (const auto& item : model.named_modules("", /*include_self=*/false))
      if (const auto layer = std::dynamic_pointer_cast<LayerImpl>(item.value())) {
        layers_.try_emplace(layer.get(), item.key());
        layer->observe(this);
        observed_.push_back(layer);
      }
  }
  ~CulpritFinder() override {
    for (const auto& layer : observed_) layer->observe(nullptr);
  }
  CulpritFinder(const CulpritFinder&) = delete;
  CulpritFinder& operator=(const CulpritFinder&) = delete;

  void begin(const OperatorCall& call) override {
    open_.push_back({std::string(call.name), call.is_node});
    if (call.is_node) {
      ++nodes_;
      // The place of the operator that created the node, also if libtorch does not record it
      // (torch::autograd::Function).
      if (const auto next = places_.upper_bound(call.sequence); call.sequence >= 0 && next != places_.begin())
        place_ = std::prev(next)->second;
      return;
    }
    if (nodes_ > 0 || in_module_ > 0) return;
    for (const at::Tensor& input : call.inputs) {
      const std::string* const module = module_of(input);
      if (!module) continue;
      last_ = *module;
      in_module_ = open_.size();
      if (!running_.empty()) running_.back().has_run_one = true;
      return move_to("in " + last_);
    }
  }

  void end(const OperatorCall& call) override {
    if (!call.is_node) look(call);
    if (open_.empty()) return;
    if (open_.back().is_node) --nodes_;
    open_.pop_back();
    if (in_module_ <= open_.size()) return;
    in_module_ = 0;
    move_to(between());
  }

  void begin(const LayerImpl& layer) override {
    if (!is_forward()) return;
    running_.push_back({&layers_.at(&layer)});
    move_to(between());
  }

  void end(const LayerImpl&) override {
    if (!is_forward() || running_.empty()) return;
    last_ = *running_.back().name;
    running_.pop_back();
    if (!running_.empty()) running_.back().has_run_one = true;
    move_to(between());
  }

  const std::optional<Found>& culprit() const {
    // An infinity that came before a NaN is reported if the NaN was computed from values that are not finite.
    if (nan_ && (nan_->finite_inputs || !inf_)) return nan_;
    return inf_ ? inf_ : nan_;
  }
  const std::optional<Found>& nan() const { return nan_; }

 private:
  struct Open {
    std::string name;
    bool is_node;
  };

  struct Weight {
    std::string module;
    const void* end;  // end of its memory
  };
  struct Running {
    const std::string* name;
    bool has_run_one = false;  // whether a module within it has run
  };

  void add(const std::string& name, const at::Tensor& tensor) {
    const std::size_t dot = name.rfind('.');
    if (tensor.has_storage() && tensor.numel() > 0)
      weights_.try_emplace(tensor.const_data_ptr(),
                           Weight{dot == std::string::npos ? "the model" : name.substr(0, dot),
                                  static_cast<const std::byte*>(tensor.const_data_ptr()) + tensor.nbytes()});
  }

  // The module with this weight, or with a weight that this tensor is a view of; null if there is none.
  const std::string* module_of(const at::Tensor& tensor) const {
    if (!tensor.has_storage() || tensor.numel() == 0) return nullptr;
    const void* const at = tensor.const_data_ptr();
    const auto next = weights_.upper_bound(at);
    if (next == weights_.begin() || !std::less<>()(at, std::prev(next)->second.end)) return nullptr;
    return &std::prev(next)->second.module;
  }

  // Layers also run on other threads, and in a backward pass that repeats a part of the forward pass.
  bool is_forward() const { return nodes_ == 0 && std::this_thread::get_id() == thread_; }

  void move_to(std::string place) {
    place_ = std::move(place);
    places_.insert_or_assign(static_cast<std::int64_t>(at::sequence_number::peek()), place_);
  }

  // Describes where operators without weights run.
  std::string between() const {
    std::string after = last_.empty() ? "before the first layer" : "after " + last_;
    if (running_.empty()) return after;
    const auto& [name, has_run_one] = running_.back();
    return "in " + *name + (has_run_one && *name != last_ ? ", " + after : "");
  }

  void look(const OperatorCall& call) {
    if (nan_ || only_allocates(call.name)) return;
    for (const at::Tensor& output : call.outputs) {
      const Counts counts = count(output);
      if (counts.nan == 0 && (counts.inf == 0 || inf_ || fills(call.name))) continue;
      if (is_view(call, output)) continue;
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
    const bool is_norm = call.name.find("batch_norm") != std::string_view::npos;
    for (const at::Tensor& input : call.inputs) {
      // Statistics of a batch norm have been NaN since the first run of the microbatch, and do not matter in training
      // mode.
      const bool counts = !input.is_same(output) && !(is_norm && buffers_.contains(input.unsafeGetTensorImpl()));
      found.finite_inputs = found.finite_inputs && (!counts || is_finite(input));
      found.inputs.push_back(statistics(input));
    }
    return found;
  }

  const std::thread::id thread_ = std::this_thread::get_id();
  std::vector<std::shared_ptr<LayerImpl>> observed_;
  std::unordered_map<const LayerImpl*, std::string> layers_;
  std::map<const void*, Weight, std::less<>> weights_;  // by the beginning of their memory
  std::unordered_set<const c10::TensorImpl*> buffers_;
  std::vector<Open> open_;
  std::vector<Running> running_;
  std::string last_, place_ = "before the first layer";
  std::map<std::int64_t, std::string> places_;  // of nodes, by the number of the first one
  std::size_t in_module_ = 0;                   // depth of the operator that uses the weights
  std::size_t nodes_ = 0;                       // number of nodes in progress
  std::optional<Found> nan_, inf_;
};

std::string sentence(const Found& found) {
  std::string text =
      join(found.name, found.outer.empty() || found.outer == found.name ? "" : " (of " + found.outer + ")", ' ',
           found.place);
  text += found.finite_inputs ? " made it of finite numbers:" : " had it from its inputs:";
  for (std::size_t i = 0; i < found.inputs.size(); ++i) text += join("\n  input ", i + 1, ": ", found.inputs[i]);
  text += "\n  output: " + found.output;
  return text + in_rows(found.rows);
}

// Describes what was not finite before the step began; has no text if everything was finite.
Culprit in_batch(const State& state) {
  for (const auto& [name, tensor] : state.batch)
    if (!is_finite(tensor)) {
      const Rows rows = rows_of(tensor);
      return {join("the batch has it already: \"", name, "\" is ", statistics(tensor), in_rows(rows)), true, rows.first,
              rows.of, /*are_samples=*/true};
    }
  return {};
}

// "row 3 is sample 617", a line for the first rows. Rows of a tensor that is not of the batch may be something else.
std::string samples_of_rows(const Culprit& culprit, const std::vector<std::int64_t>& samples) {
  if (culprit.rows.empty() || culprit.of_rows != static_cast<std::int64_t>(samples.size())) return "";
  std::string text = culprit.are_samples ? "\n" : "\nif its rows are samples, ";
  for (std::size_t i = 0; i < culprit.rows.size(); ++i)
    text += join(i == 0 ? "" : ", ", "row ", culprit.rows[i], " is sample ",
                 samples[static_cast<std::size_t>(culprit.rows[i])]);
  return text;
}

std::string text_of_samples(const std::vector<std::int64_t>& samples) {
  constexpr std::size_t kNamed = 16;
  std::string text;
  for (std::size_t i = 0; i < std::min(samples.size(), kNamed); ++i) text += join(i == 0 ? "" : ", ", samples[i]);
  if (samples.size() > kNamed) text += join(", ... (", samples.size(), ')');
  return text;
}

std::string in_weights(const State& state) {
  std::string first;
  std::size_t others = 0;
  for (const auto& item : state.model->named_parameters()) {
    if (is_finite(item.value())) continue;
    if (first.empty())
      first = join(item.key(), " is ", statistics(item.value()));
    else
      ++others;
  }
  if (first.empty() || others == 0) return first;
  return join(first, ", and so ", others == 1 ? "is " : "are ", others, others == 1 ? " other" : " others");
}

}  // namespace

Culprit find_culprit(const State& state, bool gradients, const std::function<void()>& repeat) {
  const at::NoGradGuard no_grad;
  const std::string weights = in_weights(state);
  if (Culprit before = in_batch(state); weights.empty() && !before.text.empty()) return before;
  CulpritFinder finder(*state.model);
  {
    const OperatorWatch watch(finder);
    repeat();
  }
  if (!weights.empty()) {
    const bool is_first = state.timestamp.batch == 0;
    std::string text =
        join("the weights had it ",
             is_first ? "before the first batch" : "already, from the gradients of an earlier batch", ": ", weights);
    if (const auto& first = finder.nan())
      text += join("\nfirst used by ", first->outer.empty() ? first->name : first->outer, ' ', first->place);
    if (!is_first)
      text +=
          "\nto find that batch, its samples and the operator, give NaNMonitor check_gradients = true and start again "
          "from the last checkpoint";
    return {text, /*of_this_batch=*/false};
  }
  const auto& culprit = finder.culprit();
  if (!culprit)
    return {join("all was finite when ", gradients ? "forward, loss and backward" : "forward and loss",
                 " ran again without algorithms, so one of them may have made it")};
  std::string text = sentence(*culprit);
  if (const auto& nan = finder.nan(); nan && nan->name != culprit->name)
    text += join("\nthe infinity became NaN in ", nan->name, ' ', nan->place);
  return {text, true, culprit->rows.first, culprit->rows.of};
}

Cause cause_in_run(const State& state, bool gradients) {
  Cause cause;
  Culprit culprit;
  const auto add = [&](const char* part, auto make) {  // a failure here must not hide the NaN
    try {
      cause.text += make();
    } catch (const std::exception& error) {
      cause.text += join("\n(", part, ": ", error.what(), ')');
    }
  };
  add("the cause was not found", [&] {
    culprit = find_culprit(state, gradients, [&] { state.run->repeat_microbatch(gradients); });
    cause.of_this_batch = culprit.of_this_batch;
    return '\n' + culprit.text;
  });
  if (!cause.of_this_batch) return cause;
  add("the samples are not known", [&] {
    cause.samples = state.run->sample_indices();
    if (cause.samples.empty()) return std::string();
    return samples_of_rows(culprit, cause.samples) + "\nsamples of the microbatch: " + text_of_samples(cause.samples);
  });
  return cause;
}

}  // namespace composer::nan
