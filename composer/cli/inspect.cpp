// composer inspect PATH
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <ostream>
#include <string_view>
#include <utility>

#include <ATen/core/Tensor.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "composer/cli/contents.h"
#include "composer/cli/text.h"
#include "composer/core/error.h"
#include "composer/formats/unsupported.h"
#include "composer/net/remote_store.h"
#include "composer/remote/checkpoints.h"
#include "composer/util/json.h"
#include "composer/util/temporary.h"
#include "composer/util/text_table.h"

namespace composer::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using saving::Manifest;

struct InspectOptions {
  std::string path;
  bool tensors = false, stats = false, json = false, allow_unknown = false;
};

std::uint64_t bytes_of(const Manifest& manifest) {
  std::uint64_t all = 0;
  for (const Manifest::File& file : manifest.files) all += file.size;
  return all;
}

std::string time_text(const Timestamp& time) {
  std::string text = join("epoch ", time.epoch, ", batch ", util::grouped(time.batch), ", ");
  text += plural(time.sample, "sample");
  if (time.token > 0) text += ", " + plural(time.token, "token");
  return text;
}

// Adds metrics without searching for their names, which the ordered document would do for each.
Json json_of(const Manifest& manifest) {
  const auto all = util::parse_json<nlohmann::json>(manifest.to_json());
  Manifest rest = manifest;
  rest.metrics.clear();
  auto json = util::parse_json<Json>(rest.to_json());
  auto& metrics = json.at("metrics").get_ref<Json::object_t&>();
  for (const auto& [name, value] : all.at("metrics").items()) metrics.emplace_back(name, value);
  json["checksum"] = all.at("checksum");
  return json;
}

// Counts tensors, bytes and other values by the first part of their names (timestamps and similar values together).
struct Group {
  std::string name;
  std::int64_t tensors = 0, values = 0;
  std::uint64_t bytes = 0;
};

std::vector<Group> groups_of(const Contents& contents) {
  std::vector<Group> groups;
  const auto group = [&](const std::string& name) -> Group& {
    const std::string first = contents.checkpoint ? name.substr(0, name.find('/')) : "tensors";
    const auto it = std::ranges::find(groups, first, &Group::name);
    return it != groups.end() ? *it : groups.emplace_back(Group{first});
  };
  for (const Entry& tensor : contents.tensors) {
    Group& own = group(tensor.name);
    ++own.tensors;
    own.bytes += tensor.bytes;
  }
  if (!contents.checkpoint) return groups;
  for (const auto& [name, value] : contents.values) ++group(name).values;
  Group others{"others"};  // one row for each would be long
  std::erase_if(groups, [&](const Group& one) {
    if (one.tensors == 0 && one.name != "callbacks" && one.name != "algorithms" && one.name != "schedulers")
      others.values += one.values;
    else
      return false;
    return true;
  });
  if (others.values > 0) groups.push_back(others);
  return groups;
}

struct Stats {
  double min = 0, max = 0, mean = 0;
  std::int64_t nan = 0;
};

at::Tensor read_if_supported(const Entry& entry) {
  try {
    return entry.read();
  } catch (const formats::UnsupportedError&) {
    return {};
  }
}

// The statistics of numbers; complex ones are skipped. Converts a tensor to double in parts.
std::optional<Stats> stats_of(const Entry& entry) {
  constexpr std::int64_t kAtOnce = 1 << 20;
  const at::Tensor tensor = read_if_supported(entry);
  if (!tensor.defined() || tensor.is_complex() || tensor.numel() == 0) return std::nullopt;
  const at::Tensor all = tensor.flatten();
  Stats stats{.min = INFINITY, .max = -INFINITY};
  double sum = 0;
  for (const at::Tensor& part : all.split(kAtOnce)) {
    const at::Tensor values = part.to(at::kDouble), nan = values.isnan();
    const auto nans = nan.sum().item<std::int64_t>();
    stats.nan += nans;
    if (nans == values.numel()) continue;
    const at::Tensor numbers = nans == 0 ? values : values.masked_select(nan.logical_not());
    stats.min = std::min(stats.min, numbers.min().item<double>());
    stats.max = std::max(stats.max, numbers.max().item<double>());
    sum += numbers.sum().item<double>();
  }
  if (stats.nan == all.numel()) return Stats{NAN, NAN, NAN, stats.nan};
  stats.mean = sum / static_cast<double>(all.numel() - stats.nan);
  return stats;
}

void print_manifest(const Contents& contents, const Console& console) {
  const Manifest& manifest = contents.checkpoint->manifest;
  util::TextTable table("ll");
  table.row({"run", printable(manifest.run_name.empty() ? "(without a name)" : manifest.run_name)});
  table.row({"time", time_text(manifest.time)});
  table.row({"trained for", seconds_text(manifest.time.total_wct.count())});
  table.row({"parent", printable(manifest.parent.empty() ? "none" : manifest.parent)});
  if (manifest.fit) table.row({"fit", join(*manifest.fit)});
  if (manifest.by_hand) table.row({"saved", "by hand"});
  if (manifest.weights_only) table.row({"content", "weights only"});
  table.row({"written by", "libcomposer " + manifest.composer_version + ", libtorch " + manifest.libtorch_version});
  table.row({"size", bytes_text(bytes_of(manifest)) + " in " +
                         plural(static_cast<std::int64_t>(manifest.files.size()), "file")});
  console.out << table.text(2);
  if (manifest.metrics.empty()) return;
  console.out << '\n';
  util::TextTable metrics("lr");
  for (const auto& [name, value] : manifest.metrics) metrics.row({printable(name), number_text(value)});
  console.out << metrics.text(2);
}

