#include <algorithm>
#include <filesystem>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include <c10/util/Type.h>
#include <torch/version.h>

#include "composer/checkpoint/file_system.h"
#include "composer/checkpoint/state_file.h"
#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/formats/weights.h"
#include "composer/models/classifier.h"
#include "composer/models/registry.h"
#include "composer/predict/predictor.h"
#include "composer/predict/predictor_file.h"
#include "composer/predict/random_aside.h"
#include "composer/predict/recording.h"
#include "composer/surgery/layer.h"
#include "composer/util/new_file.h"
#include "composer/util/random_text.h"

namespace composer {
namespace {

namespace fs = std::filesystem;
using predict::PredictorFile;

// Classes of the modules, then types and shapes of the tensors: all that two models of the same options have in common.
std::vector<std::pair<std::string, std::string>> outline_of(const torch::nn::Module& model) {
  std::vector<std::pair<std::string, std::string>> outline;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    const torch::nn::Module& module = bare(*item.value());
    outline.emplace_back(item.key(), c10::demangle(typeid(module).name()));
  }
  for (const auto& [name, tensor] : named_tensors(model))
    outline.emplace_back(name, join(tensor.scalar_type(), ' ', tensor.sizes()));
  return outline;
}

void check_made_by_name(const Model& model, const std::string& name) {
  const predict::RandomAside random;  // the program goes on as if no model had been made
  const auto found = outline_of(as_module(model)), made = outline_of(*models::make(name, local_hparams_of(model)));
  for (std::size_t i = 0; i < std::max(found.size(), made.size()); ++i) {
    if (i < found.size() && i < made.size() && found[i] == made[i]) continue;
    const std::string is = i < found.size() ? found[i].first + " is " + found[i].second : "the model ends";
    const std::string was = i < made.size() ? made[i].first + " is " + made[i].second : "it ends";
    throw ConfigError("save_predictor: the model is no longer what ", name,
                      " makes of its options, because something has "
                      "replaced a part of it: ",
                      is, ", and in a new one ", was,
                      ". Set .by_name = false, and give Predictor::load() a function that makes such a model");
  }
}

// The folder of a predictor is replaced as a whole, so nothing else may be in it.
void check_only_a_predictor(const fs::path& folder) {
  for (const auto& item : saving::real_files().list(folder))
    if (item.name != predict::kPredictorFile && item.name != predict::kPredictorWeights &&
        item.name != predict::kPredictorPreprocessing)
      throw ConfigError("save_predictor: ", folder.string(), " is a predictor with \"", item.name,
                        "\" in it, which would be lost: move that away, or give the predictor another name");
}

fs::path free_place(const fs::path& folder) {
  saving::FileSystem& files = saving::real_files();
  fs::path target = fs::absolute(folder).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  if (files.type(target) == saving::FileSystem::Type::LINK) target = files.canonical(target);
  const auto type = files.type(target);
  const bool is_free = type == saving::FileSystem::Type::NONE ||
                       (type == saving::FileSystem::Type::FOLDER &&
                        (files.list(target).empty() || fs::exists(target / predict::kPredictorFile)));
  if (!is_free)
    throw ConfigError("save_predictor: ", target.string(),
                      " exists and is no predictor: give it another name, or remove it");
  if (type == saving::FileSystem::Type::FOLDER) check_only_a_predictor(target);
  return target;
}

// Renames the folder to its name, in place of the predictor that has it.
void put_in_place(saving::TemporaryPath& made, const fs::path& target) {
  saving::FileSystem& files = saving::real_files();
  if (!files.rename_if_free(made.path(), target)) {
    if (files.exchange(made.path(), target)) return;  // the old one goes with the temporary name
    files.remove(target);
    files.rename(made.path(), target);
  }
  made.release();
}

template <class Write>
saving::Manifest::File write_part(const fs::path& folder, const char* name, const Write& write) {
  util::NewFile file(folder / name);
  std::uint64_t size = 0;
  std::string checksum = write([&](std::uint64_t offset, const void* data, std::size_t length) {
    file.write_at(offset, data, length);
    size = std::max(size, offset + length);
  });
  file.commit();
  return {name, size, std::move(checksum)};
}

std::vector<PredictorInput> inputs_of(const Batch& example) {
  std::vector<PredictorInput> inputs;
  for (const auto& [name, tensor] : example) {
    if (tensor.dim() == 0)
      throw ConfigError("save_predictor: example: \"", name,
                        "\" must have one row for each sample, and is a single number");
    inputs.push_back({name, c10::toString(tensor.scalar_type()), tensor.sizes().slice(1).vec()});
  }
  return inputs;
}

}  // namespace

void save_predictor(const fs::path& folder, Model& model, SavePredictorOptions options) {
  auto& [preprocessing, classes, metadata, example, by_name] = options;
  PredictorFile file;
  file.id = util::random_text(32);
  const auto* ready = dynamic_cast<const models::Classifier*>(&model);
  if (ready && by_name) file.info.model = ready->ready_name();
  file.model_class = class_name_of(model);
  file.info.options = local_hparams_of(model);
  if (preprocessing) file.info.preprocessing = preprocessing->name();
  file.info.inputs = inputs_of(example);
  if (classes.empty() && preprocessing) classes = preprocessing->class_names();
  file.info.classes = std::move(classes);
  file.info.metadata = std::move(metadata);
  file.info.composer_version = COMPOSER_VERSION;
  file.info.libtorch_version = TORCH_VERSION;
  static_cast<void>(file.to_json());  // throws for text that is not UTF-8
  if (!file.info.model.empty()) check_made_by_name(model, file.info.model);
  const fs::path target = free_place(folder);
  if (!example.empty()) {
    const EvaluationMode evaluating(as_module(model));
    const std::shared_ptr<Model> not_owned(&model, [](Model*) {});
    const std::vector<at::Tensor> tensors = parameters(as_module(model));
    const at::Device device = tensors.empty() ? at::Device(at::kCPU) : tensors.front().device();
    Predictor(not_owned, {.preprocessing = preprocessing, .device = device}).predict(example);
  }

  StateDict weights, fitted;
  for (auto& [name, tensor] : state_dict(as_module(model))) weights[name] = tensor;
  if (preprocessing) {
    StateVisitor visit = StateVisitor::saving(fitted);
    preprocessing->visit_state(visit);
  }
  try {
    fs::create_directories(target.parent_path());
    saving::FileSystem& files = saving::real_files();
    saving::TemporaryPath made(files, target.parent_path() / join(".tmp-", target.filename().string(), '-', file.id));
    files.make_folder(made.path());
    file.files.push_back(write_part(made.path(), predict::kPredictorWeights, [&](const formats::PlacedSink& sink) {
      return saving::write_weights(weights, file.id, sink);
    }));
    if (preprocessing)
      file.files.push_back(
          write_part(made.path(), predict::kPredictorPreprocessing,
                     [&](const formats::PlacedSink& sink) { return saving::write_state(fitted, file.id, sink); }));
    util::write_whole_file(made.path() / predict::kPredictorFile, file.to_json());
    files.sync_folder(made.path());
    put_in_place(made, target);
    files.sync_folder(target.parent_path());
  } catch (const fs::filesystem_error& error) {
    throw CheckpointError("save_predictor: ", target.string(), ": ", error.code().message());
  }
}

}  // namespace composer
