// composer compare RUN...
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "composer/checkpoint/save_options.h"
#include "composer/cli/contents.h"
#include "composer/cli/text.h"
#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/util/text_table.h"

namespace composer::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct CompareOptions {
  std::vector<std::string> paths;
  bool best = false, all = false, json = false, reverse = false;
  std::string sort;
};

struct ComparedRun {
  fs::path path;
  saving::Manifest manifest;
  std::map<std::string, std::string> hyperparameters;  // as text
};

fs::path checkpoint_of(const fs::path& path, bool best) {
  if (kind_of(path) != Kind::SAVE_FOLDER) return path;
  if (best) {
    if (!fs::exists(path / saving::Best::kLink))
      throw CheckpointError(path.string(), ": has no link `best`; the run sets save_best and has had a value");
    return path / saving::Best::kLink;
  }
  const std::vector<saving::Found> found = saving::list_checkpoints(path);
  if (found.empty()) throw CheckpointError(path.string(), ": has no checkpoints");
  return found.back().path;
}

ComparedRun read_run(const std::string& path, bool best) {
  const Contents contents = open_contents(checkpoint_of(path, best), /*allow_unknown=*/true);
  if (!contents.checkpoint) throw CheckpointError(path, ": is a file of weights, not a run");
  ComparedRun run{path, contents.checkpoint->manifest, {}};
  for (const auto& [name, value] : hyperparameters_of(contents)) run.hyperparameters[name] = plain_text(value);
  return run;
}

// The names under which the runs do not all have the same text; with `all`, every name.
std::vector<std::string> differing_names(const std::vector<ComparedRun>& runs, bool all) {
  std::map<std::string, bool> differs;
  for (const ComparedRun& run : runs)
    for (const auto& [name, text] : run.hyperparameters) {
      bool& found = differs[name];
      for (const ComparedRun& other : runs) {
        const auto same = other.hyperparameters.find(name);
        found = found || same == other.hyperparameters.end() || same->second != text;
      }
    }
  // What tells runs apart by their nature says nothing about how they were trained.
  for (const char* name : {"run_name", "save_folder"}) differs.erase(name);
  std::vector<std::string> names;
  for (const auto& [name, is_different] : differs)
    if (is_different || all) names.push_back(name);
  return names;
}

std::vector<std::string> metric_names(const std::vector<ComparedRun>& runs) {
  std::vector<std::string> names;
  for (const ComparedRun& run : runs)
    for (const auto& [name, value] : run.manifest.metrics)
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  return names;
}

// Smallest first, or largest; runs without the metric last, and those whose value is NaN.
void sort_by(std::vector<ComparedRun>& runs, const std::string& metric, bool reverse) {
  const auto known = metric_names(runs);
  if (std::ranges::find(known, metric) == known.end())
    throw ConfigError("--sort ", metric, ": no run has this metric; there are ", listed(known, std::identity()));
  const auto value_of = [&](const ComparedRun& run) {
    const auto found = run.manifest.metrics.find(metric);
    const bool has_none = found == run.manifest.metrics.end() || std::isnan(found->second);
    return std::pair(has_none, has_none ? 0.0 : reverse ? -found->second : found->second);
  };
  std::ranges::stable_sort(runs, {}, value_of);
}

// The run's name, or its path where another one has that name.
std::string name_of(const ComparedRun& run, const std::vector<ComparedRun>& runs) {
  const std::string& name = run.manifest.run_name;
  const auto same = [&](const ComparedRun& other) { return other.manifest.run_name == name; };
  return name.empty() || std::ranges::count_if(runs, same) > 1 ? run.path.string() : name;
}

Json json_of(const std::vector<ComparedRun>& runs) {
  Json all = Json::array();
  for (const ComparedRun& run : runs)
    all.push_back({{"path", run.path.string()},
                   {"run_name", run.manifest.run_name},
                   {"epoch", run.manifest.time.epoch},
                   {"batch", run.manifest.time.batch},
                   {"hyperparameters", run.hyperparameters},
                   {"metrics", run.manifest.metrics}});
  return all;
}

int compare_runs(const CompareOptions& options, const Console& console) {
  std::vector<ComparedRun> runs;
  int code = kGood;
  for (const std::string& path : options.paths) try {
      runs.push_back(read_run(path, options.best));
    } catch (const CheckpointError& error) {
      console.err << "composer: " << one_line(error) << '\n';
      code = kBad;
    }
  if (runs.empty()) return kError;
  if (!options.sort.empty()) sort_by(runs, options.sort, options.reverse);
  if (options.json) {
    console.out << json_of(runs).dump(1, ' ', false, Json::error_handler_t::replace) << '\n';
    return code;
  }
  const std::vector<std::string> names = differing_names(runs, options.all), metrics = metric_names(runs);
  util::TextTable table("lrr" + std::string(names.size() + metrics.size(), 'r'));
  std::vector<std::string> head = {"run", "epoch", "batch"};
  std::ranges::transform(names, std::back_inserter(head), printable);
  std::ranges::transform(metrics, std::back_inserter(head), printable);
  table.row(std::move(head));
  for (const ComparedRun& run : runs) {
    std::vector<std::string> cells = {printable(name_of(run, runs)), util::grouped(run.manifest.time.epoch),
                                      util::grouped(run.manifest.time.batch)};
    for (const std::string& name : names) {
      const auto found = run.hyperparameters.find(name);
      cells.push_back(found == run.hyperparameters.end() ? "-" : printable(found->second));
    }
    for (const std::string& name : metrics) {
      const auto found = run.manifest.metrics.find(name);
      cells.push_back(found == run.manifest.metrics.end() ? "-" : number_text(found->second));
    }
    table.row(std::move(cells));
  }
  console.out << table.text(2);
  return code;
}

}  // namespace

Command add_compare(CLI::App& app) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* command = app.add_subcommand("compare", "shows runs in a table: what differs, and their metrics");
  command->add_option("run", options->paths, "save folders, or checkpoints")->required();
  command->add_flag("--best", options->best, "of each folder the best checkpoint instead of the newest");
  command->add_flag("--all", options->all, "all hyperparameters, not only those that differ");
  CLI::Option* const sort =
      command->add_option("--sort", options->sort, "metric by which the runs are sorted, smallest first");
  command->add_flag("--reverse", options->reverse, "with --sort: largest first")->needs(sort);
  command->add_flag("--json", options->json, "print JSON");
  command->footer("Exit codes: 0; 1 a run could not be read; 2 none could.");
  return {command, [options](const Console& console) { return compare_runs(*options, console); }};
}

}  // namespace composer::cli
