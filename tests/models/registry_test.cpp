#include "composer/models/registry.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "composer/core/error.h"
#include "composer/core/state_dict.h"
#include "composer/models/gpt.h"
#include "composer/models/mlp.h"
#include "tests/models/support.h"
#include "tests/support/doctest.h"
#include "tests/support/places.h"

namespace composer::models_registry_test {

TEST_CASE("Every function of the headers that returns a ready model can be called by its name") {
  std::set<std::string> declared;
  for (const auto& entry : std::filesystem::directory_iterator(test::repository() / "composer/models")) {
    if (entry.path().extension() != ".h") continue;
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::string before = "\nCOMPOSER_EXPORT std::shared_ptr<Classifier> ";
    for (std::size_t at = text.find(before); at != std::string::npos; at = text.find(before, at + 1)) {
      const std::size_t name = at + before.size();
      declared.insert(text.substr(name, text.find('(', name) - name));
    }
  }
  const auto names = models::registry().names();
  CHECK(declared == std::set<std::string>(names.begin(), names.end()));
  CHECK(declared.size() == 8);
}

TEST_CASE("A ready model is made again from its name and its hyperparameters") {
  for (const std::string& name : models::registry().names()) {
    CAPTURE(name);
    Settings settings;
    if (name == "bert" || name == "gpt" || name == "vit") settings = {{"depth", "1"}, {"width", "24"}};
    const auto model = models::make(name, settings);
    CHECK(model->ready_name() == name);
    const auto again = models::make(model->ready_name(), model->local_hparams());
    CHECK(test::parameter_count(*again) == test::parameter_count(*model));
    CHECK(again->named_parameters().keys() == model->named_parameters().keys());
  }
  CHECK(test::parameter_count(*models::make("mlp", {{"features", "4 8 3"}})) ==
        test::parameter_count(*models::mlp({.features = {4, 8, 3}})));
}

TEST_CASE("Names and options that no ready model has are refused with those that there are") {
  CHECK_THROWS_WITH_AS(models::make("resnet20"), doctest::Contains("resnet_cifar"), ConfigError);
  CHECK_THROWS_WITH_AS(models::make("gpt", {{"layers", "3"}}), doctest::Contains("depth"), ConfigError);
  CHECK_THROWS_WITH_AS(models::make("mlp", {{"features", "4,3"}}), doctest::Contains("features"), ConfigError);
  CHECK_THROWS_WITH_AS(models::make("gpt", {{"width", "10"}}), doctest::Contains("multiple of heads"), ConfigError);
}

}  // namespace composer::models_registry_test
