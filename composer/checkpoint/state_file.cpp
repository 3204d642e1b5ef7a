#include "composer/checkpoint/state_file.h"

#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "composer/core/error.h"
#include "composer/formats/json_reader.h"
#include "composer/formats/safetensors.h"

namespace composer::saving {
namespace {

using Json = nlohmann::ordered_json;
using formats::NamedTensors;
using formats::SafetensorsFile;

constexpr const char* kId = "composer.checkpoint";
constexpr const char* kState = "composer.state";
constexpr const char* kTensor = "$tensor";
constexpr const char* kNumber = "$number";  // one that JSON has not

Json to_json(const StateDict& state, const std::string& path, NamedTensors& tensors);

Json to_json(const StateValue& value, const std::string& path, NamedTensors& tensors) {
  if (const auto* dict = std::get_if<StateDict>(&value)) return to_json(*dict, path, tensors);
  if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
    tensors.emplace_back(path, *tensor);
    return {{kTensor, path}};
  }
  if (const auto* number = std::get_if<double>(&value)) {
    if (std::isfinite(*number)) return *number;
    return {{kNumber, std::isnan(*number) ? "nan" : *number > 0 ? "inf" : "-inf"}};
  }
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  return std::get<std::int64_t>(value);
}

// Names that begin with $ get another one, so that they are not taken for ours.
Json to_json(const StateDict& state, const std::string& path, NamedTensors& tensors) {
  Json json = Json::object();
  for (const auto& [name, value] : state.entries())
    json[name.starts_with('$') ? "$" + name : name] = to_json(value, path.empty() ? name : path + '/' + name, tensors);
  return json;
}

double special_number(const Json& json) {
  const auto text = json.get<std::string>();
  if (text == "nan") return std::nan("");
  return text == "inf" ? HUGE_VAL : -HUGE_VAL;
}

using Tensors = std::map<std::string, at::Tensor>;

StateValue from_json(const Json& json, const Tensors& tensors);

StateDict dict_from_json(const Json& json, const Tensors& tensors) {
  StateDict state;
  for (const auto& [name, value] : json.items())
    state.entries().emplace_back(name.starts_with('$') ? name.substr(1) : name, from_json(value, tensors));
  return state;
}

at::Tensor tensor_called(const std::string& name, const Tensors& tensors) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) throw CheckpointError("has no tensor called ", formats::shown(name));
  return found->second;
}

StateValue from_json(const Json& json, const Tensors& tensors) {
  if (json.is_object()) {
    if (json.contains(kTensor)) return tensor_called(json[kTensor].get<std::string>(), tensors);
    if (json.contains(kNumber)) return special_number(json[kNumber]);
    return dict_from_json(json, tensors);
  }
  if (json.is_number_float()) return json.get<double>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_boolean()) return json.get<bool>();
  return json.get<std::string>();
}

const std::string* find(const formats::Metadata& metadata, std::string_view name) {
  for (const auto& [key, value] : metadata)
    if (key == name) return &value;
  return nullptr;
}

SafetensorsFile open(const Found& checkpoint, const std::string& name) {
  const auto& [folder, manifest] = checkpoint;
  const std::string path = (folder / name).string();
  const Manifest::File* known = manifest.find(name);
  if (!known) throw CheckpointError(folder.string(), ": has no ", name);
  SafetensorsFile file(path, {.require_checksums = true});
  const std::string* own = find(file.metadata(), kId);
  if (!own || *own != manifest.id) throw CheckpointError(path, ": is a file of another checkpoint");
  if (manifest.version > 1 && file.checksum() != known->checksum)
    throw CheckpointError(path, ": is not the file that the manifest means: its checksum is ", file.checksum(),
                          " instead of ", known->checksum);
  return file;
}

// What reads it recurses: a forged file must not use up the stack.
bool check_depth(int depth, Json::parse_event_t, Json&) {
  constexpr int kDeepest = 100;
  if (depth > kDeepest) throw CheckpointError("its state is nested more than ", kDeepest, " deep");
  return true;
}

}  // namespace

std::string write_state(const StateDict& state, const std::string& id, const PlacedSink& sink) {
  NamedTensors tensors;
  const std::string json = to_json(state, "", tensors).dump();
  return formats::write_safetensors(tensors, {{kId, id}, {kState, json}}, sink);
}

std::string write_weights(const StateDict& weights, const std::string& id, const PlacedSink& sink) {
  NamedTensors tensors;
  for (const auto& [name, value] : weights.entries()) tensors.emplace_back(name, std::get<at::Tensor>(value));
  return formats::write_safetensors(tensors, {{"format", "pt"}, {kId, id}}, sink);
}

StateDict read_state(const Found& checkpoint, const std::string& name) {
  const SafetensorsFile file = open(checkpoint, name);
  const std::filesystem::path path = checkpoint.path / name;
  const std::string* text = find(file.metadata(), kState);
  if (!text) throw CheckpointError(path.string(), ": has no state");
  try {
    const Json json = Json::parse(*text, check_depth);
    formats::NamedTensors all = file.read_all();
    return dict_from_json(json, {std::make_move_iterator(all.begin()), std::make_move_iterator(all.end())});
  } catch (const CheckpointError& error) {
    throw CheckpointError(path.string(), ": ", error.what());
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(path.string(), ": its state cannot be read: ", error.what());
  }
}

StateDict read_weights(const Found& checkpoint, const std::string& name) {
  const SafetensorsFile file = open(checkpoint, name);
  StateDict weights;
  for (auto& [name, tensor] : file.read_all()) weights[name] = std::move(tensor);
  return weights;
}

}  // namespace composer::saving
