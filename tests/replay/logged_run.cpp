#include "tests/replay/logged_run.h"

#include <map>
#include <span>
#include <string>

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "composer/algorithms/free_outputs.h"
#include "composer/callbacks/registry.h"
#include "composer/core/logger.h"
#include "composer/data/in_memory.h"
#include "composer/metrics/classification.h"
#include "composer/metrics/loss_metrics.h"
#include "composer/models/classifier.h"
#include "tests/replay/errors.h"
#include "tests/replay/program.h"
#include "tests/replay/rates.h"

namespace composer::replay {
namespace {

namespace nn = torch::nn;

nn::Sequential net_of(const std::string& name) {
  if (name == "mlp") return nn::Sequential(nn::Linear(4, 5), nn::ReLU(), nn::Linear(5, 3));
  if (name != "conv") throw Unsupported{"model " + name};
  return nn::Sequential(nn::Conv2d(1, 2, 3), nn::ReLU(), nn::Flatten(), nn::Linear(32, 3));
}

// Composer's cross entropy weighs batches alike; a difference that metrics.json is about.
models::ClassifierOptions classifier_options(bool no_metrics) {
  models::ClassifierOptions options{.num_classes = 3,
                                    .val_metrics = Metrics(metrics::CrossEntropy({.mean_of_batches = true}),
                                                           metrics::MulticlassAccuracy({.num_classes = 3}))};
  if (no_metrics) options.train_metrics = options.val_metrics = Metrics();
  return options;
}

class LoggedModel final : public models::Classifier {
 public:
  LoggedModel(const nn::Sequential& net, bool no_metrics, std::int64_t flops)
      : Classifier(net, classifier_options(no_metrics)), flops_(flops) {}
  std::optional<double> flops_per_batch(const Batch& batch) const override {
    if (flops_ == 0) return std::nullopt;
    return static_cast<double>(flops_ * batch.front().size(0));
  }

