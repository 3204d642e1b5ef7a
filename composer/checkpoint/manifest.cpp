#include "composer/checkpoint/manifest.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "composer/core/error.h"
#include "composer/formats/json_reader.h"
#include "composer/util/checksum.h"
#include "composer/util/counts.h"
#include "composer/util/json.h"
#include "composer/util/utf8.h"

namespace composer::saving {
namespace {

using Json = nlohmann::ordered_json;
using Unordered = nlohmann::json;  // for reading: the ordered type searches all previous names for each name

constexpr const char* kFormat = "composer checkpoint";

std::string checksum_of(const std::string& text) {
  util::Checksum sum;
  sum.update(text.data(), text.size());
  return sum.text();
}

// JSON has no infinities and no NaN.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}
double number(const Unordered& json) {
  if (json.is_number()) return json.get<double>();
  const auto text = json.get<std::string>();
  if (text == "nan") return std::nan("");
  if (text != "inf" && text != "-inf") throw Error(text, " is not a number");
  return text == "inf" ? HUGE_VAL : -HUGE_VAL;
}

Json without_checksum(const Manifest& m) {
  Json time, metrics = Json::object(), files = Json::array();
  for (const util::Count& count : util::kCounts) time[count.name] = m.time.*count.field;
  time["seconds"] = number(m.time.total_wct.count());
  auto& values = metrics.get_ref<Json::object_t&>();  // avoids a search of all previous names for each name
  for (const auto& [name, value] : m.metrics) values.emplace_back(name, number(value));
  for (const auto& [name, size, checksum] : m.files)
    files.push_back({{"name", name}, {"size", size}, {"checksum", checksum}});
  Json json = {{"format", kFormat},      {"version", m.version}, {"id", m.id},        {"name", m.name},
               {"run_name", m.run_name}, {"run_id", m.run_id},   {"parent", m.parent}};
  if (m.version >= Manifest::kFirstWithNumber) json["number"] = m.number;
  if (m.version >= Manifest::kFirstWithNumber && m.fit) json["fit"] = *m.fit;
  json["weights_only"] = m.weights_only;
  if (m.by_hand) json["by_hand"] = true;
  json["time"] = time;
  json["metrics"] = metrics;
  json["composer_version"] = m.composer_version;
  json["libtorch_version"] = m.libtorch_version;
  json["files"] = files;
  if (!m.program.empty()) json["program"] = m.program;
  return json;
}

// For any version: a flipped bit in the version must not look like a newer version. The checksum is the last line.
bool fits_checksum(std::string_view text) {
  constexpr std::string_view kLast = ",\n \"checksum\": \"", kEnd = "\n}";
  const std::size_t end = text.rfind(kLast);
  if (end == std::string_view::npos) return false;
  const std::string rest = std::string(text.substr(0, end)) + std::string(kEnd);
  return text.substr(end) == join(kLast, checksum_of(rest), "\"", kEnd, "\n");
}

Manifest from_json(const Unordered& json) {
  Manifest m;
  m.version = json.at("version").get<int>();
  m.id = json.at("id").get<std::string>();
  m.name = json.at("name").get<std::string>();
  m.run_name = json.at("run_name").get<std::string>();
  m.run_id = json.at("run_id").get<std::string>();
  m.parent = json.at("parent").get<std::string>();
  if (m.version >= Manifest::kFirstWithNumber) m.number = json.at("number").get<std::int64_t>();
  if (json.contains("fit")) m.fit = json.at("fit").get<std::int64_t>();
  m.program = json.value("program", "");
  m.weights_only = json.at("weights_only").get<bool>();
  m.by_hand = json.value("by_hand", false);
  for (const util::Count& count : util::kCounts)
    m.time.*count.field = json.at("time").at(count.name).get<std::int64_t>();
  m.time.total_wct = Seconds(number(json.at("time").at("seconds")));
  for (const auto& [name, value] : json.at("metrics").items()) m.metrics[name] = number(value);
  m.composer_version = json.at("composer_version").get<std::string>();
  m.libtorch_version = json.at("libtorch_version").get<std::string>();
  for (const Unordered& file : json.at("files"))
    m.files.push_back({file.at("name").get<std::string>(), file.at("size").get<std::uint64_t>(),
                       file.at("checksum").get<std::string>()});
  return m;
}

std::string text_of(const Manifest& manifest) {
  Json json = without_checksum(manifest);
  try {
    json["checksum"] = checksum_of(json.dump(1));
  } catch (const nlohmann::json::exception&) {
    for (const auto& [what, text] :
         {std::pair("run_name", &manifest.run_name), std::pair("save_filename", &manifest.name)})
      for (std::size_t i = 0; i < text->size(); i += util::utf8_length(std::string_view(*text).substr(i)))
        if (util::utf8_length(std::string_view(*text).substr(i)) == 0)
          throw ConfigError(what, ": ", formats::shown(*text), " is not UTF-8: byte ", i,
                            ", and a checkpoint cannot hold it");
    throw ConfigError("checkpoint: the name of a metric is not UTF-8");
  }
  return json.dump(1) + "\n";
}

// Removes metrics, the last by name first, until the text is shorter by `bytes`. Only names are counted; the
// punctuation around them makes up for uncounted values.
void leave_out(std::map<std::string, double>& metrics, std::size_t bytes) {
  for (std::size_t gone = 0; gone < bytes && !metrics.empty();) {
    const auto last = std::prev(metrics.end());
    gone += last->first.size();
    metrics.erase(last);
  }
}

// Leaves out metrics, because a longer text could not be read.
std::string text_of_fewer_metrics(Manifest manifest, std::size_t size) {
  const std::size_t all = manifest.metrics.size();
  leave_out(manifest.metrics, size - util::kLongestJson);
  std::string text = text_of(manifest);
  if (text.size() > util::kLongestJson)
    throw ConfigError("checkpoint: its manifest would have ", text.size(), " bytes, and at most ", util::kLongestJson,
                      " can be read again; its run_name has ", manifest.run_name.size(), " bytes, and it has ",
                      manifest.files.size(), " files");
  warn(join("checkpoint: ", manifest.name, ": its manifest would have ", size, " bytes, and at most ",
            util::kLongestJson, " can be read again; ", all - manifest.metrics.size(), " of ", all,
            " metrics, the last by name, are left out of it; report fewer, or under shorter names"));
  return text;
}

}  // namespace

const Manifest::File* Manifest::find(std::string_view file) const {
  const auto it = std::ranges::find(files, file, &File::name);
  return it == files.end() ? nullptr : &*it;
}

NewerVersionError::~NewerVersionError() = default;

std::string Manifest::to_json() const {
  std::string text = text_of(*this);
  return text.size() > util::kLongestJson ? text_of_fewer_metrics(*this, text.size()) : text;
}

bool is_older(const Manifest& a, const Manifest& b) {
  return std::tuple(a.number, a.time.batch, a.time.epoch) < std::tuple(b.number, b.time.batch, b.time.epoch);
}

Manifest Manifest::parse(std::string_view text, const std::string& path) {
  try {
    const auto json = util::parse_json<Unordered>(text);
    if (json.at("format") != kFormat) throw Error("is not the manifest of a checkpoint");
    if (json.at("version") > kVersion && fits_checksum(text))
      throw NewerVersionError(path, ": has version ", json.at("version").dump(),
                              " of the format, and this libcomposer reads versions 1 to ", kVersion,
                              "; use a newer libcomposer");
    if (json.at("version") < 1) throw Error("has the unknown version ", json.at("version").dump(), " of the format");
    Manifest manifest = from_json(json);
    if (manifest.to_json() != text) throw Error("is damaged: its text does not match its checksum");
    return manifest;
  } catch (const NewerVersionError&) {
    throw;
  } catch (const std::exception& error) {
    throw CheckpointError(path, ": ", error.what());
  }
}

}  // namespace composer::saving
