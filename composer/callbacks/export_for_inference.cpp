#include "composer/callbacks/export_for_inference.h"

#include <filesystem>
#include <map>
#include <utility>

#include <ATen/core/Tensor.h>

#include "composer/callbacks/callback_files.h"
#include "composer/checkpoint/name_format.h"
#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/logger.h"
#include "composer/core/model_access.h"
#include "composer/core/run.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/formats/torch_script.h"
#include "composer/formats/weights.h"
#include "composer/predict/recording.h"
#include "composer/util/absolute_format.h"
#include "composer/util/new_file.h"
#include "composer/util/text.h"

namespace composer::callbacks {
namespace {

std::vector<std::string> names_of(const ExportForInferenceOptions& options, const Batch& sample) {
  if (!options.input_names.empty()) return options.input_names;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : sample) names.push_back(name);
  return names;
}

constexpr const char* kRecorder = "ExportForInferenceCallback";

std::string torch_script(Model& model, const std::vector<std::string>& names, const Batch& sample) {
  const predict::Recording recording = predict::record(kRecorder, model, sample, {.inputs = names});
  predict::tell_of_sizes(kRecorder, recording, {});
  util::OutText file;
  formats::write_torch_script(file, as_module(model), recording.function);
  return std::move(file).str();
}

// Throws if the model cannot be recorded, which is better known before it has been trained.
void try_recording(const State& state, const std::vector<std::string>& names, const Batch& sample) {
  if (!state.run) return;
  state.run->with_model(WeightsUse::EXPORT, state.seed,
                        [&](Model& model) { predict::record(kRecorder, model, sample, {.inputs = names}); });
}

}  // namespace

ExportForInferenceCallback::ExportForInferenceCallback(ExportForInferenceOptions options)
    : options_(std::move(options)), path_(options_.save_path) {
  const std::string& path = options_.save_path;
  if (path.empty()) throw ConfigError("ExportForInferenceCallback: save_path is required");
  check_file_names("ExportForInferenceCallback", {{"save_path", path}});
  if (options_.save_format == ExportFormat::SAFETENSORS && std::filesystem::path(path).extension() != ".safetensors")
    throw ConfigError("ExportForInferenceCallback: save_path must end in .safetensors, got \"", path, '"');
  if (!options_.sample_input.empty())
    for (const std::string& name : options_.input_names)
      if (!options_.sample_input.contains(name))
        throw ConfigError("ExportForInferenceCallback: input_names: the sample has no \"", name, '"');
}

void ExportForInferenceCallback::init(const State&, Logger&) {
  sample_ = options_.sample_input;
  path_ = util::absolute_format(options_.save_path);
}

// Reports now what would otherwise be an error at the end of training.
void ExportForInferenceCallback::fit_start(const State& state, Logger&) {
  if (state.rank != 0) return;
  if (options_.save_format == ExportFormat::TORCHSCRIPT) formats::check_locale_for_torch_script();
  util::NewFile tried(path_at(state));
  tried.write("");
  if (options_.save_format == ExportFormat::TORCHSCRIPT && !sample_.empty())
    try_recording(state, names_of(options_, sample_), sample_);
}

void ExportForInferenceCallback::after_dataloader(const State& state, Logger&) {
  if (options_.save_format != ExportFormat::TORCHSCRIPT || !sample_.empty() || state.rank != 0) return;
  for (const std::string& name : names_of(options_, state.batch)) {
    if (!state.batch.contains(name))
      throw ConfigError("ExportForInferenceCallback: input_names: the batch has no \"", name,
                        "\"; there are: ", listed(state.batch, [](const auto& item) { return item.first; }));
    sample_.set(name, state.batch.at(name).detach().clone());
  }
  sample_ = predict::few_samples(sample_);
  try_recording(state, names_of(options_, sample_), sample_);
}

// The sample is saved because a complete run has no batch when it is resumed.
void ExportForInferenceCallback::visit_state(StateVisitor& visit) {
  std::map<std::string, at::Tensor> sample;
  if (options_.sample_input.empty())
    for (const auto& [name, tensor] : sample_) sample.emplace(name, tensor);
  visit("sample", sample);
  if (!visit.is_loading() || !sample_.empty()) return;
  for (const auto& [name, tensor] : sample) sample_.set(name, tensor);
}

std::string ExportForInferenceCallback::path_at(const State& state) const {
  return saving::format_name(path_, state, &state.timestamp);
}

void ExportForInferenceCallback::fit_end(const State& state, Logger& logger) {
  if (state.rank != 0 || !state.run) return;
  const std::string path = path_at(state);
  const bool is_script = options_.save_format == ExportFormat::TORCHSCRIPT;
  if (is_script && sample_.empty()) {
    warn(
        "ExportForInferenceCallback: nothing is written, since this run had no batch to keep as a sample and there is "
        "no sample_input");
    return;
  }
  state.run->with_model(WeightsUse::EXPORT, state.seed, [&](Model& model) {
    if (!is_script) return save_weights(as_module(model), path);
    util::write_whole_file(path, torch_script(model, names_of(options_, sample_), sample_));
  });
  logger.upload_file(
      {.path = path, .name = "{run_name}/" + std::filesystem::path(path).filename().string(), .overwrite = true});
}

namespace {

std::vector<Option<ExportForInferenceOptions>> export_for_inference_options() {
  using O = ExportForInferenceOptions;
  return all_options(option("save_format", &O::save_format,
                            {{"torchscript", ExportFormat::TORCHSCRIPT}, {"safetensors", ExportFormat::SAFETENSORS}}),
                     option("save_path", &O::save_path).example("model.safetensors").refuses({"", "{run_name"}),
                     part("sample_input", &O::sample_input, "a batch"), part("input_names", &O::input_names, "names"));
}

}  // namespace

StateDict ExportForInferenceCallback::local_hparams() const {
  return describe(options_, export_for_inference_options());
}

namespace entries {

Entry<Callbacks> export_for_inference() {
  return entry<ExportForInferenceCallback>("export_for_inference", "Writes the model for inference when a fit ends",
                                           export_for_inference_options());
}

}  // namespace entries
}  // namespace composer::callbacks
