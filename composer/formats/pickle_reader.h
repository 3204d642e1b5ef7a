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
    STRING,  // text or bytes
    TUPLE,
    LIST,    // a list or a set
    DICT,    // keys and values alternate
    OBJECT,  // an object of TorchScript: keys and values of its attributes alternate
    GLOBAL,  // an allowed name, such as "torch FloatStorage"
    STORAGE,
    TENSOR,
    UNKNOWN,  // created by a class or function that is not allowed
  };
  Kind kind = Kind::NONE;
  union {
    std::int64_t integer = 0;
    double real;
    std::uint32_t index;
  };
};

// The memory of tensors, which is an entry of the zip file.
struct PickleStorage {
  std::string key;    // the entry is data/KEY
  std::string dtype;  // name as in safetensors, or C128. "U8" if untyped
  std::uint64_t elements = 0;
};

struct PickleTensor {
  std::uint32_t storage = 0;
  std::string dtype;
  std::uint64_t offset = 0;  // in elements of dtype, like the strides
  std::vector<std::int64_t> shape, strides;
  bool conjugate = false, negative = false;  // the storage has the conjugate or the negative of the values
};

struct Pickle {
  PickleValue root;
  std::vector<std::string> strings;  // values of kind STRING and GLOBAL
  std::vector<std::vector<PickleValue>> items;
  std::vector<PickleStorage> storages;
  std::vector<PickleTensor> tensors;
  std::string skipped;  // the first class or function that was skipped because of allow_unknown; empty: none
};

struct PickleOptions {
  // What happens to classes and functions that are not allowed, and to tensors of an unknown dtype or class: they are
  // errors or, if true, values of kind UNKNOWN. Some classes that checkpoints often contain are always UNKNOWN, and so
  // are integers of more than 64 bits. Nothing is ever called.
  bool allow_unknown = false;
};

// Reads the pickle of a torch.save file as data, without executing code from it. Accepts the opcodes and names of
// torch.load(weights_only=True), and objects of TorchScript. Any other opcode or name is an UnsupportedError, which
// names it and its byte; a pickle that contradicts itself is a CheckpointError. Checks that tensors lie within their
// storages. Needs at most about 120 times the pickle's size in memory (an empty list is one byte in the pickle).
Pickle read_pickle(std::string_view bytes, const std::string& name, PickleOptions options = {});

// Bytes of an element: like element_bytes(), and also for C128.
std::size_t pickled_element_bytes(std::string_view dtype);

}  // namespace composer::formats
