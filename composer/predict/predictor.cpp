#include "composer/predict/predictor.h"

#include <algorithm>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include "composer/checkpoint/file_system.h"
#include "composer/checkpoint/state_file.h"
#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/model_access.h"
#include "composer/core/option.h"
#include "composer/formats/weights.h"
#include "composer/predict/predictor_file.h"
#include "composer/predict/preprocessings.h"
#include "composer/predict/ready_model.h"
#include "composer/util/threads_here.h"

namespace composer {
namespace {

std::vector<Option<PredictorOptions>> predictor_options() {
  using O = PredictorOptions;
  return all_options(part("preprocessing", &O::preprocessing, "an object"), option("classes", &O::classes),
                     part("device", &O::device, "a device"), option("threads", &O::threads).at_least(0),
                     option("batch_size", &O::batch_size).at_least(0, "samples"));
}

// The number of threads of libtorch's operators that this thread calls; 0 leaves it.
class ThreadsOfCall {
 public:
  explicit ThreadsOfCall(std::int64_t threads) : before_(threads > 0 ? at::get_num_threads() : 0) {
    if (before_ == threads) before_ = 0;
    if (before_ > 0) use_threads_here(static_cast<int>(threads));
  }
  ~ThreadsOfCall() {
    if (before_ > 0) use_threads_here(before_);
  }
  ThreadsOfCall(const ThreadsOfCall&) = delete;
  ThreadsOfCall& operator=(const ThreadsOfCall&) = delete;

 private:
  int before_;  // 0: nothing is changed
};

std::int64_t samples_of(const Batch& batch) {
  if (batch.empty()) throw DataError("Predictor: the batch has no tensors");
  std::int64_t samples = -1;
  for (const auto& [name, tensor] : batch) {
    if (!tensor.defined() || tensor.dim() == 0)
      throw DataError("Predictor: \"", name,
                      "\" must have one row for each sample; for a single sample, call predict_one()");
    if (samples >= 0 && tensor.size(0) != samples)
      throw DataError("Predictor: \"", name, "\" has ", tensor.size(0), " rows, and \"", batch.begin()->first,
                      "\" has ", samples);
    samples = tensor.size(0);
  }
  return samples;
}

// Loads the state of what save_predictor() was given.
std::shared_ptr<data::Preprocessing> load_preprocessing(const saving::Found& folder, const std::string& name,
                                                        std::shared_ptr<data::Preprocessing> own) {
  const std::string path = (folder.path / predict::kPredictorFile).string();
  if (name.empty()) {
    if (own) throw CheckpointError(path, ": has no preprocessing, and .preprocessing is given to load it into");
    return nullptr;
  }
  if (own && own->name() != name)
    throw CheckpointError(path, ": the preprocessing is \"", name, "\", and .preprocessing is \"", own->name(), '"');
  if (!own) own = predict::make_preprocessing(name);
  if (!own)
    throw CheckpointError(path, ": the library has no preprocessing called \"", name,
                          "\"; there are: ", listed(predict::preprocessing_names()),
                          ". Pass an object of your class: Predictor::load(folder, {.preprocessing = ...})");
  const StateDict state = saving::read_state(folder, predict::kPredictorPreprocessing);
  StateVisitor visit = StateVisitor::loading(state, (folder.path / predict::kPredictorPreprocessing).string());
  own->visit_state(visit);
  return own;
}

void load_model(Model& model, const saving::Found& folder) {
  const std::string path = (folder.path / predict::kPredictorWeights).string();
  formats::NamedTensors tensors;
  const StateDict weights = saving::read_weights(folder, predict::kPredictorWeights);
  for (const auto& [name, tensor] : weights.entries()) tensors.emplace_back(name, std::get<at::Tensor>(tensor));
  try {
    load_weights(as_module(model), tensors, path);
  } catch (const WeightsError& error) {  // which has a line for each tensor
    const std::string all = error.report.text();
    const std::size_t begin = std::min(all.find_first_not_of(" \n"), all.size());
    const std::size_t end = std::min(all.find('\n', begin), all.size());
    const auto more = std::ranges::count(all.substr(end), '\n') - (all.ends_with('\n') ? 1 : 0);
    throw CheckpointError(path, ": does not fit the model: ", all.substr(begin, end - begin),
                          more > 0 ? join(", and ", more, " more") : "");
  }
}

// What is missing or cut is known before anything is made.
void check_files(const saving::Found& folder) {
  for (const auto& [name, size, checksum] : folder.manifest.files) {
    const std::filesystem::path path = folder.path / std::filesystem::path(name).filename();
    std::error_code error;
    const std::uintmax_t found = std::filesystem::file_size(path, error);
    if (error) throw CheckpointError(path.string(), ": ", error.message());
    if (found != size)
      throw CheckpointError(path.string(), ": has ", found, " bytes, and ", size, " when it was written");
  }
}

// Errors of files name the path, as others do.
template <class Read>
auto reading(const std::filesystem::path& path, const Read& read) {
  try {
    return read();
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string& which = error.path1().empty() ? path.string() : error.path1().string();
    throw CheckpointError(which, ": ", error.code().message());
  }
}

// Whether the tensor has the memory of one of these.
bool is_in(const Batch& batch, const at::Tensor& tensor) {
  return std::ranges::any_of(batch, [&](const auto& item) {
    return item.second.has_storage() && tensor.has_storage() && item.second.is_alias_of(tensor);
  });
}

void require_rows(const std::string& name, const at::Tensor& output, std::int64_t samples) {
  if (output.dim() > 0 && output.size(0) == samples) return;
  throw ConfigError("Predictor: batch_size: the output \"", name, "\" of ", samples, " samples is ", output.sizes(),
                    ", which is not one row for each, so parts cannot be put together; set batch_size = 0, and predict "
                    "all samples at once");
}

}  // namespace

struct Predictor::Impl {
  std::shared_ptr<Model> model;
  PredictorOptions options;
  std::vector<ModulePointer> modules;  // those below the model that were in evaluation mode when it was made
  bool evaluates = true;               // whether the model itself was; its train() may be its own

