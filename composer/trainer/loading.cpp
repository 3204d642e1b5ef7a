#include "composer/trainer/loading.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <c10/util/ScopeExit.h>

#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/ignore_keys.h"
#include "composer/checkpoint/name_format.h"
#include "composer/checkpoint/saver.h"
#include "composer/checkpoint/scratch.h"
#include "composer/core/engine.h"
#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/model_access.h"
#include "composer/core/plugin_state.h"
#include "composer/formats/renaming.h"
#include "composer/formats/weights.h"
#include "composer/net/remote_store.h"
#include "composer/optim/optimizer_state.h"
#include "composer/remote/checkpoints.h"
#include "composer/step/handed_out.h"
#include "composer/step/weights_in_use.h"
#include "composer/trainer/fit_checks.h"
#include "composer/trainer/ranks.h"
#include "composer/trainer/required_algorithms.h"
#include "composer/trainer/resumption.h"
#include "composer/trainer/run_state.h"
#include "composer/trainer/shared_files.h"
#include "composer/trainer/trainer.h"
#include "composer/util/own_random.h"

namespace composer {
namespace {

struct Loaded {
  StateDict state;
  std::string path;
  bool weights_only = false;
};

// Reads a checkpoint, or a file of weights written by Python or by save_weights().
Loaded read_checkpoint(const Ranks& ranks, const std::filesystem::path& path, bool weights_only);

// Reads from a URI; the downloaded files are kept until they are read.
Loaded read_remote(const Ranks& ranks, const std::string& uri, bool weights_only) {
  const saving::Scratch folder(std::filesystem::temp_directory_path(), kLoadPrefix);
  Loaded loaded = read_checkpoint(ranks, download_from(uri, folder.path() / "files"), weights_only);
  loaded.path = net::shown_url(uri);
  return loaded;
}

// Reads the file of rank 0. A rank that sees other files gets copies of rank 0's for the duration of the call.
Loaded read_for_all(const Ranks& ranks, const std::string& given, bool weights_only) {
  if (ranks.alone())
    return net::is_uri(given) ? read_remote(ranks, given, weights_only) : read_checkpoint(ranks, given, weights_only);
  std::optional<saving::Scratch> downloaded;
  const std::string path = ranks.same(ranks.together([&]() -> std::string {
    if (!ranks.first() || !net::is_uri(given)) return given;
    downloaded.emplace(std::filesystem::temp_directory_path(), kLoadPrefix);
    return download_from(given, downloaded->path() / "files").string();
  }));
  Loaded loaded;
  ranks.together([&] {
    if (ranks.first())
      // Its errors are thrown on all ranks, before anything is sent.
      loaded = read_checkpoint(ranks, path, weights_only);
  });
  const SharedFiles files(*ranks.world(), path);
  ranks.together([&] {
    if (!ranks.first()) loaded = read_checkpoint(ranks, files.path(), weights_only);
  });
  loaded.path = net::is_uri(given) ? net::shown_url(given) : ranks.same(loaded.path);
  return loaded;
}

// Replaces placeholders. In a URL only those of the path are replaced, so that messages show no secrets.
std::string expanded(const std::string& path, const std::string& run_name) {
  if (!path.starts_with("http://") && !path.starts_with("https://"))
    return saving::format_name(path, run_name, nullptr, "load_path");
  const std::size_t end = std::min(path.find_first_of("?#"), path.size());
  const std::size_t begin = std::min(path.find('/', path.find("://") + 3), end);
  const std::string names = path.substr(begin, end - begin);
  if (names.find_first_of("{}") == std::string::npos) return path;
  return path.substr(0, begin) + saving::format_name(names, run_name, nullptr, "load_path") + path.substr(end);
}

Loaded read_checkpoint(const Ranks& ranks, const std::filesystem::path& path, bool weights_only) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    const saving::Found found = saving::open_checkpoint(path);
    return {saving::load(found, ranks.rank(), ranks.size()), found.path.string(),
            weights_only || found.manifest.weights_only};
  }
  StateDict weights, all;
  for (auto& [name, tensor] : read_weights(path)) weights[name] = std::move(tensor);  // damage is reported first
  if (weights.entries().empty()) throw CheckpointError(path.string(), ": has no tensors, so no weights can be loaded");
  if (!weights_only)
    throw ConfigError("load_path: ", path.string(), " is a file, and may have weights alone; set load_weights_only, ",
                      "or name the folder of a checkpoint");
  all["model"] = std::move(weights);
  return {std::move(all), path.string(), true};
}

