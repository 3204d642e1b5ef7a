// Files that versions of this library and Python wrote; every later version reads them. They are never written again:
// a new version adds its own, made by `composer_interop make`.
#include "tests/checkpoint/golden.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "composer/checkpoint/pt_file.h"
#include "composer/checkpoint/safetensors.h"
#include "tests/checkpoint/tensors.h"

namespace composer::test {
namespace {

formats::NamedTensors in_order(formats::NamedTensors tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return tensors;
}

TEST_CASE("Files of earlier versions and of Python are read to the bit") {
  const formats::NamedTensors tensors = in_order(some_tensors());
  for (const std::string name : {"composer-0.1", "python-torch-2.15"}) {
    CAPTURE(name);
    const formats::SafetensorsFile file(golden_folder() / (name + ".safetensors"));
    CHECK(file.checksums() == name.starts_with("composer"));
    CHECK(same(in_order(file.read_all()), tensors));
    CHECK(same(in_order(formats::PtFile(golden_folder() / (name + ".pt")).read_all()), tensors));
  }
}

}  // namespace
}  // namespace composer::test
