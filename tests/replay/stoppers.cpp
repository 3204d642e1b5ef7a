// logged_keys.json, kind stopper: where stoppers end a run.
#include <algorithm>
#include <memory>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/data/in_memory.h"
#include "composer/models/classifier.h"
#include "composer/trainer/trainer.h"
#include "tests/replay/counts.h"
#include "tests/replay/errors.h"
#include "tests/replay/logged_run.h"
#include "tests/replay/program.h"

namespace composer::replay {
namespace {

// Its value depends on where training is when it is computed. As those of torchmetrics, it keeps what it has computed
// until it is updated.
class ScriptedMetric final : public Metric {
 public:
  ScriptedMetric(const Json& c, std::shared_ptr<const State*> state)
      : name_(c.at("metric")),
        values_(c.at("metric_values")),
        by_batch_(c.at("value_index").get<std::string>().starts_with("timestamp.batch")),
        state_(std::move(state)) {}

  std::string name() const override { return name_; }
  Better better() const override {
    return name_.find("Loss") == std::string::npos ? Better::HIGHER : Better::LOWER;  // as Composer tells from it
  }
  void update(const Outputs&, const Batch&) override { computed_ = at::Tensor(); }
  at::Tensor compute() const override {
    if (computed_.defined()) return computed_;
    const Timestamp& now = (*state_)->timestamp;
    const std::int64_t index = (by_batch_ ? now.batch : now.epoch) - 1, last = std::ssize(values_) - 1;
    computed_ = at::scalar_tensor(values_[static_cast<std::size_t>(std::clamp<std::int64_t>(index, 0, last))]);
    return computed_;
  }
  void reset() override { computed_ = at::Tensor(); }
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<ScriptedMetric>(*this); }

 private:
  std::string name_;
  std::vector<double> values_;
  bool by_batch_;
  std::shared_ptr<const State*> state_;
  mutable at::Tensor computed_;
};

// What EarlyStopper would save: the best value, and where it was.
Json best_of(Callback& callback) {
  StateDict saved;
  StateVisitor visit = StateVisitor::saving(saved);
  callback.visit_state(visit);
  std::optional<double> best;
  std::optional<Timestamp> at;
  StateVisitor read = StateVisitor::loading(saved, "");
  read("best", best);
  read("best_at", at);
  return {{"best", best.value()}, {"best_occurred", {{"epoch", at.value().epoch}, {"batch", at.value().batch}}}};
}

}  // namespace

Json stopper_recording(const Json& c) {
  return without_message({{"result", c.at("result")}, {"error", c.at("error")}});
}

Json stop(const Json& c) {
  auto state = std::make_shared<const State*>(nullptr);
  const Metrics scripted{ScriptedMetric(c, state)};
  const Batch data = {{"input", at::ones({4 * c.at("dataloader_len").get<std::int64_t>(), 4})},
                      {"target", at::zeros({4 * c.at("dataloader_len").get<std::int64_t>()}, at::kLong)}};
  Json got = {{"result", nullptr}, {"error", nullptr}};
  try {
    Json recorded = c.at("kwargs");
    recorded["class"] = c.at("callback");
    Callbacks callbacks;
    add_callback(callbacks, recorded);
    Trainer trainer(
        {.model = std::make_shared<models::Classifier>(
             torch::nn::Linear(4, 3),
             models::ClassifierOptions{.num_classes = 3, .train_metrics = scripted, .val_metrics = scripted}),
         .train_dataloader = data::in_memory(data, {.batch_size = 4, .shuffle = false}),
         .eval_dataloader = data::in_memory(data, {.batch_size = 4, .shuffle = false}),
         .eval_interval = interval_of(c.at("eval_interval")),
         .optimizer = optim::sgd({.lr = 0.1}),
         .max_duration = time_of(c.at("max_duration")),
         .callbacks = callbacks,
         .device = at::Device(at::kCPU),
         .handle_signals = false});
    *state = &trainer.state();
    trainer.fit();
    got["result"] = final_of(trainer.state());
    if (c["callback"] == "EarlyStopper") got["result"].update(best_of(*callbacks.list().front().object));
  } catch (const std::exception& error) {
    got["error"] = cause_result(error, {{"error", without_message(c)["error"]}})["error"];
  }
  return got;
}

Rules stopper_rules() {
  return {{.name = "stoppers_leave_max_duration",
           .applies_to = "`max_duration` after a stopper has ended the run",
           .composer_does = "It is where training stopped.",
           .we_do = "It is what was asked for; `state.stop.why()` says who stopped the run, and why.",
           .why = "A request with its reason can be told from the end of the run.",
           .matches = [](const Json& c) { return c["kind"] == "stopper" && !c["result"].is_null(); },
           .ours = [](Json& expected,
                      const Json& c) { expected["result"]["max_duration"] = to_string(time_of(c["max_duration"])); }}};
}

}  // namespace composer::replay