// Follows a message in which load_weights() names its own options: names those of a trainer.
const std::string kOptionsOfTrainers =
    "\nA trainer has load_rename for rename; for ignore it has load_ignore_keys, such as {\"model/module.fc.*\"}, with "
    "load_strict_model_weights = false; for convert, `composer convert FILE OUT --dtype f32` writes weights of that "
    "dtype.";

// The run's evaluations used averaged weights, not the weights that are loaded.
void warn_of_averages(const StateDict& saved, const std::string& from) {
  HandedOut handed_out;
  try {
    handed_out = HandedOut::in(saved);
  } catch (const CheckpointError& error) {
    throw CheckpointError(from, ": ", error.what());
  }
  if (handed_out.by.empty()) return;
  warn(join(from, ": its trained weights are loaded, and not the averages of ", handed_out.by,
            ", which evaluations of that run use. Load it whole, with the same algorithm",
            handed_out.at.empty() ? "" : ", or load the file that composer convert --averages writes"));
}

void rename_weights(StateDict& state, const std::vector<Rename>& rules, bool warns) {
  if (rules.empty() || !state.find("model")) return;
  Renaming rename(rules);
  StateDict renamed;
  for (auto& [name, tensor] : std::get<StateDict>(state["model"]).entries()) {
    const std::string to = rename(name);
    if (renamed.find(to)) throw ConfigError("load_rename: two weights get the name ", to);
    renamed[to] = std::move(tensor);
  }
  state["model"] = std::move(renamed);
  if (warns) rename.warn_of_idle("load_rename");
}

// The optimizer's momentum would have influenced the run. Does not warn if load_ignore_keys excludes the optimizer.
void warn_of_missing_optimizer(const StateDict& saved, const std::string& from, const State& state) {
  if (state.rank == 0 && state.optimizer && !saved.find("optimizer"))
    warn(join(from, ": has no optimizer, so that one begins anew"));
}

// Warns now, because the generators are restored only when training begins.
void check_random(const StateDict& saved, at::Device device) {
  const OwnRandom other(device, /*seed=*/0);
  const StateDict own = other.state();
  if (std::ranges::all_of(own.entries(), [&](const auto& entry) { return saved.find(entry.first); }))
    other.restore(saved);
}

// Throws, before the weights are loaded, for entries that would be rejected later.
void check_saved(const StateDict& saved, const std::string& from, const State& state, const Engine& engine,
                 bool goes_on) {
  RequiredAlgorithms required;
  name_file_in_errors(from, [&] {
    for (const char* name : {"hyperparameters", "algorithms", "callbacks"}) group_in(saved, name);
    if (const StateDict* const random = group_in(saved, "rng")) check_random(*random, state.device);
    const StateDict* const optimizer = group_in(saved, "optimizer");
    if (optimizer && state.optimizer) check_optimizer(*optimizer, *state.optimizer);
    required = compare_required_algorithms(saved, engine);
  });
  if (!required.missing.empty())
    throw CheckpointError(from, ": was trained with ", required.missing,
                          ", without which it cannot be loaded; give the trainer the same algorithms");
  // For a resumed run, all differences are reported elsewhere.
  if (!required.differing.empty() && !goes_on)
    warn(join(from, ": was trained with other options of algorithms that it requires: ", required.differing));
  check_plugins(saved, engine);
}

// The options with which a trainer loads those weights of a checkpoint that fit its model.
std::string options_for_weights(const WeightsReport& report, const std::string& path) {
  constexpr std::size_t kMost = 4;
  std::set<std::string> patterns;
  for (const std::string& line : report.mismatched) {  // "module.fc.weight: Float [3, 4] in the model, ..."
    const std::string name = line.substr(0, line.find(": "));
    const std::size_t dot = name.rfind('.');
    patterns.insert("\"model/" + (dot == std::string::npos ? name : name.substr(0, dot) + ".*") + '"');
  }
  std::string text = "load_path = \"" + path + "\" with load_weights_only = true, load_strict_model_weights = false";
  if (!patterns.empty() && patterns.size() <= kMost) text += " and load_ignore_keys = {" + listed(patterns) + "}";
  return text;
}

// Follows the error of a whole checkpoint, for which load_weights() and its options are of no use.
std::string advice(const WeightsReport& report, const std::string& path, bool goes_on) {
  const std::string options = options_for_weights(report, path);
  if (!goes_on)
    return "\nA checkpoint is loaded whole only into the model that wrote it; for its weights alone give " + options +
           '.';
  return "\nsave_folder: the run there is of another model. For a new run set another save_folder or run_name. "
         "To begin it with the weights that fit, also give " +
         options + '.';
}

