#include "composer/callbacks/nan_monitor.h"

#include <cmath>
#include <filesystem>
#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "composer/callbacks/rank_name.h"
#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/fit_outline.h"
#include "composer/core/model_access.h"
#include "composer/core/run.h"
#include "composer/core/state.h"
#include "composer/device/device_support.h"
#include "composer/formats/safetensors.h"
#include "composer/step/nan_culprit.h"
#include "composer/util/absolute_format.h"
#include "composer/util/joint_norm.h"
#include "composer/util/name_format.h"

namespace composer::callbacks {
namespace {

// For a tensor on the CPU, which is read in place.
bool has_nan(const at::Tensor& loss, bool or_infinity) {
  const auto is_bad = [&](auto value) { return std::isnan(value) || (or_infinity && std::isinf(value)); };
  if (loss.numel() == 1 && loss.scalar_type() == at::kFloat) return is_bad(*loss.const_data_ptr<float>());
  if (loss.numel() == 1 && loss.scalar_type() == at::kDouble) return is_bad(*loss.const_data_ptr<double>());
  const at::Tensor bad = or_infinity ? loss.detach().isfinite().logical_not() : loss.detach().isnan();
  return *bad.any().const_data_ptr<bool>();
}

// The norm of all gradients; undefined if there are none.
at::Tensor gradient_norm(const Model& model) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters(as_module(model)))
    if (const at::Tensor& gradient = parameter.grad(); gradient.defined())
      gradients.push_back(gradient.is_sparse() ? gradient._values() : gradient);
  if (gradients.empty()) return {};
  const at::NoGradGuard no_grad;
  return joint_norm(gradients);
}

// Returns the path of the saved file.
std::string save_batch(const State& state, const std::string& folder, const std::vector<std::int64_t>& samples) {
  formats::NamedTensors tensors;
  for (const auto& [name, tensor] : state.batch) tensors.emplace_back(name, tensor);
  std::string indices;
  for (std::int64_t index : samples) indices += join(indices.empty() ? "" : " ", index);
  const std::string name =
      join("nan-ep", state.timestamp.epoch, "-ba", state.timestamp.batch, rank_suffix(state, {}), ".safetensors");
  const auto path = std::filesystem::path(util::format_name(folder, state, nullptr, "NaNMonitor")) / name;
  formats::save_safetensors(path, tensors, {{"sample_indices", indices}});
  return path.string();
}

std::vector<Option<NaNMonitorOptions>> nan_monitor_options() {
  using O = NaNMonitorOptions;
  return all_options(option("find_culprit", &O::find_culprit), option("check_infinity", &O::check_infinity),
                     option("check_gradients", &O::check_gradients), option("wait", &O::wait),
                     option("folder", &O::folder).refuses({"{epoch}", "{run_name"}));
}

}  // namespace

// A result of a device that has not arrived yet.
struct NaNMonitor::Deferred {
  explicit Deferred(at::Device device)
      : found(at::zeros({}, at::TensorOptions(device).dtype(at::kBool))),
        answer(at::empty(
            {}, at::TensorOptions().dtype(at::kBool).pinned_memory(device_support(device.type()).pins_memory()))),
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
      throw Error("NaNMonitor: a training loss or gradient is not finite, in batch ", asked_at->batch,
                  " or shortly before; with wait = true the operator that made it can be found");
    asked_at.reset();
  }

  // Waits for the device.
  bool read() {
    answer.copy_(found);
    return *answer.const_data_ptr<bool>();
  }

  at::Tensor found;   // on the device: whether any loss so far was NaN
  at::Tensor answer;  // its copy on the host
  c10::Event arrived;
  std::optional<Timestamp> asked_at;
};

NaNMonitor::NaNMonitor(NaNMonitorOptions options) : options_(std::move(options)), folder_(options_.folder) {
  for (const util::NamePart& part : util::parts_of_name(options_.folder, "NaNMonitor"))
    if (part.placeholder && part.name != "run_name")
      throw ConfigError("NaNMonitor: the only placeholder of folder is {run_name}, got ", options_.folder);
}
NaNMonitor::~NaNMonitor() = default;
NaNMonitor::NaNMonitor(NaNMonitor&&) noexcept = default;

void NaNMonitor::check_fit(const FitOutline&, const State& state) const {
  if (options_.check_gradients && state.precision == Precision::AMP_FP16)
    throw ConfigError("NaNMonitor: check_gradients does not go with amp_fp16, which tries scales until the gradients ",
                      "are finite");
}

void NaNMonitor::init(const State&, Logger&) { folder_ = util::absolute_format(options_.folder); }

// Drops a pending result of a fit that ended with an error.
void NaNMonitor::fit_start(const State&, Logger&) { deferred_.reset(); }

void NaNMonitor::fit_end(const State& state, Logger& logger) { epoch_end(state, logger); }

void NaNMonitor::before_forward(const State& state, Logger&) {
  if (options_.find_culprit && state.run) state.run->keep_random();
}

void NaNMonitor::after_loss(const State& state, Logger&) {
  for (const auto& [name, loss] : state.loss) {
    if (loss.is_cpu()) {
      if (has_nan(loss, options_.check_infinity)) report(state, join("the training loss \"", name, '"'), false);
    } else {
      watch(options_.check_infinity ? loss.detach().isfinite().logical_not().any() : loss.detach().isnan().any());
    }
  }
  if (options_.wait && deferred_ && deferred_->read()) report(state, "a training loss", false);
}

void NaNMonitor::after_backward(const State& state, Logger&) {
  if (!options_.check_gradients) return;
  const at::Tensor norm = gradient_norm(*state.model);
  if (!norm.defined()) return;
  if (!norm.is_cpu()) {
    watch(norm.isfinite().logical_not());
    if (options_.wait && deferred_->read()) report(state, "the norm of the gradients", true);
  } else if (has_nan(norm, true)) {
    report(state, "the norm of the gradients", true);
  }
}

void NaNMonitor::watch(const at::Tensor& found) {
  if (!deferred_) deferred_ = std::make_unique<Deferred>(found.device());
  deferred_->found.logical_or_(found);
}

void NaNMonitor::report(const State& state, const std::string& what, bool gradients) const {
  std::string text = join("NaNMonitor: ", what, " is ", options_.check_infinity || gradients ? "not finite" : "NaN");
  if (!options_.find_culprit || !state.run) throw Error(text);
  const nan::Cause cause = nan::cause_in_run(state, gradients);
  text += cause.text;
  if (!cause.of_this_batch || folder_.empty()) throw Error(text);
  try {
    text += "\nthe microbatch is in " + save_batch(state, folder_, cause.samples);
  } catch (const std::exception& error) {
    text += join("\n(the microbatch was not saved: ", error.what(), ')');
  }
  throw Error(text);
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

StateDict NaNMonitor::local_hparams() const { return describe(options_, nan_monitor_options()); }

namespace entries {

Entry<Callbacks> nan_monitor() {
  return entry<NaNMonitor>("nan_monitor", "Ends the run with an error when a loss is NaN, and says where it came from",
                           nan_monitor_options());
}

}  // namespace entries
}  // namespace composer::callbacks
