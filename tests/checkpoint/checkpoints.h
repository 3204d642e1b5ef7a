#pragma once
// Small checkpoints whose content tells which one it is.
#include <filesystem>
#include <string>
#include <vector>

#include "composer/checkpoint/folder.h"
#include "tests/formats/bytes.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"

namespace composer::test {

inline const std::vector<std::string> kFiles = {"model.safetensors", "state.safetensors"};

inline std::string content(int batch, const std::string& file) {
  return file + std::string(1000, static_cast<char>('a' + batch));
}

inline saving::Manifest manifest_of(int batch, const std::string& name, const std::string& run_id = "run") {
  saving::Manifest manifest;
  manifest.name = name;
  manifest.run_name = "r";
  manifest.run_id = run_id;
  manifest.id = std::to_string(batch);
  manifest.time.batch = batch;
  return manifest;
}

inline std::vector<saving::NewFile> files_of(int batch) {
  std::vector<saving::NewFile> all;
  for (const std::string& file : kFiles)
    all.push_back({file, [=](const formats::PlacedSink& sink) {
                     const std::string text = content(batch, file);
                     sink(300, text.data() + 300, text.size() - 300);
                     sink(0, text.data(), 300);
                     return "checksum of " + std::to_string(batch);
                   }});
  return all;
}

inline void write(const std::filesystem::path& path, int batch, saving::FileSystem& files, const std::string& name) {
  saving::CheckpointFolder(path, "run", files).write(manifest_of(batch, name), files_of(batch), "latest");
}

inline bool is_whole(const saving::Found& found) {
  const int batch = static_cast<int>(found.manifest.time.batch);
  bool whole = found.manifest.id == std::to_string(batch);
  for (const std::string& file : kFiles) whole = whole && text_of(found.path / file) == content(batch, file);
  return whole;
}

// The batch of the checkpoint that a run would go on from, all of whose files are those of that batch; -1: none.
inline int whole_latest(const std::filesystem::path& path) {
  const auto found = saving::find_latest(path, "latest");
  if (!found) return -1;
  CHECK(is_whole(*found));
  return static_cast<int>(found->manifest.time.batch);
}

// A folder for checkpoints that is not there yet.
struct Scratch {
  const Folder folder;
  const std::filesystem::path path = folder / "ck";
};

}  // namespace composer::test
