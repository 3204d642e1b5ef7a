#include "composer/checkpoint/run_saver.h"

#include <torch/version.h>

#include "composer/checkpoint/conflicts.h"
#include "composer/checkpoint/ignore_keys.h"
#include "composer/checkpoint/name_format.h"
#include "composer/core/error.h"
#include "composer/core/run.h"
#include "composer/core/state.h"

namespace composer::saving {

void check(const RunSaverOptions& options) {
  if (options.folder.empty()) throw ConfigError("save_folder: is required");
  check_format("save_folder", options.folder, /*with_time=*/false);
  check_format("save_filename", options.filename, /*with_time=*/true);
  check_format("save_latest_filename", options.latest_filename, /*with_time=*/false);
  check(SaverOptions{.keep = options.num_checkpoints_to_keep, .best = options.best});
}

RunSaver::RunSaver(RunSaverOptions options, const State& state, const Manifest* resumed)
    : options_(std::move(options)) {
  check(options_);
  saver_ = std::make_unique<Saver>(SaverOptions{.folder = format_name(options_.folder, state.run_name),
                                                .latest = format_name(options_.latest_filename, state.run_name),
                                                .keep = options_.num_checkpoints_to_keep,
                                                .best = options_.best,
                                                .on_failure = options_.on_failure,
                                                .asynchronous = options_.async,
                                                .overwrite = options_.overwrite,
                                                .run_id = resumed ? resumed->run_id : ""});
  if (resumed) saver_->adopt(*resumed);
}

void RunSaver::check_conflicts(const State& state) const {
  if (options_.overwrite) return;
  const SaverOptions& own = saver_->options();
  if (const auto path = find_conflict(own.folder, options_.filename, state.run_name, state.timestamp, own.run_id))
    throw ConfigError(
        "save_folder: ", path->string(),
        " was not written by this run, and has a name that this run would give later; set another folder, "
        "or save_overwrite");
}

void RunSaver::save_if_due(Event event, const State& state) {
  saver_->check();
  if (state.timestamp.batch < last_saved_batch_) last_saved_batch_ = -1;  // time was reset
  if (!state.previous_timestamp || state.timestamp.batch == last_saved_batch_) return;
  IntervalMoment moment = state.run->moment(event);
  moment.last_due_batch = last_saved_batch_;
  const Interval::Function* function = options_.save_interval.function();
  const bool due = function ? (*function)(event, state) || state.run->interrupted()
                            : interval_due(options_.save_interval.time(), moment);
  if (due) save(options_.filename, state);
}

Manifest RunSaver::manifest(const std::string& name, const State& state) const {
  Manifest manifest;
  manifest.name = format_name(name, state.run_name, &state.timestamp);
  manifest.run_name = state.run_name;
  manifest.time = state.timestamp;
  manifest.weights_only = options_.weights_only;
  manifest.composer_version = COMPOSER_VERSION;
  manifest.libtorch_version = TORCH_VERSION;
  for (const auto& [label, by_name] : state.metrics.all())
    for (const auto& [metric, value] : by_name)
      manifest.metrics[join(label, '/', metric)] = state.metrics.at(label, metric);
  return manifest;
}

void RunSaver::save(const std::string& name, const State& state) {
  last_saved_batch_ = state.timestamp.batch;
  Manifest made = manifest(name, state);
  saver_->plan(made.name, made.metrics);
  StateDict all = state.run->snapshot(options_.weights_only);
  ignore_keys(all, options_.ignore_keys);
  saver_->save(std::move(made), all);
}

void RunSaver::save_state(StateDict& into) const {
  StateVisitor visit = StateVisitor::saving(into);
  saver_->visit_state(visit);
}

void RunSaver::load_state(const StateDict& saved, std::int64_t batch) {
  StateVisitor visit = StateVisitor::loading(saved, "saver");
  saver_->visit_state(visit);
  last_saved_batch_ = batch;
}

std::string RunSaver::newest() const { return saver_->saved().empty() ? "" : saver_->saved().back(); }

std::vector<std::string> RunSaver::paths() const {
  std::vector<std::string> paths;
  for (const std::string& name : saver_->saved()) paths.push_back(options().folder / name);
  return paths;
}

}  // namespace composer::saving
