#include "tests/replay/trainer_schedules.h"

#include <stdexcept>

#include <torch/nn/module.h>
#include <torch/optim/sgd.h>

#include "composer/core/callback.h"
#include "composer/core/error.h"
#include "composer/core/model.h"
#include "composer/core/state.h"
#include "tests/replay/errors.h"
#include "tests/replay/make_scheduler.h"
#include "tests/replay/program.h"
#include "tests/replay/schedule_walk.h"

namespace composer::replay {
namespace {

class RateRecorder final : public Callback {
 public:
  explicit RateRecorder(Json& rows) : rows_(rows) {}
  void run_event(Event event, const State& state, Logger&) override {
    for (Event wanted :
         {Event::AFTER_LOAD, Event::FIT_START, Event::BATCH_START, Event::BATCH_END, Event::EPOCH_END, Event::FIT_END})
      if (event == wanted)
        rows_.push_back({std::string(to_string(event)), state.timestamp.epoch, state.timestamp.batch,
                         optim::learning_rates(*state.optimizer)});
  }

 private:
  Json& rows_;
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
  const auto kind = torch.at("class").get<std::string>();
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

Json replay_schedule(const Json& recorded) {
  const Json c = with_our_schedule(recorded);
  Json got = {{"rows", Json::array()}, {"max_duration_after_each_fit", Json::array()}, {"error", nullptr}};
  try {
    Json arguments = c["trainer"];
    if (!c["schedulers"].empty()) arguments["schedulers"] = c["schedulers"];
    TrainerOptions options = trainer_options(arguments);
    options.train_dataloader = toy_data(c["train"]);
    options.optimizer = optimizer_of(c, *options.model);
    options.callbacks = {std::make_shared<RateRecorder>(got["rows"])};
    Trainer trainer(std::move(options));
    for (const Json& call : c["fit_calls"]) {
      trainer.fit(fit_options(call));
      got["max_duration_after_each_fit"].push_back(to_string(*trainer.state().max_duration));
    }
  } catch (const Error& error) {
    got["error"] = error_result(error, c)["error"];
  }
  return got;
}

bool is_run(const Json& c) { return c["kind"] == "trainer" && c["torch_scheduler"].is_null(); }

// A schedule that fails for us as well leaves what was recorded.
void rates_without_lag(Json& expected, const Json& c) {
  if (const auto difference = first_difference(expected, walk_schedules(c, Rates::COMPOSER)))
    throw std::runtime_error("the walk with the lag is not what was recorded: " + *difference);
  if (const Json ours = walk_schedules(c, Rates::OURS); ours["error"].is_null()) expected = ours;
}

bool has_schedulers(const Json& c) {
  for (const Json& call : c["fit_calls"])
    if (call.contains("schedulers")) return true;
  return !c["schedulers"].empty();
}

}  // namespace

Outcome run_trainer_schedule(const Json& c) {
  const Json recorded = {{"rows", c["rows"]},
                         {"max_duration_after_each_fit", c["max_duration_after_each_fit"]},
                         {"error", without_message(c)["error"]}};
  try {
    return judge(c, recorded, replay_schedule(c), trainer_schedule_rules());
  } catch (const Unsupported& what) {
    return unsupported(what.why);
  }
}

Rules trainer_schedule_rules() {
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
       .matches =
           [](const Json& c) {
             const bool scaled = c["trainer"].value("scale_schedule_ratio", 1.0) < 1;
             return is_run(c) && has_schedulers(c) && (c["error"].is_null() || scaled);
           },
       .ours = rates_without_lag},
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
       .ours = rates_without_lag},
  };
}

}  // namespace composer::replay
