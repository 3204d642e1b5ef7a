#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/tensors.h"

namespace composer {

class Model;
class Predictor;

struct ExportOptions {
  std::vector<std::string> inputs = {};  // tensors that the program takes, in this order; empty: all that are used
  // Further dimensions of any size: {{"input_ids", {1}}} for the length of a text; at least 3 in the example.
  std::map<std::string, std::vector<std::int64_t>> dynamic = {};
};

// What a written program takes and returns, in this order.
struct Exported {
  std::vector<std::string> inputs, outputs;
  bool any_batch_size = false;  // false: as many samples as in the example (two, if that has one), with a warning
};

// Writes the model as a TorchScript program, which torch::jit::load() and Python's torch.jit.load() read, in evaluation
// mode and on the CPU. Its weights have the model's names. It takes what the model takes: a Predictor's preprocessing
// is applied to the example, and is no part of the program. Runs the model with the example, and records the operators:
// decisions of C++ code are fixed as they were taken. Throws ConfigError for an example or options that do not fit,
// Error for what cannot be recorded.
COMPOSER_EXPORT Exported export_torchscript(Model& model, const Batch& example, const std::filesystem::path& path,
                                            ExportOptions options = {});
COMPOSER_EXPORT Exported export_torchscript(const Predictor& predictor, const Batch& example,
                                            const std::filesystem::path& path, ExportOptions options = {});

// The same as an ONNX model (opset 17), for onnxruntime and others. Throws ConfigError for an operator that has no
// translation, with the layer after which it runs, and for a model of 2 GiB or more.
COMPOSER_EXPORT Exported export_onnx(Model& model, const Batch& example, const std::filesystem::path& path,
                                     ExportOptions options = {});
COMPOSER_EXPORT Exported export_onnx(const Predictor& predictor, const Batch& example,
                                     const std::filesystem::path& path, ExportOptions options = {});

}  // namespace composer
