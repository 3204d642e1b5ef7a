#include "composer/cli/contents.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <system_error>

#include <nlohmann/json.hpp>

#include "composer/checkpoint/parts.h"
#include "composer/checkpoint/saver.h"
#include "composer/checkpoint/state_file.h"
#include "composer/checkpoint/walk.h"
#include "composer/core/error.h"
#include "composer/formats/byte_source.h"
#include "composer/formats/pt_file.h"
#include "composer/formats/safetensors.h"
#include "composer/util/json.h"
#include "composer/util/letters.h"

namespace composer::cli {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

void add_tensors(Contents& contents, const std::shared_ptr<formats::SafetensorsFile>& file, const std::string& prefix,
                 bool allow_unknown = false) {
  for (const formats::TensorEntry& entry : file->tensors())
    if (!allow_unknown || formats::element_bytes(entry.dtype) != 0)  // libtorch has the dtype
      contents.tensors.push_back({prefix + entry.name, util::lower(entry.dtype), entry.shape, entry.end - entry.begin,
                                  [file, entry] { return file->read(entry); }});
}

void add_tensors(Contents& contents, const std::shared_ptr<formats::PtFile>& file) {
  contents.checksums = file->checksums();
  for (formats::PtEntry& entry : file->tensors())
    contents.tensors.push_back({entry.name, util::lower(entry.dtype), std::move(entry.shape), entry.bytes,
                                [file, name = entry.name] { return file->read(name); }});
}

std::string json_text(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string text_of(const StateValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return json_text(*text);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  const double number = std::get<double>(value);
  if (std::isfinite(number)) return Json(number).dump();
  return std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
}

// Adds everything but tensors.
void add_values(Contents& contents, const StateDict& state, const std::string& path) {
  if (state.empty() && !path.empty()) contents.values.emplace_back(path, "{}");
  for (const auto& [name, value] : state.entries()) {
    const std::string own = path.empty() ? name : join(path, '/', name);
    if (const auto* dict = std::get_if<StateDict>(&value))
      add_values(contents, *dict, own);
    else if (!std::holds_alternative<at::Tensor>(value))
      contents.values.emplace_back(own, text_of(value));
  }
}

std::shared_ptr<formats::SafetensorsFile> add_file(Contents& contents, const std::string& name,
                                                   const std::string& prefix) {
  if (!contents.checkpoint->manifest.find(name)) return nullptr;
  const auto file = std::make_shared<formats::SafetensorsFile>(saving::open_file(*contents.checkpoint, name));
  add_tensors(contents, file, prefix);
  return file;
}

}  // namespace

namespace {

// Whether the file looks like safetensors: by its name, or by its beginning: the length of the header, and the header,
// which is JSON.
bool looks_like_safetensors(const fs::path& path, const formats::ByteSource& file) {
  constexpr std::uint64_t kLength = 8;
  const std::string extension = util::lower(path.extension().string());
  if (extension == ".safetensors" || extension == ".pt" || extension == ".pth") return true;  // possibly damaged
  if (file.size() <= kLength) return false;
  const std::string first = file.read(kLength, 1);
  return first == "{" || first == " ";
}

}  // namespace

Kind kind_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    const bool link = fs::is_symlink(path, error);
    throw CheckpointError(path.string(),
                          link ? ": is a link to something that does not exist" : ": no such file or folder");
  }
  if (fs::is_directory(status))
    return fs::exists(path / saving::Manifest::kFileName, error) ? Kind::CHECKPOINT : Kind::SAVE_FOLDER;
  const auto file = formats::open_file(path);
  if (formats::is_pt_file(*file)) return Kind::PT;
  if (!looks_like_safetensors(path, *file))
    throw CheckpointError(path.string(), ": is neither a checkpoint nor a file of weights (.safetensors, .pt, .pth)");
  return Kind::SAFETENSORS;
}

const Entry* Contents::find(const std::string& name) const {
  const auto it = std::ranges::find(tensors, name, &Entry::name);
  return it == tensors.end() ? nullptr : &*it;
}

Contents open_contents(const fs::path& path, bool allow_unknown) {
  Contents contents{.path = path, .kind = kind_of(path)};
  switch (contents.kind) {
    case Kind::SAVE_FOLDER:  // open_checkpoint() throws an error that says so
    case Kind::CHECKPOINT:
      contents.checkpoint = saving::open_checkpoint(path);
      contents.checksums = true;
      add_file(contents, saving::kModelFile, "model/");
      if (const auto file = add_file(contents, saving::kStateFile, "")) {
        const StateDict state = saving::read_values(*file);
        add_values(contents, state, "");
        contents.handed_out = HandedOut::in(state);
      }
      for (const saving::Manifest::File& file : contents.checkpoint->manifest.files)
        if (saving::is_part_name(file.name))
          if (const auto part = add_file(contents, file.name, file.name + "/"))
            add_values(contents, saving::read_values(*part), file.name);
      break;
    case Kind::SAFETENSORS: {
      const auto file = std::make_shared<formats::SafetensorsFile>(path);
      contents.checksums = file->checksums();
      add_tensors(contents, file, "", allow_unknown);
      for (const auto& [key, value] : file->metadata()) contents.values.emplace_back(key, json_text(value));
      break;
    }
    case Kind::PT:
      add_tensors(contents,
                  std::make_shared<formats::PtFile>(path, formats::PtOptions{.allow_unknown = allow_unknown}));
  }
  return contents;
}

std::vector<std::pair<std::string, std::string>> hyperparameters_of(const Contents& contents) {
  constexpr std::string_view kBefore = "hyperparameters/";
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& [name, value] : contents.values)
    if (contents.checkpoint && name.starts_with(kBefore)) all.emplace_back(name.substr(kBefore.size()), value);
  return all;
}

std::string plain_text(const std::string& json) {
  return json.starts_with('"') ? util::parse_json<nlohmann::json>(json).get<std::string>() : json;
}

std::vector<fs::path> checkpoints_below(const fs::path& folder) {
  return saving::paths_below(folder, saving::Below::Kind::CHECKPOINT);
}
std::vector<fs::path> leftovers_below(const fs::path& folder) {
  return saving::paths_below(folder, saving::Below::Kind::LEFTOVER);
}

}  // namespace composer::cli
