#include "composer/formats/weights.h"

#include <algorithm>
#include <memory>
#include <set>

#include <ATen/core/grad_mode.h>

#include "composer/core/model_access.h"
#include "composer/formats/byte_source.h"
#include "composer/formats/json_reader.h"
#include "composer/formats/pt_file.h"
#include "composer/formats/safetensors.h"

namespace composer {
namespace {

using formats::NamedTensors;

// Where checkpoints of whole runs keep the weights.
void take_models_part(NamedTensors& tensors) {
  for (const std::string prefix : {"state.model.", "state_dict.", "model_state_dict."}) {
    const auto has = [&](const auto& tensor) { return tensor.first.starts_with(prefix); };
    if (std::none_of(tensors.begin(), tensors.end(), has)) continue;
    std::erase_if(tensors, [&](const auto& tensor) { return !has(tensor); });
    for (auto& [name, tensor] : tensors) name.erase(0, prefix.size());
    return;
  }
}

std::string description(const at::Tensor& tensor) {
  return join(c10::toString(tensor.scalar_type()), " ", tensor.sizes());
}

void add_lines(std::string& text, const char* what, const std::vector<std::string>& names) {
  for (const std::string& name : names) text += "\n  " + std::string(what) + " " + formats::shown(name);
}

// If the names differ by what stands before them, how to say so.
std::string hint(const WeightsReport& report) {
  constexpr std::size_t kTried = 4;
  const auto& unexpected = report.unexpected;
  for (std::size_t i = 0; i < std::min(kTried, unexpected.size()); ++i)
    for (const std::string& want : report.missing) {
      const std::string& have = unexpected[i];
      if (want.ends_with("." + have))
        return R"(. Did you mean .rename = {{"", ")" + want.substr(0, want.size() - have.size()) + R"("}}?)";
      if (have.ends_with("." + want))
        return R"(. Did you mean .rename = {{")" + have.substr(0, have.size() - want.size()) + R"(", ""}}?)";
    }
  return "";
}

using Pairs = std::vector<std::pair<at::Tensor, at::Tensor>>;  // of the module, of the file

WeightsReport match(const NamedTensors& wanted, const NamedTensors& given, const LoadWeightsOptions& options,
                    Pairs& pairs) {
  std::map<std::string, at::Tensor> file;
  const auto rename = renamer(options.rename);
  for (const auto& [name, tensor] : given)
    if (const std::string to = rename(name); !file.emplace(to, tensor).second)
      throw ConfigError("rename: two tensors of the file get the name ", formats::shown(to));
  WeightsReport report;
  std::set<const void*> loaded;
  NamedTensors absent;
  for (const auto& [name, tensor] : wanted) {
    const auto found = file.find(name);
    if (found == file.end()) {
      absent.emplace_back(name, tensor);
      continue;
    }
    const at::Tensor& from = found->second;
    if (from.sizes() != tensor.sizes() || (from.scalar_type() != tensor.scalar_type() && !options.convert))
      report.mismatched.push_back(name + ": " + description(tensor) + " in the model, " + description(from) +
                                  " in the file");
    report.loaded.push_back(name);
    loaded.insert(tensor.unsafeGetTensorImpl());
    pairs.emplace_back(tensor, from);
    file.erase(found);
  }
  for (const auto& [name, tensor] : absent)  // unless it is there under another name
    if (loaded.count(tensor.unsafeGetTensorImpl()) == 0) report.missing.push_back(name);
  for (const auto& [name, tensor] : file) report.unexpected.push_back(name);
  return report;
}

}  // namespace

WeightsError::~WeightsError() = default;

std::string WeightsReport::text() const {
  std::string text;
  add_lines(text, "missing", missing);
  add_lines(text, "unexpected", unexpected);
  add_lines(text, "mismatched", mismatched);
  return text;
}

NamedTensors state_dict(const torch::nn::Module& module) { return named_tensors(module); }

NamedTensors read_weights(const std::filesystem::path& path, bool allow_unknown) {
  auto file = formats::open_file(path);
  if (!formats::is_pt_file(*file)) return formats::SafetensorsFile(std::move(file)).read_all();
  NamedTensors tensors = formats::PtFile(std::move(file), {.allow_unknown = allow_unknown}).read_all();
  take_models_part(tensors);
  return tensors;
}

WeightsReport load_weights(torch::nn::Module& module, const std::filesystem::path& path,
                           const LoadWeightsOptions& options) {
  return load_weights(module, read_weights(path, options.allow_unknown), path.string(), options);
}

WeightsReport load_weights(torch::nn::Module& module, const NamedTensors& tensors, const std::string& from,
                           const LoadWeightsOptions& options) {
  Pairs pairs;
  WeightsReport report = match(state_dict(module), tensors, options, pairs);
  const bool wrong = options.strict && (!report.missing.empty() || !report.unexpected.empty());
  if (wrong || !report.mismatched.empty()) {
    const std::string what = from + " does not fit the model" + hint(report) + report.text();
    report.loaded.clear();
    throw WeightsError(what, std::move(report));
  }
  const at::NoGradGuard no_grad;
  for (auto& [own, given] : pairs) own.copy_(given);
  return report;
}

void save_weights(const torch::nn::Module& module, const std::filesystem::path& path,
                  const SaveWeightsOptions& options) {
  NamedTensors tensors = state_dict(module);
  const auto rename = renamer(options.rename);
  for (auto& [name, tensor] : tensors) name = rename(name);
  const std::string extension = path.extension().string();
  if (extension == ".safetensors") {
    formats::Metadata metadata = options.metadata;
    metadata.emplace("format", "pt");  // transformers wants to know which framework's names they are
    formats::save_safetensors(path, tensors, metadata);
  } else if (extension == ".pt" || extension == ".pth") {
    formats::save_pt(path, tensors);
  } else {
    throw ConfigError("save_weights: ", path.string(), " must end with .safetensors, .pt or .pth");
  }
}

}  // namespace composer
