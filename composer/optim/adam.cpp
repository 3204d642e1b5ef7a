#include "composer/optim/adam.h"

#include <cmath>
#include <optional>
#include <utility>

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_maximum.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/zeros_like.h>

#include "composer/optim/batch.h"
#include "composer/optim/groups.h"

namespace composer::optim {

using detail::as;
using detail::Batch;

namespace {

enum State : std::size_t { STEP, EXP_AVG, EXP_AVG_SQ, MAX_EXP_AVG_SQ };
const std::vector<const char*> kKeys = {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"};

template <class Options>
void check(const std::string& who, const Options& o) {
  detail::check_lr(who, o.lr);
  detail::check_betas(who, o.beta1, o.beta2);
  detail::check_not_negative(who, "eps", o.eps);
  detail::check_not_negative(who, "weight_decay", o.weight_decay);
}

template <class Options>
std::vector<OptionField> list_fields(Options& o) {
  return {{"lr", &o.lr},
          {"beta1", &o.beta1},
          {"beta2", &o.beta2},
          {"eps", &o.eps},
          {"weight_decay", &o.weight_decay},
          {"amsgrad", &o.amsgrad}};
}

// 1 - beta^step of each, as doubles: floats would lose what is left of large betas.
std::vector<at::Tensor> corrections_of(const std::vector<at::Tensor>& steps, double beta) {
  std::vector<at::Tensor> list;
  for (const at::Tensor& step : steps) list.push_back(at::rsub(at::pow(beta, step.to(at::kDouble)), 1));
  return list;
}

}  // namespace

std::vector<OptionField> fields_of(AdamOptions& o) { return list_fields(o); }
std::vector<OptionField> fields_of(AdamWOptions& o) { return list_fields(o); }
std::vector<OptionField> fields_of(DecoupledAdamWOptions& o) { return list_fields(o); }

void AdamOptimizer::prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const {
  if (!state.tensors[STEP].defined()) {
    state.tensors[STEP] = detail::step_count(parameter);
    state.tensors[EXP_AVG] = at::zeros_like(parameter);
    state.tensors[EXP_AVG_SQ] = at::zeros_like(parameter);
  }
  if (!state.tensors[MAX_EXP_AVG_SQ].defined() && hyper(options).amsgrad)
    state.tensors[MAX_EXP_AVG_SQ] = at::zeros_like(parameter);
}

bool AdamOptimizer::elementwise(const Options&) const { return true; }

const AdamOptimizer::Corrections& AdamOptimizer::corrections(double step, const Hyper& h) {
  Corrections& c = corrections_;
  if (c.step != step || c.beta1 != h.beta1 || c.beta2 != h.beta2)
    c = {step, h.beta1, h.beta2, 1 - std::pow(h.beta1, step), std::sqrt(1 - std::pow(h.beta2, step))};
  return c;
}

void AdamOptimizer::describe(detail::Slice& slice, ParameterState& state, const Options& options) {
  const Hyper h = hyper(options);
  const Corrections& c = corrections(detail::count(state.tensors[STEP]), h);
  slice.a = detail::memory(state.tensors[EXP_AVG]);
  slice.b = detail::memory(state.tensors[EXP_AVG_SQ]);
  slice.c = h.amsgrad ? detail::memory(state.tensors[MAX_EXP_AVG_SQ]) : nullptr;
  slice.update = detail::AdamUpdate{.l2 = h.l2,
                                    .keep = 1 - h.decay,
                                    .beta1 = h.beta1,
                                    .beta2 = h.beta2,
                                    .eps = h.eps,
                                    .rate = h.lr / c.first,
                                    .scale = 1 / c.root_of_second};
}

// The fused kernel multiplies its decay by the learning rate, so there must be one.
bool AdamOptimizer::obeys_found_inf(const Batch& batch, const Options& options) const {
  const Hyper h = hyper(options);
  return batch.dense && (h.decay == 0 || h.lr != 0);
}

void AdamOptimizer::update(Batch& batch, const Options& options) {
  const Hyper h = hyper(options);
  const std::vector<at::Tensor> steps = batch.count_step(), m = batch.column(EXP_AVG), v = batch.column(EXP_AVG_SQ);
  std::vector<at::Tensor> top;
  if (h.amsgrad) top = batch.column(MAX_EXP_AVG_SQ);
  if (obeys_found_inf(batch, options)) {
    const auto found = batch.found_inf.defined() ? std::optional(batch.found_inf) : std::nullopt;
    if (h.decay != 0)
      return at::_fused_adamw_(batch.p, batch.g, m, v, top, steps, h.lr, h.beta1, h.beta2, h.decay / h.lr, h.eps,
                               h.amsgrad, /*maximize=*/false, /*grad_scale=*/{}, found);
    return at::_fused_adam_(batch.p, batch.g, m, v, top, steps, h.lr, h.beta1, h.beta2, h.l2, h.eps, h.amsgrad,
                            /*maximize=*/false, /*grad_scale=*/{}, found);
  }
  const std::vector<at::Tensor> g = h.l2 != 0 ? at::_foreach_add(batch.g, batch.p, h.l2) : batch.g;
  at::_foreach_lerp_(m, g, 1 - h.beta1);
  at::_foreach_mul_(v, h.beta2);
  at::_foreach_addcmul_(v, g, g, 1 - h.beta2);
  if (h.amsgrad) at::_foreach_maximum_(top, v);
  std::vector<at::Tensor> denominator = at::_foreach_sqrt(h.amsgrad ? top : v);
  at::_foreach_div_(denominator, at::_foreach_sqrt(corrections_of(steps, h.beta2)));
  at::_foreach_add_(denominator, h.eps);
  at::_foreach_mul_(denominator, corrections_of(steps, h.beta1));
  if (h.decay != 0) at::_foreach_mul_(batch.p, 1 - h.decay);
  at::_foreach_addcdiv_(batch.p, m, denominator, -h.lr);
}

Adam::Adam(const NamedParameters& parameters, const AdamOptions& options)
    : AdamOptimizer("adam", kKeys, detail::build_groups("adam", parameters, options, check), options.step_in_backward) {
}
AdamOptimizer::Hyper Adam::hyper(const Options& options) const {
  const AdamOptions& o = as<AdamOptions>(options).values;
  return {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, 0, o.amsgrad};
}

AdamW::AdamW(const NamedParameters& parameters, const AdamWOptions& options)
    : AdamOptimizer("adamw", kKeys, detail::build_groups("adamw", parameters, options, check),
                    options.step_in_backward) {}
AdamOptimizer::Hyper AdamW::hyper(const Options& options) const {
  const AdamWOptions& o = as<AdamWOptions>(options).values;
  return {o.lr, o.beta1, o.beta2, o.eps, 0, o.lr * o.weight_decay, o.amsgrad};
}

DecoupledAdamW::DecoupledAdamW(const NamedParameters& parameters, const DecoupledAdamWOptions& options)
    : AdamOptimizer("decoupled_adamw", kKeys, detail::build_groups("decoupled_adamw", parameters, options, check),
                    options.step_in_backward) {}
AdamOptimizer::Hyper DecoupledAdamW::hyper(const Options& options) const {
  const auto& group = as<DecoupledAdamWOptions>(options);
  const DecoupledAdamWOptions& o = group.values;
  const double share = group.initial_lr == 0 ? 1 : o.lr / group.initial_lr;
  return {o.lr, o.beta1, o.beta2, o.eps, 0, share * o.weight_decay, o.amsgrad};
}

AnyOptimizer adam(AdamOptions options) {
  check("adam", options);
  return AnyOptimizer::Factory([options = std::move(options)](const NamedParameters& parameters) {
    return std::make_shared<Adam>(parameters, options);
  });
}
AnyOptimizer adamw(AdamWOptions options) {
  check("adamw", options);
  return AnyOptimizer::Factory([options = std::move(options)](const NamedParameters& parameters) {
    return std::make_shared<AdamW>(parameters, options);
  });
}
AnyOptimizer decoupled_adamw(DecoupledAdamWOptions options) {
  check("decoupled_adamw", options);
  return AnyOptimizer::Factory([options = std::move(options)](const NamedParameters& parameters) {
    return std::make_shared<DecoupledAdamW>(parameters, options);
  });
}

}  // namespace composer::optim
