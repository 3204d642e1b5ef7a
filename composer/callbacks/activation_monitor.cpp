#include "composer/callbacks/activation_monitor.h"

#include <algorithm>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/model_access.h"
#include "composer/core/state.h"
#include "composer/util/layer_watch.h"
#include "composer/util/own_random.h"

namespace composer::callbacks {
namespace {

constexpr std::int64_t kOftenInBatches = 10;

bool is_normal(const at::Tensor& tensor) { return tensor.layout() == at::kStrided && tensor.numel() > 0; }

std::vector<Option<ActivationMonitorOptions>> activation_monitor_options() {
  using O = ActivationMonitorOptions;
  const auto is_interval = [](Time time) {
    return (time.unit() == TimeUnit::BATCH || time.unit() == TimeUnit::EPOCH) && time.count() >= 1;
  };
  return all_options(option("interval", &O::interval)
                         .must("be at least 1, in ep or ba", is_interval)
                         .refuses({"0ba", "3sp", "0.1dur"}),
                     option("ignore_module_types", &O::ignore_module_types));
}

}  // namespace

ActivationStatistics activation_statistics(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = tensor.dim() == 0 ? tensor.to(at::kFloat).view({1}) : tensor.to(at::kFloat);
  const at::Tensor square = (x - x.mean(-1, /*keepdim=*/true)).square_();
  return {.l2_norm = at::linalg_vector_norm(x, 2, at::IntArrayRef({-1})).mean(),
          .average = x.mean(),
          .kurtosis = (square.square().mean(-1) / square.mean(-1).square()).mean(),
          .max = x.amax(-1).mean()};
}

// The activations of one forward pass, in the order in which the layers ran.
struct ActivationMonitor::Watched {
  struct Shown {
    std::string name;  // "fc1_output.0"
    ActivationStatistics statistics;
  };

  Watched(const Model& model, const std::vector<std::string>& ignored)
      : ignored(ignored),
        watch(as_module(model), [this](const std::string& layer, LayerWatch::Side side, const at::Tensor& tensor) {
          add(layer, side, tensor);
        }) {}

  void add(const std::string& layer, LayerWatch::Side side, const at::Tensor& tensor) {
    // While a graph is recorded, tensors have no values yet, and the computation would be repeated in every batch.
    if (is_recording() || !is_normal(tensor)) return;
    if (std::ranges::any_of(ignored, [&](const std::string& part) { return layer.find(part) != std::string::npos; }))
      return;
    std::string name = layer + (side == LayerWatch::Side::INPUT ? "_input.0" : "_output.0");
    const auto known = std::ranges::find(shown, name, &Shown::name);
    if (known == shown.end())
      shown.push_back({std::move(name), activation_statistics(tensor)});
    else
      known->statistics = activation_statistics(tensor);
  }

  const std::vector<std::string>& ignored;
  std::vector<Shown> shown;
  LayerWatch watch;
};

ActivationMonitor::ActivationMonitor(ActivationMonitorOptions options)
    : options_(checked("ActivationMonitor", std::move(options), activation_monitor_options())) {
  for (const std::string& part : options_.ignore_module_types)
    if (part.empty()) throw ConfigError("ActivationMonitor: ignore_module_types: an empty text is in every name");
  const Time interval = options_.interval;
  if (interval.unit() == TimeUnit::BATCH && interval.count() < kOftenInBatches)
    warn(join("ActivationMonitor: interval is ", interval, "; a batch that is watched takes longer, so ",
              kOftenInBatches, "ba or more is recommended"));
}
ActivationMonitor::~ActivationMonitor() = default;
ActivationMonitor::ActivationMonitor(ActivationMonitor&&) noexcept = default;

void ActivationMonitor::fit_start(const State& state, Logger&) { last_batch_.fit_begins(state.timestamp.batch); }

bool ActivationMonitor::is_due(const Timestamp& now) const {
  if (now.batch == last_batch_.number()) return false;  // a later microbatch
  if (options_.interval.unit() == TimeUnit::EPOCH)
    return now.batch_in_epoch == 0 && now.epoch % options_.interval.count() == 0;
  return now.batch % options_.interval.count() == 0;
}

void ActivationMonitor::before_forward(const State& state, Logger& logger) {
  watched_.reset();  // left by a forward pass that has failed
  if (logger.empty() || !is_due(state.timestamp)) return;
  last_batch_.set(state.timestamp.batch);
  watched_ = std::make_unique<Watched>(*state.model, options_.ignore_module_types);
}

void ActivationMonitor::after_forward(const State&, Logger& logger) {
  const std::unique_ptr<Watched> watched = std::move(watched_);
  if (!watched) return;
  if (watched->shown.empty() && has_shown_ && !std::exchange(has_told_, true))
    warn(join("ActivationMonitor: batch ", last_batch_.number(),
              " is due, but no layer has run in it: with cuda_graph ",
              "the host runs the layers of the first batches alone, and later ones are not logged"));
  has_shown_ = has_shown_ || !watched->shown.empty();
  std::vector<std::string> keys;
  keys.reserve(watched->shown.size() * 4);
  std::vector<LogEntry> entries;
  for (const auto& [name, statistics] : watched->shown)
    for (const auto& [statistic, value] : {std::pair{"l2_norm", &statistics.l2_norm},
                                           {"average", &statistics.average},
                                           {"kurtosis", &statistics.kurtosis},
                                           {"max", &statistics.max}}) {
      keys.push_back(join("activations/", statistic, '/', name));
      entries.push_back({keys.back(), *value});
    }
  if (!entries.empty()) logger.log_metrics(entries);
}

void ActivationMonitor::close(const State&, Logger&) { watched_.reset(); }

StateDict ActivationMonitor::local_hparams() const { return describe(options_, activation_monitor_options()); }

namespace entries {

Entry<Callbacks> activation_monitor() {
  return entry<ActivationMonitor>("activation_monitor", "Logs statistics of the layers' inputs and outputs",
                                  activation_monitor_options());
}

}  // namespace entries
}  // namespace composer::callbacks
