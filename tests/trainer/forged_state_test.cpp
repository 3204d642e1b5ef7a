// A checkpoint whose values were replaced, with right checksums, is an error that names the file and the key.
#include <filesystem>
#include <string>
#include <vector>

#include <ATen/ops/zeros.h>

#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/saver.h"
#include "composer/checkpoint/state_file.h"
#include "composer/core/error.h"
#include "composer/formats/safetensors.h"
#include "composer/loggers/json_lines_logger.h"
#include "composer/loggers/tensorboard_logger.h"
#include "composer/loggers/wandb_logger.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::forged_state_test {
namespace {

TrainerOptions options_in(const std::filesystem::path& folder, const char* duration) {
  TrainerOptions options = tiny_options();
  options.max_duration = Time::parse(duration);
  options.seed = 3;
  options.save_folder = folder / "ck";
  options.loggers = {loggers::JsonLinesLogger({.path = folder / "log.jsonl"}),
                     loggers::TensorBoardLogger({.folder = folder / "tb"}),
                     loggers::WandBLogger({.folder = folder / "wandb"})};
  return options;
}

// "a/b/c"
StateValue& value_at(StateDict& state, const std::string& key) {
  const std::size_t end = key.find('/');
  StateValue& value = state[key.substr(0, end)];
  return end == std::string::npos ? value : value_at(std::get<StateDict>(value), key.substr(end + 1));
}

void write(const saving::Found& found, const StateDict& all) {
  saving::FileSystem files;
  saving::Manifest manifest = found.manifest;
  manifest.files.clear();
  StateDict state = all;
  state.erase("model");
  const auto& model = std::get<StateDict>(*all.find("model"));
  saving::CheckpointFolder(found.path.parent_path(), manifest.run_id, files)
      .write(manifest,
             {{"model.safetensors",
               [&](const saving::PlacedSink& sink) { return saving::write_weights(model, manifest.id, sink); }},
              {"state.safetensors",
               [&](const saving::PlacedSink& sink) { return saving::write_state(state, manifest.id, sink); }}},
             "latest", /*overwrite=*/true);
}

TEST_CASE("A value of another kind than it was, or that no run has, is an error that names the file and the key") {
  const Folder folder;
  const Warnings warnings;
  Trainer(options_in(folder / "run", "1ep")).fit();
  const saving::Found found = saving::open_checkpoint(folder / "run/ck/latest");
  const StateDict whole = saving::load(found);
  struct Row {
    const char* key;
    StateValue value;
  };
  const StateValue number = std::int64_t{7}, text = std::string("7"), tensor = at::zeros({3});
  for (const Row& row : std::vector<Row>{
           {"rng", number},
           {"rng", tensor},
           {"rng/cpu", number},
           {"rng/cpu", text},
           {"rng/cpu", StateDict()},
           {"rng/cpu", tensor},
           {"optimizer", text},
           {"optimizer/class", number},
           {"optimizer/state", number},
           {"hyperparameters", number},
           {"callbacks", number},
           {"algorithms", number},
           {"required_algorithms", number},
           {"callbacks/JsonLinesLogger", number},
           {"callbacks/JsonLinesLogger/size", std::int64_t{-1}},
           {"callbacks/JsonLinesLogger/size", text},
           {"callbacks/TensorBoardLogger/size", std::int64_t{-1}},
           {"callbacks/WandBLogger/file/size", std::int64_t{-1}},
           {"timestamp", number},
           {"timestamp/batch", text},
           {"fit", number},
           {"fit/end", std::string("later")},
           {"fit/end", std::string("")},
           {"metrics", number},
           {"evaluated", number},
           {"pending_evaluations", number},
           {"saver", number},
           {"saver/saved", number},
           {"saver/saved/size", std::int64_t{-1}},
       }) {
    CAPTURE(join(row.key));
    StateDict forged = whole;
    value_at(forged, row.key) = row.value;
    write(found, forged);
    for (const bool resumes : {true, false}) {
      const std::string key = row.key;
      if (!resumes && (key.starts_with("saver") || key.starts_with("fit"))) continue;  // another run's are not ours
      TrainerOptions options = options_in(folder / (resumes ? "run" : "other"), "2ep");
      if (!resumes) options.load_path = found.path;
      try {
        Trainer trainer(std::move(options));
        FAIL("no error");
      } catch (const CheckpointError& error) {
        const std::string said = error.what();
        CAPTURE(said);
        CHECK(said.find(found.path.string()) != std::string::npos);
        CHECK(said.find(key) != std::string::npos);
      }
    }
  }
}

TEST_CASE("A state that is a single tensor is an error that names the file") {
  const Folder folder;
  const Warnings warnings;
  Trainer(options_in(folder / "run", "1ep")).fit();
  const saving::Found found = saving::open_checkpoint(folder / "run/ck/latest");
  const auto write_tensor = [&](const saving::PlacedSink& sink) {
    return formats::write_safetensors(
        {{"x", at::zeros({1})}},
        {{"composer.checkpoint", found.manifest.id}, {"composer.state", "{\"$tensor\":\"x\"}"}}, sink);
  };
  saving::FileSystem files;
  saving::Manifest manifest = found.manifest;
  manifest.files.clear();
  saving::CheckpointFolder(found.path.parent_path(), manifest.run_id, files)
      .write(manifest, {{"state.safetensors", write_tensor}}, "latest", /*overwrite=*/true);
  CHECK_THROWS_WITH_AS(saving::load(saving::open_checkpoint(found.path)),
                       doctest::Contains("state.safetensors: its state cannot be read: it is a single value"),
                       CheckpointError);
}

}  // namespace
}  // namespace composer::test::forged_state_test
