// logged_keys.json: what the trainer and its callbacks log, when and in which order; where stoppers end a run.
#include <map>
#include <span>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/util/loss.h"
#include "tests/replay/errors.h"
#include "tests/replay/logged_run.h"
#include "tests/replay/make_scheduler.h"
#include "tests/replay/program.h"
#include "tests/replay/stoppers.h"

namespace composer::replay {
namespace {

// Composer calls its loggers once for most keys, we once for several, so keys are compared one by one, in the order in
// which they come.
class KeyLogger final : public LoggerDestination {
 public:
  explicit KeyLogger(Json& result) : result_(result) {
    result_["keys_in_order"] = Json::array();
    result_["values"] = result_["hyperparameters"] = Json::object();
  }
  void log_metrics(std::span<const LogEntry> metrics, std::int64_t step, const State&) override {
    for (const auto& [key, value] : metrics) {
      result_["keys_in_order"].push_back({step, key});
      result_["values"][std::string(key)].push_back({step, json_of(value)});
    }
  }
  void log_hyperparameters(std::span<const LogEntry> parameters, const State&) override {
    for (const auto& [key, value] : parameters) result_["hyperparameters"][std::string(key)] = json_of(value);
  }

 private:
  static Json json_of(const LogValue& value) {
    if (const auto* tensor = std::get_if<at::Tensor>(&value)) return number(tensor->item<double>());
    if (const auto* real = std::get_if<double>(&value)) return number(*real);
    return std::visit(
        [](const auto& plain) -> Json {
          if constexpr (std::is_same_v<std::decay_t<decltype(plain)>, at::Tensor>)
            return {};
          else
            return plain;
        },
        value);
  }
  Json& result_;
};

Json recording(const Json& c) {
  Json keys = Json::array();
  for (const Json& call : c.at("log_calls_in_order"))
    for (const Json& key : call[1]) keys.push_back({call[0], key});
  return without_message({{"keys_in_order", keys},
                          {"values", c.at("values")},
                          {"hyperparameters", c.at("hyperparameters")},
                          {"error", c.at("error")}});
}

// Null was recorded for what depends on the clock, the machine or the version: it has to be there.
void forget_what_varies(Json& got, const Json& recorded) {
  for (const char* part : {"values", "hyperparameters"})
    for (const auto& [key, value] : recorded[part].items())
      if (value.is_null() && got[part].contains(key)) got[part][key] = nullptr;
}

// Rates, losses and accuracies of plain SGD without a trainer; with a lag, batch k trains with the rate of batch k-1,
// and that is the rate that is shown after it.
Json train_by_hand(const Json& config, const Context& context, bool lag) {
  if (config.contains("optimizer") || config.contains("algorithms") || config["schedulers"].size() != 1)
    throw Unsupported{"schedules of another run than plain SGD's"};
  RandomLog none(config.value("algorithms", Json::array()));
  const auto model = logged_model(config, context);
  const auto scheduler = make_scheduler(config["schedulers"][0]);
  const Time max_duration = time_of(config.value("max_duration", Json("1ep")));
  const std::int64_t samples = config.value("num_samples", 20), size = config.value("batch_size", 4);
  const std::int64_t length = (samples + size - 1) / size;
  const auto rate_at = [&](const Timestamp& now) {
    return 0.1 * scheduler({.timestamp = now, .max_duration = max_duration, .dataloader_len = length});
  };
  Json values;
  Timestamp now, before;
  while (!now.reached(max_duration)) {
    const std::int64_t begin = now.batch_in_epoch * size, count = std::min(size, samples - begin);
    const Batch batch = {{"input", context.tensors().at("data.x").narrow(0, begin, count)},
                         {"target", context.tensors().at("data.y").narrow(0, begin, count)}};
    const at::Tensor logits = model->forward(batch).only();
    const at::Tensor loss = soft_cross_entropy(logits, batch.at("target"));
    loss.backward();
    const double rate = rate_at(lag ? before : now);
    for (at::Tensor& parameter : model->parameters()) {
      const at::NoGradGuard no_grad;
      parameter.sub_(parameter.grad() * rate);
      parameter.mutable_grad().reset();
    }
    values["loss/train/total"].push_back({now.batch, loss.item<double>()});
    values["metrics/train/MulticlassAccuracy"].push_back(
        {now.batch, logits.argmax(1).eq(batch.at("target")).to(at::kFloat).mean().item<double>()});
    before = now;
    now = now.to_next_batch(count);
    values["lr-SGD/group0"].push_back({now.batch, rate_at(lag ? before : now)});
    if (now.batch_in_epoch < length) continue;
    now = now.to_next_epoch();
    values["metrics/train/MulticlassAccuracy"].push_back(
        {now.batch, values["metrics/train/MulticlassAccuracy"].back()[1]});
  }
  return values;
}

constexpr Tolerance kSingle{1e-5, 1e-6};

void without_lag(Json& expected, const Json& c, const Context& context) {
  const Json lagging = train_by_hand(c["config"], context, true), ours = train_by_hand(c["config"], context, false);
  for (const auto& [key, values] : lagging.items()) {
    if (!expected["values"].contains(key)) continue;
    if (const auto difference = first_difference(expected["values"][key], values, kSingle))
      throw std::runtime_error("the loop by hand does not do what was recorded: " + key + *difference);
    expected["values"][key] = ours[key];
  }
}

// Without a context: to be listed only.
Rules rules(const Context* context) {
  Rules all = {
      {.name = "no_names_of_the_machine",
       .applies_to = "`node_name` and `composer_commit_hash` among the hyperparameters",
       .composer_does = "Logs an environment variable of its own platform, and the commit it was installed from.",
       .we_do = "Does not log them; `composer_version` is there.",
       .why = "There is no such platform, and a library is identified by its version.",
       .matches = [](const Json& c) { return c["kind"] == "callback"; },
       .ours =
           [](Json& expected, const Json&) {
             for (const char* key : {"node_name", "composer_commit_hash"}) expected["hyperparameters"].erase(key);
           }},
      {.name = "logged_rates_do_not_lag",
       .applies_to = "The logged rates, losses and metrics of a run with schedules",
       .composer_does = "Batch k trains with the rate of batch k-1 (k >= 1), which is logged after it.",
       .we_do = "Batch k trains with its own rate; the rate of the next batch is logged after it. A plain loop gives "
                "the recorded values with the lag, and ours without.",
       .why = "A schedule applies to the batch it is computed for.",
       .matches = [](const Json& c) { return c["kind"] == "callback" && c["config"].contains("schedulers"); },
       .ours = [context](Json& expected, const Json& c) { without_lag(expected, c, *context); }}};
  for (Rule& rule : stopper_rules()) all.push_back(std::move(rule));
  return all;
}

Json log_all(const Json& c, const Context& context) {
  const Json& config = c.at("config");
  const Json no_choices = Json::array();
  RandomLog log(no_choices);
  TrainerOptions options = logged_options(config, context, log);
  for (const Json& callback : config.at("callbacks")) add_callback(options.callbacks, callback);
  Json result = {{"error", nullptr}};
  options.loggers = {std::make_shared<KeyLogger>(result)};
  try {
    Trainer(std::move(options)).fit();
  } catch (const std::exception& error) {
    result["error"] = cause_result(error, {{"error", without_message(c)["error"]}})["error"];
  }
  return result;
}

Outcome run(const Json& c, const Context& context) {
  try {
    if (c.at("kind") == "stopper") return judge(c, stopper_recording(c), stop(c), rules(&context));
    const Json recorded = recording(c);
    Json got = log_all(c, context);
    forget_what_varies(got, recorded);
    return judge(c, recorded, got, rules(&context), kSingle);
  } catch (const Unsupported& what) {
    return unsupported(what.why);
  }
}

}  // namespace

Suite logged_keys_suite() { return {"logged_keys.json", "Logged keys", run, rules(nullptr)}; }

}  // namespace composer::replay
