#include "composer/callbacks/optimizer_monitor.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/stack.h>
#include <torch/optim/optimizer.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/fit_outline.h"
#include "composer/core/logger.h"
#include "composer/core/model_access.h"
#include "composer/core/state.h"
#include "composer/optim/named_optimizer.h"
#include "composer/optim/parameter_group.h"

namespace composer::callbacks {
namespace {

using TensorList = std::vector<at::Tensor>;

enum Kind : std::size_t { MOMENT, PARAM, UPDATE, GRAD };  // in the order of Composer's logs
constexpr std::array kKinds = {"moment", "param", "update", "grad"};
constexpr std::array kTotals = {"l2_norm/moment/global", "l2_norm/param/global", "l2_norm/update/global",
                                "l2_norm/grad/global"};
enum Cosine : std::size_t { MOMENT_GRAD, UPDATE_GRAD };
constexpr std::array kCosines = {"moment_grad", "update_grad"};

// The defined tensors of a list with one device and dtype, for torch's foreach operators, and their indices in the
// list.
struct Group {
  TensorList tensors;
  std::vector<std::size_t> places;
};

std::vector<Group> grouped(const TensorList& list) {
  std::vector<Group> groups;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const at::Tensor& tensor = list[i];
    if (!tensor.defined()) continue;
    auto group = std::ranges::find_if(groups, [&](const Group& other) {
      return other.tensors.front().device() == tensor.device() &&
             other.tensors.front().scalar_type() == tensor.scalar_type();
    });
    if (group == groups.end()) group = groups.insert(groups.end(), Group());
    group->tensors.push_back(tensor);
    group->places.push_back(i);
  }
  return groups;
}

TensorList copies_of(const TensorList& list) {
  TensorList copies;
  for (const at::Tensor& tensor : list) copies.push_back(tensor.defined() ? at::empty_like(tensor) : at::Tensor());
  for (const Group& group : grouped(list)) {
    TensorList some;
    for (const std::size_t place : group.places) some.push_back(copies[place]);
    at::_foreach_copy_(some, group.tensors, /*non_blocking=*/true);
  }
  return copies;
}

// Subtracts in place where both tensors are defined.
void subtract(TensorList& from, const TensorList& list) {
  for (std::size_t i = 0; i < from.size(); ++i)
    if (!list[i].defined()) from[i].reset();
  for (const Group& group : grouped(from)) {
    TensorList some;
    for (const std::size_t place : group.places) some.push_back(list[place]);
    at::_foreach_sub_(group.tensors, some);
  }
}

at::Tensor norm_over(const TensorList& norms) {
  TensorList alike;
  for (const at::Tensor& norm : norms) alike.push_back(norm.to(norms.front().options()));
  return at::linalg_vector_norm(at::stack(alike));
}

// The values that are not 0.
at::Tensor values_of(const at::Tensor& gradient) {
  return gradient.is_sparse() ? gradient.coalesce()._values() : gradient;
}

at::Tensor moment_of(const optim::NamedOptimizer* optimizer, const at::Tensor& parameter) {
  if (!optimizer) return {};
  at::Tensor moment = optimizer->state_tensor(parameter, "exp_avg");
  return moment.defined() ? moment : optimizer->state_tensor(parameter, "momentum_buffer");
}

// A tensor whose norm is logged.
struct Measured {
  std::size_t parameter;
  Kind kind;
  at::Tensor tensor, norm;
};

// Computes the norms as 0-d tensors, at least in float.
void measure(std::vector<Measured>& list) {
  TensorList tensors;
  for (const Measured& measured : list) tensors.push_back(measured.tensor);
  for (const Group& group : grouped(tensors)) {
    const bool is_short = group.tensors.front().element_size() < 4;
    const TensorList norms = at::_foreach_norm(group.tensors, 2, is_short ? std::optional(at::kFloat) : std::nullopt);
    for (std::size_t i = 0; i < norms.size(); ++i) list[group.places[i]].norm = norms[i];
  }
}

// 0 if one of the tensors is 0.
at::Tensor cosine(const Measured& a, const Measured& b) {
  const at::ScalarType type = a.norm.scalar_type();  // products of half-precision norms would underflow in their dtype
  const at::Tensor product = at::mul(a.tensor.to(type), b.tensor.to(type)).sum(type);
  return product / at::mul(a.norm, b.norm).clamp_min(1e-30);
}

const Measured* find_kind(std::span<const Measured> list, Kind kind) {
  const auto found = std::ranges::find(list, kind, &Measured::kind);
  return found == list.end() ? nullptr : &*found;
}

std::vector<Option<OptimizerMonitorOptions>> optimizer_monitor_options() {
  using O = OptimizerMonitorOptions;
  return all_options(option("log_optimizer_metrics", &O::log_optimizer_metrics),
                     option("batch_log_interval", &O::batch_log_interval).at_least(1),
                     option("log_cosines", &O::log_cosines), option("per_parameter", &O::per_parameter));
}

}  // namespace

