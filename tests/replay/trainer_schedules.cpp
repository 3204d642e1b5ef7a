#include "tests/replay/trainer_schedules.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <torch/nn/module.h>
#include <torch/optim/sgd.h>

#include "composer/core/callback.h"
#include "composer/core/error.h"
#include "composer/core/model.h"
#include "composer/core/state.h"
#include "tests/replay/errors.h"
#include "tests/replay/program.h"
#include "tests/replay/rates.h"

namespace composer::replay {
namespace {

// The initial rate of each parameter group.
std::vector<double> base_rates(const Json& c) {
  if (c["group_lrs"].is_null()) return {c["initial_lr"].get<double>()};
  return c["group_lrs"].get<std::vector<double>>();
}

// The schedules in force.
struct Force {
  Force(const Json& recorded, const Json& arguments)
      : schedulers(schedulers_of(recorded)),
        ratio(arguments.value("scale_schedule_ratio", 1.0)),
        every_batch(arguments.value("step_schedulers_every_batch", true)) {}
  std::vector<optim::Scheduler> schedulers;
  double ratio;
  bool every_batch;
};

class RateRecorder final : public Callback {
 public:
  RateRecorder(Json& rows, Json& due, const Force& force, std::vector<double> base)
      : rows_(rows), due_(due), force_(force), base_(std::move(base)) {}
  void run_event(Event event, const State& state, Logger&) override {
    for (Event wanted :
         {Event::AFTER_LOAD, Event::FIT_START, Event::BATCH_START, Event::BATCH_END, Event::EPOCH_END, Event::FIT_END})
      if (event == wanted) note(event, state);
  }

 private:
  void note(Event event, const State& state) {
    rows_.push_back({std::string(to_string(event)), state.timestamp.epoch, state.timestamp.batch,
                     optim::learning_rates(*state.optimizer)});
    std::vector<double> rates = base_;
    if (state.max_duration)
      for (double& rate : rates)
        rate *= factor_at(force_.schedulers, context_of(state, force_.ratio), force_.every_batch);
    due_.push_back(rates);
  }
  Json &rows_, &due_;
  const Force& force_;
  std::vector<double> base_;
};

// One group, or the weight and the bias apart.
std::shared_ptr<torch::optim::SGD> optimizer_of(const Json& c, Model& model) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  if (c["group_lrs"].is_null())
    groups.emplace_back(model.parameters());
  else
    for (const at::Tensor& parameter : model.parameters()) groups.emplace_back(std::vector<at::Tensor>{parameter});
  auto sgd = std::make_shared<torch::optim::SGD>(groups, torch::optim::SGDOptions(0.1));
  const std::vector<double> rates = base_rates(c);
  for (std::size_t i = 0; i < rates.size(); ++i) optim::set_learning_rate(*sgd, i, rates[i]);
  return sgd;
}

// The case with our schedule in the place of PyTorch's, which counts its own calls: one an epoch unless told otherwise.
Json with_our_schedule(Json c) {
  const Json torch = c["torch_scheduler"];
  if (torch.is_null()) return c;
  const bool every_batch = c["trainer"].value("step_schedulers_every_batch", false);
  const auto time = [&](const Json& calls) { return std::to_string(calls.get<int>()) + (every_batch ? "ba" : "ep"); };
  const std::string kind = torch.at("class");
  Json ours;
  if (kind == "StepLR") {
    ours = {{"class", "StepScheduler"}, {"step_size", time(torch["step_size"])}, {"gamma", torch["gamma"]}};
  } else if (kind == "ExponentialLR") {
    ours = {{"class", "ExponentialScheduler"}, {"gamma", torch["gamma"]}, {"decay_period", time(1)}};
  } else if (kind == "MultiStepLR") {
    ours = {{"class", "MultiStepScheduler"}, {"milestones", Json::array()}, {"gamma", torch["gamma"]}};
    for (const Json& milestone : torch["milestones"]) ours["milestones"].push_back(time(milestone));
  } else if (kind == "CosineAnnealingLR") {
    ours = {{"class", "CosineAnnealingScheduler"}, {"t_max", time(torch["T_max"])}};
  } else {
    throw Unsupported{"scheduler " + kind + " of torch"};
  }
  c["schedulers"] = Json::array({ours});
  c["trainer"]["step_schedulers_every_batch"] = every_batch;
  return c;
}

bool is_run(const Json& c) { return c["kind"] == "trainer" && c["torch_scheduler"].is_null(); }

Json outcome_of(const Json& c) {
  return {{"rows", c["rows"]},
          {"max_duration_after_each_fit", c["max_duration_after_each_fit"]},
          {"error", without_message(c)["error"]}};
}

// Events, epochs and batches stay as recorded.
void rates_without_lag(Json& expected, const Json& c, const Json& due) {
  for (std::size_t i = 0; i < std::min(due.size(), expected["rows"].size()); ++i) expected["rows"][i][3] = due[i];
  for (std::size_t i = 0; i < expected["max_duration_after_each_fit"].size(); ++i)
    if (c["fit_calls"][i].value("scale_schedule_ratio", 1.0) != 1)
      expected["max_duration_after_each_fit"][i] = c["trainer"]["max_duration"];
}

// The same run was recorded with its first duration given to the constructor.
void wait_for_duration(Json& expected, const Json& c, const Context& context, const Json& due) {
  Json given = c;
  given["trainer"]["max_duration"] = c["fit_calls"][0].at("duration");
  given["fit_calls"][0].erase("duration");
  for (const Json& other : context.cases()) {
    bool same = other["kind"] == "trainer";
    for (const char* part : {"schedulers", "trainer", "train", "initial_lr", "group_lrs", "fit_calls"})
      same = same && other[part] == given[part];
    if (!same) continue;
    expected = outcome_of(other);
    return rates_without_lag(expected, c, due);
  }
  throw std::runtime_error("no such run was recorded");
}

bool has_schedulers(const Json& c) {
  for (const Json& call : c["fit_calls"])
    if (call.contains("schedulers")) return true;
  return !c["schedulers"].empty();
}

}  // namespace