void print_hyperparameters(const Contents& contents, const Console& console) {
  const auto all = hyperparameters_of(contents);
  if (all.empty()) return;
  console.out << "\n  hyperparameters\n";
  util::TextTable table("ll");
  for (const auto& [name, value] : all) table.row({printable(name), printable(plain_text(value))});
  console.out << table.text(4);
}

void print_groups(const Contents& contents, const Console& console) {
  util::TextTable table("lrrr");
  table.row({"", "tensors", "size", "values"});
  Group all{"all"};
  std::vector<Group> groups = groups_of(contents);
  for (const Group& group : groups) all.tensors += group.tensors, all.values += group.values, all.bytes += group.bytes;
  if (groups.size() != 1) groups.push_back(all);
  for (const auto& [name, tensors, values, bytes] : groups)
    table.row({printable(name), util::grouped(tensors), bytes_text(bytes), values > 0 ? util::grouped(values) : "-"});
  console.out << table.text(2);
}

// Prints names last, because they may be long.
void print_tensors(const Contents& contents, bool with_stats, const Console& console) {
  util::TextTable table(with_stats ? "llrrrrl" : "llrl");
  if (with_stats)
    table.row({"dtype", "shape", "min", "max", "mean", "nan", "name"});
  else
    table.row({"dtype", "shape", "size", "name"});
  for (const Entry& tensor : contents.tensors) {
    if (!with_stats) {
      table.row({tensor.dtype, shape_text(tensor.shape), bytes_text(tensor.bytes), printable(tensor.name)});
    } else if (const auto stats = stats_of(tensor)) {
      table.row({tensor.dtype, shape_text(tensor.shape), number_text(stats->min), number_text(stats->max),
                 number_text(stats->mean), util::grouped(stats->nan), printable(tensor.name)});
    } else {
      table.row({tensor.dtype, shape_text(tensor.shape), "-", "-", "-", "-", printable(tensor.name)});
    }
  }
  console.out << table.text(2);
}

Json number_or_text(double number) { return std::isfinite(number) ? Json(number) : Json(number_text(number)); }

