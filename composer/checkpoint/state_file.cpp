#include "composer/checkpoint/state_file.h"

#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "composer/checkpoint/safetensors.h"
#include "composer/core/error.h"

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

StateValue from_json(const Json& json, const SafetensorsFile& file);

StateDict dict_from_json(const Json& json, const SafetensorsFile& file) {
  StateDict state;
  for (const auto& [name, value] : json.items())
    state.entries().emplace_back(name.starts_with('$') ? name.substr(1) : name, from_json(value, file));
  return state;
}

StateValue from_json(const Json& json, const SafetensorsFile& file) {
  if (json.is_object()) {
    if (json.contains(kTensor)) return file.read(json[kTensor].get<std::string>());
    if (json.contains(kNumber)) return special_number(json[kNumber]);
    return dict_from_json(json, file);
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

SafetensorsFile open(const std::filesystem::path& path, const std::string& id) {
  SafetensorsFile file(path, {.require_checksums = true});
  const std::string* own = find(file.metadata(), kId);
  if (!own || *own != id) throw CheckpointError(path.string(), ": is a file of another checkpoint");
  return file;
}

// What reads it recurses: a forged file must not use up the stack.
bool check_depth(int depth, Json::parse_event_t, Json&) {
  constexpr int kDeepest = 100;
  if (depth > kDeepest) throw CheckpointError("its state is nested more than ", kDeepest, " deep");
  return true;
}

}  // namespace

void write_state(const StateDict& state, const std::string& id, const Sink& sink) {
  NamedTensors tensors;
  const std::string json = to_json(state, "", tensors).dump();
  formats::write_safetensors(tensors, {{kId, id}, {kState, json}}, sink);
}

void write_weights(const StateDict& weights, const std::string& id, const Sink& sink) {
  NamedTensors tensors;
  for (const auto& [name, value] : weights.entries()) tensors.emplace_back(name, std::get<at::Tensor>(value));
  formats::write_safetensors(tensors, {{"format", "pt"}, {kId, id}}, sink);
}

StateDict read_state(const std::filesystem::path& path, const std::string& id) {
  const SafetensorsFile file = open(path, id);
  const std::string* text = find(file.metadata(), kState);
  if (!text) throw CheckpointError(path.string(), ": has no state");
  try {
    return dict_from_json(Json::parse(*text, check_depth), file);
  } catch (const CheckpointError& error) {
    throw CheckpointError(path.string(), ": ", error.what());
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(path.string(), ": its state cannot be read: ", error.what());
  }
}

StateDict read_weights(const std::filesystem::path& path, const std::string& id) {
  const SafetensorsFile file = open(path, id);
  StateDict weights;
  for (auto& [name, tensor] : file.read_all()) weights[name] = std::move(tensor);
  return weights;
}

}  // namespace composer::saving