struct OptimizerMonitor::Impl {
  struct Parameter {
    at::Tensor tensor;
    std::array<std::string, 4> norms;  // keys of the norms
    std::array<std::string, 2> cosines;
  };
  // Finds names again only if the optimizer has other parameters.
  void find_parameters(const State& state) {
    std::vector<const void*> now;
    for (const auto& group : state.optimizer->param_groups())
      for (const at::Tensor& tensor : group.params()) now.push_back(tensor.unsafeGetTensorImpl());
    if (now == optimized) return;
    optimized = std::move(now);
    parameters.clear();
    before.clear();
    for (const auto& [name, tensor] : optim::parameters_of(as_module(*state.model))) {
      Parameter& parameter = parameters.emplace_back();
      parameter.tensor = tensor;
      for (std::size_t i = 0; i < kKinds.size(); ++i) parameter.norms[i] = join("l2_norm/", kKinds[i], '/', name);
      for (std::size_t i = 0; i < kCosines.size(); ++i) parameter.cosines[i] = join("cosine/", kCosines[i], '/', name);
    }
  }

  // Frozen parameters are undefined. The tensors are used without recording gradients.
  TensorList tensors() const {
    TensorList list;
    for (const auto& [tensor, norms, cosines] : parameters)
      list.push_back(tensor.requires_grad() ? tensor : at::Tensor());
    return list;
  }

  // Collects in the order of logging. Parameters without a gradient are left out, unless the optimizer has used and
  // freed the gradient in the backward pass.
  std::vector<Measured> collect(const TensorList& now, const TensorList& updates,
                                const optim::NamedOptimizer* optimizer) const {
    const bool keeps_gradients = !optimizer || !optimizer->steps_in_backward();
    std::vector<Measured> list;
    for (std::size_t i = 0; i < now.size(); ++i) {
      const at::Tensor& parameter = parameters[i].tensor;
      const at::Tensor& gradient = parameter.mutable_grad();
      if (!now[i].defined() || (keeps_gradients && !gradient.defined())) continue;
      if (!updates.empty() && updates[i].defined()) {
        if (at::Tensor moment = moment_of(optimizer, parameter); moment.defined())
          list.push_back({i, MOMENT, std::move(moment), {}});
        list.push_back({i, PARAM, now[i], {}});
        list.push_back({i, UPDATE, updates[i], {}});
      }
      if (gradient.defined()) list.push_back({i, GRAD, values_of(gradient), {}});
    }
    return list;
  }

  void add_parameters(std::vector<LogEntry>& records, std::span<const Measured> list,
                      const OptimizerMonitorOptions& options) const {
    if (!options.per_parameter) return;
    while (!list.empty()) {
      const std::size_t i = list.front().parameter;
      const auto end = std::ranges::find_if(list, [i](const Measured& other) { return other.parameter != i; });
      const auto of_one = list.first(static_cast<std::size_t>(end - list.begin()));
      list = list.subspan(of_one.size());
      for (const Measured& measured : of_one) records.push_back({parameters[i].norms[measured.kind], measured.norm});
      const Measured* gradient = find_kind(of_one, GRAD);
      if (!options.log_cosines || !gradient || parameters[i].tensor.mutable_grad().is_sparse()) continue;
      for (const auto& [kind, key] : {std::pair(MOMENT, MOMENT_GRAD), std::pair(UPDATE, UPDATE_GRAD)})
        if (const Measured* other = find_kind(of_one, kind))
          records.push_back({parameters[i].cosines[key], cosine(*other, *gradient)});
    }
  }

