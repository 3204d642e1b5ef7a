// The manifest of a checkpoint: what is accepted is written as it was read.
#include "composer/checkpoint/manifest.h"

#include "tests/fuzz/fuzz.h"

using namespace composer;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    fuzz::require(saving::Manifest::parse(text, "input").to_json() == text);
  } catch (const CheckpointError&) {
  }
  return 0;
}
