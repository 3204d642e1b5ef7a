#include "composer/metrics/registry.h"

#include <cmath>
#include <set>

#include <ATen/ATen.h>

#include "tests/support/doctest.h"

namespace composer::registry_test {
namespace {

// What the options that must be given need.
Settings required(const Entry<Metrics>& entry) {
  Settings settings;
  for (const OptionInfo& option : entry.options)
    if (option.example) settings[option.name] = *option.example;
  return settings;
}

}  // namespace

TEST_CASE("Every metric made by name has its own name or the one given, and nothing at first") {
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
    Settings settings = required(entry);
    settings["name"] = "mine";
    CHECK((*entry.make(settings).begin())->name() == "mine");
  }
  CHECK(names.size() == metrics::registry().names().size());
}

}  // namespace composer::registry_test