  void add_totals(std::vector<LogEntry>& records, const std::vector<Measured>& list) const {
    for (std::size_t kind = 0; kind < kTotals.size(); ++kind) {
      TensorList norms;
      for (const Measured& measured : list)
        if (measured.kind == kind) norms.push_back(measured.norm);
      if (!norms.empty()) records.push_back({kTotals[kind], norm_over(norms)});
    }
  }

  std::vector<const void*> optimized;  // the tensors that the optimizer trains
  std::vector<Parameter> parameters;   // of the model
  TensorList before;                   // values of parameters before the batch; empty: not copied
};

OptimizerMonitor::OptimizerMonitor(OptimizerMonitorOptions options)
    : options_(checked("OptimizerMonitor", options, optimizer_monitor_options())), impl_(std::make_unique<Impl>()) {
  if (options_.log_cosines && !options_.log_optimizer_metrics)
    throw ConfigError("OptimizerMonitor: log_cosines needs log_optimizer_metrics, which is false");
}
OptimizerMonitor::~OptimizerMonitor() = default;
OptimizerMonitor::OptimizerMonitor(OptimizerMonitor&&) noexcept = default;

void OptimizerMonitor::check_fit(const FitOutline& fit, const State&) const {
  if (fit.zero_stage >= 2)
    throw ConfigError("OptimizerMonitor: with distributed.zero_stage = 2 no rank has the gradients of all parameters; ",
                      "leave it out, or set zero_stage = 1");
  if (fit.zero_stage == 1 && options_.log_optimizer_metrics)
    throw ConfigError("OptimizerMonitor: with distributed.zero_stage no rank has the moments of all parameters; set ",
                      "log_optimizer_metrics = false, which leaves the norms of gradients");
}

void OptimizerMonitor::init(const State&, Logger&) { *impl_ = {}; }

void OptimizerMonitor::batch_start(const State& state, Logger& logger) {
  impl_->before.clear();
  if (!options_.log_optimizer_metrics || logger.empty()) return;
  if ((state.timestamp.batch + 1) % options_.batch_log_interval != 0) return;
  const at::NoGradGuard no_grad;
  impl_->find_parameters(state);
  impl_->before = copies_of(impl_->tensors());
}

void OptimizerMonitor::batch_end(const State& state, Logger& logger) {
  if (state.timestamp.batch % options_.batch_log_interval != 0 || logger.empty()) return;
  const at::NoGradGuard no_grad;
  Impl& impl = *impl_;
  impl.find_parameters(state);
  const auto* optimizer = dynamic_cast<const optim::NamedOptimizer*>(&*state.optimizer);
  const bool has_updates = impl.before.size() == impl.parameters.size();
  const TensorList now = impl.tensors();
  TensorList updates = std::exchange(impl.before, {});
  if (!has_updates) updates.clear();
  subtract(updates, now);

  std::vector<Measured> list = impl.collect(now, updates, optimizer);
  if (list.empty()) return;
  measure(list);
  std::vector<LogEntry> records;
  impl.add_parameters(records, list, options_);
  impl.add_totals(records, list);
  logger.log_metrics(records);
}

StateDict OptimizerMonitor::local_hparams() const { return describe(options_, optimizer_monitor_options()); }

namespace entries {

Entry<Callbacks> optimizer_monitor() {
  return entry<OptimizerMonitor>("optimizer_monitor", "Logs norms of gradients, moments, parameters and updates",
                                 optimizer_monitor_options());
}

}  // namespace entries
}  // namespace composer::callbacks
