// When checkpoints are written, and which one is loaded.
#include <torch/version.h>

#include "composer/checkpoint/conflicts.h"
#include "composer/checkpoint/ignore_keys.h"
#include "composer/checkpoint/name_format.h"
#include "composer/core/error.h"
#include "composer/trainer/impl.h"

namespace composer {

std::optional<saving::Found> checkpoint_to_resume(const TrainerOptions& options) {
  if (options.save_folder.empty() || !options.autoresume || options.save_weights_only) return std::nullopt;
  const std::string folder = saving::format_name(options.save_folder, options.run_name);
  auto found = saving::find_latest(folder, saving::format_name(options.save_latest_filename, options.run_name));
  if (!found || found->manifest.weights_only) return std::nullopt;
  if (!options.run_name.empty() && found->manifest.run_name != options.run_name) return std::nullopt;
  return found;
}

// Nothing is written yet.
void Trainer::Impl::open_checkpoints() {
  if (options.save_folder.empty()) return;
  saving::check_format("save_folder", options.save_folder, /*with_time=*/false);
  saving::check_format("save_filename", options.save_filename, /*with_time=*/true);
  saving::check_format("save_latest_filename", options.save_latest_filename, /*with_time=*/false);
  saver = std::make_unique<saving::Saver>(
      saving::SaverOptions{.folder = saving::format_name(options.save_folder, state.run_name),
                           .latest = saving::format_name(options.save_latest_filename, state.run_name),
                           .keep = options.save_num_checkpoints_to_keep,
                           .best = options.save_best,
                           .on_failure = options.save_on_failure,
                           .asynchronous = options.save_async,
                           .overwrite = options.save_overwrite,
                           .run_id = resumed ? resumed->manifest.run_id : ""});
  if (resumed) saver->adopt(resumed->manifest);
}

void Trainer::Impl::load_checkpoint() {
  if (!resumed && options.load_path.empty()) return;
  const saving::Found found =
      resumed ? *resumed : saving::open_checkpoint(saving::format_name(options.load_path, state.run_name));
  StateDict saved = saving::load(found);
  if (!resumed) saving::ignore_keys(saved, options.load_ignore_keys);
  if (const StateValue* weights = saved.find("model")) load_weights(std::get<StateDict>(*weights));
  if (resumed || (!options.load_weights_only && !found.manifest.weights_only)) load_run_state(saved);
  loaded_from = found.path.string();
}

// What others have written beyond where this run is would be in its way sooner or later.
void Trainer::Impl::check_conflicts() const {
  if (!saver || options.save_overwrite) return;
  const saving::SaverOptions& own = saver->options();
  if (const auto path =
          saving::find_conflict(own.folder, options.save_filename, state.run_name, state.timestamp, own.run_id))
    throw ConfigError(
        "save_folder: ", path->string(),
        " was not written by this run, and has a name that this run would give later; set another folder, "
        "or save_overwrite");
}

void Trainer::Impl::save_if_due(Event event) {
  if (!saver) return;
  saver->check();
  if (!state.previous_timestamp || state.timestamp.batch == last_saved_batch) return;
  IntervalMoment moment = moment_of(event);
  moment.last_due_batch = last_saved_batch;
  moment.last = event != Event::ITERATION_CHECKPOINT && limit_reached();
  const Interval::Function* function = options.save_interval.function();
  const bool due =
      function ? (*function)(event, state) || interrupted() : interval_due(options.save_interval.time(), moment);
  if (due) save(options.save_filename);
}

saving::Manifest Trainer::Impl::manifest(const std::string& name) const {
  saving::Manifest manifest;
  manifest.name = name;
  manifest.run_name = state.run_name;
  manifest.time = state.timestamp;
  manifest.weights_only = options.save_weights_only;
  manifest.composer_version = COMPOSER_VERSION;
  manifest.libtorch_version = TORCH_VERSION;
  for (const auto& [label, by_name] : state.metrics.all())
    for (const auto& [metric, value] : by_name)
      manifest.metrics[join(label, '/', metric)] = state.metrics.at(label, metric);
  return manifest;
}

void Trainer::Impl::save(const std::string& format) {
  last_saved_batch = state.timestamp.batch;
  saving::Manifest made = manifest(saving::format_name(format, state.run_name, &state.timestamp));
  saver->plan(made.name, made.metrics);
  StateDict all = run_state();
  saving::ignore_keys(all, options.save_ignore_keys);
  saver->save(std::move(made), all);
}

std::string Trainer::save_checkpoint(const std::string& name) {
  if (!impl_->saver) throw ConfigError("save_checkpoint: there is no save_folder to write it to");
  return impl_->located([&] {
    impl_->save(name);
    impl_->saver->wait();
    return saved_checkpoints().back();
  });
}

std::vector<std::string> Trainer::saved_checkpoints() const {
  std::vector<std::string> paths;
  if (!impl_->saver) return paths;
  for (const std::string& name : impl_->saver->saved()) paths.push_back(impl_->saver->options().folder / name);
  return paths;
}

const std::string& Trainer::resumed_from() const { return impl_->loaded_from; }

}  // namespace composer