// `advise`: of a whole checkpoint, in the place of the options of load_weights(); empty for weights alone.
void load_model(const StateDict& saved, const std::string& from, bool strict, State& state, const Engine& engine,
                WeightsInUse& weights_in_use, const std::function<std::string(const WeightsReport&)>& advise) {
  const StateValue* found = saved.find("model");
  if (!found) return;
  const auto loaded = c10::make_scope_exit([&] { weights_in_use.loaded(); });
  formats::NamedTensors weights;
  for (const auto& [name, value] : std::get<StateDict>(*found).entries())
    weights.emplace_back(name, std::get<at::Tensor>(value));
  if (weights.empty() && !strict) return;  // all weights were ignored
  try {
    const WeightsReport report = load_weights(as_module(*state.model), weights, from, {.strict = strict});
    if (!strict) check_loaded(report, from);
  } catch (const WeightsError& error) {
    const auto [missing, differing] = compare_required_algorithms(saved, engine);
    std::string why;
    if (!missing.empty()) why += "\nIt was trained with " + missing + ", which this trainer does not have.";
    if (!differing.empty()) why += "\nIt was trained with other options of algorithms: " + differing;
    const std::string differences = error.report.text();
    std::string what = error.what();
    if (advise && !differences.empty()) what = from + " does not fit the model" + differences;
    if (advise) why += advise(error.report);
    throw WeightsError(what + why, error.report);
  }
}

}  // namespace

void RunLoader::load_first() const {
  if (resumption.found) {
    const StateDict saved = resumption.read(options, ranks, state.run_name);
    const std::string path = resumption.found->path.string();
    warn_of_missing_optimizer(saved, path, state);
    check_saved(saved, path, state, engine, /*goes_on=*/true);
    load_model(saved, path, /*strict=*/options.load_strict_model_weights, state, engine, weights_in_use,
               [&](const WeightsReport& report) { return advice(report, path, /*goes_on=*/true); });
    run_state.load(saved, path, StateVisitor::Of::THIS_RUN);
    if (options.seed && state.seed != *options.seed && ranks.first())
      warn(join("checkpoint: the run goes on with its seed, ", state.seed, ", and not with .seed = ", *options.seed,
                "; for another seed begin another run"));
    resumption.loaded_from = path;
  } else if (!options.load_path.empty()) {
    load({.path = options.load_path,
          .weights_only = options.load_weights_only,
          .strict_model_weights = options.load_strict_model_weights,
          .ignore_keys = options.load_ignore_keys},
         options.load_rename);
  }
}

void RunLoader::load(const LoadOptions& from, const std::vector<Rename>& rename) const {
  if (!rename.empty() && !from.weights_only)
    throw ConfigError("load_rename: changes names of weights alone; set load_weights_only");
  const std::string path = expanded(from.path, state.run_name);
  Loaded loaded = read_for_all(ranks, path, from.weights_only);
  rename_weights(loaded.state, rename, ranks.first());
  if (!loaded.weights_only) warn_of_missing_optimizer(loaded.state, loaded.path, state);
  if (loaded.weights_only && ranks.first()) warn_of_averages(loaded.state, loaded.path);
  saving::ignore_keys(loaded.state, from.ignore_keys, "load_ignore_keys");
  if (!loaded.weights_only) check_saved(loaded.state, loaded.path, state, engine, resumption.found.has_value());
  // Ignored weights may be missing in a resumed run; weights alone are loaded as strictly as was asked for.
  const bool strict = from.strict_model_weights && (from.weights_only || from.ignore_keys.empty());
  weights_in_use.with_trained([&] {
    try {
      std::function<std::string(const WeightsReport&)> whole;
      if (!loaded.weights_only)
        whole = [&](const WeightsReport& report) { return advice(report, loaded.path, /*goes_on=*/false); };
      load_model(loaded.state, loaded.path, strict, state, engine, weights_in_use, whole);
    } catch (const WeightsError& error) {
      if (from.weights_only) throw WeightsError(error.what() + kOptionsOfTrainers, error.report);
      throw;
    }
    if (!loaded.weights_only) run_state.load(loaded.state, loaded.path, StateVisitor::Of::ANOTHER);
  });
  if (!loaded.weights_only && options.seed && state.seed != *options.seed)
    warn(join("load_path: the run goes on with the seed of ", loaded.path, ", ", state.seed,
              ", and not with .seed = ", *options.seed, "; set load_weights_only to begin a run of its own"));
  resumption.loaded_from = loaded.path;
}

}  // namespace composer
