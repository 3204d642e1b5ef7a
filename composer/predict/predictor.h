#pragma once
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "composer/core/export.h"
#include "composer/core/state_dict.h"
#include "composer/core/tensors.h"
#include "composer/data/preprocessing.h"

namespace composer {

class Model;

// One tensor of the batches that a saved predictor takes.
struct PredictorInput {
  std::string name;
  std::string dtype;                // libtorch's name of it: "Float", "Long"
  std::vector<std::int64_t> shape;  // of one sample
};

// What a folder of save_predictor() says of itself.
struct PredictorInfo {
  std::string model;  // the name of a ready model, by which models::make() makes it; empty: it is of another class
  StateDict options;  // Model::local_hparams()
  std::string preprocessing;           // its name(); empty: there is none
  std::vector<PredictorInput> inputs;  // as in SavePredictorOptions::example; empty if there was none
  std::vector<std::string> classes;
  std::map<std::string, std::string> metadata;
  std::string composer_version, libtorch_version;
};

struct SavePredictorOptions {
  std::shared_ptr<data::Preprocessing> preprocessing = {};  // saved with all that it has learned
  std::vector<std::string> classes = {};  // names, in the order of the outputs; empty: those the preprocessing learned
  std::map<std::string, std::string> metadata = {};  // texts such as an accuracy; read by predictor_info()
  // Raw samples. The folder notes the names, types and shapes of their tensors. They are predicted once, so what cannot
  // work is an error now.
  Batch example = {};
  // Saves a ready model by its name and options. False: for one with layers that an algorithm replaced; load() then
  // needs a factory.
  bool by_name = true;
};

// Writes a folder with all that Predictor::load() needs: model.safetensors, preprocessing.safetensors if there is any,
// and predictor.json. The folder appears whole or not at all, and replaces a predictor of this name. Throws
// ConfigError, before anything is written, for anything else of this name, for a predictor's folder with other files in
// it, for a model whose local_hparams() has NaN, infinities or tensors, and for what SavePredictorOptions says.
COMPOSER_EXPORT void save_predictor(const std::filesystem::path& folder, Model& model,
                                    SavePredictorOptions options = {});

// Reads predictor.json alone. Throws CheckpointError.
COMPOSER_EXPORT PredictorInfo predictor_info(const std::filesystem::path& folder);

struct PredictorOptions {
  // Applied to all samples. For load(): an object of your own class, whose state is then read.
  std::shared_ptr<data::Preprocessing> preprocessing = {};
  std::vector<std::string> classes = {};  // for labels(); empty: of the folder, or those the preprocessing learned
  at::Device device = at::kCPU;           // to which the model is moved
  std::int64_t threads = 0;     // of libtorch's operators in each call; 0: of the calling thread; 1: for many callers
  std::int64_t batch_size = 0;  // most samples that are computed at once; 0: all. Outputs need a row for each sample
};

// A trained model without a trainer, in evaluation mode and without gradients. Copies are the same predictor.
// Thread-safe, if the model's forward() is, as those of the ready models are.
class COMPOSER_EXPORT Predictor {
 public:
  // Makes a model that is no ready one; gets the PredictorInfo::options of the folder.
  using ModelFactory = std::function<std::shared_ptr<Model>(const StateDict& options)>;

  // Sets the model to evaluation mode, and moves it to the device. It must not be trained on while it predicts. If it
  // is trained later, call model->eval() before the next predict(), which throws ConfigError otherwise; and after
  // predicting in the middle of a fit, call model->train().
  explicit Predictor(std::shared_ptr<Model> model, PredictorOptions options = {});
  // Reads a folder of save_predictor(). Verifies every byte. Throws CheckpointError.
  static Predictor load(const std::filesystem::path& folder, PredictorOptions options = {});
  static Predictor load(const std::filesystem::path& folder, const ModelFactory& factory,
                        PredictorOptions options = {});
  // Takes the weights of a checkpoint of a run, such as "runs/mine/latest", into a model made as that of the run.
  static Predictor from_checkpoint(const std::filesystem::path& checkpoint, std::shared_ptr<Model> model,
                                   PredictorOptions options = {});

  // The outputs for raw samples [N, ...], on the host. Preprocessing::undo() has been applied. The samples stay as they
  // are, even if forward() writes into its inputs.
  Outputs predict(const Batch& samples) const;
  Outputs operator()(const Batch& samples) const { return predict(samples); }
  // For one sample: neither its tensors nor the outputs have the first dimension.
  Outputs predict_one(const Batch& sample) const;
  // The names of the classes with the greatest outputs, one for each row of the only tensor. Throws ConfigError if the
  // classes have no names.
  std::vector<std::string> labels(const Outputs& outputs) const;

  // What the model gets for these samples: for exports.
  Batch prepare(const Batch& samples) const;
  // As predict(), for samples that are prepared already: rows of a table or files of images, which are no tensors.
  //   const auto& features = predictor.preprocessing<data::TableFeatures>();
  //   predictor.predict_prepared(features.apply(data::Row{{"area", 120.0}, {"city", "Oslo"}}));
  Outputs predict_prepared(const Batch& samples) const;
  // Throws ConfigError if the preprocessing is of another class.
  template <std::derived_from<data::Preprocessing> P>
  const P& preprocessing() const {
    if (const auto* found = dynamic_cast<const P*>(any_preprocessing())) return *found;
    throw_other_preprocessing();
  }
  Model& model() const;
  const std::vector<std::string>& classes() const;

 private:
  struct Impl;
  Outputs predict(const Batch& samples, bool prepared) const;
  const data::Preprocessing* any_preprocessing() const;
  [[noreturn]] void throw_other_preprocessing() const;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace composer
