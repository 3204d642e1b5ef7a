// composer convert IN OUT
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <CLI/CLI.hpp>

#include "composer/cli/comparison.h"
#include "composer/cli/text.h"
#include "composer/core/error.h"
#include "composer/formats/pt_file.h"
#include "composer/formats/renaming.h"
#include "composer/formats/safetensors.h"

namespace composer::cli {
namespace {

namespace fs = std::filesystem;

struct ConvertOptions {
  std::string in, out, dtype;
  std::vector<std::string> rename, only;
  bool averages = false, force = false, allow_unknown = false;
};

const std::map<std::string, at::ScalarType> kDtypes = {
    {"bf16", at::kBFloat16}, {"f16", at::kHalf}, {"f32", at::kFloat}};

std::vector<Rename> rules_of(const ConvertOptions& options) {
  std::vector<Rename> rules;
  for (const std::string& text : options.rename) {
    const auto equals = text.find('=');
    if (equals == std::string::npos) throw ConfigError("--rename: expected FROM=TO, got ", text);
    const Rename& rule = rules.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    if (rule.from == rule.to) throw ConfigError("--rename: ", text, " changes no name; expected FROM=TO");
  }
  return rules;
}

std::int64_t infinities(const at::Tensor& tensor) { return tensor.isinf().sum().item<std::int64_t>(); }

// The weights that evaluations of the run use instead of its trained weights, by the names of the trained weights.
using Averages = std::map<std::string, const Entry*>;

Averages averages_in(const Contents& contents) {
  const auto& [by, at, tied] = contents.handed_out;
  std::map<std::string_view, const Entry*> all;
  for (const Entry& entry : contents.tensors)
    if (!at.empty() && entry.name.starts_with(at + '/'))
      all.emplace(std::string_view(entry.name).substr(at.size() + 1), &entry);
  Averages averages;
  for (const Entry& entry : contents.tensors) {
    if (!entry.name.starts_with(kModel)) continue;
    const std::string name = entry.name.substr(kModel.size());
    const auto other = tied.find(name);
    const auto average = all.find(other == tied.end() ? name : other->second);
    if (average != all.end()) averages.emplace(name, average->second);
  }
  return averages;
}

Averages averages_to_write(const Contents& contents, const ConvertOptions& options) {
  if (!options.averages) return {};
  if (contents.handed_out.by.empty()) throw ConfigError("--averages: ", options.in, " has no averages of weights");
  Averages averages = averages_in(contents);
  if (averages.empty())
    throw ConfigError("--averages: ", options.in, " does not have the averages of ", contents.handed_out.by,
                      " by the names of the weights; leave the option out to write the trained weights");
  return averages;
}

// Warns that metrics may have been measured on averages instead of the trained weights.
void tell_of_averages(const Contents& contents, const ConvertOptions& options, const Console& console) {
  const std::string by = printable(contents.handed_out.by);
  if (options.averages || by.empty()) return;
  console.err << "composer: " << printable(options.in) << ": the trained weights are written, and not the averages of "
              << by << ", which evaluations use"
              << (averages_in(contents).empty() ? "; the checkpoint does not have these\n"
                                                : ": --averages writes them\n");
}

// For a checkpoint, returns the weights.
formats::NamedTensors tensors_of(const Contents& contents, const ConvertOptions& options, const Console& console) {
  Renaming rename(rules_of(options));
  const Averages averages = averages_to_write(contents, options);
  formats::NamedTensors tensors;
  std::set<std::string> names;
  for (const Entry& entry : contents.tensors) {
    if (contents.checkpoint && !entry.name.starts_with(kModel)) continue;
    const std::string own = contents.checkpoint ? entry.name.substr(kModel.size()) : entry.name;
    if (!options.only.empty() && !fits_any(own, options.only)) continue;
    const std::string name = rename(own);
    if (!names.insert(name).second) throw ConfigError("--rename: two tensors get the name ", name);
    const auto average = averages.find(own);
    at::Tensor tensor = average == averages.end() ? entry.read() : average->second->read();
    if (!options.dtype.empty() && tensor.is_floating_point()) {
      const at::Tensor converted = tensor.to(kDtypes.at(options.dtype));
      if (infinities(converted) > infinities(tensor))
        console.err << "composer: " << printable(own) << ": some values are too large for " << options.dtype
                    << " and became infinite\n";
      tensor = converted;
    }
    tensors.emplace_back(name, tensor);
  }
  if (tensors.empty())
    throw ConfigError(options.in, ": has no tensors", options.only.empty() ? "" : " that match --only");
  for (const std::string& from : rename.idle())
    throw ConfigError("--rename: no name begins with ", from, ", so nothing is written");
  return tensors;
}

int convert(const ConvertOptions& options, const Console& console) {
  if (!options.dtype.empty() && !kDtypes.contains(options.dtype))
    throw ConfigError("--dtype: must be bf16, f16 or f32, got ", options.dtype);
  const std::string extension = fs::path(options.out).extension().string();
  const bool pt = extension == ".pt" || extension == ".pth";
  if (!pt && extension != ".safetensors")
    throw ConfigError(options.out, ": must end with .safetensors, .pt or .pth, which selects the format");
  if (!options.force && fs::exists(options.out))
    throw ConfigError(options.out, ": already exists; --force replaces it");
  const Contents contents = open_contents(options.in, options.allow_unknown);
  const formats::NamedTensors tensors = tensors_of(contents, options, console);
  if (pt)
    formats::save_pt(options.out, tensors);
  else
    formats::save_safetensors(options.out, tensors, {{"format", "pt"}});
  tell_of_averages(contents, options, console);
  console.out << printable(options.out) << ": " << plural(static_cast<std::int64_t>(tensors.size()), "tensor") << ", "
              << bytes_text(fs::file_size(options.out)) << '\n';
  return kGood;
}

}  // namespace

Command add_convert(CLI::App& app) {
  auto options = std::make_shared<ConvertOptions>();
  CLI::App* command = app.add_subcommand("convert", "writes weights in another format");
  command->add_option("in", options->in, "checkpoint, .safetensors or .pt")->required();
  command->add_option("out", options->out, ".safetensors, .pt or .pth")->required();
  command->add_option("--rename", options->rename, "replace the prefix FROM of names by TO")
      ->type_name("FROM=TO")
      ->allow_extra_args(false);
  command->add_option("--only", options->only, "only tensors whose names match")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  command->add_option("--dtype", options->dtype, "bf16, f16 or f32, of floats")->type_name("NAME");
  command->add_flag("--averages", options->averages, "the averages that an algorithm such as EMA has of the weights");
  command->add_flag("--force", options->force, "replace an existing file");
  command->add_flag("--allow-unknown", options->allow_unknown,
                    "skip what this version cannot read: objects of unknown classes, tensors of unknown dtypes");
  command->footer("Exit codes: 0; 2 an error, and then nothing was written.");
  return {command, [options](const Console& console) { return convert(*options, console); }};
}

}  // namespace composer::cli
