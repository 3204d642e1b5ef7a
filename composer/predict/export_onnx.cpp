#include <algorithm>
#include <exception>
#include <filesystem>
#include <type_traits>
#include <utility>
#include <variant>

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

onnx::OnnxModel onnx_model_of(Model& model, const formats::TracedFunction& function, const Exported& names) {
  const auto program = formats::trace(as_module(model), function, formats::InPlace::REPLACED);
  return onnx::Conversion(program, names.inputs, names.outputs).run();
}

bool equal_attributes(const onnx::Attribute& a, const onnx::Attribute& b) {
  if (a.name != b.name || a.value.index() != b.value.index()) return false;
  if (const auto* tensor = std::get_if<at::Tensor>(&a.value)) return tensor->equal(std::get<at::Tensor>(b.value));
  return std::visit(
      [&]<class T>(const T& value) {
        if constexpr (std::is_same_v<T, at::Tensor>)
          return true;
        else
          return value == std::get<T>(b.value);
      },
      a.value);
}

// Whether two recordings with examples of other sizes are the same model: no size of an example is in it.
bool are_same(const onnx::OnnxModel& a, const onnx::OnnxModel& b) {
  return std::ranges::equal(a.operations, b.operations,
                            [](const onnx::Operation& one, const onnx::Operation& other) {
                              return one.name == other.name && one.inputs == other.inputs &&
                                     one.outputs == other.outputs &&
                                     std::ranges::equal(one.attributes, other.attributes, equal_attributes);
                            }) &&
         std::ranges::equal(a.weights, b.weights, [](const auto& one, const auto& other) {
           return one.first == other.first && one.second.scalar_type() == other.second.scalar_type() &&
                  (one.second.is_same(other.second) || one.second.equal(other.second));
         });
}

bool has_sizes_of_example(Model& model, const Recording& recording, const predict::DynamicSizes& dynamic,
                          const onnx::OnnxModel& made) {
  try {
    return !are_same(made, onnx_model_of(model, predict::resized(recording.function, dynamic), recording.exported));
  } catch (const std::exception&) {  // what can be translated depends on the sizes
    return true;
  }
}

void check_output_names(const Exported& exported) {
  for (const std::string& output : exported.outputs)
    if (std::ranges::find(exported.inputs, output) != exported.inputs.end())
      throw ConfigError("export_onnx: \"", output,
                        "\" is the name of an input and of an output of the model, and ONNX needs two; give the output "
                        "another name in forward()");
}

}  // namespace

Exported export_onnx(Model& model, const Batch& example, const std::filesystem::path& path, ExportOptions options) {
  const EvaluationMode evaluating(as_module(model));
  Recording recording = predict::record("export_onnx", model, example, options, formats::InPlace::REPLACED);
  check_output_names(recording.exported);
  predict::tell_of_sizes("export_onnx", recording, options.dynamic);
  onnx::OnnxModel made = onnx_model_of(model, recording.function, recording.exported);
  if (recording.other.works && has_sizes_of_example(model, recording, options.dynamic, made)) {
    recording.other.works = recording.exported.any_batch_size = false;
    predict::tell_of_sizes("export_onnx", recording, options.dynamic,
                           "operators of ONNX that it needs have sizes of it");
  }
  name_dimensions(made, recording, options.dynamic);
  util::write_whole_file(path, onnx::onnx_bytes(made));
  return std::move(recording.exported);
}

Exported export_onnx(const Predictor& predictor, const Batch& example, const std::filesystem::path& path,
                     ExportOptions options) {
  return export_onnx(predictor.model(), predictor.prepare(example), path, std::move(options));
}

}  // namespace composer
