#include "composer/formats/weights.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

#include <ATen/core/grad_mode.h>

#include "composer/core/model_access.h"
#include "composer/formats/byte_source.h"
#include "composer/formats/json_reader.h"
#include "composer/formats/pt_file.h"
#include "composer/formats/renaming.h"
#include "composer/formats/safetensors.h"
#include "composer/util/wildcard.h"

namespace composer {
namespace {

using formats::NamedTensors;

bool any_begins_with(const NamedTensors& tensors, const std::string& prefix) {
  return std::ranges::any_of(tensors, [&](const auto& tensor) { return tensor.first.starts_with(prefix); });
}

// Selects the weights in a checkpoint of a whole run. A model may have a submodule called "model", but hardly next to
// one called "optimizer".
void take_models_part(NamedTensors& tensors, bool has_optimizer) {
  for (const std::string prefix : {"state.model.", "state_dict.", "model_state_dict.", "model."}) {
    if (!any_begins_with(tensors, prefix)) continue;
    if (prefix == "model." && !has_optimizer) continue;
    std::erase_if(tensors, [&](const auto& tensor) { return !tensor.first.starts_with(prefix); });
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

// The tensors of a file, matched with those of a module.
struct Matched {
  WeightsReport report;
  std::vector<std::string> other_shapes;                 // names of tensors whose shapes differ
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs;  // tensors of the module and of the file
  std::vector<std::string> conflicting;  // parameters with several names that have different values in the file
};

// Whether the tensors have the same dtype and are bit-identical.
bool are_equal(const at::Tensor& one, const at::Tensor& other) {
  if (one.is_same(other)) return true;
  if (one.scalar_type() != other.scalar_type() || one.sizes() != other.sizes()) return false;
  if (one.is_alias_of(other) && one.storage_offset() == other.storage_offset() && one.strides() == other.strides())
    return true;
  const at::Tensor a = one.contiguous().cpu(), b = other.contiguous().cpu();
  return a.numel() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

// Returns "optimizer" for "optimizer.state.0".
std::string first_part(const std::string& name) { return name.substr(0, name.find('.')); }

// A wildcard for the submodule that has this tensor, with its other tensors.
std::string pattern_for(const std::string& name) {
  const auto dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(0, dot) + ".*";
}

// The option `ignore` with these patterns, if it is short enough to be helpful.
std::string ignore_option(const std::set<std::string>& patterns) {
  constexpr std::size_t kMost = 4;
  if (patterns.empty() || patterns.size() > kMost) return "";
  std::string text;
  for (const std::string& pattern : patterns) text += (text.empty() ? "\"" : ", \"") + formats::shown(pattern) + '"';
  return ".ignore = {" + text + "}";
}

// The length of the common end of both names, in whole parts. One part, such as "weight", is too little, unless it is a
// whole name.
std::size_t common_end(std::string_view one, std::string_view other) {
  std::size_t same = 0, whole = 0;
  const auto begins_part = [&](std::string_view name) {
    return same == name.size() || name[name.size() - same - 1] == '.';
  };
  while (same < std::min(one.size(), other.size()) && one[one.size() - same - 1] == other[other.size() - same - 1]) {
    ++same;
    if (begins_part(one) && begins_part(other)) whole = same;
  }
  const bool is_all = whole == one.size() || whole == other.size();
  return is_all || one.substr(one.size() - whole).find('.') != std::string_view::npos ? whole : 0;
}

// The rule that renames a name of the file to a missing name of the model with a common end.
std::optional<Rename> rule_for(const std::string& have, const std::vector<std::string>& missing) {
  std::optional<Rename> rule;
  std::size_t longest = 0;
  for (const std::string& want : missing) {
    const std::size_t same = common_end(have, want);
    if (same <= longest) continue;
    rule = Rename{have.substr(0, have.size() - same), want.substr(0, want.size() - same)};
    longest = same;
  }
  return rule;
}

// The most useful rule: the first tensor of each part of the file suggests a rule, and the one that matches most
// tensors is chosen.
std::optional<Rename> missing_rule(const WeightsReport& report) {
  constexpr int kTried = 8;
  const std::set<std::string> missing(report.missing.begin(), report.missing.end());
  std::optional<Rename> best;
  std::ptrdiff_t most = 0;
  std::set<std::string> parts;
  for (const std::string& have : report.unexpected) {
    if (parts.size() == kTried || !parts.insert(first_part(have)).second) continue;
    const auto rule = rule_for(have, report.missing);
    if (!rule) continue;
    const auto fits = std::ranges::count_if(report.unexpected, [&](const std::string& name) {
      return name.starts_with(rule->from) && missing.contains(rule->to + name.substr(rule->from.size()));
    });
    if (fits > most) best = rule, most = fits;
  }
  return best;
}

// Suggests options, based on the names or shapes that do not match.
std::string hint(const Matched& matched) {
  std::set<std::string> patterns;
  if (const auto rule = missing_rule(matched.report)) {
    for (const std::string& name : matched.report.unexpected)
      if (!name.starts_with(rule->from)) patterns.insert(first_part(name) + ".*");
    const std::string others = ignore_option(patterns);
    return R"(. Did you mean .rename = {{")" + rule->from + R"(", ")" + rule->to + R"("}})" +
           (others.empty() ? "" : ", " + others) + "?";
  }
  for (const std::string& name : matched.other_shapes) patterns.insert(pattern_for(name));
  const std::string option = ignore_option(patterns);
  const bool other_dtypes = matched.report.mismatched.size() > matched.other_shapes.size();
  return join(other_dtypes ? "; .convert = true converts what is of another dtype" : "",
              option.empty() ? "" : "; " + option + " keeps what the model has there, such as a new head");
}

Matched match(const NamedTensors& wanted, const NamedTensors& given, const LoadWeightsOptions& options,
              Renaming& rename) {
  std::map<std::string, at::Tensor> file;
  std::set<std::string> ignored;
  const auto is_ignored = [&](const std::string& name) {
    const auto fits = [&](const std::string& pattern) { return fits_wildcard(pattern, name); };
    if (std::ranges::none_of(options.ignore, fits)) return false;
    ignored.insert(name);
    return true;
  };
  for (const auto& [name, tensor] : given) {
    const std::string to = rename(name);
    if (!is_ignored(to) && !file.emplace(to, tensor).second)
      throw ConfigError("rename: two tensors of the file get the name ", formats::shown(to));
  }
  Matched result;
  auto& [report, other_shapes, pairs, conflicting] = result;
  std::map<const void*, std::pair<std::string, at::Tensor>> loaded;
  NamedTensors absent;
  for (const auto& [name, tensor] : wanted) {
    if (is_ignored(name)) continue;
    const auto found = file.find(name);
    if (found == file.end()) {
      absent.emplace_back(name, tensor);
      continue;
    }
    const at::Tensor& from = found->second;
    if (from.sizes() != tensor.sizes() || (from.scalar_type() != tensor.scalar_type() && !options.convert)) {
      report.mismatched.push_back(name + ": " + description(tensor) + " in the model, " + description(from) +
                                  " in the file");
      if (from.sizes() != tensor.sizes()) other_shapes.push_back(name);
    }
    report.loaded.push_back(name);
    const auto [first, is_first] = loaded.try_emplace(tensor.unsafeGetTensorImpl(), name, from);
    if (!is_first && !are_equal(first->second.second, from))
      conflicting.push_back(join(first->second.first, " and ", name));
    pairs.emplace_back(tensor, from);
    file.erase(found);
  }
  for (const auto& [name, tensor] : absent)  // unless the file has it under another name
    if (!loaded.contains(tensor.unsafeGetTensorImpl())) report.missing.push_back(name);
  for (const auto& [name, tensor] : file) report.unexpected.push_back(name);
  report.ignored.assign(ignored.begin(), ignored.end());
  return result;
}

void warn_of_idle_patterns(const std::vector<std::string>& patterns, const WeightsReport& report) {
  for (const std::string& pattern : patterns)
    if (std::ranges::none_of(report.ignored, [&](const std::string& name) { return fits_wildcard(pattern, name); }))
      warn(join("load_weights: ignore: ", pattern, " fits no tensor of the file or of the model"));
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
  if (!formats::is_pt_file(*file)) return formats::SafetensorsFile(std::move(file)).read_all(allow_unknown);
  const formats::PtFile pt(std::move(file), {.allow_unknown = allow_unknown});
  NamedTensors tensors = pt.read_all();
  take_models_part(tensors, pt.has_key("optimizer") || any_begins_with(tensors, "optimizer."));
  return tensors;
}

WeightsReport load_weights(torch::nn::Module& module, const std::filesystem::path& path,
                           const LoadWeightsOptions& options) {
  return load_weights(module, read_weights(path, options.allow_unknown), path.string(), options);
}

WeightsReport load_weights(torch::nn::Module& module, const NamedTensors& tensors, const std::string& from,
                           const LoadWeightsOptions& options) {
  Renaming rename(options.rename);
  Matched matched = match(state_dict(module), tensors, options, rename);
  auto& [report, other_shapes, pairs, conflicting] = matched;
  rename.warn_of_idle("load_weights: rename");
  const bool wrong = options.strict && (!report.missing.empty() || !report.unexpected.empty());
  const bool nothing_fits = report.loaded.empty() && !report.missing.empty();
  if (wrong || nothing_fits || !report.mismatched.empty()) {
    std::string what = from + " does not fit the model";
    if (nothing_fits && tensors.empty()) what += ": it has no tensors";
    if (nothing_fits && !tensors.empty())
      what += join(": none of its ", tensors.size(), " tensors has a name of the model's");
    what += hint(matched) + report.text();
    report.loaded.clear();
    throw WeightsError(what, std::move(report));
  }
  warn_of_idle_patterns(options.ignore, report);
  for (const std::string& names : conflicting)
    if (const std::string what =
            join(from, ": ", formats::shown(names), " are one parameter of the model, and the file ",
                 "has different values for them; .ignore = {\"NAME\"} leaves one of them out");
        options.strict)
      throw WeightsError(what, std::move(report));
    else
      warn(what);
  const at::NoGradGuard no_grad;
  for (auto& [own, given] : pairs) own.copy_(given);
  return report;
}

void save_weights(const torch::nn::Module& module, const std::filesystem::path& path,
                  const SaveWeightsOptions& options) {
  NamedTensors tensors = state_dict(module);
  Renaming rename(options.rename);
  for (auto& [name, tensor] : tensors) name = rename(name);
  rename.warn_of_idle("save_weights: rename");
  const std::string extension = path.extension().string();
  if (extension == ".safetensors") {
    formats::Metadata metadata = options.metadata;
    metadata.emplace("format", "pt");  // the transformers library requires this key; the names are those of PyTorch
    formats::save_safetensors(path, tensors, metadata);
  } else if (extension == ".pt" || extension == ".pth") {
    formats::save_pt(path, tensors);
  } else {
    throw ConfigError("save_weights: ", path.string(), " must end with .safetensors, .pt or .pth");
  }
}

}  // namespace composer
