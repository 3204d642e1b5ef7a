// algorithms.json and training.json: EMA, SWA, SAM and LayerFreezing.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "composer/algorithms/ema.h"
#include "composer/algorithms/layer_freezing.h"
#include "composer/algorithms/registry.h"
#include "composer/algorithms/sam.h"
#include "composer/algorithms/swa.h"
#include "composer/core/state_dict.h"
#include "composer/formats/weights.h"
#include "composer/optim/sgd.h"
#include "tests/replay/algorithms.h"
#include "tests/replay/errors.h"
#include "tests/replay/floating_point.h"
#include "tests/replay/program.h"
#include "tests/replay/recorded.h"
#include "tests/replay/training_run.h"

namespace composer::replay {
namespace {

namespace nn = torch::nn;

template <class T>
std::shared_ptr<T> make(const char* name, const Settings& settings) {
  return std::dynamic_pointer_cast<T>(make_algorithm(name, settings));
}

std::string event_of(const Algorithm& algorithm) {
  return algorithm.events().contains(Event::BATCH_END) ? "batch_end" : "epoch_end";
}

std::string text_of(const StateDict& options, const char* name) { return std::get<std::string>(*options.find(name)); }

// "0.0dur" and "0dur" are one time.
Json with_short_times(Json result) {
  for (const char* name : {"ema_start", "swa_start", "swa_end", "update_interval"})
    if (result.contains(name)) result[name] = to_string(Time::parse(result[name].get<std::string>()));
  return result;
}

Json ema_of(const Json& arguments) {
  const auto ema = make<algorithms::EMA>("EMA", settings_of(arguments));
  return with_short_times({{"smoothing", ema->smoothing()},
                           {"update_interval", to_string(ema->update_interval())},
                           {"ema_start", text_of(ema->local_hparams(), "ema_start")},
                           {"update_event", event_of(*ema)}});
}

Json swa_of(const Json& arguments) {
  Settings settings = settings_of(arguments);
  if (std::string& strategy = settings["anneal_strategy"]; strategy.empty())
    settings.erase("anneal_strategy");
  else  // values of an enum, which has no upper case
    std::ranges::transform(strategy, strategy.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto swa = make<algorithms::SWA>("SWA", settings);
  const StateDict options = swa->local_hparams();
  const Time interval = Time::parse(text_of(options, "update_interval"));
  Json result = {{"match_event", interval.unit() == TimeUnit::BATCH ? "batch_end" : "epoch_end"}};
  for (const char* name : {"swa_start", "swa_end", "update_interval", "anneal_strategy"})
    result[name] = text_of(options, name);
  return with_short_times(result);
}

Outcome construct(const Json& c, Json (*of)(const Json& arguments)) {
  return judge_rows(c, training_algorithm_rules(), [&](const Json& row) -> RecordedAndGot {
    const Json want = with_short_times(without_message(row.at("result")));
    return {want, result_of(want, [&] { return of(row.at("kwargs")); })};
  });
}

bool is_count(const at::Tensor& tensor) { return !tensor.is_floating_point(); }

Outcome compute_ema(const Json& c, const Recorded& recorded) {
  nn::Sequential model{nn::Linear(5, 4), nn::BatchNorm1d(4), nn::ReLU(), nn::Linear(4, 3)};
  convert_floating_point(*model, recorded.at("in.ema.0.weight").scalar_type());
  WeightsByName averages = algorithms::copy_weights(*model);
  // Averages in a module were recorded without a copy, so "in" is what they became; the first step gives what they
  // were.
  const bool begins_late = c.at("ema_model_is") == "Module";
  const std::string begin = begins_late ? "out.ema0." : "in.ema.";
  for (auto& [name, average] : averages) average = recorded.at(begin + name);
  Json want = Json::array(), got = Json::array();
  for (int i = begins_late ? 1 : 0; i < c.at("steps").get<int>(); ++i) {
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : state_dict(*model)) tensor.copy_(recorded.at(join("in.model", i, ".", name)));
    algorithms::compute_ema(*model, averages, c.at("smoothing").get<double>());
    Json& step = got.emplace_back();
    Json& expected = want.emplace_back();
    for (const auto& [name, average] : averages) {
      const char* kind = is_count(average) ? "counts" : "averages";
      step[kind][name] = tensor_json(average);
      expected[kind][name] = tensor_json(recorded.at(join("out.ema", i, ".", name)));
      if (is_count(average)) step["of_the_model"][name] = tensor_json(recorded.at(join("in.model", i, ".", name)));
    }
    expected["of_the_model"] = step["of_the_model"];
  }
  const bool single = averages.front().second.scalar_type() == at::kFloat;
  return judge(c, want, got, training_algorithm_rules(), single ? Tolerance{1e-6, 1e-7} : Tolerance{1e-12, 1e-14});
}

Outcome freeze_schedule(const Json& c, const Recorded&) {
  return judge_rows(c, {}, [](const Json& row) -> RecordedAndGot {
    return {row.at("result"),
            algorithms::freeze_schedule(row.at("current_duration"), {.freeze_start = row.at("freeze_start"),
                                                                     .freeze_level = row.at("freeze_level")})};
  });
}

struct Tree final : nn::Module {
  template <class Holder>
  void add(const std::string& name, const Holder& module) {
    register_module(name, module.ptr());
  }
};

Outcome freeze_layers(const Json& c, const Recorded&) {
  if (c.at("model") != "mlp") return unsupported("model " + c.at("model").dump());
  Json got = Json::array();
  for (Json row : c.at("rows")) {
    Tree model;
    model.add("0", nn::Linear(3, 4));
    model.add("2", nn::Sequential(nn::Linear(4, 4), nn::BatchNorm1d(4)));
    model.add("3", nn::Linear(4, 4));
    model.add("4", nn::Linear(4, 2));
    optim::SGD optimizer(optim::parameters_of(model), optim::SgdOptions{.lr = 0.1});
    const algorithms::FrozenLayers frozen =
        algorithms::freeze_layers(model, optimizer, row.at("current_duration"),
                                  {.freeze_start = row.at("freeze_start"), .freeze_level = row.at("freeze_level")});
    row["freeze_depth"] = frozen.depth;
    row["freeze_percentage"] = frozen.percentage;
    std::map<const void*, std::string> names;
    for (const auto& item : model.named_parameters()) {
      row["requires_grad"][item.key()] = item.value().requires_grad();
      names[item.value().unsafeGetTensorImpl()] = item.key();
    }
    row["optimizer_parameters"] = Json::array({Json::array()});
    for (const at::Tensor& parameter : optimizer.param_groups()[0].params())
      row["optimizer_parameters"][0].push_back(names.at(parameter.unsafeGetTensorImpl()));
    got.push_back(row);
  }
  return judge(c, c.at("rows"), got, {});
}

template <class T>
const T* find(const Algorithms& list) {
  for (const auto& plugin : list.list())
    if (const auto* found = dynamic_cast<const T*>(plugin.object.get())) return found;
  return nullptr;
}

}  // namespace

Rules training_algorithm_rules() {
  return {{.name = "ema_copies_counts",
           .applies_to = "Buffers of whole numbers in EMA, as a batch norm's count of batches",
           .composer_does = "Averages them, and cuts off what is behind the point.",
           .we_do = "The average has what the model has.",
           .why = "The mean of two counts counts nothing.",
           .matches = [](const Json& c) { return c.value("function", "") == "compute_ema"; },
           .ours =
               [](Json& expected, const Json&) {
                 for (Json& step : expected) step["counts"] = step["of_the_model"];
               }},
          {.name = "ema_without_half_life",
           .applies_to = "EMA with `half_life=None`",
           .composer_does = "Fails, unless `smoothing` and `update_interval` are given.",
           .we_do = "Takes `smoothing` alone, and updates after every batch; without that too, `half_life` is 1000ba.",
           .why = "The options that are left out have defaults.",
           .matches = [](const Json& c) { return c.value("function", "") == "EMA constructor"; },
           .ours =
               [](Json& expected, const Json& c) {
                 for (std::size_t i = 0; i < expected.size(); ++i) {
                   const Json& arguments = c["rows"][i]["kwargs"];
                   if (arguments.contains("half_life") && arguments["half_life"].is_null() &&
                       !arguments.contains("update_interval"))
                     expected[i] = {{"smoothing", arguments.value("smoothing", std::exp2(-0.001))},
                                    {"update_interval", "1ba"},
                                    {"ema_start", to_string(Time("0dur"))},
                                    {"update_event", "batch_end"}};
                 }
               }}};
}

namespace {

// Counts of the batches after which the averages were updated last.
void copy_counts(Json& expected, const Json& c) {
  for (auto& [name, average] : expected["ema"].items()) {
    if (!name.ends_with("num_batches_tracked")) continue;
    const auto batches = static_cast<std::int64_t>(expected["rows"].size());
    std::int64_t interval = 1;
    for (const Json& one : c["config"]["algorithms"])
      if (const Time time = Time::parse(one.value("update_interval", "1ba")); time.unit() == TimeUnit::BATCH)
        interval = time.count();
    const auto trained = expected["final"][name]["values"][0].get<double>();
    average["values"][0] = trained / static_cast<double>(batches) * static_cast<double>(batches - batches % interval);
  }
}

}  // namespace

Rules training_run_rules() {
  return {{.name = "ema_copies_counts",
           .applies_to = "Buffers of whole numbers in EMA, as a batch norm's count of batches",
           .composer_does = "Averages them, and cuts off what is behind the point.",
           .we_do = "The average has what the model has.",
           .why = "The mean of two counts counts nothing.",
           .matches = [](const Json& c) { return has_algorithm(c, "EMA"); },
           .ours = copy_counts},
          {.name = "sam_wraps_no_optimizer",
           .applies_to = "The optimizer of a run with SAM",
           .composer_does = "Puts a `SAMOptimizer` around it.",
           .we_do = "The optimizer stays what it is; SAM makes the gradients of its step.",
           .why = "Schedules, clipping and checkpoints find the optimizer that was given.",
           .matches = [](const Json& c) { return has_algorithm(c, "SAM"); },
           .ours = [](Json& expected,
                      const Json& c) { expected["optimizer_class_at_end"] = c["config"]["optimizer"]["class"]; }}};
}

Handlers training_handlers() {
  return {{"compute_ema", compute_ema},
          {"EMA constructor", [](const Json& c, const Recorded&) { return construct(c, ema_of); }},
          {"SWA constructor", [](const Json& c, const Recorded&) { return construct(c, swa_of); }},
          {"_freeze_schedule", freeze_schedule},
          {"freeze_layers", freeze_layers}};
}

TrainingAlgorithms::TrainingAlgorithms(const Algorithms& list, const Json& c) : list_(list), case_(c) {}

namespace {

// The averages that SWA has put into the model at this event.
class Watch final : public LoggerDestination {
 public:
  Watch(const algorithms::SWA* swa, Json& averages, Json& logged) : swa_(swa), averages_(averages), logged_(logged) {}
  void run_event(Event event, const State& state, Logger&) override {
    if ((event != Event::BATCH_END && event != Event::EPOCH_END) || !swa_ || swa_->updates() == 0) return;
    if (!swa_->averages().empty() || !averages_.is_null()) return;
    for (const auto& [name, tensor] : state_dict(*state.model)) averages_["module." + name] = tensor_json(tensor);
  }
  void log_metrics(std::span<const LogEntry> metrics, std::int64_t step, const State&) override {
    for (const LogEntry& entry : metrics)
      if (entry.key.starts_with("layer_freezing/") || entry.key.starts_with("progressive_resizing/"))
        logged_[std::string(entry.key)].push_back({step, number(to_number(entry.value))});
  }

 private:
  const algorithms::SWA* swa_;
  Json &averages_, &logged_;
};

}  // namespace

std::shared_ptr<LoggerDestination> TrainingAlgorithms::watch() {
  return std::make_shared<Watch>(find<algorithms::SWA>(list_), swa_, logged_);
}

void TrainingAlgorithms::add_to(Json& result, const Model& model) const {
  if (case_.contains("algorithm_metrics")) result["algorithm_metrics"] = logged_;
  if (case_.contains("requires_grad_at_end"))
    for (const auto& item : model.named_parameters())
      result["requires_grad_at_end"][item.key()] = item.value().requires_grad();
  if (const auto* ema = find<algorithms::EMA>(list_))
    for (const auto& [name, tensor] : ema->averages()) result["ema"][name] = tensor_json(tensor);
  if (const auto* swa = find<algorithms::SWA>(list_)) {
    result["swa"] = swa_;
    for (const auto& [name, tensor] : swa->averages()) result["swa"]["module." + name] = tensor_json(tensor);
    result["swa"]["n_averaged"] = tensor_json(at::scalar_tensor(swa->updates(), at::kLong));
  }
}

}  // namespace composer::replay
