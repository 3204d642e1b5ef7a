#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "composer/core/error.h"
#include "composer/models/mlp.h"
#include "composer/predict/predictor.h"
#include "composer/predict/predictor_file.h"
#include "composer/util/random.h"
#include "tests/predict/support.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"

namespace composer::malformed_predictor_test {
namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

using Damage = std::function<void(const fs::path& folder)>;

Damage replaced(const std::string& from, const std::string& to) {
  return [from, to](const fs::path& folder) {
    std::string text = contents(folder / "predictor.json");
    const std::size_t at = text.find(from);
    REQUIRE_MESSAGE(at != std::string::npos, from);
    write(folder / "predictor.json", text.replace(at, from.size(), to));
  };
}
Damage written(const std::string& text) {
  return [text](const fs::path& folder) { write(folder / "predictor.json", text); };
}
Damage removed(const std::string& file) {
  return [file](const fs::path& folder) { fs::remove_all(folder / file); };
}
Damage cut(const std::string& file, std::size_t left) {
  return [file, left](const fs::path& folder) { fs::resize_file(folder / file, left); };
}
// Changes one bit, `from_end` bytes before the end.
Damage flipped(const std::string& file, std::size_t from_end) {
  return [file, from_end](const fs::path& folder) {
    std::string bytes = contents(folder / file);
    bytes.at(bytes.size() - from_end) ^= 4;
    write(folder / file, bytes);
  };
}
Damage flipped_in_header(const std::string& file) {
  return [file](const fs::path& folder) {
    std::string bytes = contents(folder / file);
    bytes.at(40) ^= 4;
    write(folder / file, bytes);
  };
}

void save(const fs::path& folder) {
  at::manual_seed(1);
  save_predictor(folder, *models::mlp({.features = {3, 4, 2}}),
                 {.preprocessing = std::make_shared<test::Centering>(test::waves({5, 3})),
                  .classes = {"a", "b"},
                  .metadata = {{"data", "waves"}}});
}

}  // namespace