  void require_evaluation() const {
    if ((!evaluates || !is_training(as_module(*model))) &&
        std::ranges::none_of(modules, [](const ModulePointer& module) { return is_training(*module); }))
      return;
    throw ConfigError(
        "Predictor: the model is in training mode, which a fit or the program has set since the Predictor was made; "
        "call model->eval() before it predicts, and model->train() if it is trained further");
  }

  Batch prepare(const Batch& samples) const {
    return options.preprocessing ? options.preprocessing->apply(samples) : samples;
  }
  // The outputs for samples that are computed at once.
  Outputs compute(const Batch& samples, bool prepared) const {
    Batch batch = prepared ? samples : prepare(samples);
    for (auto& [name, tensor] : batch) {
      tensor = tensor.to(options.device);
      if (is_in(samples, tensor)) tensor = tensor.clone();  // forward() may write into its inputs
    }
    Outputs outputs = eval_forward_of(*model, batch, nullptr);
    for (auto& [name, tensor] : outputs) tensor = tensor.to(at::kCPU);
    return options.preprocessing ? options.preprocessing->undo(std::move(outputs)) : outputs;
  }
};

Predictor::Predictor(std::shared_ptr<Model> model, PredictorOptions options) {
  if (!model) throw ConfigError("Predictor: the model is null");
  options = checked("Predictor", std::move(options), predictor_options());
  set_training(as_module(*model), false);
  if (std::ranges::any_of(named_tensors(as_module(*model)),
                          [&](const auto& item) { return item.second.device() != options.device; }))
    move_to(as_module(*model), options.device);
  if (options.classes.empty() && options.preprocessing) options.classes = options.preprocessing->class_names();
  std::vector<ModulePointer> modules = modules_below(as_module(*model));
  std::erase_if(modules, [](const ModulePointer& module) { return !module || is_training(*module); });
  const bool evaluates = !is_training(as_module(*model));
  impl_ = std::make_shared<const Impl>(Impl{std::move(model), std::move(options), std::move(modules), evaluates});
}

Predictor Predictor::load(const std::filesystem::path& folder, PredictorOptions options) {
  return load(folder, nullptr, std::move(options));
}

Predictor Predictor::load(const std::filesystem::path& folder, const ModelFactory& factory, PredictorOptions options) {
  options = checked("Predictor", std::move(options), predictor_options());
  return reading(folder, [&] {
    const predict::PredictorFile file = predict::read_predictor_file(folder);
    const saving::Found found = predict::as_checkpoint(folder, file);
    check_files(found);
    const std::string path = (folder / predict::kPredictorFile).string();
    if (!factory && file.info.model.empty())
      throw CheckpointError(path, ": the model is of the class ", file.model_class,
                            ", which only your program can make: Predictor::load(folder, [](const StateDict&) { return "
                            "std::make_shared<...>(); })");
    std::shared_ptr<Model> model = factory ? factory(file.info.options) : predict::make_ready_model(file.info, path);
    if (!model) throw ConfigError("Predictor: the factory has returned null");
    load_model(*model, found);
    options.preprocessing = load_preprocessing(found, file.info.preprocessing, std::move(options.preprocessing));
    if (options.classes.empty()) options.classes = file.info.classes;
    return Predictor(std::move(model), std::move(options));
  });
}

Predictor Predictor::from_checkpoint(const std::filesystem::path& checkpoint, std::shared_ptr<Model> model,
                                     PredictorOptions options) {
  if (!model) throw ConfigError("Predictor: the model is null");
  return reading(checkpoint, [&] {
    load_model(*model, saving::open_checkpoint(checkpoint));
    return Predictor(std::move(model), std::move(options));
  });
}

Outputs Predictor::predict(const Batch& samples) const { return predict(samples, /*prepared=*/false); }
Outputs Predictor::predict_prepared(const Batch& samples) const { return predict(samples, /*prepared=*/true); }

Outputs Predictor::predict(const Batch& samples, bool prepared) const {
  impl_->require_evaluation();
  const ThreadsOfCall threads(impl_->options.threads);
  const at::NoGradGuard no_grad;
  const std::int64_t most = impl_->options.batch_size, count = samples_of(samples);
  if (most == 0 || count <= most) return impl_->compute(samples, prepared);
  std::vector<Outputs> parts;
  for (std::int64_t begin = 0; begin < count; begin += most) {
    Batch part;
    const std::int64_t rows = std::min(most, count - begin);
    for (const auto& [name, tensor] : samples) part.set(name, tensor.narrow(0, begin, rows));
    parts.push_back(impl_->compute(part, prepared));
    for (const auto& [name, tensor] : parts.back()) require_rows(name, tensor, rows);
  }
  Outputs all;
  for (const auto& [name, tensor] : parts.front()) {
    std::vector<at::Tensor> rows;
    rows.reserve(parts.size());
    for (const Outputs& part : parts) rows.push_back(part.at(name));
    all.set(name, at::cat(rows));
  }
  return all;
}

Outputs Predictor::predict_one(const Batch& sample) const {
  Batch batch;
  for (const auto& [name, tensor] : sample) batch.set(name, tensor.unsqueeze(0));
  Outputs outputs = predict(batch);
  for (auto& [name, tensor] : outputs) tensor = tensor.squeeze(0);
  return outputs;
}

std::vector<std::string> Predictor::labels(const Outputs& outputs) const {
  const std::vector<std::string>& classes = impl_->options.classes;
  if (classes.empty()) throw ConfigError("Predictor: labels: the classes have no names; set .classes");
  at::Tensor scores = outputs.only();
  if (scores.dim() == 1) scores = scores.unsqueeze(0);  // of predict_one()
  if (scores.dim() != 2 || scores.size(1) != static_cast<std::int64_t>(classes.size()))
    throw DataError("Predictor: labels: there are ", classes.size(), " names, and the outputs are ",
                    outputs.only().sizes());
  const at::Tensor best = scores.argmax(1).contiguous();
  std::vector<std::string> labels;
  for (std::int64_t row = 0; row < best.size(0); ++row)
    labels.push_back(classes[static_cast<std::size_t>(best.const_data_ptr<std::int64_t>()[row])]);
  return labels;
}

Batch Predictor::prepare(const Batch& samples) const {
  const at::NoGradGuard no_grad;
  return impl_->prepare(samples);
}

const data::Preprocessing* Predictor::any_preprocessing() const { return impl_->options.preprocessing.get(); }

void Predictor::throw_other_preprocessing() const {
  const data::Preprocessing* const own = any_preprocessing();
  throw ConfigError("Predictor: preprocessing<P>(): this predictor has ", own ? "\"" + own->name() + '"' : "none",
                    own ? ", which is not a P" : "");
}

Model& Predictor::model() const { return *impl_->model; }
const std::vector<std::string>& Predictor::classes() const { return impl_->options.classes; }

PredictorInfo predictor_info(const std::filesystem::path& folder) { return predict::read_predictor_file(folder).info; }

}  // namespace composer
