#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace composer::formats {

// A value in a pickle. Numbers and booleans are stored here, everything else in the Pickle at `index`.
struct PickleValue {
  enum class Kind : std::uint8_t {
    NONE,
    BOOL,
    INTEGER,
    REAL,
    STRING,  // or bytes
    TUPLE,
    LIST,    // or a set
    DICT,    // keys and values alternate
    OBJECT,  // of TorchScript: the same, of its attributes
    GLOBAL,  // a name on the list, "torch FloatStorage"
    STORAGE,
    TENSOR,
    UNKNOWN,  // created by a class or function that is not on the list
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
  std::string dtype;  // name as in safetensors, or C128. "U8" if untyped
  std::uint64_t elements = 0;
};

struct PickleTensor {
  std::uint32_t storage = 0;
  std::string dtype;
  std::uint64_t offset = 0;  // in elements of dtype, as the strides are
  std::vector<std::int64_t> shape, strides;
  bool conjugate = false, negative = false;  // the storage has the other value
};

struct Pickle {
  PickleValue root;
  std::vector<std::string> strings;  // of STRING and GLOBAL
  std::vector<std::vector<PickleValue>> items;
  std::vector<PickleStorage> storages;
  std::vector<PickleTensor> tensors;
  std::string skipped;  // the first class or function that allow_unknown has passed over; empty: none
};

struct PickleOptions {
  // A class or function that is not on the list, or a tensor of an unknown dtype or of a class of its own: an error or,
  // if true, a value of kind UNKNOWN. Some that checkpoints often have are always UNKNOWN, and so are integers of more
  // than 64 bits. They are never called.
  bool allow_unknown = false;
};

// Reads the pickle of a torch.save file as data, without executing code from it. Accepts the opcodes and names of
// torch.load(weights_only=True), and objects of TorchScript; anything else is an UnsupportedError with the opcode or
// name and its byte, and a pickle that contradicts itself is a CheckpointError. Checks that tensors lie within their
// storages. Needs at most about 120 times the pickle's size in memory (an empty list is one
// byte in the pickle).
Pickle read_pickle(std::string_view bytes, const std::string& name, PickleOptions options = {});

// Bytes of an element; as element_bytes(), plus C128.
std::size_t pickled_element_bytes(std::string_view dtype);

}  // namespace composer::formats