TEST_CASE("Every damaged folder of a predictor is an error of one line that names the file and what is wrong") {
  const auto exchanged = [](const std::string& file) -> Damage {
    return [file](const fs::path& folder) {
      save(folder.string() + "-2");
      fs::copy_file(folder.string() + "-2/" + file, folder / file, fs::copy_options::overwrite_existing);
    };
  };
  struct Row {
    const char* what;
    Damage damage;
    const char* error;
  };
  const std::vector<Row> rows = {
      {"no folder", [](const fs::path& folder) { fs::remove_all(folder); }, "it has no predictor.json"},
      {"a file instead",
       [](const fs::path& folder) {
         fs::remove_all(folder);
         write(folder, "x");
       },
       "it has no predictor.json"},
      {"no description", removed("predictor.json"), "it has no predictor.json"},
      {"a folder instead of the description",
       [](const fs::path& folder) {
         fs::remove(folder / "predictor.json");
         fs::create_directory(folder / "predictor.json");
       },
       "predictor.json: Is a directory"},
      {"an empty description", written(""), "predictor.json: "},
      {"half a description", cut("predictor.json", 100), "predictor.json: "},
      {"a list", written("[]"), "must be an object"},
      {"a deep description", written(std::string(100000, '[')), "nested 100000 deep"},
      {"other JSON", written("{}"), "\"format\" is missing"},
      {"another format", replaced("libcomposer predictor", "safetensors index"), "is of the format safetensors index"},
      {"a newer version", replaced("\"version\": 1", "\"version\": 2"),
       "has the version 2, and this libcomposer reads 1 to 1"},
      {"a version that is text", replaced("\"version\": 1", "\"version\": \"1\""),
       "\"version\" must be a whole number"},
      {"no id", replaced("\"id\"", "\"ID\""), "\"id\" is missing"},
      {"an unknown model", replaced("\"mlp\"", "\"mpl\""), "there is no \"mpl\""},
      {"an unknown option", replaced("\"features\"", "\"fixtures\""), "mlp has no option \"fixtures\""},
      {"an option that is no value", replaced("3 4 2", "3 4 x"), "expected a whole number, got \"x\""},
      {"an option out of range", replaced("3 4 2", "3 0 2"), "features must be >= 1, got 0"},
      {"a model that fits into no memory", replaced("3 4 2", "3 4000000000000000 2"), "model: "},
      {"another width", replaced("3 4 2", "3 5 2"), "fc1.weight"},
      {"another depth", replaced("3 4 2", "3 4 4 2"), "fc3.weight"},
      {"options that are a list", replaced("\"options\": {", "\"options\": [], \"x\": {"),
       "\"options\" must be an object"},
      {"metadata that is no text", replaced("\"waves\"", "5"), "\"metadata\" must be texts"},
      {"classes that are a text", replaced("\"classes\": [", "\"classes\": \"a\", \"x\": ["),
       "\"classes\" must be a list"},
      {"no weights", removed("model.safetensors"), "model.safetensors"},
      {"weights that are not listed", replaced("\"model.safetensors\"", "\"m.safetensors\""),
       "m.safetensors: No such file"},
      {"half the weights", cut("model.safetensors", 300), "model.safetensors"},
      {"empty weights", cut("model.safetensors", 0), "model.safetensors"},
      {"a changed weight", flipped("model.safetensors", 5), "model.safetensors"},
      {"a changed header", flipped_in_header("model.safetensors"), "model.safetensors"},
      {"the weights of another", exchanged("model.safetensors"), "is a file of another"},
      {"no preprocessing", removed("preprocessing.safetensors"), "preprocessing.safetensors"},
      {"a changed preprocessing", flipped("preprocessing.safetensors", 2), "preprocessing.safetensors"},
      {"the preprocessing of another", exchanged("preprocessing.safetensors"), "is a file of another"},
      {"another preprocessing", replaced("\"centering\"", "\"scaling\""),
       "the preprocessing is \"scaling\", and .preprocessing is \"centering\""},
      {"none", replaced("\"centering\"", "\"\""), "has no preprocessing"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const test::Folder folder;
    save(folder / "p");
    row.damage(folder / "p");
    std::string error = "no error";
    try {
      Predictor::load(folder / "p", {.preprocessing = std::make_shared<test::Centering>()});
    } catch (const Error& caught) {
      error = caught.what();
    }
    CAPTURE(error);
    CHECK(error.find((folder / "p").string()) == 0);
    CHECK(error.find(row.error) != std::string::npos);
    CHECK(error.find('\n') == std::string::npos);
  }
}

TEST_CASE("A description with random damage is read, or is a CheckpointError") {
  const test::Folder folder;
  save(folder / "p");
  const std::string whole = contents(folder / "p/predictor.json");
  RandomStream random(7);
  std::size_t refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = whole;
    for (std::uint64_t damages = 1 + random.below(3); damages > 0; --damages) {
      const std::size_t at = random.below(text.size()), length = random.below(20);
      switch (random.below(4)) {
        case 0:
          text[at] = static_cast<char>(random.next());
          break;
        case 1:
          text.erase(at, length);
          break;
        case 2:
          text.insert(at, text.substr(random.below(text.size()), length));
          break;
        default:
          text[at] = "{}[],:\"-0e"[random.below(10)];
      }
    }
    try {
      predict::PredictorFile::parse(text, "input");
    } catch (const CheckpointError& error) {
      ++refused;
      REQUIRE_MESSAGE(std::string(error.what()).find('\n') == std::string::npos, error.what());
    }
  }
  CHECK(refused > 1000);
}

TEST_CASE("What only the program can make is asked of it") {
  const test::Folder folder;
  save(folder / "p");
  CHECK_THROWS_WITH_AS(Predictor::load(folder / "p"), doctest::Contains("no preprocessing called \"centering\""),
                       CheckpointError);
  test::OwnNet own;
  save_predictor(folder / "own", own);
  CHECK_THROWS_WITH_AS(Predictor::load(folder / "own"), doctest::Contains("of the class OwnNet"), CheckpointError);
  CHECK_THROWS_WITH_AS(Predictor::load(folder / "own", [](const StateDict&) { return std::shared_ptr<Model>(); }),
                       doctest::Contains("null"), ConfigError);
  CHECK_THROWS_AS(Predictor::load(folder / "own", [](const StateDict&) { return models::mlp(); }), CheckpointError);
}

}  // namespace composer::malformed_predictor_test
