// Files that versions of this library and Python wrote; every later version reads them. They are never written again:
// a new version adds its own, made by `composer_interop make`.
#include "tests/checkpoint/golden.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <ATen/ATen.h>

#include "composer/checkpoint/saver.h"
#include "composer/checkpoint/state_file.h"
#include "composer/core/error.h"
#include "composer/formats/pt_file.h"
#include "composer/formats/safetensors.h"
#include "tests/formats/bytes.h"
#include "tests/formats/tensors.h"
#include "tests/support/doctest.h"

namespace composer::test::golden_test {
namespace {

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

// What a state may hold, one of each.
StateDict some_state() {
  StateDict model, moments, optimizer, state;
  model["fc.weight"] = at::arange(6).view({2, 3}) * 0.5;
  model["fc.bias"] = at::ones({2}, at::kBFloat16);
  model["mask"] = at::arange(3) > 0;
  moments["exp_avg"] = at::full({2, 3}, 0.25);
  moments["step"] = std::int64_t{3};
  optimizer["fc.weight"] = moments;
  state["model"] = model;
  state["optimizer"] = optimizer;
  state["text"] = std::string("\xC3\xA4 \"quoted\"\n");
  state["flag"] = true;
  state["number"] = 0.1;
  state["infinite"] = -HUGE_VAL;
  state["$odd"] = std::int64_t{1} << 53;
  return state;
}

std::string bytes_of(const StateDict& state) {
  std::string bytes;
  saving::write_state(state, "", placed_sink_to(bytes));
  return bytes;
}

TEST_CASE("Checkpoints of earlier versions are read to the bit") {
  for (const int version : {1, 2, 4}) {
    CAPTURE(version);
    const saving::Found found = saving::open_checkpoint(golden_folder() / join("checkpoint-", version));
    CHECK(found.manifest.version == version);
    CHECK(found.manifest.name == "ep1-ba3");
    CHECK(found.manifest.time.batch == 3);
    CHECK(found.manifest.number == (version < 4 ? 0 : 3));
    CHECK(found.manifest.fit == (version < 4 ? std::optional<std::int64_t>() : 1));
    CHECK(found.manifest.time.total_wct == Seconds(1.5));
    CHECK(found.manifest.metrics.at("eval/accuracy") == 0.75);
    const StateDict expected = some_state();
    StateDict loaded = saving::load(found), in_order;
    for (const auto& [name, value] : expected.entries()) in_order[name] = loaded[name];
    CHECK(loaded.size() == expected.size());
    CHECK(bytes_of(in_order) == bytes_of(expected));
  }
}

}  // namespace
}  // namespace composer::test::golden_test
