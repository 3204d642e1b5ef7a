#include <filesystem>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/formats/torch_trace.h"
#include "composer/predict/export.h"
#include "composer/predict/onnx_conversion.h"
#include "composer/predict/predictor.h"
#include "composer/predict/recording.h"
#include "composer/util/new_file.h"

namespace composer {
namespace {

using predict::Recording;

void name_dimension(onnx::GraphValue& value, std::size_t dimension) {
  value.shape.at(dimension).symbol = dimension == 0 ? "batch" : value.name + "_" + std::to_string(dimension);
}

// Gives names to the dimensions that may have other sizes: those of the inputs, and what depends on them.
void name_dimensions(onnx::OnnxModel& model, const Recording& recording, const predict::DynamicSizes& dynamic) {
  if (!recording.other.works) return;
  for (onnx::GraphValue& input : model.inputs) {
    name_dimension(input, 0);
    if (const auto more = dynamic.find(input.name); more != dynamic.end())
      for (const std::int64_t dimension : more->second) name_dimension(input, static_cast<std::size_t>(dimension));
  }
  for (std::size_t i = 0; i < model.outputs.size(); ++i) {
    onnx::GraphValue& output = model.outputs[i];
    const at::IntArrayRef other = recording.other.outputs.at(i).sizes();
    for (std::size_t dimension = 0; dimension < output.shape.size(); ++dimension)
      if (output.shape[dimension].size != other[dimension]) name_dimension(output, dimension);
  }
}

}  // namespace

Exported export_onnx(Model& model, const Batch& example, const std::filesystem::path& path, ExportOptions options) {
  const predict::Evaluating evaluating(model);
  Recording recording = predict::record("export_onnx", model, example, options);
  const auto program = formats::trace(as_module(model), recording.function, formats::InPlace::REPLACED);
  onnx::OnnxModel converted = onnx::Conversion(program, recording.exported.inputs, recording.exported.outputs).run();
  name_dimensions(converted, recording, options.dynamic);
  const std::string bytes = onnx::onnx_bytes(converted);
  util::NewFile file(path);
  file.write(bytes);
  file.commit();
  return std::move(recording.exported);
}

Exported export_onnx(const Predictor& predictor, const Batch& example, const std::filesystem::path& path,
                     ExportOptions options) {
  return export_onnx(predictor.model(), predictor.prepare(example), path, std::move(options));
}

}  // namespace composer
