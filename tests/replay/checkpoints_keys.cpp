// checkpoints.json, kind keys: what is in a checkpoint, as [path, type].
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <ATen/core/Tensor.h>

#include "composer/checkpoint/saver.h"
#include "composer/core/error.h"
#include "tests/replay/checkpoints.h"
#include "tests/replay/program.h"
#include "tests/support/sandbox.h"

namespace composer::replay {
namespace {

// What Composer's checkpoints have, too. The rest is what a run here needs to go on, and a matter of its own.
const std::set<std::string> kCompared = {"model", "optimizer", "schedulers", "algorithms", "callbacks",
                                         "saver", "scaler",    "seed",       "metrics",    "timestamp"};

std::string type_of(const at::Tensor& tensor) {
  static const std::map<at::ScalarType, std::string> names = {
      {at::kFloat, "float32"}, {at::kDouble, "float64"}, {at::kLong, "int64"}, {at::kByte, "uint8"}};
  const auto name = names.find(tensor.scalar_type());
  return join("tensor", tensor.sizes(), ":", name == names.end() ? c10::toString(tensor.scalar_type()) : name->second);
}

void add_items(Json& items, const StateValue& value, const std::string& path) {
  std::string type;
  if (const auto* dict = std::get_if<StateDict>(&value)) {
    for (const auto& [name, inner] : dict->entries()) add_items(items, inner, path + "/" + name);
    if (!dict->empty()) return;
    type = "dict(empty)";
  } else if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
    type = type_of(*tensor);
  } else if (std::holds_alternative<std::int64_t>(value)) {
    type = "int";
  } else if (std::holds_alternative<double>(value)) {
    type = "float";
  } else {
    type = std::holds_alternative<bool>(value) ? "bool" : "str";
  }
  items.push_back({path, type});
}

Json contents_of(const saving::Found& found) {
  const StateDict all = saving::load(found);
  Json got = {{"items", Json::array()}, {"rng_keys", nullptr}, {"timestamp", nullptr}};
  for (const auto& [name, value] : all.entries())
    if (kCompared.contains(name)) add_items(got["items"], value, name);
  std::sort(got["items"].begin(), got["items"].end());
  if (const StateValue* random = all.find("rng")) {
    got["rng_keys"] = Json::array();
    for (const auto& [name, value] : std::get<StateDict>(*random).entries()) got["rng_keys"].push_back(name);
  }
  if (const StateValue* time = all.find("timestamp"))
    for (const auto& [name, value] : std::get<StateDict>(*time).entries())
      if (const auto* count = std::get_if<std::int64_t>(&value)) got["timestamp"][name] = *count;
  return got;
}

// ---- deliberate differences

bool take_prefix(std::string& path, const std::string& prefix) {
  if (!path.starts_with(prefix)) return false;
  path.erase(0, prefix.size());
  return true;
}

// Without its first part, the name of a class.
std::string without_class(const std::string& path) { return path.substr(path.find('/') + 1); }

// Each item of `expected` becomes none or several.
template <class F>
void for_each_item(Json& expected, F&& ours) {
  Json items = Json::array();
  for (const Json& item : expected["items"])
    ours(item[0].get<std::string>(), item[1].get<std::string>(), [&](const std::string& path, const std::string& type) {
      items.push_back({path, type});
    });
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
  expected["items"] = items;
}

bool is_empty(const std::string& type) { return type == "dict(empty)" || type == "list(empty)"; }

void name_as_here(Json& expected, const Json&) {
  for_each_item(expected, [](std::string path, std::string type, auto&& add) {
    if (!take_prefix(path, "state/")) return;
    if (take_prefix(path, "optimizers/")) {
      add("optimizer/class", "str");
      add("optimizer/" + without_class(path), type);
    } else if (take_prefix(path, "timestamp/Timestamp/")) {
      add("timestamp/" + path, type == "timedelta" ? "float" : type);
    } else if (take_prefix(path, "schedulers/")) {
      add("schedulers/" + path, type);
    } else if (path == "rank_zero_seed") {
      add("seed", type);
    } else if (path == "algorithms" || path == "schedulers") {
      add(path, "dict(empty)");
    } else if (!is_empty(type)) {
      add(path, type);
    }
  });
}

void leave_out_what_others_know(Json& expected, const Json&) {
  for_each_item(expected, [](std::string path, std::string type, auto&& add) {
    const bool options = path.starts_with("optimizer/param_groups/");
    const bool elsewhere = path.starts_with("metadata/") || path.starts_with("dataset_state/") || path == "run_name";
    if (path.starts_with("schedulers/"))
      add("schedulers", "dict(empty)");
    else if (!options && !elsewhere && !path.starts_with("scaler/"))
      add(path, type);
  });
}

void list_as_names(Json& expected, const Json&) {
  std::set<std::string> saved;
  for_each_item(expected, [&](std::string path, std::string type, auto&& add) {
    if (!take_prefix(path, "callbacks/CheckpointSaver/all_saved_checkpoints_to_timestamp/")) return add(path, type);
    saved.insert(path.substr(0, path.find('/')));
  });
  if (saved.empty()) return;
  Json& items = expected["items"];
  items.push_back({"callbacks", "dict(empty)"});
  const std::string count = std::to_string(saved.size());
  items.push_back({"saver/batches", "tensor[" + count + "]:int64"});
  items.push_back({"saver/by_hand/size", "int"});
  items.push_back({"saver/call_counts", "tensor[0]:int64"});
  items.push_back({"saver/calls/size", "int"});
  items.push_back({"saver/current/size", "int"});
  items.push_back({"saver/current/0", "str"});  // the one with the weights of this checkpoint: itself
  items.push_back({"saver/metric", "str"});
  items.push_back({"saver/number", "int"});
  items.push_back({"saver/retired/size", "int"});
  items.push_back({"saver/saved/size", "int"});
  for (const std::string& number : saved) items.push_back({"saver/saved/" + number, "str"});
  items.push_back({"saver/values", "tensor[" + count + "]:float64"});
  std::sort(items.begin(), items.end());
}

void keep_values_of_metrics(Json& expected, const Json& c) {
  if (expected["timestamp"].is_null()) return;  // weights only
  for_each_item(expected, [](std::string path, std::string type, auto&& add) {
    if (!path.starts_with("train_metrics/") && !path.starts_with("eval_metrics/")) add(path, type);
  });
  Json& items = expected["items"];
  const Json& config = c["config"];
  items.push_back({"metrics/train/MulticlassAccuracy", "tensor[]:float64"});
  if (config.contains("eval"))
    for (const char* name : {"CrossEntropy", "MulticlassAccuracy"})
      items.push_back({std::string("metrics/eval/") + name, "tensor[]:float64"});
  std::sort(items.begin(), items.end());
}

// Of EMA; the other algorithms that were recorded have no state.
void keep_averages_by_name(Json& expected, const Json&) {
  for_each_item(expected, [](std::string path, std::string type, auto&& add) {
    if (!take_prefix(path, "algorithms/")) return add(path, type);
    if (path.empty()) return add("algorithms", type);
    const std::size_t dict = path.find("_dict/");
    if (dict != std::string::npos) add("algorithms/EMA/averages/" + path.substr(dict + 6), type);
  });
}

bool always(const Json&) { return true; }

}  // namespace

