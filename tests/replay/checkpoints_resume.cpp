// checkpoints.json, kind resume: what a second run goes on with.
#include <map>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "composer/core/model.h"
#include "composer/core/state.h"
#include "tests/replay/checkpoints.h"
#include "tests/replay/counts.h"
#include "tests/replay/errors.h"
#include "tests/replay/program.h"
#include "tests/replay/rates.h"
#include "tests/support/sandbox.h"

namespace composer::replay {
namespace {

using Weights = std::map<std::string, at::Tensor>;

Weights weights_of(const State& state) {
  Weights weights;
  for (const auto& item : state.model->named_parameters()) weights[item.key()] = item.value().detach().clone();
  for (const auto& item : state.model->named_buffers()) weights[item.key()] = item.value().clone();
  return weights;
}

bool is_equal(const Weights& weights, const Weights& others, const std::string& name) {
  const auto found = others.find(name);
  return found != others.end() && found->second.equal(weights.at(name));
}

Weights weights_at_end(const Json& config, const Context& context) {
  Trainer trainer(checkpoint_options(config, context));
  trainer.fit();
  return weights_of(trainer.state());
}

// One row for each batch: epoch, batch, batch in epoch, sum of the inputs, learning rate.
class BatchRecorder final : public Callback {
 public:
  explicit BatchRecorder(Json& rows) : rows_(rows) {}
  void batch_start(const State& state, Logger&) override {
    const Timestamp& t = state.timestamp;
    rows_.push_back({t.epoch, t.batch, t.batch_in_epoch, state.batch.front().sum(at::kDouble).item<double>(),
                     optim::learning_rates(*state.optimizer).front()});
  }

 private:
  Json& rows_;
};

Json counts(const Timestamp& t, const Json& wanted) {
  const Json all = counts_of(t);
  Json some;
  for (const auto& [name, value] : wanted.items())
    if (all.contains(name)) some[name] = all[name];
  return some;
}

Json recorded_resumption(const Json& c) {
  Json recorded = {{"error", without_message(c)["error"]}};
  for (const char* part :
       {"after_load", "batches", "final", "weights_equal_first_run_at_end", "optimizer_state_entries_after_load"})
    if (c.contains(part) && !c[part].is_null()) recorded[part] = c[part];
  if (recorded.contains("final")) recorded["final"].erase("max_duration");
  if (c.contains("whole")) recorded["equal"] = c["final_weights_equal_uninterrupted_run"];
  return recorded;
}

// So that nothing is what the first run began with: what is not loaded shows, also where that run changed nothing.
void spoil(Model& model) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : model.parameters()) parameter.add_(1);
}

// The same parts of the second run.
void go_on(const Json& c, const Context& context, const Weights& first, const Json& recorded, Json& got) {
  Json rows = Json::array();
  if (recorded.contains("batches")) got["batches"] = rows;
  Json second = c["second"];
  second["trainer"].erase("load_exclude_algorithms");  // there is no such option: a rule says so
  TrainerOptions options = checkpoint_options(second, context);
  spoil(*options.model);
  options.callbacks.add(std::make_shared<BatchRecorder>(rows));
  Trainer trainer(std::move(options));
  const State& state = trainer.state();
  const Weights loaded = weights_of(state);
  if (recorded.contains("after_load")) got["after_load"] = counts(state.timestamp, recorded["after_load"]);
  if (recorded.contains("optimizer_state_entries_after_load"))
    got["optimizer_state_entries_after_load"] = state.optimizer->state().size();
  if (recorded.contains("weights_equal_first_run_at_end"))
    for (const auto& [name, tensor] : loaded)
      got["weights_equal_first_run_at_end"][name] = is_equal(loaded, first, name);
  try {
    trainer.fit();
  } catch (...) {
    got["batches"] = rows;
    throw;
  }
  if (recorded.contains("batches")) got["batches"] = rows;
  if (recorded.contains("final")) got["final"] = counts(state.timestamp, recorded["final"]);
  if (!recorded.contains("equal")) return;
  const Weights last = weights_of(state), whole = weights_at_end(c["whole"], context);
  got["equal"] = last.size() == whole.size();
  for (const auto& [name, tensor] : last)
    if (!is_equal(last, whole, name)) got["equal"] = false;
}

std::string optimizer_class(const Json& config) {
  return config.contains("optimizer") ? config["optimizer"].at("class").get<std::string>() : "SGD";
}

