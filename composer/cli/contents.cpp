#include "composer/cli/contents.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <system_error>

#include <nlohmann/json.hpp>

#include "composer/checkpoint/saver.h"
#include "composer/checkpoint/walk.h"
#include "composer/core/error.h"
#include "composer/formats/byte_source.h"
#include "composer/formats/pt_file.h"
#include "composer/formats/safetensors.h"

namespace composer::cli {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string dtype_text(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "f32";
    case at::kDouble:
      return "f64";
    case at::kHalf:
      return "f16";
    case at::kBFloat16:
      return "bf16";
    case at::kLong:
      return "i64";
    case at::kInt:
      return "i32";
    case at::kShort:
      return "i16";
    case at::kChar:
      return "i8";
    case at::kByte:
      return "u8";
    case at::kBool:
      return "bool";
    default:
      return lower(c10::toString(type));
  }
}

void add_tensors(Contents& contents, const std::shared_ptr<formats::SafetensorsFile>& file, const std::string& prefix) {
  for (const formats::TensorEntry& entry : file->tensors())
    contents.tensors.push_back({prefix + entry.name, lower(entry.dtype), entry.shape, entry.end - entry.begin,
                                [file, entry] { return file->read(entry); }});
}

// The JSON beside the tensors of a state file (docs/checkpoint-format.md).
void add_values(Contents& contents, const Json& json, const std::string& path) {
  if (json.is_object() && json.contains("$tensor")) return;
  if (json.is_object() && json.contains("$number")) {
    contents.values.emplace_back(path, json["$number"].get<std::string>());
  } else if (json.is_object() && !json.empty()) {
    for (const auto& [name, value] : json.items()) {
      const std::string own = name.starts_with('$') ? name.substr(1) : name;
      add_values(contents, value, path.empty() ? own : join(path, '/', own));
    }
  } else {
    contents.values.emplace_back(path, json.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
}

void open_checkpoint_file(Contents& contents, const char* name, const std::string& prefix) {
  const auto& [path, manifest] = *contents.checkpoint;
  if (!manifest.find(name)) return;
  const auto file =
      std::make_shared<formats::SafetensorsFile>(path / name, formats::SafetensorsOptions{.require_checksums = true});
  const auto text = [&](const char* key) {
    const auto found = file->metadata().find(key);
    return found == file->metadata().end() ? std::string() : found->second;
  };
  if (text("composer.checkpoint") != manifest.id)
    throw CheckpointError((path / name).string(), ": is a file of another checkpoint");
  add_tensors(contents, file, prefix);
  const std::string state = text("composer.state");
  if (state.empty()) return;
  try {
    add_values(contents, Json::parse(state), "");
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError((path / name).string(), ": its state cannot be read: ", error.what());
  }
}

std::vector<fs::path> below(const fs::path& folder, saving::Below what) {
  std::error_code error;
  std::vector<fs::path> paths = saving::paths_below(folder, what, error);
  if (error) throw CheckpointError(folder.string(), ": could not be listed: ", error.message());
  return paths;
}

}  // namespace

Kind kind_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    const bool link = fs::is_symlink(path, error);
    throw CheckpointError(path.string(), link ? ": is a link that leads nowhere" : ": there is no such file or folder");
  }
  if (fs::is_directory(status))
    return fs::exists(path / saving::Manifest::kFileName, error) ? Kind::CHECKPOINT : Kind::SAVE_FOLDER;
  return formats::is_pt_file(*formats::open_file(path)) ? Kind::PT : Kind::SAFETENSORS;
}

const Entry* Contents::find(const std::string& name) const {
  const auto it = std::ranges::find(tensors, name, &Entry::name);
  return it == tensors.end() ? nullptr : &*it;
}

Contents open_contents(const fs::path& path, bool allow_unknown) {
  Contents contents{.path = path, .kind = kind_of(path)};
  switch (contents.kind) {
    case Kind::SAVE_FOLDER:
      throw CheckpointError(path.string(), ": is no checkpoint",
                            checkpoints_below(path).empty() ? "" : ", but a folder of some: name one of them");
    case Kind::CHECKPOINT:
      contents.checkpoint = saving::open_checkpoint(path);
      contents.checksums = true;
      open_checkpoint_file(contents, saving::kModelFile, "model/");
      open_checkpoint_file(contents, saving::kStateFile, "");
      break;
    case Kind::SAFETENSORS: {
      const auto file = std::make_shared<formats::SafetensorsFile>(path);
      contents.checksums = file->checksums();
      add_tensors(contents, file, "");
      for (const auto& [key, value] : file->metadata()) contents.values.emplace_back(key, Json(value).dump());
      break;
    }
    case Kind::PT:
      contents.checksums = true;  // the CRC of the archive
      for (auto& [name, tensor] : formats::PtFile(path, {.allow_unknown = allow_unknown}).read_all())
        contents.tensors.push_back({name, dtype_text(tensor.scalar_type()), tensor.sizes().vec(), tensor.nbytes(),
                                    [tensor = tensor] { return tensor; }});
  }
  return contents;
}

std::vector<fs::path> checkpoints_below(const fs::path& folder) { return below(folder, saving::Below::CHECKPOINTS); }
std::vector<fs::path> leftovers_below(const fs::path& folder) { return below(folder, saving::Below::LEFTOVERS); }

}  // namespace composer::cli
