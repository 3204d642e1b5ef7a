#pragma once
// predictor.json of a folder of save_predictor(). Internal.
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "composer/checkpoint/folder.h"
#include "composer/predict/predictor.h"

namespace composer::predict {

inline constexpr int kPredictorVersion = 1;
inline constexpr const char* kPredictorFile = "predictor.json";
inline constexpr const char* kPredictorWeights = "model.safetensors";
inline constexpr const char* kPredictorPreprocessing = "preprocessing.safetensors";

struct PredictorFile {
  PredictorInfo info;
  std::string model_class;  // for messages
  std::string id;           // repeated in the other files
  std::vector<saving::Manifest::File> files;

  std::string to_json() const;
  // Throws CheckpointError that begins with `path`; formats::UnsupportedError for a version above kPredictorVersion.
  static PredictorFile parse(std::string_view text, const std::string& path);
};

// Throws CheckpointError for a folder without such a file.
PredictorFile read_predictor_file(const std::filesystem::path& folder);
// As the functions of checkpoint/state_file.h take it.
saving::Found as_checkpoint(const std::filesystem::path& folder, const PredictorFile& file);

}  // namespace composer::predict
