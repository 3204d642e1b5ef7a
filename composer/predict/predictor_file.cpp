#include "composer/predict/predictor_file.h"

#include <cmath>
#include <exception>
#include <utility>

#include <nlohmann/json.hpp>

#include "composer/checkpoint/file_system.h"
#include "composer/core/error.h"
#include "composer/formats/json_reader.h"
#include "composer/formats/unsupported.h"
#include "composer/util/json.h"
#include "composer/util/utf8.h"

namespace composer::predict {
namespace {

using PredictorJson = nlohmann::ordered_json;

constexpr const char* kFormat = "libcomposer predictor";

const std::string& utf8(const std::string& text) {
  if (!util::is_utf8(text)) throw ConfigError("save_predictor: the text ", util::valid_utf8(text), " is not UTF-8");
  return text;
}

// Of Model::local_hparams().
PredictorJson json_of(const StateDict& values) {
  PredictorJson json = PredictorJson::object();
  for (const auto& [name, value] : values.entries()) {
    PredictorJson& place = json[utf8(name)];
    if (const auto* text = std::get_if<std::string>(&value)) place = utf8(*text);
    if (const auto* number = std::get_if<std::int64_t>(&value)) place = *number;
    if (const auto* number = std::get_if<double>(&value)) place = *number;
    if (std::holds_alternative<at::Tensor>(value) || (place.is_number_float() && !std::isfinite(place.get<double>())))
      throw ConfigError("save_predictor: the model's local_hparams() has \"", name, "\", which is ",
                        place.is_null() ? "a tensor" : join(place.get<double>()),
                        "; a predictor can keep finite numbers, texts, booleans, and dicts of them. Make it a text, or "
                        "a buffer of the model");
    if (const auto* flag = std::get_if<bool>(&value)) place = *flag;
    if (const auto* dict = std::get_if<StateDict>(&value)) place = json_of(*dict);
  }
  return json;
}

StateDict values_of(const PredictorJson& json) {  // no deeper than util::parse_json() allows
  StateDict values;
  for (const auto& [name, value] : json.items()) {
    StateValue& place = values[name];
    if (value.is_string())
      place = value.get<std::string>();
    else if (value.is_boolean())
      place = value.get<bool>();
    else if (value.is_number_integer())
      place = value.get<std::int64_t>();
    else if (value.is_number_float())
      place = value.get<double>();
    else if (value.is_object())
      place = values_of(value);
    else
      values.erase(name);
  }
  return values;
}

// The fields of an object, each with its type.
class Fields {
 public:
  Fields(const PredictorJson& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json_.is_object()) throw CheckpointError(where_, "must be an object");
  }
  const PredictorJson& at(const char* name, PredictorJson::value_t type, const char* what) const {
    const auto found = json_.find(name);
    if (found == json_.end()) throw CheckpointError(where_, "\"", name, "\" is missing");
    const bool number = type == PredictorJson::value_t::number_unsigned;
    if (number ? !found->is_number_unsigned() : found->type() != type)
      throw CheckpointError(where_, "\"", name, "\" must be ", what);
    return *found;
  }
  std::string text(const char* name) const { return at(name, PredictorJson::value_t::string, "a text"); }
  std::uint64_t number(const char* name) const {
    return at(name, PredictorJson::value_t::number_unsigned, "a whole number");
  }
  Fields object(const char* name) const { return {at(name, PredictorJson::value_t::object, "an object"), where_}; }
  const PredictorJson& list(const char* name) const { return at(name, PredictorJson::value_t::array, "a list"); }
  const PredictorJson& json() const { return json_; }

 private:
  const PredictorJson& json_;
  std::string where_;
};

}  // namespace

