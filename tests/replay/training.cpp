// training.json: whole runs, batch by batch, and the weights they end with.
#include <algorithm>
#include <optional>
#include <set>
#include <stdexcept>

#include <ATen/ATen.h>
#include <c10/core/DefaultDtype.h>

#include "composer/core/state.h"
#include "composer/data/in_memory.h"
#include "composer/optim/sgd.h"
#include "composer/trainer/trainer.h"
#include "tests/replay/algorithms.h"
#include "tests/replay/program.h"
#include "tests/replay/rates.h"
#include "tests/replay/training_run.h"

namespace composer::replay {
namespace {

class DefaultDtype {
 public:
  explicit DefaultDtype(at::ScalarType type) : before_(c10::get_default_dtype()) {
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(type));
  }
  ~DefaultDtype() { c10::set_default_dtype(before_); }
  DefaultDtype(const DefaultDtype&) = delete;
  DefaultDtype& operator=(const DefaultDtype&) = delete;

 private:
  caffe2::TypeMeta before_;
};

// Composer counts accuracy in float32.
Json metric_json(const std::string& name, double value) {
  return number(name == "MulticlassAccuracy" ? static_cast<float>(value) : value);
}

// Notes a row for each batch, and all metrics of evaluation.
class RowLogger final : public LoggerDestination {
 public:
  explicit RowLogger(Json& result) : result_(result) {}

  void log_metrics(std::span<const LogEntry> metrics, std::int64_t step, const State&) override {
    const std::string train = "metrics/train/", eval = "metrics/eval/";
    for (const LogEntry& entry : metrics) {
      const std::string key(entry.key);
      if (is_mean_of_epoch(key)) continue;
      if (key.starts_with("loss/train/"))
        losses_[key] = number(to_number(entry.value));
      else if (key.starts_with(train))
        metrics_[key.substr(train.size())] = metric_json(key.substr(train.size()), to_number(entry.value));
      else if (key.starts_with(eval))
        result_["eval_history"][key].push_back({step, metric_json(key.substr(eval.size()), to_number(entry.value))});
    }
  }
  void batch_start(const State& state, Logger&) override { rates_ = optim::learning_rates(*state.optimizer); }
  void batch_end(const State& state, Logger&) override {
    result_["rows"].push_back({state.timestamp.batch, rates_, losses_, metrics_});
    losses_ = metrics_ = Json::object();
  }

