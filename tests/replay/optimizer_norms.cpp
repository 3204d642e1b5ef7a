#include "tests/replay/optimizer_norms.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/core/model.h"
#include "composer/core/time.h"
#include "composer/util/loss.h"
#include "tests/replay/logged_run.h"
#include "tests/replay/program.h"
#include "tests/replay/reference_optimizer.h"
#include "tests/replay/schedule_walk.h"

namespace composer::replay {
namespace {

constexpr Tolerance kSingleNorm{1e-5, 1e-6};
enum class Whose { COMPOSER, OURS };

const Json* monitor_of(const Json& c) {
  if (c["kind"] != "callback") return nullptr;
  for (const Json& callback : c["config"]["callbacks"])
    if (callback.is_object() && callback["class"] == "OptimizerMonitor") return &callback;
  return nullptr;
}

// What is logged after one batch, in its order.
class Norms {
 public:
  explicit Norms(std::int64_t batch) : batch_(batch) {}
  void add(const std::string& kind, const std::string& name, const at::Tensor& tensor) {
    const double norm = tensor.norm().item<double>();
    log("l2_norm/" + kind + "/" + name, norm);
    squares_[kind] += norm * norm;
  }
  void add_total(const std::string& kind) {
    if (squares_.contains(kind)) log("l2_norm/" + kind + "/global", std::sqrt(squares_[kind]));
  }
  void log(const std::string& key, double value) {
    keys.push_back({batch_, key});
    values[key].push_back({batch_, value});
  }
  Json keys = Json::array(), values = Json::object();

