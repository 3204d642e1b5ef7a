// A pickle, with and without unknown classes: every tensor that is accepted lies within its storage.
#include "composer/formats/pickle_reader.h"
#include "tests/fuzz/fuzz.h"

using namespace composer;
__extension__ using Wide = unsigned __int128;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const bool allow_unknown : {false, true}) try {
      const formats::Pickle pickle = formats::read_pickle(bytes, "input", {.allow_unknown = allow_unknown});
      for (const formats::PickleTensor& tensor : pickle.tensors) {
        const formats::PickleStorage& storage = pickle.storages.at(tensor.storage);
        Wide last = tensor.offset;
        bool empty = false;
        for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
          empty |= tensor.shape[i] == 0;
          if (tensor.shape[i] > 0)
            last += static_cast<Wide>(tensor.shape[i] - 1) * static_cast<std::uint64_t>(tensor.strides.at(i));
        }
        const Wide room = static_cast<Wide>(storage.elements) * formats::pickled_element_bytes(storage.dtype);
        fuzz::require(empty || (last + 1) * formats::pickled_element_bytes(tensor.dtype) <= room);
      }
    } catch (const CheckpointError&) {
    }
  return 0;
}
