// No manifest is written that is too long to be read.
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>

#include "composer/checkpoint/manifest.h"
#include "composer/core/error.h"
#include "composer/formats/unsupported.h"
#include "composer/util/json.h"
#include "tests/checkpoint/checkpoints.h"
#include "tests/support/doctest.h"
#include "tests/support/warnings.h"

namespace composer::saving::long_manifest_test {
namespace {

using test::manifest_of;
using test::Scratch;
using test::Warnings;

constexpr std::size_t kName = 1 << 20;

// Of a megabyte; the last come first.
std::string long_name(int number) { return "eval/" + std::to_string(number) + std::string(kName, 'x'); }

std::map<std::string, double> long_metrics(int from, int to) {
  std::map<std::string, double> metrics;
  for (int i = from; i < to; ++i) metrics[long_name(i)] = i + 0.5;
  return metrics;
}

TEST_CASE("Metrics are left out of a manifest, with a warning, that would be too long to be read") {
  const Warnings warnings;
  Manifest manifest = manifest_of(1, "ba1");
  manifest.metrics = long_metrics(0, 9);
  const std::string text = manifest.to_json();
  CHECK(text.size() <= util::kLongestJson);
  CHECK(Manifest::parse(text, "m").metrics == long_metrics(0, 7));
  CHECK(warnings.texts.size() == 1);
  CHECK(warnings.say("2 of 9 metrics, the last by name, are left out"));
}

TEST_CASE("A manifest of just the longest that is read is whole") {
  const Warnings warnings;
  Manifest manifest = manifest_of(1, "ba1");
  manifest.metrics = long_metrics(0, 7);
  manifest.metrics["f"] = 0;
  const std::size_t rest = util::kLongestJson - manifest.to_json().size();
  for (const std::size_t more : {rest, rest + 1}) {
    Manifest longer = manifest;
    longer.run_name += std::string(more, 'r');
    const std::string text = longer.to_json();
    CHECK(Manifest::parse(text, "m").metrics.size() == (more == rest ? 8 : 7));
    CHECK(warnings.texts.empty() == (more == rest));
  }
}

TEST_CASE("A manifest that is too long without its metrics is refused, and says by what") {
  Manifest manifest = manifest_of(1, "ba1");
  manifest.run_name = std::string(util::kLongestJson, 'r');
  CHECK_THROWS_WITH_AS(manifest.to_json(), doctest::Contains("its run_name has 8388608 bytes"), ConfigError);
}

TEST_CASE("A checkpoint can be read after more metrics were added to it than its manifest can hold") {
  const Warnings warnings;
  const Scratch scratch;
  Manifest manifest = manifest_of(1, "ba1");
  manifest.metrics = long_metrics(0, 5);
  CheckpointFolder folder(scratch.path, "run", real_files());
  folder.write(manifest, test::files_of(1), "latest");
  CHECK(warnings.texts.empty());
  folder.add_metrics("ba1", "1", long_metrics(4, 9));
  CHECK(open_checkpoint(scratch.path / "ba1").manifest.metrics == long_metrics(0, 7));
  CHECK(warnings.say("are left out"));
}

TEST_CASE("A manifest that is too long is not supported, which is not damage") {
  const Scratch scratch;
  test::write(scratch.path, 1, real_files(), "ba1");
  std::ofstream(scratch.path / "ba1/manifest.json") << std::string(util::kLongestJson + 1, ' ');
  CHECK_THROWS_WITH_AS(open_checkpoint(scratch.path / "ba1"), doctest::Contains("is too long for a manifest"),
                       formats::UnsupportedError);
}

TEST_CASE("The time to read a manifest grows with its length, and not with the square of it") {
  const auto time_of = [](int metrics) {
    Manifest manifest = manifest_of(1, "ba1");
    for (int i = 0; i < metrics; ++i) manifest.metrics["eval/" + std::to_string(i) + std::string(80, 'x')] = i + 0.5;
    const std::string text = manifest.to_json();
    const std::clock_t begin = std::clock();
    CHECK(Manifest::parse(text, "m").metrics.size() == manifest.metrics.size());
    return std::clock() - begin;
  };
  CHECK(time_of(64000) < 40 * time_of(6400));  // the square: 100 times
}

}  // namespace
}  // namespace composer::saving::long_manifest_test
