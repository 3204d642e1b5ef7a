// When checkpoints are written, and which one is loaded.
#include <algorithm>
#include <filesystem>

#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/ignore_keys.h"
#include "composer/checkpoint/name_format.h"
#include "composer/core/error.h"
#include "composer/formats/weights.h"
#include "composer/trainer/impl.h"

namespace composer {
namespace {

bool can_go_on(const saving::Manifest& manifest, const std::string& run_name) {
  return !manifest.weights_only && (run_name.empty() || manifest.run_name == run_name);
}

// The newest that is older than `found`.
std::optional<saving::Found> one_before(const saving::Found& found, const std::string& folder) {
  std::optional<saving::Found> before;
  for (saving::Found& other : saving::list_checkpoints(folder)) {
    if (other.path == found.path) break;
    if (can_go_on(other.manifest, found.manifest.run_name) && other.manifest.run_id == found.manifest.run_id)
      before = std::move(other);
  }
  return before;
}

struct Loaded {
  StateDict state;
  std::string path;
  bool weights_only = false;
};

// Of a checkpoint, or of a file of weights as Python and save_weights() write them.
Loaded read(const std::filesystem::path& path, bool weights_only) {
  if (!std::filesystem::is_regular_file(path)) {
    const saving::Found found = saving::open_checkpoint(path);
    return {saving::load(found), found.path.string(), weights_only || found.manifest.weights_only};
  }
  StateDict weights, all;
  for (auto& [name, tensor] : read_weights(path)) weights[name] = std::move(tensor);  // damage is told first
  if (!weights_only)
    throw ConfigError("load_path: ", path.string(), " is a file, and may have weights alone; set load_weights_only, ",
                      "or name the folder of a checkpoint");
  all["model"] = std::move(weights);
  return {std::move(all), path.string(), true};
}

}  // namespace

std::optional<saving::Found> checkpoint_to_resume(const TrainerOptions& options) {
  if (options.save_folder.empty() || !options.autoresume || options.save_weights_only) return std::nullopt;
  const std::string folder = saving::format_name(options.save_folder, options.run_name);
  return saving::find_latest(folder, saving::format_name(options.save_latest_filename, options.run_name),
                             [&](const saving::Manifest& manifest) { return can_go_on(manifest, options.run_name); });
}

// Nothing is written yet.
void Trainer::Impl::open_checkpoints() {
  if (options.save_folder.empty()) return;
  saver = std::make_unique<saving::RunSaver>(
      saving::RunSaverOptions{.folder = options.save_folder,
                              .filename = options.save_filename,
                              .latest_filename = options.save_latest_filename,
                              .save_interval = options.save_interval,
                              .overwrite = options.save_overwrite,
                              .weights_only = options.save_weights_only,
                              .num_checkpoints_to_keep = options.save_num_checkpoints_to_keep,
                              .best = options.save_best,
                              .on_failure = options.save_on_failure,
                              .async = options.save_async,
                              .ignore_keys = options.save_ignore_keys},
      state, resumed ? &resumed->manifest : nullptr);
}

// A damaged checkpoint of our own is not the end of the run, there are those before it.
StateDict Trainer::Impl::read_resumed() {
  for (;;) try {
      return saving::load(*resumed);
    } catch (const CheckpointError& damaged) {
      const std::string folder = saving::format_name(options.save_folder, state.run_name);
      std::optional<saving::Found> before = one_before(*resumed, folder);
      if (!before) throw;
      warn(join("checkpoint: ", describe(damaged), "; going back to ", before->path.string()));
      resumed = std::move(before);
    }
}

void Trainer::Impl::load_checkpoint() {
  if (resumed) {
    const StateDict saved = read_resumed();
    load_weights(saved, resumed->path.string(), /*strict=*/options.load_strict_model_weights);
    load_run_state(saved);
    loaded_from = resumed->path.string();
  } else if (!options.load_path.empty()) {
    load({.path = options.load_path,
          .weights_only = options.load_weights_only,
          .strict_model_weights = options.load_strict_model_weights,
          .ignore_keys = options.load_ignore_keys});
  }
}

void Trainer::Impl::load(const LoadOptions& from) {
  auto [saved, path, weights_only] = read(saving::format_name(from.path, state.run_name), from.weights_only);
  saving::ignore_keys(saved, from.ignore_keys);
  load_weights(saved, path, from.strict_model_weights && from.ignore_keys.empty());
  if (!weights_only) load_run_state(saved);
  loaded_from = path;
}

void Trainer::Impl::save_if_due(Event event) {
  if (saver) saver->save_if_due(event, state);
}

std::string Trainer::save_checkpoint(const std::string& name) {
  if (!impl_->saver) throw ConfigError("save_checkpoint: there is no save_folder to write it to");
  return impl_->located([&] { return impl_->saver->save_by_hand(name, impl_->state); });
}

std::vector<std::string> Trainer::saved_checkpoints() const {
  return impl_->saver ? impl_->saver->paths() : std::vector<std::string>();
}

const std::string& Trainer::resumed_from() const { return impl_->loaded_from; }

}  // namespace composer
