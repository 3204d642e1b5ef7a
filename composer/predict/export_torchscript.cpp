#include <filesystem>
#include <utility>

#include "composer/core/model_access.h"
#include "composer/formats/torch_script.h"
#include "composer/predict/export.h"
#include "composer/predict/predictor.h"
#include "composer/predict/recording.h"
#include "composer/util/new_file.h"
#include "composer/util/text.h"

namespace composer {

Exported export_torchscript(Model& model, const Batch& example, const std::filesystem::path& path,
                            ExportOptions options) {
  formats::check_locale_for_torch_script();
  const EvaluationMode evaluating(as_module(model));
  predict::Recording recording = predict::record("export_torchscript", model, example, options);
  predict::tell_of_sizes("export_torchscript", recording, options.dynamic);
  util::OutText bytes;
  formats::write_torch_script(bytes, as_module(model), recording.function);
  util::write_whole_file(path, bytes.view());
  return std::move(recording.exported);
}

Exported export_torchscript(const Predictor& predictor, const Batch& example, const std::filesystem::path& path,
                            ExportOptions options) {
  return export_torchscript(predictor.model(), predictor.prepare(example), path, std::move(options));
}

}  // namespace composer