Json replay_schedule(const Json& recorded, Json& due) {
  const Json c = with_our_schedule(recorded);
  Json got = {{"rows", Json::array()}, {"max_duration_after_each_fit", Json::array()}, {"error", nullptr}};
  try {
    Json arguments = c["trainer"];
    if (!c["schedulers"].empty()) arguments["schedulers"] = c["schedulers"];
    TrainerOptions options = trainer_options(arguments);
    Force force(c["schedulers"], arguments);
    options.train_dataloader = toy_data(c["train"]);
    options.optimizer = optimizer_of(c, *options.model);
    options.callbacks = {std::make_shared<RateRecorder>(got["rows"], due, force, base_rates(c))};
    Trainer trainer(std::move(options));
    for (const Json& call : c["fit_calls"]) {
      if (call.contains("schedulers")) force = Force(call["schedulers"], call);
      trainer.fit(fit_options(call));
      got["max_duration_after_each_fit"].push_back(to_string(*trainer.state().max_duration));
    }
  } catch (const Error& error) {
    got["error"] = error_result(error, c)["error"];
  }
  return got;
}

Outcome run_trainer_schedule(const Json& c, const Context& context) {
  Json due;
  const Json got = replay_schedule(c, due);
  return judge(c, outcome_of(c), got, trainer_schedule_rules(&context, &due));
}

Rules trainer_schedule_rules(const Context* context, const Json* due) {
  return {
      {.name = "schedules_do_not_lag_and_multiply",
       .applies_to = "The learning rates of a run",
       .composer_does =
           "Batch k trains with the rate of batch k-1 (k >= 1); after `reset_time` or a new duration the first "
           "batch has the rate of before; of several schedules the last one wins; with a `scale_schedule_ratio` the "
           "constructor compares a schedule's `t_max` with the unscaled `max_duration`, and `fit()` with the scaled "
           "one. `max_duration` stays scaled after a `fit()` that was given a ratio.",
       .we_do =
           "The rate in force is always the product of all schedules at `state.timestamp`; `max_duration` is scaled "
           "first, in both places, and by `fit()` for that fit only.",
       .why =
           "A schedule applies to the batch it is computed for, and several schedules multiply, as Composer documents.",
       .matches = [](const Json& c) { return is_run(c) && has_schedulers(c) && c["error"].is_null(); },
       .ours = [due](Json& expected, const Json& c) { rates_without_lag(expected, c, *due); }},
      {.name = "schedules_wait_for_a_duration",
       .applies_to = "Schedules given to a trainer without `max_duration`",
       .composer_does = "Fails in the constructor.",
       .we_do = "The schedules begin with the first `fit()`, which says how long it is.",
       .why = "`fit(duration)` is where the duration is known.",
       .matches =
           [](const Json& c) {
             return is_run(c) && !c["schedulers"].empty() && !c["trainer"].contains("max_duration") &&
                    !c["error"].is_null() && c["error"]["type"] == "AssertionError";
           },
       .ours = [context, due](Json& expected, const Json& c) { wait_for_duration(expected, c, *context, *due); }},
  };
}

}  // namespace composer::replay