 private:
  std::int64_t batch_;
  std::map<std::string, double> squares_;
};

// DecoupledAdamW.report_per_parameter_metrics(), which is called after the step and after the schedulers.
at::Tensor composers_update(const ReferenceOptimizer& optimizer, const Json& recorded, std::int64_t steps, double lr) {
  const auto betas = recorded.value("betas", std::array<double, 2>{0.9, 0.95});
  const auto n = static_cast<double>(steps);
  const at::Tensor scale =
      optimizer.state().at("exp_avg_sq").sqrt() / std::sqrt(1 - std::pow(betas[1], n)) + recorded.value("eps", 1e-8);
  const double decay = recorded.value("weight_decay", 1e-5) * lr / recorded.value("lr", 1e-3);
  return lr / (1 - std::pow(betas[0], n)) * optimizer.state().at("exp_avg") / scale - decay * optimizer.value();
}

// Each batch that is logged, without a trainer.
std::vector<Norms> norms_by_hand(const Json& c, const Context& context, Whose whose) {
  const Json& config = c["config"];
  const Json& monitor = *monitor_of(c);
  const Json recorded = config.value("optimizer", Json{{"class", "SGD"}, {"lr", 0.1}});
  const bool more = monitor.value("log_optimizer_metrics", true);
  const bool reports = more && (whose == Whose::OURS || recorded["class"] == "DecoupledAdamW");
  const auto factors = factors_of_logged(config, whose == Whose::OURS ? Rates::OURS : Rates::COMPOSER);
  const double lr = recorded.at("lr");
  const auto model = logged_model(config, context);
  const auto parameters = model->named_parameters();
  std::vector<ReferenceOptimizer> optimizers;
  for (const auto& item : parameters) optimizers.emplace_back(recorded, item.value().detach());

  const std::int64_t samples = config.value("num_samples", 20), size = config.value("batch_size", 4);
  const Time max_duration = time_of(config.value("max_duration", Json("1ep")));
  std::vector<Norms> all;
  for (Timestamp now; !now.reached(max_duration);) {
    const std::int64_t begin = now.batch_in_epoch * size, count = std::min(size, samples - begin);
    const Batch batch = {{"input", context.tensors().at("data.x").narrow(0, begin, count)},
                         {"target", context.tensors().at("data.y").narrow(0, begin, count)}};
    soft_cross_entropy(model->forward(batch).only(), batch.at("target")).backward();
    const double rate = lr * factors.at(static_cast<std::size_t>(now.batch));
    now = now.to_next_batch(count);
    const bool due = now.batch % monitor.value("batch_log_interval", 10) == 0;
    Norms norms(now.batch);
    for (std::size_t i = 0; i < optimizers.size(); ++i) {
      at::Tensor parameter = parameters[i].value(), gradient = parameter.grad().to(at::kDouble);
      const std::string& name = parameters[i].key();
      const at::Tensor before = optimizers[i].value();
      optimizers[i].step(gradient, rate);
      if (reports) {
        const auto& state = optimizers[i].state();
        for (const char* key : {"exp_avg", "momentum_buffer"})
          if (state.contains(key)) norms.add("moment", name, state.at(key));
        const double next = lr * factors.at(static_cast<std::size_t>(now.batch));
        norms.add("param", name, optimizers[i].value());
        norms.add("update", name,
                  whose == Whose::OURS ? before - optimizers[i].value()
                                       : composers_update(optimizers[i], recorded, now.batch, next));
      }
      norms.add("grad", name, gradient);
      const at::NoGradGuard no_grad;
      parameter.copy_(optimizers[i].value());
      parameter.mutable_grad().reset();
    }
    if (whose == Whose::OURS)
      for (const char* kind : {"moment", "param", "update"}) norms.add_total(kind);
    norms.add_total("grad");
    if (due) all.push_back(norms);
    if (now.batch_in_epoch * size >= samples) now = now.to_next_epoch();
  }
  return all;
}

bool is_norm(const std::string& key) { return key.starts_with("l2_norm/"); }

// Composer's norms must come out of Composer's formulas; ours are put in their place.
void log_our_norms(Json& expected, const Json& c, const Context& context) {
  Json composers = Json::object();
  for (const Norms& norms : norms_by_hand(c, context, Whose::COMPOSER))
    for (const auto& [key, values] : norms.values.items()) composers[key].push_back(values[0]);
  for (const auto& [key, values] : composers.items())
    if (const auto difference = first_difference(expected["values"].at(key), values, kSingleNorm))
      throw std::runtime_error("Composer's formula does not give what was recorded: " + key + *difference);

  Json keys = Json::array(), values = Json::object();
  for (const auto& [key, recorded] : expected["values"].items())
    if (!is_norm(key)) values[key] = recorded;
  const std::vector<Norms> ours = norms_by_hand(c, context, Whose::OURS);
  auto next = ours.begin();
  bool within = false;
  for (const Json& entry : expected["keys_in_order"]) {
    const bool norm = is_norm(entry[1]);
    if (!norm) keys.push_back(entry);
    if (norm && !within) {
      for (const Json& key : next->keys) keys.push_back(key);
      for (const auto& [key, logged] : next->values.items()) values[key].push_back(logged[0]);
      ++next;
    }
    within = norm;
  }
  expected["keys_in_order"] = keys;
  expected["values"] = values;
}

}  // namespace

Rule optimizer_norms_rule(const Context* context) {
  return {
      .name = "norms_of_every_optimizer",
      .applies_to = "What OptimizerMonitor logs",
      .composer_does =
          "Logs moments, parameters and updates of DecoupledAdamW only. The norm of an update is computed after "
          "the step, with the rate of the next batch and a weight decay of the opposite sign. Only gradients have a "
          "global norm.",
      .we_do =
          "Logs parameters and updates of every optimizer and the moments of those that have some. An update "
          "is the parameter before the batch minus after it. Each kind has a global norm.",
      .why = "A norm that is logged as the update's is that of the update.",
      .matches = [](const Json& c) { return monitor_of(c) != nullptr; },
      .ours = [context](Json& expected, const Json& c) { log_our_norms(expected, c, *context); }};
}

}  // namespace composer::replay
