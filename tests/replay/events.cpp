// events.json: traces of whole programs, event by event, with the state that a callback sees.
#include "tests/replay/events.h"

#include <optional>
#include <stdexcept>

#include <torch/nn/module.h>

#include "composer/core/error.h"
#include "composer/core/model.h"
#include "composer/core/state.h"
#include "tests/replay/counts.h"
#include "tests/replay/errors.h"
#include "tests/replay/program.h"
#include "tests/replay/replay.h"
#include "tests/support/sandbox.h"

namespace composer::replay {
namespace {

struct StopRun : std::runtime_error {
  StopRun() : std::runtime_error("raised by the recording callback") {}
};

Json row_of(const std::string& event, const State& state) {
  const Timestamp& t = state.timestamp;
  Json row = {event,
              t.iteration,
              t.epoch,
              t.batch,
              t.sample,
              t.token,
              t.epoch_in_iteration,
              t.token_in_iteration,
              t.batch_in_epoch,
              t.sample_in_epoch,
              t.token_in_epoch};
  row.push_back(state.dataloader_label.empty() ? Json() : Json(state.dataloader_label));
  row.push_back(state.dataloader_len ? Json(*state.dataloader_len) : Json());
  const bool eval = event.starts_with("eval"), predict = event.starts_with("predict");
  const Timestamp& phase = eval ? state.eval_timestamp : state.predict_timestamp;
  for (const std::int64_t count : {phase.batch, phase.sample, phase.token})
    row.push_back(eval || predict ? Json(count) : Json());
  row.push_back(state.batch.empty() ? Json() : Json(state.batch.front().size(0)));
  row.push_back(state.model->is_training());
  row.push_back(state.max_duration ? Json(to_string(*state.max_duration)) : Json());
  row.push_back(state.optimizer ? Json(optim::learning_rates(*state.optimizer).front()) : Json());
  return row;
}

class Recorder final : public Callback {
 public:
  Recorder(Json hooks, Json& trace) : hooks_(std::move(hooks)), trace_(trace) {}

  void run_event(Event event, const State& state, Logger&) override {
    const std::string name(to_string(event));
    trace_.push_back(row_of(name, state));
    for (const Json& hook : hooks_) {
      if (hook.at("event") != name || !at(hook, state.timestamp)) continue;
      if (hook.at("action") == "raise") throw StopRun();
      if (hook.at("action") != "stop_training") throw Unsupported{"hook " + hook.dump()};
      state.stop.ask("the recording callback asked for it");
    }
  }
  void close(const State& state, Logger&) override {
    state_ = &state;
    trace_.push_back(row_of("#close", state));
  }
  void post_close() override { trace_.push_back(row_of("#post_close", *state_)); }

 private:
  static bool at(const Json& hook, const Timestamp& now) {
    const Json counters = counts_of(now);
    const Json wanted = hook.value("at", Json::object());
    for (const auto& [field, value] : wanted.items())
      if (counters.at(field) != value) return false;
    return true;
  }

  Json hooks_;
  Json& trace_;
  const State* state_ = nullptr;
};

// The error, or what is nested innermost in it, as Composer would raise it.
Json error_of(const std::exception& error, const Json& recorded) {
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& cause) {
    return error_of(cause, recorded);
  }
  if (dynamic_cast<const StopRun*>(&error)) return {{"type", "StopRun"}};
  return error_result(error, recorded)["error"];
}

// The run that the recorded one goes on from; the recorded one's arguments, which load its checkpoint.
Json arguments_after_first_run(const Json& config) {
  Json arguments = config.value("trainer", Json::object());
  if (!config.contains("checkpoint_from")) return arguments;
  Json first = config["checkpoint_from"];
  first["trainer"]["save_folder"] = "ck";
  TrainerOptions options = trainer_options(first["trainer"]);
  options.train_dataloader = toy_data(config.at("train"));
  Trainer(std::move(options)).fit();
  arguments["load_path"] = "ck/" + first.at("file").get<std::string>();
  for (const auto& [name, value] : first.items())
    if (name != "trainer" && name != "file") arguments[name] = value;
  return arguments;
}

class Program {
 public:
  explicit Program(const Json& config) : config_(config), arguments_(arguments_after_first_run(config)) {}

  Json call(const Json& call, const Json& recorded) {
    trace_ = Json::array();
    Json result = {{"fn", call.at("fn")}, {"error", nullptr}};
    try {
      run(call, result);
    } catch (const std::exception& error) {
      result["error"] = error_of(error, recorded);
    }
    result["trace"] = trace_;
    if (trainer_)
      result["final"] = final_of(trainer_->state());
    else
      result["final"] = recorded["final"];
    return result;
  }

 private:
  void run(const Json& call, Json& result) {
    const std::string fn = call.at("fn");
    if (fn == "construct") {
      construct();
    } else if (!trainer_) {
      throw std::logic_error("the trainer could not be made");
    } else if (fn == "fit") {
      trainer_->fit(fit_options(call));
    } else if (fn == "eval") {
      trainer_->eval({.eval_dataloader = evaluators_of(call.value("eval_dataloader", Json())),
                      .subset_num_batches = call.value("subset_num_batches", -1)});
    } else if (fn == "predict") {
      const auto outputs = trainer_->predict(toy_data(call.at("dataloader")),
                                             {.subset_num_batches = call.value("subset_num_batches", -1),
                                              .return_outputs = call.value("return_outputs", true)});
      result["num_outputs"] = outputs.size();
      result["output_rows"] = Json::array();
      for (const Outputs& output : outputs) result["output_rows"].push_back(output.only().size(0));
    } else if (fn == "close") {
      trainer_->close();
    } else {
      throw Unsupported{"call " + fn};
    }
  }

  void construct() {
    TrainerOptions options = trainer_options(arguments_);
    if (const Json train = config_.value("train", Json()); !train.is_null()) options.train_dataloader = toy_data(train);
    options.eval_dataloader = evaluators_of(config_.value("eval", Json()));
    if (config_.contains("iteration_length")) options.iteration_length = time_of(config_["iteration_length"]);
    options.callbacks = {std::make_shared<Recorder>(config_.value("hooks", Json::array()), trace_)};
    trainer_.emplace(std::move(options));
  }

  const Json& config_;
  Json arguments_, trace_;
  std::optional<Trainer> trainer_;
};

Outcome run_events(const Json& c, const Context&) {
  const Json& config = c.at("config");
  const test::Sandbox sandbox;
  Json recorded = Json::array(), got = Json::array();
  Program program(config);
  for (std::size_t i = 0; i < config.at("calls").size(); ++i) {
    recorded.push_back(without_message(c.at("calls").at(i)));
    got.push_back(program.call(config["calls"][i], recorded.back()));
  }
  return judge(c, recorded, got, events_rules());
}

}  // namespace

Suite events_suite() { return {"events.json", "Events", run_events, events_rules()}; }

}  // namespace composer::replay
