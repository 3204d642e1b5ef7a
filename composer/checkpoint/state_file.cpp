#include "composer/checkpoint/state_file.h"

#include <cmath>
#include <functional>
#include <iterator>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "composer/core/error.h"
#include "composer/formats/json_reader.h"
#include "composer/formats/safetensors.h"
#include "composer/util/utf8.h"

namespace composer::saving {
namespace {

using Json = nlohmann::ordered_json;
using formats::NamedTensors;
using formats::SafetensorsFile;

constexpr const char* kId = "composer.checkpoint";
constexpr const char* kState = "composer.state";
constexpr const char* kTensor = "$tensor";
constexpr const char* kNumber = "$number";  // key of a number that JSON cannot represent

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
  if (const auto* text = std::get_if<std::string>(&value)) {
    if (!util::is_utf8(*text))
      throw ConfigError("checkpoint: the text ", util::valid_utf8(path),
                        " of the state is not UTF-8: ", formats::shown(util::valid_utf8(*text)),
                        "; whoever saves it must encode it");
    return *text;
  }
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  return std::get<std::int64_t>(value);
}

// Writes a name that begins with $ with another $, so that it differs from our own keys. Appends without a search,
// because the names of a dict are unique.
Json to_json(const StateDict& state, const std::string& path, NamedTensors& tensors) {
  Json json = Json::object();
  auto& object = json.get_ref<Json::object_t&>();
  object.reserve(state.size());
  for (const auto& [name, value] : state.entries()) {
    if (!util::is_utf8(name))
      throw ConfigError("checkpoint: the name ", util::valid_utf8(path.empty() ? name : join(path, '/', name)),
                        " of the state is not UTF-8; whoever saves it must encode it");
    object.emplace_back(name.starts_with('$') ? "$" + name : name,
                        to_json(value, path.empty() ? name : join(path, '/', name), tensors));
  }
  return json;
}

// Reads the output of to_json(). Never recurses and keeps no document beside the result, so a forged file can exhaust
// neither the stack nor much memory.
class StateReader final : public Json::json_sax_t {
 public:
  using TensorOf = std::function<at::Tensor(const std::string& name)>;
  explicit StateReader(TensorOf tensor_of) : tensor_of_(std::move(tensor_of)) {}

  StateDict read(const std::string& text) {
    Json::sax_parse(text, this);
    auto* const all = std::get_if<StateDict>(&root_);
    if (!all) fail("it is a single value");
    return std::move(*all);
  }

  bool start_object(std::size_t) override {
    constexpr std::size_t kDeepest = 100;
    if (open_.size() == kDeepest) fail(join("it is nested more than ", kDeepest, " deep"));
    StateValue& place = open_.empty() ? root_ : next();
    place = StateDict();
    open_.push_back({.place = &place, .key = {}});
    return true;
  }
  bool key(string_t& key) override {
    open_.back().key = key;
    return true;
  }
  bool end_object() override {
    open_.pop_back();
    return true;
  }
  bool string(string_t& text) override {
    Object& object = innermost();
    const bool own = !object.key.starts_with("$$");
    if (own && object.key == kTensor)
      *object.place = tensor_of_(text);
    else if (own && object.key == kNumber)
      *object.place = text == "nan" ? std::nan("") : text == "inf" ? HUGE_VAL : -HUGE_VAL;
    else
      next() = std::move(text);
    return true;
  }
  bool boolean(bool value) override {
    next() = value;
    return true;
  }
  bool number_integer(number_integer_t value) override {
    next() = value;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    next() = static_cast<std::int64_t>(value);
    return true;
  }
  bool number_float(number_float_t value, const string_t&) override {
    next() = value;
    return true;
  }
  bool null() override { fail("it has a null"); }
  bool start_array(std::size_t) override { fail("it has an array"); }
  bool end_array() override { return true; }
  bool binary(binary_t&) override { return false; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    fail(error.what());
  }

 private:
  struct Object {
    StateValue* place;  // address of the value; valid while it is open, because only the innermost one grows
    std::string key;    // of the next value
  };

  [[noreturn]] static void fail(const std::string& what) { throw CheckpointError("its state cannot be read: ", what); }
  Object& innermost() {
    if (open_.empty()) fail("it is not an object");
    return open_.back();
  }
  StateValue& next() {
    Object& object = innermost();
    auto* dict = std::get_if<StateDict>(object.place);
    if (!dict) fail("a tensor or number has further keys");
    return (*dict)[object.key.starts_with('$') ? std::string_view(object.key).substr(1) : object.key];
  }

