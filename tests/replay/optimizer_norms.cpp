// logged_keys.json: the norms that OptimizerMonitor logs.
#include <array>
#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "composer/core/model.h"
#include "composer/core/state.h"
#include "composer/optim/named_optimizer.h"
#include "tests/replay/logged_run.h"
#include "tests/replay/rates.h"

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
at::Tensor composers_update(const at::Tensor& mean, const at::Tensor& square, const at::Tensor& parameter,
                            const Json& recorded, std::int64_t steps, double lr) {
  const auto betas = recorded.value("betas", std::array<double, 2>{0.9, 0.95});
  const auto n = static_cast<double>(steps);
  const at::Tensor scale = square.sqrt() / std::sqrt(1 - std::pow(betas[1], n)) + recorded.value("eps", 1e-8);
  const double decay = recorded.value("weight_decay", 1e-5) * lr / recorded.value("lr", 1e-3);
  return lr / (1 - std::pow(betas[0], n)) * mean / scale - decay * parameter;
}

// The norms of each batch that is logged, from what a run shows of its parameters and its optimizer.
class NormObserver final : public Callback {
 public:
  NormObserver(const Json& c, Whose whose)
      : optimizer_(c["config"].value("optimizer", Json{{"class", "SGD"}, {"lr", 0.1}})),
        interval_(monitor_of(c)->value("batch_log_interval", 10)),
        ours_(whose == Whose::OURS),
        reports_(monitor_of(c)->value("log_optimizer_metrics", true) &&
                 (ours_ || optimizer_["class"] == "DecoupledAdamW")) {}

  void after_train_batch(const State& state, Logger&) override {
    before_.clear();
    for (const auto& item : state.model->named_parameters())
      before_.emplace(item.key(), item.value().detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true));
  }
  void batch_end(const State& state, Logger&) override {
    if (state.timestamp.batch % interval_ != 0) return;
    const auto& optimizer = dynamic_cast<const optim::NamedOptimizer&>(*state.optimizer);
    Norms norms(state.timestamp.batch);
    for (const auto& item : state.model->named_parameters()) {
      const at::Tensor now = item.value().detach().to(at::kDouble);
      const auto kept = [&](const char* key) { return optimizer.state_tensor(item.value(), key); };
      if (reports_) {
        for (const char* key : {"exp_avg", "momentum_buffer"})
          if (kept(key).defined()) norms.add("moment", item.key(), kept(key));
        norms.add("param", item.key(), now);
        norms.add("update", item.key(),
                  ours_
                      ? before_.at(item.key()) - now
                      : composers_update(kept("exp_avg").to(at::kDouble), kept("exp_avg_sq").to(at::kDouble), now,
                                         optimizer_, state.timestamp.batch, optim::learning_rates(optimizer).front()));
      }
      norms.add("grad", item.key(), item.value().grad());
    }
    if (ours_)
      for (const char* kind : {"moment", "param", "update"}) norms.add_total(kind);
    norms.add_total("grad");
    all.push_back(norms);
  }
  std::vector<Norms> all;

 private:
  Json optimizer_;
  std::int64_t interval_;
  bool ours_, reports_;
  std::map<std::string, at::Tensor> before_;
};

std::vector<Norms> norms_with(const Json& c, const Context& context, const std::vector<double>& factors, Whose whose) {
  const auto observer = std::make_shared<NormObserver>(c, whose);
  log_all(c, context, factors, {observer});
  return observer->all;
}

bool is_norm(const std::string& key) { return key.starts_with("l2_norm/"); }

// Composer's norms must come out of Composer's formulas; ours are put in their place.
void log_our_norms(Json& expected, const Json& c, const Context& context) {
  const std::vector<double> factors = factors_of_logged(c, context);
  Json composers = Json::object();
  for (const Norms& norms : norms_with(c, context, lagging(factors), Whose::COMPOSER))
    for (const auto& [key, values] : norms.values.items()) composers[key].push_back(values[0]);
  for (const auto& [key, values] : composers.items())
    if (const auto difference = first_difference(expected["values"].at(key), values, kSingleNorm))
      throw std::runtime_error("Composer's formula does not give what was recorded: " + key + *difference);

  Json keys = Json::array(), values = Json::object();
  for (const auto& [key, recorded] : expected["values"].items())
    if (!is_norm(key)) values[key] = recorded;
  const std::vector<Norms> ours = norms_with(c, context, factors, Whose::OURS);
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