Json json_of(const Contents& contents, const InspectOptions& options) {
  constexpr const char* kKinds[] = {"checkpoint", "save_folder", "safetensors", "pt"};
  Json json = {{"path", contents.path.string()},
               {"kind", kKinds[static_cast<std::size_t>(contents.kind)]},
               {"checksums", contents.checksums}};
  if (contents.checkpoint) json["manifest"] = json_of(contents.checkpoint->manifest);
  for (const auto& [name, value] : hyperparameters_of(contents)) {
    const Json parsed = util::parse_json_or_discard<Json>(value);
    json["hyperparameters"][name] = parsed.is_discarded() ? Json(value) : parsed;
  }
  for (const auto& [name, tensors, values, bytes] : groups_of(contents))
    json["groups"][name] = {{"tensors", tensors}, {"bytes", bytes}, {"values", values}};
  if (!options.tensors && !options.stats) return json;
  for (const Entry& tensor : contents.tensors) {
    Json one = {{"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"bytes", tensor.bytes}};
    if (options.stats)
      if (const auto stats = stats_of(tensor))
        one.update({{"min", number_or_text(stats->min)},
                    {"max", number_or_text(stats->max)},
                    {"mean", number_or_text(stats->mean)},
                    {"nan", stats->nan}});
    json["tensors"].push_back(std::move(one));
  }
  for (const auto& [name, value] : contents.values) json["values"][name] = value;
  return json;
}

void print(const Json& json, const Console& console) {
  console.out << json.dump(1, ' ', false, Json::error_handler_t::replace) << '\n';
}

using Listed = std::pair<std::string, Manifest>;  // a checkpoint's name and manifest

// Prints a line for each checkpoint, and the metrics of the last one.
void print_list(const std::vector<Listed>& all, const InspectOptions& options, const Console& console) {
  const std::string shown = net::shown_url(options.path);
  Json json = {{"path", shown}, {"kind", "save_folder"}, {"checkpoints", Json::array()}};
  util::TextTable table("lrrrl");
  table.row({"name", "epoch", "batch", "size", "parent"});
  for (const auto& [name, manifest] : all) {
    table.row({printable(name), util::grouped(manifest.time.epoch), util::grouped(manifest.time.batch),
               bytes_text(bytes_of(manifest)), printable(manifest.parent)});
    json["checkpoints"].push_back({{"name", name}, {"manifest", json_of(manifest)}});
  }
  if (options.json) return print(json, console);
  console.out << colored(console, Color::BOLD, printable(shown)) << '\n';
  console.out << table.text(2);
  if (all.empty() || all.back().second.metrics.empty()) return;
  console.out << "\n  metrics of the newest\n";
  util::TextTable metrics("lr");
  for (const auto& [name, value] : all.back().second.metrics) metrics.row({printable(name), number_text(value)});
  console.out << metrics.text(4);
}

// Lists the checkpoints of a folder. Returns kBad if one is damaged.
int list(const InspectOptions& options, const Console& console) {
  const fs::path folder = options.path;
  const std::vector<fs::path> paths = checkpoints_below(folder);
  if (paths.empty()) throw CheckpointError(options.path, ": has no checkpoints");
  std::vector<Listed> all;
  for (const auto& [path, manifest] : saving::list_checkpoints(folder))
    all.emplace_back(fs::relative(path, fs::canonical(folder)).string(), manifest);
  print_list(all, options, console);
  if (options.json) return all.size() == paths.size() ? kGood : kBad;
  for (const fs::path& path : paths) try {
      saving::open_checkpoint(path);
    } catch (const CheckpointError& error) {
      console.err << "composer: " << one_line(error) << '\n';
    }
  return all.size() == paths.size() ? kGood : kBad;
}

// Lists the checkpoints of a folder below a URI, whose manifests are read.
int list_remote(net::RemoteStore& store, const std::vector<std::string>& names, const InspectOptions& options,
                const Console& console) {
  std::vector<Listed> all;
  for (const std::string& name : names) try {
      all.emplace_back(name, read_manifest(store, name));
    } catch (const CheckpointError& error) {
      console.err << "composer: " << one_line(error) << '\n';
    }
  std::ranges::stable_sort(all, saving::is_older, &Listed::second);
  print_list(all, options, console);
  return all.size() == names.size() ? kGood : kBad;
}

std::vector<std::string> checkpoints_in(net::RemoteStore& store) {
  const std::string end = std::string("/") + Manifest::kFileName;
  std::vector<std::string> names;
  for (const net::RemoteFile& file : store.list())
    if (file.name.ends_with(end)) names.push_back(file.name.substr(0, file.name.size() - end.size()));
  return names;
}

int inspect_contents(const Contents& contents, const InspectOptions& options, const Console& console);

// Lists a folder of checkpoints; anything else is downloaded into a temporary folder.
int inspect_remote(const InspectOptions& options, const Console& console) {
  if (!options.path.starts_with("http")) {
    const auto store = net::open_store(options.path);
    if (const auto names = checkpoints_in(*store); !names.empty()) return list_remote(*store, names, options, console);
  }
  const util::Temporary folder(util::TemporaryKind::FOLDER, "composer-inspect-");
  Contents contents = open_contents(download_from(options.path, folder.path() / "files"), options.allow_unknown);
  contents.path = net::shown_url(options.path);
  return inspect_contents(contents, options, console);
}

int inspect(const InspectOptions& options, const Console& console) {
  if (net::is_uri(options.path)) return inspect_remote(options, console);
  if (kind_of(options.path) == Kind::SAVE_FOLDER) return list(options, console);
  Contents contents = open_contents(options.path, options.allow_unknown);
  if (contents.checkpoint && !options.json) contents.path = contents.checkpoint->path;  // the target of a link
  return inspect_contents(contents, options, console);
}

int inspect_contents(const Contents& contents, const InspectOptions& options, const Console& console) {
  if (options.json) {
    print(json_of(contents, options), console);
    return kGood;
  }
  console.out << colored(console, Color::BOLD, printable(contents.path.string())) << '\n';
  if (contents.checkpoint) {
    print_manifest(contents, console);
    print_hyperparameters(contents, console);
    console.out << '\n';
  } else if (contents.kind == Kind::SAFETENSORS) {
    console.out << (contents.checksums ? "  safetensors, with checksums\n\n" : "  safetensors, without checksums\n\n");
  } else {
    console.out << "  torch.save\n\n";
  }
  print_groups(contents, console);
  if (!options.tensors && !options.stats) return kGood;
  console.out << '\n';
  print_tensors(contents, options.stats, console);
  return kGood;
}

}  // namespace

Command add_inspect(CLI::App& app) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand("inspect", "shows the contents of a checkpoint or file of weights");
  command->add_option("path", options->path, "checkpoint, save folder, .safetensors or .pt, or the URI of one")
      ->required();
  command->add_flag("--tensors", options->tensors, "list every tensor");
  command->add_flag("--stats", options->stats, "list every tensor with min, max, mean and NaNs");
  command->add_flag("--json", options->json, "print JSON");
  command->add_flag("--allow-unknown", options->allow_unknown,
                    "skip what this version cannot read: objects of unknown classes, tensors of unknown dtypes");
  command->footer("Exit codes: 0; 1 a checkpoint of a save folder is damaged; 2 an error.");
  return {command, [options](const Console& console) { return inspect(*options, console); }};
}

}  // namespace composer::cli
