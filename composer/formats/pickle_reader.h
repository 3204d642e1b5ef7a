#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/export.h"

namespace composer::formats {

// What a pickle holds. Numbers and truth values are held here, everything else lies in the Pickle at `index`.
struct PickleValue {
  enum class Kind : std::uint8_t {
    NONE,
    BOOL,
    INTEGER,
    REAL,
    STRING,  // or bytes
    TUPLE,
    LIST,    // or a set
    DICT,    // keys and values take turns
    GLOBAL,  // a name on the list, "torch FloatStorage"
    STORAGE,
    TENSOR,
    UNKNOWN,  // made of what is not on the list; nothing is known of it
  };
  Kind kind = Kind::NONE;
  union {
    std::int64_t integer = 0;
    double real;
    std::uint32_t index;
  };
};

// The memory of tensors: an entry of the zip file.
struct PickleStorage {
  std::string key;    // data/KEY
  std::string dtype;  // as safetensors has it; C128 beside. "U8" if untyped
  std::uint64_t elements = 0;
};

struct PickleTensor {
  std::uint32_t storage = 0;
  std::string dtype;
  std::uint64_t offset = 0;  // in elements of dtype, as the strides are
  std::vector<std::int64_t> shape, strides;
};

struct Pickle {
  PickleValue root;
  std::vector<std::string> strings;  // of STRING and GLOBAL
  std::vector<std::vector<PickleValue>> items;
  std::vector<PickleStorage> storages;
  std::vector<PickleTensor> tensors;
};

struct PickleOptions {
  // A class or function that is not on the list: an error, or a value of kind UNKNOWN, as what is made of some that
  // MosaicML Composer's checkpoints need always is. It is never called in any case.
  bool allow_unknown = false;
};

// Reads the pickle of a torch.save file as data: a list of opcodes and names, that of torch.load(weights_only=True),
// and no code, whatever the file says. Everything else is a CheckpointError with the opcode or name and its byte.
// Tensors are checked to lie within their storages. Takes at most some 120 times the pickle's size in memory: an empty
// list is one byte there.
COMPOSER_EXPORT Pickle read_pickle(std::string_view bytes, const std::string& name, PickleOptions options = {});

// Bytes of an element; as element_bytes(), and C128.
COMPOSER_EXPORT std::size_t pickled_element_bytes(std::string_view dtype);

}  // namespace composer::formats