Rules keys_rules() {
  return {
      {.name = "layout_of_checkpoints",
       .applies_to = "the names in a checkpoint",
       .composer_does = "one pickled file: `state/model/...`, `state/optimizers/SGD/state/...`, "
                        "`state/timestamp/Timestamp/...`, `rng/...`",
       .we_do = "a folder: `model.safetensors` with the weights under the same names, `state.safetensors` with "
                "`optimizer/state/...`, `timestamp/...`; times on the clock are seconds",
       .why = "any program reads the weights without the code that wrote them",
       .matches = always,
       .ours = name_as_here},
      {.name = "options_are_the_programs",
       .applies_to = "options of the optimizer and the schedules in a checkpoint; versions and the machine; the state "
                     "of an unused gradient scaler, of data sets",
       .composer_does = "are saved; options are loaded over those that the program has given",
       .we_do = "options are only noted, among the `hyperparameters`: a changed learning rate counts, with a warning. "
                "Names and versions are in `manifest.json`; loaders are put at their place by epoch and batch",
       .why = "what the program says is what it does",
       .matches = always,
       .ours = leave_out_what_others_know},
      {.name = "saved_checkpoints_are_names",
       .applies_to = "the list of checkpoints in a checkpoint",
       .composer_does = "path and timestamp of each, under the class of the callback",
       .we_do = "names, and the value of the metric by which the best are kept",
       .why = "a folder that was moved is still right; the timestamp is in each manifest",
       .matches = always,
       .ours = list_as_names},
      {.name = "metrics_are_values",
       .applies_to = "metrics in a checkpoint",
       .composer_does = "with `save_metrics` their counts and last values, else nothing",
       .we_do = "always the last values, and which of them were measured on these weights",
       .why = "stoppers and the choice of the best checkpoint ask for values",
       .matches = always,
       .ours = keep_values_of_metrics},
      {.name = "averages_by_name",
       .applies_to = "the state of EMA in a checkpoint",
       .composer_does = "parameters and buffers apart, and whether the model has the averages",
       .we_do = "the averages by their names; a checkpoint has the trained weights as the model's, always",
       .why = "a run goes on from trained weights",
       .matches = [](const Json& c) { return c["config"].contains("algorithms"); },
       .ours = keep_averages_by_name},
      {.name = "random_numbers_of_libtorch",
       .applies_to = "random numbers in a checkpoint",
       .composer_does = "the states of `numpy`, `python` and `torch`",
       .we_do = "the states of libtorch's generators, by device",
       .why = "there are no others",
       .matches = always,
       .ours =
           [](Json& expected, const Json&) {
             if (expected["rng_keys"].is_array()) expected["rng_keys"] = {"cpu"};
           }},
  };
}

Outcome run_keys(const Json& c, const Context& context) {
  const test::Sandbox sandbox;
  const std::string folder = c["config"]["trainer"].at("save_folder");
  const Json ran = run_once(c["config"], context, c);
  if (!ran["error"].is_null()) return wrong("the run failed: " + ran.dump());
  Json recorded;
  for (const char* part : {"items", "rng_keys", "timestamp"}) recorded[part] = c.at(part);
  return judge(c, recorded, contents_of(saving::open_checkpoint(folder + "/" + c["file"].get<std::string>())),
               keys_rules());
}

}  // namespace composer::replay
