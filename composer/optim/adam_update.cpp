#include "composer/optim/adam_update.h"

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
#include <ATen/ops/zeros_like.h>

namespace composer::optim::detail {
void prepare_adam(const at::Tensor& parameter, ParameterState& state, bool amsgrad) {
  if (!state.tensors[STEP].defined()) {
    state.tensors[STEP] = step_count(parameter);
    state.tensors[EXP_AVG] = at::zeros_like(parameter);
    state.tensors[EXP_AVG_SQ] = at::zeros_like(parameter);
  }
  if (amsgrad && !state.tensors[MAX_EXP_AVG_SQ].defined()) state.tensors[MAX_EXP_AVG_SQ] = at::zeros_like(parameter);
}

void describe_adam(Slice& slice, ParameterState& state, const AdamHyper& h, AdamCorrections& memo) {
  const double step = count(state.tensors[STEP]);
  if (memo.step != step || memo.beta1 != h.beta1 || memo.beta2 != h.beta2)
    memo = {step, h.beta1, h.beta2, 1 - std::pow(h.beta1, step), std::sqrt(1 - std::pow(h.beta2, step))};
  slice.update = AdamUpdate{.l2 = h.l2,
                            .keep = 1 - h.decay,
                            .beta1 = h.beta1,
                            .beta2 = h.beta2,
                            .eps = h.eps,
                            .rate = h.lr / memo.first,
                            .scale = 1 / memo.root_of_second,
                            .m = memory(state.tensors[EXP_AVG]),
                            .v = memory(state.tensors[EXP_AVG_SQ]),
                            .top = h.amsgrad ? memory(state.tensors[MAX_EXP_AVG_SQ]) : nullptr};
}

// The fused kernel multiplies the decay by the learning rate, so a decay requires a learning rate other than 0.
bool is_fused_adam(const Batch& batch, const AdamHyper& h) { return batch.dense && (h.decay == 0 || h.lr != 0); }

void update_adam(const Batch& batch, const AdamHyper& h) {
  const std::vector<at::Tensor> steps = batch.count_step(), m = batch.column(EXP_AVG), v = batch.column(EXP_AVG_SQ);
  std::vector<at::Tensor> top;
  if (h.amsgrad) top = batch.column(MAX_EXP_AVG_SQ);
  if (is_fused_adam(batch, h)) {
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
  at::_foreach_div_(denominator, at::_foreach_sqrt(corrections(steps, h.beta2)));
  at::_foreach_add_(denominator, h.eps);
  at::_foreach_mul_(denominator, corrections(steps, h.beta1));
  if (h.decay != 0) at::_foreach_mul_(batch.p, 1 - h.decay);
  at::_foreach_addcdiv_(batch.p, m, denominator, -h.lr);
}

}  // namespace composer::optim::detail