 private:
  Json& result_;
  Json rates_, losses_ = Json::object(), metrics_ = Json::object();
};

// Notes how many samples of each batch come out right in the first pass over it, and in all passes.
class Passes final : public Algorithm {
 public:
  struct Counts {
    std::int64_t size = 0, samples = 0;
    double first = 0, all = 0;
  };
  EventSet events() const override { return {Event::BATCH_START, Event::AFTER_FORWARD}; }
  void apply(Event event, State& state, Logger&) override {
    if (event == Event::BATCH_START) return batches.push_back({.size = state.batch.front().size(0)});
    Counts& counts = batches.back();
    const at::Tensor& target = state.batch.at("target");
    const double right = state.outputs.only().argmax(1).eq(target).sum().item<double>();
    if (counts.samples < counts.size) counts.first += right;
    counts.all += right, counts.samples += target.size(0);
  }
  std::vector<Counts> batches;
};

// What a run does beside what the case says, and what is noted of it.
struct RecordedChange {
  std::optional<std::vector<double>> factors;  // of the learning rates, in the place of the schedules
  Algorithms faults;
};
struct Noted {
  BiasPath bias;
  std::vector<double> factors;  // what the schedules give for each batch
  std::shared_ptr<Passes> passes = std::make_shared<Passes>();
};

Json train(const Json& c, const Context& context, const RecordedChange& change, Noted& noted) {
  const Json& config = c.at("config");
  RandomLog random(c.at("random_log"));
  Algorithms algorithms = make_training_algorithms(config, random);
  const TrainingRun run = make_training_run(c, context);
  Json result = {{"rows", Json::array()}};

  TrainerOptions options{
      .model = run.model,
      .train_dataloader = data::in_memory(run.train, {.batch_size = run.batch_size, .shuffle = false}),
      .optimizer = has_algorithm(c, "NoOpModel") ? optim::AnyOptimizer(optim::sgd({.lr = config["optimizer"].at("lr")}))
                                                 : optim::AnyOptimizer(run.optimizer),
      .schedulers = schedulers_of(config.value("schedulers", Json::array()))};
  options.step_schedulers_every_batch = config.value("step_schedulers_every_batch", true);
  options.max_duration = time_of(config.value("max_duration", "30ba"));
  if (change.factors) options.schedulers = {schedule_table(*change.factors)};
  TrainingAlgorithms shown(algorithms, c);
  options.algorithms = std::move(algorithms);
  if (has_algorithm(c, "SAM")) options.algorithms.add(noted.passes);
  for (const auto& fault : change.faults.list()) options.algorithms.add(fault.object);
  options.callbacks = {record_bias(noted.bias, run), std::make_shared<FactorRecorder>(config, noted.factors)};
  options.loggers = {std::make_shared<RowLogger>(result), shown.watch()};
  options.run_name = "replay";
  options.device = at::Device(at::kCPU);
  options.device_train_microbatch_size = config.value("device_train_microbatch_size", std::int64_t{0});
  options.handle_signals = false;
  options.nan = OnNaN::WARN;  // as Composer, which trains on
  if (config.contains("eval")) {
    options.eval_dataloader = data::in_memory(run.eval, {.batch_size = 20, .shuffle = false});
    options.eval_interval = interval_of(config["eval"]);
  }
  Trainer trainer(std::move(options));
  trainer.fit();

  if (!random.is_used_up()) throw std::runtime_error("fewer random choices are made than were recorded");
  const State& end = trainer.state();
  result.update(final_json(config, *end.model, *end.optimizer));
  shown.add_to(result, *end.model);
  if (config.contains("eval"))
    for (const auto& [name, reported] : trainer.state().metrics.all().at("eval"))
      result["final_eval_metrics"][name] = metric_json(name, reported.value.item<double>());
  return result;
}

Json train(const Json& c, const Context& context, const RecordedChange& change) {
  Noted noted;
  return train(c, context, change, noted);
}

// What was recorded, in the form of train().
Json recording(const Json& c, const Context& context) {
  Json result;
  for (const char* key : {"rows", "optimizer_parameters_at_end", "optimizer_class_at_end"}) result[key] = c.at(key);
  for (const char* key : {"eval_history", "final_eval_metrics", "requires_grad_at_end", "algorithm_metrics"})
    if (c.contains(key)) result[key] = c[key];
  result["final"] = result["optimizer"] = Json::object();
  const std::string prefix = c.at("id").get<std::string>() + "/";
  const auto& tensors = context.tensors();
  for (auto found = tensors.lower_bound(prefix); found != tensors.end() && found->first.starts_with(prefix); ++found) {
    const std::string name = found->first.substr(prefix.size());
    const std::size_t dot = name.find('.');
    if (const std::string kind = name.substr(0, dot);
        std::set<std::string>{"final", "optimizer", "ema", "swa"}.contains(kind))
      result[kind][name.substr(dot + 1)] = tensor_json(found->second);
    else if (kind != "after_init")  // what the run begins with
      throw Unsupported{"tensors " + kind};
  }
  return result;
}

// With Composer's rates, which are in the recording, the recording must come out; then the same with ours.
void training_without_lag(Json& expected, const Json& c, const Context& context, const Noted& noted) {
  std::vector<double> factors = lagging(noted.factors);
  if (!has_algorithm(c, "SWA"))  // which sets rates, too
    for (std::size_t batch = 0; batch < c["rows"].size(); ++batch)
      factors.at(batch) = c["rows"][batch][1][0].get<double>() / c["config"]["optimizer"].at("lr").get<double>();
  const Json composers = train(c, context, {.factors = factors});
  const auto difference = first_difference(without_noise(expected, c), without_noise(composers, c), tolerance_of(c));
  if (difference) throw std::runtime_error("the run with Composer's rates is not what was recorded: " + *difference);
  expected = train(c, context, {.factors = noted.factors});
}

// The recorded accuracy must be that of all passes; ours is that of the first.
void count_once(Json& expected, const Passes& passes) {
  for (std::size_t batch = 0; batch < expected["rows"].size(); ++batch) {
    const Passes::Counts& counts = passes.batches.at(batch);
    Json& accuracy = expected["rows"][batch][3]["MulticlassAccuracy"];
    if (accuracy != static_cast<float>(counts.all / static_cast<double>(counts.samples)))
      throw std::runtime_error("the accuracy of all passes is not what was recorded");
    accuracy = static_cast<float>(counts.first / static_cast<double>(counts.size));
  }
}

// The case with the two in the other order, of which the rest is alike, was recorded as well.
Json recording_in_other_order(const Json& c, const Context& context) {
  Json config = c["config"];
  std::ranges::reverse(config["algorithms"].get_ref<Json::array_t&>());
  for (const Json& other : context.cases())
    if (other["config"] == config && other["random_log"] == c["random_log"]) return recording(other, context);
  throw std::runtime_error("the other order was not recorded");
}

// Without swa_lr the recording must come out; then the same with it.
void obey_swa_lr(Json& expected, const Json& c, const Context& context) {
  Json without = c;
  for (Json& one : without["config"]["algorithms"]) one.erase("swa_lr");
  if (const auto difference = first_difference(expected, train(without, context, {}), tolerance_of(c)))
    throw std::runtime_error("the run without swa_lr is not what was recorded: " + *difference);
  expected = train(c, context, {});
}

bool has_swa_lr(const Json& c) {
  for (const Json& one : c["config"].value("algorithms", Json::array()))
    if (one.contains("swa_lr")) return true;
  return false;
}

bool smooths_before_mixing(const Json& c) {
  bool smoothed = false;
  for (const Json& one : c["config"].value("algorithms", Json::array())) {
    if (one["class"] == "MixUp" && smoothed) return true;
    smoothed = smoothed || one["class"] == "LabelSmoothing";
  }
  return false;
}

Rules own_rules(const Context* context, const Noted* noted) {
  return {
      {.name = "sam_counts_a_batch_once",
       .applies_to = "Metrics of training, and running statistics of batch norms, in a run with SAM",
       .composer_does = "Both passes over a batch count, the second with the weights a step uphill.",
       .we_do = "The metrics are those of the first pass, at the trained weights; the running statistics see the "
                "batch once.",
       .why = "The weights uphill are nobody's model.",
       .matches = [](const Json& c) { return has_algorithm(c, "SAM"); },
       .ours = [noted](Json& expected, const Json&) { count_once(expected, *noted->passes); }},
      {.name = "smoothed_targets_are_mixed",
       .applies_to = "`LabelSmoothing` in front of `MixUp`",
       .composer_does = "Mixes smoothed targets with others that are not smoothed.",
       .we_do =
           "Smooths the mixture, in whichever order the two are listed, as Composer does if `MixUp` is listed first.",
       .why = "Targets do not depend on the order in which two algorithms are listed.",
       .matches = smooths_before_mixing,
       .ours = [context](Json& expected, const Json& c) { expected = recording_in_other_order(c, *context); }},
      {.name = "swa_lr_counts",
       .applies_to = "`swa_lr` of SWA",
       .composer_does = "Overwrites it with the learning rate at `swa_start`.",
       .we_do = "The learning rate goes to `swa_lr`.",
       .why = "It is what the documentation says.",
       .matches = has_swa_lr,
       .ours = [context](Json& expected, const Json& c) { obey_swa_lr(expected, c, *context); }},
      {.name = "schedules_do_not_lag_and_multiply",
       .applies_to = "The losses and weights of a run with schedules",
       .composer_does = "Batch k trains with the rate of batch k-1 (k >= 1); of several schedules the last one wins.",
       .we_do = "Every batch trains with the product of all schedules at `state.timestamp`. With Composer's rates a "
                "run gives "
                "the recorded losses and weights.",
       .why = "A schedule applies to the batch it is computed for, and several schedules multiply, as Composer "
              "documents.",
       .matches = [](const Json& c) { return c["config"].contains("schedulers"); },
       .ours = [context, noted](Json& expected,
                                const Json& c) { training_without_lag(expected, c, *context, *noted); }},
      {.name = "noise_is_not_reproduced",
       .applies_to = "The bias of a layer before a batch norm",
       .composer_does =
           "Its gradient is nothing but rounding errors, which optimizers such as Adam make as large as any "
           "other. The bias, the running mean that it shifts, and in single precision the metrics of "
           "evaluation, are those of the machine that recorded them.",
       .we_do = "The gradients of the bias are rounding errors here too, and the bias is what the formula of the "
                "optimizer makes of them. The running mean and the metrics are what follows from this bias; all other "
                "weights and losses are as recorded.",
       .why = "The rounding errors of another machine cannot be repeated, and mean nothing.",
       .matches = has_noisy_bias,
       .ours = [noted](Json& expected, const Json& c) { replace_noise(expected, c, noted->bias); }}};
}

// Without a context: to be listed only.
Rules training_rules(const Context* context, const Noted* noted) {
  Rules all = training_run_rules();
  for (const Rule& rule : surgery_run_rules(context)) all.push_back(rule);
  for (const Rule& rule : own_rules(context, noted)) all.push_back(rule);
  return all;
}

}  // namespace

Outcome run_training(const Json& c, const Context& context, const Algorithms& faults) {
  const bool single = c.at("config").value("dtype", "fp64") == "fp32";
  const DefaultDtype dtype(single ? at::kFloat : at::kDouble);
  Noted noted;
  const Json got = train(c, context, {.faults = faults}, noted);
  return judge(c, recording(c, context), got, training_rules(&context, &noted), tolerance_of(c));
}

Suite training_suite() {
  const auto run = [](const Json& c, const Context& context) { return run_training(c, context); };
  return {"training.json", "Training", run, training_rules(nullptr, nullptr)};
}

}  // namespace composer::replay
