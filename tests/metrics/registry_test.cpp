#include "composer/metrics/registry.h"

#include <cmath>
#include <set>

#include <ATen/ATen.h>

#include <doctest/doctest.h>

#include "composer/core/error.h"

using namespace composer;

namespace {

// What the options that must be given need.
Settings required(const Entry<Metrics>& entry) {
  Settings settings;
  for (const OptionInfo& option : entry.options)
    if (option.example) settings[option.name] = *option.example;
  return settings;
}

}  // namespace

TEST_CASE("Every metric can be made by name, has its own name, and has nothing at first") {
  std::set<std::string> names;
  for (const std::string& key : metrics::registry().names()) {
    CAPTURE(key);
    const auto& entry = metrics::registry().find(key);
    const Metrics list = entry.make(required(entry));
    REQUIRE(list.size() == 1);
    const auto& metric = *list.begin();
    CHECK_FALSE(metric->name().empty());
    names.insert(metric->name());
    CHECK(metric->compute().dim() == 0);
    CHECK(std::isnan(metric->compute().item<double>()));
    CHECK(std::isnan(metric->fresh()->compute().item<double>()));
    CHECK(metric->fresh()->name() == metric->name());
    metric->reset();
  }
  CHECK(names.size() == metrics::registry().names().size());
}

TEST_CASE("Every option of a metric that is refused is refused, and another name can be given") {
  for (const std::string& key : metrics::registry().names()) {
    const auto& entry = metrics::registry().find(key);
    Settings settings = required(entry);
    settings["name"] = "mine";
    CHECK((*entry.make(settings).begin())->name() == "mine");
    for (const OptionInfo& option : entry.options) {
      for (const std::string& text : option.refused) {
        CAPTURE(option.name);
        CAPTURE(text);
        Settings bad = required(entry);
        bad[option.name] = text;
        CHECK_THROWS_AS(entry.make(bad), ConfigError);
      }
    }
  }
}
