// logged_keys.json: what the trainer and its callbacks log, when and in which order; where stoppers end a run.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "composer/core/error.h"
#include "composer/core/state.h"
#include "tests/replay/errors.h"
#include "tests/replay/logged_run.h"
#include "tests/replay/program.h"
#include "tests/replay/rates.h"

namespace composer::replay {
namespace {

Json recorded_keys(const Json& c) {
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
  for (auto& [key, value] : got["values"].items())
    if (key.starts_with("memory/") || key.ends_with("flops_per_sec")) value = nullptr;
}

bool has_callback(const Json& c, const char* name) {
  return c["kind"] == "callback" && std::ranges::any_of(c["config"]["callbacks"], [&](const Json& callback) {
           return callback.is_object() && callback["class"] == name;
         });
}

bool is_of_system(const Json& entry) {
  const auto key = entry[1].get<std::string>();
  return key.starts_with("cpu_") || key.starts_with("disk_") || key.starts_with("network_");
}

// Each sample once: nothing at the events that follow the first.
void log_one_sample(Json& expected, const Json&) {
  Json keys = Json::array();
  std::set<std::string> seen;
  for (const Json& entry : expected["keys_in_order"])
    if (!is_of_system(entry) || seen.insert(entry[1]).second) keys.push_back(entry);
  expected["keys_in_order"] = keys;
}

// As soon as the window is full.
void log_counted_flops(Json& expected, const Json&) {
  Json keys = Json::array();
  for (const Json& entry : expected["keys_in_order"]) {
    if (entry[1] == "time/train" && !keys.empty() && keys.back()[0] == entry[0] &&
        keys.back()[1].get<std::string>().starts_with("throughput/"))
      for (const char* key : {"throughput/flops_per_sec", "throughput/device/flops_per_sec"}) {
        keys.push_back({entry[0], key});
        expected["values"][key] = nullptr;
      }
    keys.push_back(entry);
  }
  expected["keys_in_order"] = keys;
}

// Before what the trainer logs of each batch.
void log_memory_of_process(Json& expected, const Json&) {
  Json keys = Json::array();
  for (const Json& entry : expected["keys_in_order"]) {
    if (entry[1] == "trainer/device_train_microbatch_size")
      for (const char* key : {"memory/current_resident_mem", "memory/peak_resident_mem"}) {
        keys.push_back({entry[0], key});
        expected["values"][key] = nullptr;
      }
    keys.push_back(entry);
  }
  expected["keys_in_order"] = keys;
}

// module.0_output.3 of a module, and of the statistic before it: the third sample's.
struct Activation {
  explicit Activation(const std::string& key) {
    const std::size_t statistic = key.find('/') + 1, module = key.find('/', statistic) + 1, dot = key.rfind('.');
    prefix = key.substr(0, dot);
    name = key.substr(module, key.rfind('_', dot) - module);
  }
  std::string prefix, name;
};

bool is_activation(const std::string& key) { return key.starts_with("activations/"); }

// The layers that have weights, and the mean over the samples of a microbatch.
void log_activations_whole(Json& expected, const Json&) {
  const auto has_weights = [](const Activation& one) { return one.name == "module.0" || one.name == "module.2"; };
  Json keys = Json::array();
  for (const Json& entry : expected["keys_in_order"]) {
    const auto key = entry[1].get<std::string>();
    if (!is_activation(key) || (has_weights(Activation(key)) && key.ends_with(".0"))) keys.push_back(entry);
  }
  std::map<std::string, std::vector<Json>> samples;
  for (const auto& [key, values] : expected["values"].items())
    if (is_activation(key) && has_weights(Activation(key))) samples[Activation(key).prefix].push_back(values);
  for (auto it = expected["values"].begin(); it != expected["values"].end();)
    it = is_activation(it.key()) ? expected["values"].erase(it) : std::next(it);
  for (const auto& [prefix, all] : samples) {
    Json mean = all.front();
    for (std::size_t i = 0; i < mean.size(); ++i) {
      double sum = 0;
      for (const Json& one : all) {
        const Json& value = one.at(i).at(1);
        sum += value.is_number() ? value.get<double>() : std::nan("");  // of activations that are all alike
      }
      mean[i][1] = number(sum / static_cast<double>(all.size()));
    }
    expected["values"][prefix + ".0"] = mean;
  }
  expected["keys_in_order"] = keys;
}

bool is_of_training(const std::string& key) {
  return key.starts_with("loss/train/") || key.starts_with("metrics/train/");
}

bool ends_an_epoch(const Json& c) {
  return c["kind"] == "callback" && c["values"].contains("time/epoch") && c["values"]["time/epoch"].back()[1] > 0;
}

void log_means_of_epochs(Json& expected, const Json&) {
  for (const auto& [key, values] : expected["values"].items())
    if (is_of_training(key)) expected["means_of_epochs"][key + "_epoch"] = true;
}

constexpr Tolerance kSingleLogged{1e-5, 1e-6};

// With Composer's rates the recording must come out; then the same with ours.
void values_without_lag(Json& expected, const Json& c, const Context& context) {
  const std::vector<double> factors = factors_of_logged(c, context);
  const Json composers = log_all(c, context, lagging(factors), {}), ours = log_all(c, context, factors, {});
  for (const auto& [key, values] : composers["values"].items()) {
    if (key.starts_with("l2_norm/")) continue;  // optimizer_norms.cpp
    if (!expected["values"].contains(key) || expected["values"][key].is_null()) continue;
    if (const auto difference = first_difference(expected["values"][key], values, kSingleLogged))
      throw std::runtime_error("the run with Composer's rates is not what was recorded: " + key + *difference);
    expected["values"][key] = ours["values"].at(key);
  }
}

// Without a context: to be listed only.
Rules logged_keys_rules(const Context* context) {
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
      {.name = "memory_on_the_cpu",
       .applies_to = "MemoryMonitor without a GPU",
       .composer_does = "Warns and logs nothing.",
       .we_do = "Logs the resident memory of the process, and what our caching allocator holds if it is installed.",
       .why = "Memory is limited on the CPU as well.",
       .matches = [](const Json& c) { return has_callback(c, "MemoryMonitor"); },
       .ours = log_memory_of_process},
      {.name = "activations_of_layers_with_weights",
       .applies_to = "What ActivationMonitor logs",
       .composer_does = "Logs every module, and an output as one value for each sample (`output.0` to `output.7`).",
       .we_do = "Logs the layers that have weights, and an output as one mean over the microbatch, which is the mean "
                "of the recorded values.",
       .why = "Modules have no hooks in C++; a number for each sample makes hundreds of keys.",
       .matches = [](const Json& c) { return has_callback(c, "ActivationMonitor"); },
       .ours = log_activations_whole},
      {.name = "means_of_epochs",
       .applies_to = "The losses and metrics of training, when an epoch ends",
       .composer_does = "Logs those of the last batch, as after each batch.",
       .we_do = "Logs in addition the means over the epoch, weighted by samples, under the key of the batches and "
                "`_epoch`: `loss/train/total_epoch`, `metrics/train/MulticlassAccuracy_epoch`.",
       .why = "The last batch may be small, and one batch says little of an epoch.",
       .matches = ends_an_epoch,
       .ours = log_means_of_epochs},
      {.name = "free_outputs_is_an_algorithm",
       .applies_to = "FreeOutputs",
       .composer_does = "It is a callback.",
       .we_do = "It is an algorithm, and is listed among the `enabled_algorithms`.",
       .why = "It changes the state, which callbacks only see.",
       .matches = [](const Json& c) { return has_callback(c, "FreeOutputs"); },
       .ours = [](Json& expected,
                  const Json&) { expected["hyperparameters"]["enabled_algorithms/FreeOutputs"] = true; }},
      {.name = "flops_are_counted",
       .applies_to = "SpeedMonitor and a model without `flops_per_batch`",
       .composer_does = "Logs no FLOPs.",
       .we_do = "Counts those of the first batch from its operators and logs the rate.",
       .why = "The count needs nothing of the model.",
       .matches =
           [](const Json& c) { return has_callback(c, "SpeedMonitor") && !c["config"].contains("flops_per_batch"); },
       .ours = log_counted_flops},
      {.name = "samples_are_logged_once",
       .applies_to = "What SystemMetricsMonitor logs",
       .composer_does = "Takes and logs a sample in every batch, which the step waits for.",
       .we_do = "A background thread takes a sample every second; each is logged once, at the next batch.",
       .why = "A step does not wait, and short steps do not repeat the same values.",
       .matches = [](const Json& c) { return has_callback(c, "SystemMetricsMonitor"); },
       .ours = log_one_sample},
      {.name = "logged_rates_do_not_lag",
       .applies_to = "The logged rates, losses and metrics of a run with schedules",
       .composer_does = "Batch k trains with the rate of batch k-1 (k >= 1), which is logged after it.",
       .we_do =
           "Batch k trains with its own rate; the rate of the next batch is logged after it. A run with Composer's "
           "rates gives the recorded values.",
       .why = "A schedule applies to the batch it is computed for.",
       .matches = [](const Json& c) { return c["kind"] == "callback" && c["config"].contains("schedulers"); },
       .ours = [context](Json& expected, const Json& c) { values_without_lag(expected, c, *context); }}};
  all.push_back(optimizer_norms_rule(context));
  for (Rule& rule : stopper_rules()) all.push_back(std::move(rule));
  return all;
}

Outcome run_logged_keys(const Json& c, const Context& context) {
  if (c.at("kind") == "stopper") return judge(c, stopper_recording(c), stop(c), logged_keys_rules(&context));
  const Json recorded = recorded_keys(c);
  Json got = log_all(c, context);
  forget_what_varies(got, recorded);
  return judge(c, recorded, got, logged_keys_rules(&context), kSingleLogged);
}

}  // namespace

Suite logged_keys_suite() { return {"logged_keys.json", "Logged keys", run_logged_keys, logged_keys_rules(nullptr)}; }

}  // namespace composer::replay