std::string PredictorFile::to_json() const {
  PredictorJson json = {
      {"format", kFormat},
      {"version", kPredictorVersion},
      {"id", id},
      {"composer_version", info.composer_version},
      {"libtorch_version", info.libtorch_version},
      {"model", {{"name", utf8(info.model)}, {"class", model_class}, {"options", json_of(info.options)}}},
      {"preprocessing", utf8(info.preprocessing)}};
  json["inputs"] = PredictorJson::array();
  for (const auto& [name, dtype, shape] : info.inputs)
    json["inputs"].push_back({{"name", utf8(name)}, {"dtype", dtype}, {"shape", shape}});
  json["classes"] = PredictorJson::array();
  for (const std::string& name : info.classes) json["classes"].push_back(utf8(name));
  json["metadata"] = PredictorJson::object();
  for (const auto& [key, value] : info.metadata) json["metadata"][utf8(key)] = utf8(value);
  json["files"] = PredictorJson::array();
  for (const auto& [name, size, checksum] : files)
    json["files"].push_back({{"name", name}, {"size", size}, {"checksum", checksum}});
  return json.dump(2) + "\n";
}

PredictorFile PredictorFile::parse(std::string_view text, const std::string& path) {
  PredictorJson json;
  try {
    json = util::parse_json<PredictorJson>(text);
  } catch (const std::exception& error) {
    throw CheckpointError(path, ": ", formats::shown(error.what()));
  }
  const Fields all(json, path + ": ");
  if (all.text("format") != kFormat)
    throw CheckpointError(path, ": is of the format ", formats::shown(all.text("format")), ", expected \"", kFormat,
                          '"');
  if (all.number("version") > kPredictorVersion)
    throw formats::UnsupportedError(path, ": has the version ", all.number("version"),
                                    ", and this libcomposer reads 1 to ", kPredictorVersion,
                                    "; it was written by libcomposer ", formats::shown(all.text("composer_version")));
  PredictorFile file;
  file.id = all.text("id");
  file.info.composer_version = all.text("composer_version");
  file.info.libtorch_version = all.text("libtorch_version");
  const Fields model = all.object("model");
  file.info.model = model.text("name");
  file.model_class = model.text("class");
  file.info.options = values_of(model.object("options").json());
  file.info.preprocessing = all.text("preprocessing");
  for (const PredictorJson& input : all.list("inputs")) {
    const Fields one(input, path + ": inputs: ");
    PredictorInput& added = file.info.inputs.emplace_back(PredictorInput{one.text("name"), one.text("dtype"), {}});
    for (const PredictorJson& size : one.list("shape")) {
      if (!size.is_number_unsigned()) throw CheckpointError(path, ": inputs: \"shape\" must be whole numbers");
      added.shape.push_back(size.get<std::int64_t>());
    }
  }
  for (const PredictorJson& name : all.list("classes")) {
    if (!name.is_string()) throw CheckpointError(path, ": \"classes\" must be texts");
    file.info.classes.push_back(name);
  }
  for (const auto& [key, value] : all.object("metadata").json().items()) {
    if (!value.is_string()) throw CheckpointError(path, ": \"metadata\" must be texts");
    file.info.metadata.emplace(key, value);
  }
  for (const PredictorJson& known : all.list("files")) {
    const Fields one(known, path + ": files: ");
    file.files.push_back({one.text("name"), one.number("size"), one.text("checksum")});
  }
  return file;
}

PredictorFile read_predictor_file(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kPredictorFile;
  std::string text;
  try {
    text = saving::real_files().read(path, util::kLongestJson);
  } catch (const saving::FileError& error) {
    if (!error.is_missing()) throw CheckpointError(path.string(), ": ", error.code().message());
    const bool is_checkpoint = std::filesystem::exists(folder / saving::Manifest::kFileName);
    throw CheckpointError(folder.string(), ": is no folder of save_predictor(): it has no ", kPredictorFile,
                          is_checkpoint ? "; for the checkpoint of a run, call Predictor::from_checkpoint()" : "");
  }
  return PredictorFile::parse(text, path.string());
}

saving::Found as_checkpoint(const std::filesystem::path& folder, const PredictorFile& file) {
  saving::Found found{.path = folder, .manifest = {}};
  found.manifest.id = file.id;
  found.manifest.files = file.files;
  return found;
}

}  // namespace composer::predict
