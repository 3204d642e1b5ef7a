#include "composer/callbacks/nan_monitor.h"

#include <cmath>
#include <optional>

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/state.h"

namespace composer::callbacks {
namespace {

// Of a tensor on the CPU, read in place.
bool has_nan(const at::Tensor& loss) {
  if (loss.numel() == 1 && loss.scalar_type() == at::kFloat) return std::isnan(*loss.const_data_ptr<float>());
  if (loss.numel() == 1 && loss.scalar_type() == at::kDouble) return std::isnan(*loss.const_data_ptr<double>());
  return *loss.detach().isnan().any().const_data_ptr<bool>();
}

}  // namespace

// The answer of a device, while it is on its way.
struct NaNMonitor::Deferred {
  explicit Deferred(at::Device device)
      : found(at::zeros({}, at::TensorOptions(device).dtype(at::kBool))),
        answer(at::empty({}, at::TensorOptions().dtype(at::kBool).pinned_memory(true))),
        arrived(device.type()) {}

  void ask(const Timestamp& now) {
    if (asked_at) return;
    answer.copy_(found, /*non_blocking=*/true);
    arrived.record(c10::impl::getDeviceGuardImpl(found.device().type())->getStream(found.device()));
    asked_at = now;
  }

  void look(bool wait) {
    if (!asked_at) return;
    if (wait) arrived.synchronize();
    if (!arrived.query()) return;
    if (*answer.const_data_ptr<bool>())
      throw Error("NaNMonitor: a training loss is NaN, in batch ", asked_at->batch, " or shortly before");
    asked_at.reset();
  }

  at::Tensor found;   // on the device: a loss was NaN so far
  at::Tensor answer;  // its copy on the host, once arrived
  c10::Event arrived;
  std::optional<Timestamp> asked_at;
};

NaNMonitor::NaNMonitor() = default;
NaNMonitor::~NaNMonitor() = default;
NaNMonitor::NaNMonitor(NaNMonitor&&) noexcept = default;

void NaNMonitor::after_loss(const State& state, Logger&) {
  for (const auto& [name, loss] : state.loss) {
    if (loss.is_cpu()) {
      if (has_nan(loss)) throw Error("NaNMonitor: the training loss \"", name, "\" is NaN");
    } else {
      if (!deferred_) deferred_ = std::make_unique<Deferred>(loss.device());
      deferred_->found.logical_or_(loss.detach().isnan().any());
    }
  }
}

void NaNMonitor::batch_end(const State& state, Logger&) {
  if (!deferred_) return;
  deferred_->look(/*wait=*/false);
  deferred_->ask(state.timestamp);
}

void NaNMonitor::epoch_end(const State& state, Logger&) {
  if (!deferred_) return;
  deferred_->look(/*wait=*/true);
  deferred_->ask(state.timestamp);
  deferred_->look(/*wait=*/true);
}

namespace entries {

Entry<Callbacks> nan_monitor() {
  return entry<NaNMonitor>("nan_monitor", "Ends the run with an error when a loss is NaN");
}

}  // namespace entries
}  // namespace composer::callbacks
