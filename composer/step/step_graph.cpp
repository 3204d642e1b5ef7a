#include "composer/step/step_graph.h"

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/ScopeExit.h>
#include <torch/optim/optimizer.h>

#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/device/device_support.h"
#include "composer/optim/named_optimizer.h"
#include "composer/step/batch_losses.h"
#include "composer/util/own_random.h"
#include "composer/util/random.h"
#include "composer/util/random_state.h"

namespace composer {
namespace {

constexpr int kWarmUps = 3;          // number of batches of a shape before it is recorded
constexpr std::size_t kShapes = 16;  // number of batch shapes before recording is given up
constexpr int kChanges = 16;         // number of changes of the model before recording is given up

// Copies of the tensors without autograd history.
template <class T>
T detached(const T& tensors) {
  T values;
  for (const auto& [name, tensor] : tensors) values.set(name, tensor.defined() ? tensor.detach() : tensor);
  return values;
}

// The first line of the error that is being handled.
std::string what_happened() {
  std::string text = "something that is not a std::exception";
  try {
    throw;
  } catch (const c10::Error& error) {
    text = error.what_without_backtrace();
  } catch (const std::exception& error) {
    text = error.what();
  } catch (...) {
    return text;
  }
  return text.substr(0, text.find('\n'));
}

}  // namespace

std::string StepGraph::reason_against(const Engine& engine, bool whole_batches) const {
  if (std::string reason = device_support(state_.device.type()).reason_against_graphs(state_.device); !reason.empty())
    return reason;
  if (!whole_batches) return "device_train_microbatch_size is not 0, and only whole batches are recorded";
  for (const auto& algorithm : engine.algorithms())
    if (algorithm.object->step_rule()) return join(algorithm.name, " takes more than one pass over a batch");
  for (const auto& algorithm : engine.algorithms())
    for (auto event = static_cast<int>(Event::AFTER_FORWARD); event <= static_cast<int>(Event::BEFORE_BACKWARD);
         ++event)
      if (algorithm.events.contains(static_cast<Event>(event)))
        return join(algorithm.name, " may change what is recorded, at ", name(static_cast<Event>(event)));
  const auto* ours = dynamic_cast<const optim::NamedOptimizer*>(&*state_.optimizer);
  if (ours && ours->steps_in_backward()) return "the optimizer has step_in_backward";
  return {};
}

std::string StepGraph::reason_against_batch() const {
  for (const auto& [name, tensor] : state_.batch) {
    std::string what;
    if (!tensor.defined())
      what = "undefined";
    else if (tensor.device().type() != state_.device.type())
      what = "on " + tensor.device().str();
    else if (tensor.layout() != at::kStrided || tensor.is_nested())
      what = "sparse or nested";
    else if (tensor.requires_grad())
      what = "to have a gradient";
    if (!what.empty()) return join('"', name, "\" of a batch is ", what);
  }
  return {};
}

void StepGraph::start(const Engine& engine, bool whole_batches) {
  forget();
  active_ = true;
  if (const std::string reason = reason_against(engine, whole_batches); !reason.empty()) return refuse(reason);
  if (!side_) side_ = side_stream(state_.device);
  if (!side_ && !state_.device.is_cpu()) refuse("other trainers have all streams of the device that libtorch gives");
}

void StepGraph::stop() {
  active_ = false;
  forget();
}

void StepGraph::refuse(const std::string& reason) {
  stop();
  if (reason == std::exchange(said_, reason)) return;
  warn(join("cuda_graph: steps run as without it: ", reason));
}

void StepGraph::forget() {
  results_ = {};
  graph_.reset();
  batch_.clear();
  trained_.clear();
  changes_ = 0;
  is_ahead_ = false;
}

StepGraph::Layouts StepGraph::layouts() const {
  Layouts layouts;
  for (const auto& [name, tensor] : state_.batch)
    layouts.push_back(
        {name, static_cast<std::int64_t>(tensor.scalar_type()), tensor.sizes().vec(), tensor.strides().vec()});
  return layouts;
}

// Uses the lists of watch_model(): Module::parameters() and the like build all names, which takes longer than a small
// recorded step.
std::uint64_t StepGraph::model_now() const {
  std::uint64_t mixed = mix_module(static_cast<std::uint64_t>(state_.precision), as_module(*state_.model));
  for (const auto& module : modules_) mixed = mix_module(mixed, *module);
  for (const at::Tensor& buffer : buffers_) mixed = mix_memory(mixed, buffer);
  return mixed;
}

void StepGraph::watch_model() {
  modules_ = modules_below(as_module(*state_.model));
  buffers_ = buffers(as_module(*state_.model));
  model_ = model_now();
}

std::vector<at::Tensor> StepGraph::parameters() const {
  std::vector<at::Tensor> all;
  std::unordered_set<const c10::TensorImpl*> known;
  const auto add = [&](const std::vector<at::Tensor>& list) {
    for (const at::Tensor& parameter : list)
      if (known.insert(parameter.unsafeGetTensorImpl()).second) all.push_back(parameter);
  };
  add(composer::parameters(as_module(*state_.model)));
  for (const auto& group : state_.optimizer->param_groups()) add(group.params());
  return all;
}

void StepGraph::forward(const LossWeight& share) {
  is_ahead_ = false;
  is_ahead_ = active_ && share.is(1) && run();
  if (is_ahead_)
    state_.outputs = results_.outputs;
  else
    eager_.forward(share);
}

// If true, the results are those of state.batch. If false, the batch was not computed.
bool StepGraph::run() {
  if (!prepare()) return false;
  Layouts now = layouts();
  if (graph_) {
    if (now != recorded_) return false;
    replay();
  } else if (const int before = times_trained(now); before == kWarmUps) {
    if (!capture(std::move(now))) return false;
  } else if (before < 0 || !run_on_side_stream()) {
    return false;
  }
  return true;
}

// Returns false if this batch or the model cannot be recorded.
bool StepGraph::prepare() {
  if (const std::string reason = reason_against_batch(); !reason.empty()) {
    refuse(reason);
    return false;
  }
  if (model_now() == model_) return true;
  watch_model();
  const int changes = trained_.empty() ? 0 : changes_ + 1;
  if (changes > kChanges) {
    refuse("the model changes again and again");
    return false;
  }
  forget();
  changes_ = changes;
  return true;
}

// How many earlier batches had this shape, up to kWarmUps. Negative: there are too many shapes.
int StepGraph::times_trained(const Layouts& batch) {
  for (auto& [layouts, times] : trained_)
    if (layouts == batch) return times == kWarmUps ? times : times++;
  if (trained_.size() == kShapes) {
    refuse(join("batches have more than ", kShapes, " shapes"));
    return -1;
  }
  trained_.emplace_back(batch, 1);
  return 0;
}

// Drops the autograd history of the batch before, which would tie the parameters to the stream on which that batch was
// trained.
void StepGraph::drop_history() {
  results_ = {};
  state_.outputs = detached(state_.outputs);
  state_.loss = detached(state_.loss);
}

bool StepGraph::run_on_side_stream() {
  drop_history();
  for (const at::Tensor& parameter : parameters()) {
    if (!parameter.grad().defined()) continue;
    refuse("a parameter has a gradient before the step, maybe because the optimizer does not have it");
    return false;
  }
  if (!side_) {
    results_ = results_of(state_.batch);
    return true;
  }
  const c10::impl::VirtualGuardImpl device(state_.device.type());
  const c10::Stream current = device.getStream(state_.device);
  device.synchronizeStream(current);
  {
    const StreamScope scope(device, *side_);
    results_ = results_of(state_.batch);
  }
  device.synchronizeStream(*side_);
  // The memory of the results belongs to the side stream, and they are used on this one.
  for (const auto& [name, output] : results_.outputs)
    if (output.defined() && output.device().type() == state_.device.type()) output.record_stream(current);
  for (const auto& [name, loss] : results_.loss) loss.record_stream(current);
  for (const auto& [parameter, gradient] : results_.gradients) gradient.record_stream(current);
  return true;
}

bool StepGraph::capture(Layouts batch) {
  RandomState random;
  random.add(state_.device);
  try {
    drop_history();
    for (const auto& [name, tensor] : state_.batch) batch_.set(name, tensor.clone());
    const c10::impl::VirtualGuardImpl device(state_.device.type());
    const c10::DeviceGuard on_device(state_.device);
    device.synchronizeStream(device.getStream(state_.device));
    // A recording has memory of its own, and must not free memory of others.
    device_support(state_.device.type()).release_cached_memory(state_.device);
    {
      std::optional<StreamScope> scope;
      if (side_) scope.emplace(device, *side_);
      std::unique_ptr<DeviceGraph> graph = device_support(state_.device.type()).make_graph();
      graph->capture_begin();
      try {
        const RecordingScope recording(state_.device);
        results_ = results_of(batch_);
      } catch (...) {
        try {
          graph->capture_end();
        } catch (...) {
          graph.reset();  // the first error says more
        }
        throw;
      }
      graph->capture_end();
      graph_ = std::move(graph);
    }
    graph_->replay();
  } catch (...) {
    const std::string reason = what_happened();
    for (at::Tensor& parameter : parameters()) parameter.mutable_grad().reset();
    random.restore();
    refuse("a step could not be recorded: " + reason);
    device_support(state_.device.type()).release_cached_memory(state_.device);
    return false;
  }
  recorded_ = std::move(batch);
  changes_ = 0;
  return true;
}

void StepGraph::replay() {
  for (auto recorded = batch_.begin(); const auto& [name, tensor] : state_.batch)
    (recorded++)->second.copy_(tensor, /*non_blocking=*/true);
  graph_->replay();
}

StepGraph::Results StepGraph::results_of(const Batch& batch) {
  Batch of_step = state_.batch;  // a copy, because `batch` may be state.batch
  state_.batch = batch;
  Outputs outputs = std::exchange(state_.outputs, {});
  Losses loss = std::exchange(state_.loss, {});
  const auto restore = c10::make_scope_exit([&] {
    state_.batch = std::move(of_step);
    state_.outputs = std::move(outputs);
    state_.loss = std::move(loss);
  });
  eager_.forward(1);
  eager_.loss();
  eager_.backward(total_of(state_.loss), 1);
  Results results{.outputs = detached(state_.outputs), .loss = detached(state_.loss), .gradients = {}};
  for (at::Tensor& parameter : parameters())
    if (at::Tensor& gradient = parameter.mutable_grad(); gradient.defined())
      results.gradients.emplace_back(parameter, std::exchange(gradient, at::Tensor()));
  return results;
}

void StepGraph::loss() {
  if (!is_ahead_) return eager_.loss();
  state_.loss.clear();
  for (const auto& [name, loss] : results_.loss) state_.loss.set(name, graph_ ? loss.clone() : loss);
}

void StepGraph::backward(const at::Tensor& total, const LossWeight& share) {
  if (!std::exchange(is_ahead_, false)) return eager_.backward(total, share);
  for (auto& [parameter, gradient] : results_.gradients) parameter.mutable_grad() = gradient;
  if (!graph_) results_.gradients.clear();
}

}  // namespace composer