void take_rates_of_schedules(Json& expected, const Json& c) {
  if (!expected.contains("batches")) return;
  const Json& second = c["second"];
  const auto schedulers = schedulers_of(second["schedulers"]);
  const double initial = second.contains("optimizer") ? second["optimizer"].at("lr").get<double>() : 0.1;
  const Json data = second.value("train", Json{{"size", 10}, {"batch_size", 4}});
  const std::int64_t size = data["size"], batch = data["batch_size"];
  for (Json& row : expected["batches"]) {
    optim::ScheduleContext at{.max_duration = time_of(second["trainer"].at("max_duration")),
                              .dataloader_len = (size + batch - 1) / batch};
    Timestamp& t = at.timestamp;
    t.epoch = row[0], t.batch = row[1], t.batch_in_epoch = row[2];
    t.sample = t.epoch * size + t.batch_in_epoch * batch;
    row[4] = initial * factor_at(schedulers, at);
  }
}

}  // namespace

Rules resume_rules() {
  return {
      {.name = "weights_of_which_none_fits",
       .applies_to = "`load_strict_model_weights` off, and weights of which none is the model's",
       .composer_does = "loads nothing, and trains",
       .we_do = "an error; some that are missing are a warning",
       .why = "who asks for weights wants some",
       .matches =
           [](const Json& c) {
             return c["second"]["trainer"].value("load_strict_model_weights", true) == false &&
                    c["second"].value("model", Json()) != c["first"].value("model", Json());
           },
       .ours =
           [](Json& expected, const Json&) {
             expected = {{"error", {{"type", "RuntimeError"}}}, {"batches", Json::array()}};
           }},
      {.name = "another_optimizer_is_refused",
       .applies_to = "a checkpoint of a run with another class of optimizer",
       .composer_does = "a warning; the new optimizer begins anew",
       .we_do = "an error; `load_ignore_keys = {\"optimizer\"}` asks for a new beginning",
       .why = "a run that goes on without its momentum is another run, and nobody reads warnings of the first second",
       .matches = [](const Json& c) { return optimizer_class(c["first"]) != optimizer_class(c["second"]); },
       .ours =
           [](Json& expected, const Json&) {
             expected = {{"error", {{"type", "RuntimeError"}}}, {"batches", Json::array()}};
           }},
      {.name = "required_algorithms_are_not_added",
       .applies_to =
           "a checkpoint of a run with an algorithm that it cannot be loaded without, which the trainer lacks",
       .composer_does = "a warning; adds the algorithm with the options that it had",
       .we_do = "an error that names the algorithm and its options",
       .why =
           "what a run does stands in the program, and the model was made, and is known to others, before it is loaded",
       .matches =
           [](const Json& c) {
             return c["first"].contains("algorithms") && !c["second"].contains("algorithms") &&
                    !c["second"]["trainer"].contains("load_exclude_algorithms") &&
                    c["first"]["algorithms"][0]["class"] == "GhostBatchNorm";
           },
       .ours =
           [](Json& expected, const Json&) {
             expected = {{"error", {{"type", "RuntimeError"}}}, {"batches", Json::array()}};
           }},
      {.name = "layers_throw_errors_of_libtorch",
       .applies_to = "a batch norm that is given one number for each channel",
       .composer_does = "`ValueError`, of `torch.nn`",
       .we_do = "libtorch's `c10::Error` (`RuntimeError` in Python)",
       .why = "it is libtorch's check",
       .matches =
           [](const Json& c) {
             return c["second"].contains("algorithms") &&
                    c["second"]["algorithms"][0].value("ghost_batch_size", 0) == 1;
           },
       .ours = [](Json& expected, const Json&) { expected["error"]["type"] = "RuntimeError"; }},
      {.name = "schedules_do_not_lag_after_loading",
       .applies_to = "the schedules of a run that goes on",
       .composer_does = "trains batch k with the learning rate of batch k-1, also the first one after the checkpoint",
       .we_do = "the learning rate in force is always that of `state.timestamp`",
       .why = "a schedule applies to the batch it is computed for",
       .matches = [](const Json& c) { return c["second"].contains("schedulers"); },
       .ours = take_rates_of_schedules},
  };
}

Outcome run_resume(const Json& c, const Context& context) {
  const test::Sandbox sandbox;
  const Weights first = weights_at_end(c["first"], context);
  const Json recorded = recorded_resumption(c);
  Json got = {{"error", nullptr}};
  try {
    go_on(c, context, first, recorded, got);
  } catch (const std::exception& error) {
    got["error"] = cause_result(error, c)["error"];
  }
  return judge(c, recorded, got, resume_rules(), {.relative = 1e-9});
}

}  // namespace composer::replay