  TensorOf tensor_of_;
  StateValue root_;
  std::vector<Object> open_;
};

const std::string* find_metadata(const formats::Metadata& metadata, std::string_view name) {
  for (const auto& [key, value] : metadata)
    if (key == name) return &value;
  return nullptr;
}

// Errors begin with the name of the file.
StateDict read_state(const SafetensorsFile& file, StateReader::TensorOf tensor_of) {
  const std::string* text = find_metadata(file.metadata(), kState);
  if (!text) throw CheckpointError(file.name(), ": has no state");
  try {
    return StateReader(std::move(tensor_of)).read(*text);
  } catch (const CheckpointError& error) {
    throw CheckpointError(file.name(), ": ", error.what());
  }
}

[[noreturn]] void fail_no_tensor(const std::string& name) {
  throw CheckpointError("has no tensor called ", formats::shown(name));
}

}  // namespace

SafetensorsFile open_file(const Found& checkpoint, const std::string& name) {
  const auto& [folder, manifest] = checkpoint;
  const std::string path = (folder / name).string();
  const Manifest::File* known = manifest.find(name);
  if (!known) throw CheckpointError(folder.string(), ": has no ", name);
  SafetensorsFile file(path, {.require_checksums = true});
  const std::string* own = find_metadata(file.metadata(), kId);
  if (!own || *own != manifest.id) throw CheckpointError(path, ": is a file of another checkpoint");
  if (manifest.version > 1 && file.checksum() != known->checksum)
    throw CheckpointError(path, ": is not the file listed in the manifest: its checksum is ", file.checksum(),
                          " instead of ", known->checksum);
  return file;
}

namespace {

// The contents of a file.
struct Content {
  NamedTensors tensors;
  formats::Metadata metadata;
};

Content content_of_state(const StateDict& state, const std::string& id) {
  Content content;
  std::string json = to_json(state, "", content.tensors).dump();
  content.metadata = {{kId, id}, {kState, std::move(json)}};
  return content;
}

Content content_of_weights(const StateDict& weights, const std::string& id) {
  Content content{.metadata = {{"format", "pt"}, {kId, id}}};
  for (const auto& [name, value] : weights.entries()) content.tensors.emplace_back(name, std::get<at::Tensor>(value));
  return content;
}

}  // namespace

std::string write_state(const StateDict& state, const std::string& id, const PlacedSink& sink) {
  const Content content = content_of_state(state, id);
  return formats::write_safetensors(content.tensors, content.metadata, sink);
}

std::string write_weights(const StateDict& weights, const std::string& id, const PlacedSink& sink) {
  const Content content = content_of_weights(weights, id);
  return formats::write_safetensors(content.tensors, content.metadata, sink);
}

void check_state(const StateDict& state, const std::string& id) {
  const Content content = content_of_state(state, id);
  formats::check_safetensors(content.tensors, content.metadata);
}

void check_weights(const StateDict& weights, const std::string& id) {
  const Content content = content_of_weights(weights, id);
  formats::check_safetensors(content.tensors, content.metadata);
}

StateDict read_state(const Found& checkpoint, const std::string& name) {
  const SafetensorsFile file = open_file(checkpoint, name);
  NamedTensors all = file.read_all();
  std::unordered_map<std::string, at::Tensor> tensors(std::make_move_iterator(all.begin()),
                                                      std::make_move_iterator(all.end()));
  return read_state(file, [&](const std::string& tensor) {
    const auto found = tensors.find(tensor);
    if (found == tensors.end()) fail_no_tensor(tensor);
    return found->second;
  });
}

StateDict read_values(const SafetensorsFile& file) {
  return read_state(file, [&](const std::string& tensor) {
    if (!file.has(tensor)) fail_no_tensor(tensor);
    return at::Tensor();
  });
}

StateDict read_weights(const Found& checkpoint, const std::string& name) {
  const SafetensorsFile file = open_file(checkpoint, name);
  StateDict weights;
  for (auto& [name, tensor] : file.read_all()) weights[name] = std::move(tensor);
  return weights;
}

}  // namespace composer::saving
