// A whole .pt file: zip, pickle, and the names of the tensors.
#include "composer/formats/pt_index.h"
#include "tests/fuzz/fuzz.h"

using namespace composer;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const formats::PtIndex file(fuzz::file_of(data, size), {.allow_unknown = size % 2 == 0});
    for (const auto& [name, at] : file.tensors) {
      const formats::PickleTensor& tensor = file.pickle.tensors.at(at);
      fuzz::require(file.storages.at(tensor.storage)->size <= 64 * size);
    }
  } catch (const CheckpointError&) {
  }
  return 0;
}