 private:
  std::int64_t flops_;
};

Batch samples_of(const Json& config, const Context& context, bool eval) {
  const auto& data = context.tensors();
  const bool conv = config.value("model", "mlp") == "conv";
  const std::string suffix = eval && !conv ? "_eval" : "";
  const std::int64_t samples = eval ? 12 : config.value("num_samples", 20);
  return {{"input", data.at(conv ? "data.img" : "data.x" + suffix).narrow(0, 0, samples)},
          {"target", data.at(conv ? "data.img_y" : "data.y" + suffix).narrow(0, 0, samples)}};
}

AnyDataSpec train_data_of(const Json& config, const Context& context) {
  DataSpec spec{.dataloader = data::in_memory(samples_of(config, context, false),
                                              {.batch_size = config.value("batch_size", 4), .shuffle = false})};
  if (const std::int64_t tokens = config.value("tokens_per_sample", 0); tokens > 0)
    spec.get_num_tokens_in_batch = [tokens](const Batch& batch) { return TokenCount(batch.front().size(0) * tokens); };
  return spec;
}

Evaluators logged_evaluators(const Json& config, const Context& context) {
  const Json& eval = config.at("eval");
  require_known(eval, "evaluation", {"interval", "labels", "metric_names", "batch_size"});
  std::vector<Evaluator> list;
  for (const std::string& label : eval.value("labels", std::vector<std::string>{"eval"})) {
    Evaluator evaluator{.label = label,
                        .dataloader = data::in_memory(samples_of(config, context, true),
                                                      {.batch_size = eval.value("batch_size", 5), .shuffle = false})};
    if (eval.contains("metric_names")) evaluator.metric_names = eval["metric_names"];
    list.push_back(evaluator);
  }
  return list;
}

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
      if (is_mean_of_epoch(key)) {
        result_["means_of_epochs"][std::string(key)] = true;
        continue;
      }
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

}  // namespace

std::shared_ptr<Model> logged_model(const Json& config, const Context& context) {
  const std::string name = config.value("model", "mlp");
  auto model = std::make_shared<LoggedModel>(net_of(name), config.value("no_metrics", false),
                                             config.value("flops_per_batch", std::int64_t{0}));
  const at::NoGradGuard no_grad;
  const std::string module = "module.";
  for (auto& item : model->named_parameters())
    item.value().copy_(context.tensors().at("init." + name + "." + item.key().substr(module.size())));
  return model;
}

TrainerOptions logged_options(const Json& config, const Context& context, RandomLog& log) {
  require_known(config, "configuration",
                {"model", "num_samples", "batch_size", "max_duration", "eval", "tokens_per_sample", "flops_per_batch",
                 "no_metrics", "device_train_microbatch_size", "schedulers", "algorithms", "optimizer", "callbacks",
                 "console_log_interval", "log_traces", "calls"});
  const std::shared_ptr<Model> model = logged_model(config, context);
  TrainerOptions options{.model = model,
                         .train_dataloader = train_data_of(config, context),
                         .optimizer = make_optimizer(config.value("optimizer", Json{{"class", "SGD"}, {"lr", 0.1}}),
                                                     optim::parameters_of(*model)),
                         .schedulers = schedulers_of(config.value("schedulers", Json::array()))};
  if (config.contains("eval")) {
    options.eval_dataloader = logged_evaluators(config, context);
    options.eval_interval = interval_of(config["eval"].at("interval"));
  }
  options.max_duration = time_of(config.value("max_duration", Json("1ep")));
  options.algorithms = make_training_algorithms(config, log);
  options.run_name = "replay";
  options.device = at::Device(at::kCPU);
  options.device_train_microbatch_size = config.value("device_train_microbatch_size", std::int64_t{0});
  options.seed = 3;
  options.handle_signals = false;
  options.nan = OnNaN::WARN;         // as Composer, which trains on
  options.auto_log_hparams = false;  // as by default in Composer
  return options;
}

Json log_all(const Json& c, const Context& context, const std::optional<std::vector<double>>& factors,
             const std::vector<std::shared_ptr<Callback>>& observers) {
  const Json& config = c.at("config");
  const Json no_choices = Json::array();
  RandomLog log(no_choices);
  TrainerOptions options = logged_options(config, context, log);
  if (factors) options.schedulers = {schedule_table(*factors)};
  for (const Json& callback : config.at("callbacks")) {
    if (callback.at("class") == "FreeOutputs")
      options.algorithms.add(algorithms::FreeOutputs());
    else
      add_callback(options.callbacks, callback);
  }
  for (const auto& observer : observers) options.callbacks.add(observer);
  Json result = {{"error", nullptr}};
  options.loggers = {std::make_shared<KeyLogger>(result)};
  try {
    Trainer(std::move(options)).fit();
  } catch (const std::exception& error) {
    result["error"] = cause_result(error, {{"error", without_message(c)["error"]}})["error"];
  }
  return result;
}

std::vector<double> factors_of_logged(const Json& c, const Context& context) {
  std::vector<double> factors;
  log_all(c, context, {}, {std::make_shared<FactorRecorder>(c["config"], factors)});
  return factors;
}

void add_callback(Callbacks& list, const Json& recorded) {
  static const std::map<std::string, std::string> names = {{"LRMonitor", "lr_monitor"},
                                                           {"ActivationMonitor", "activation_monitor"},
                                                           {"SpeedMonitor", "speed_monitor"},
                                                           {"RuntimeEstimator", "runtime_estimator"},
                                                           {"OptimizerMonitor", "optimizer_monitor"},
                                                           {"NaNMonitor", "nan_monitor"},
                                                           {"MemoryMonitor", "memory_monitor"},
                                                           {"SystemMetricsMonitor", "system_metrics_monitor"},
                                                           {"EarlyStopper", "early_stopper"},
                                                           {"ImageVisualizer", "image_visualizer"},
                                                           {"ThresholdStopper", "threshold_stopper"}};
  static const std::map<std::string, std::string> directions = {
      {"lt", "lower"}, {"less", "lower"}, {"gt", "higher"}, {"greater", "higher"}};
  const std::string kind = recorded.is_string() ? recorded : recorded.at("class");
  const auto name = names.find(kind);
  if (name == names.end()) throw Unsupported{"callback " + kind};
  Settings settings;
  for (const auto& [key, value] : recorded.items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (key == "comp") {
      const auto direction = directions.find(text);
      settings["better"] = direction == directions.end() ? text : direction->second;
    } else if (key == "patience" && value.is_number()) {
      settings[key] = to_string(time_of(value));
    } else if (key == "ignore_module_types") {
      for (const Json& part : value) settings[key] += (settings[key].empty() ? "" : ",") + part.get<std::string>();
    } else if (key != "class" && key != "only_log_wandb") {
      settings[key] = text;
    }
  }
  if (kind == "NaNMonitor") settings["folder"] = "";  // a recording has no file, and none is left where it is replayed
  if (kind == "SystemMetricsMonitor") settings["sample_interval"] = "86400";  // one sample, however long the run takes
  callbacks::registry().find(name->second).add_to(list, settings);
}

}  // namespace composer::replay
