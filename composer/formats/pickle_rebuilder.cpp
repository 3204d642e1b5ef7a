#include "composer/formats/pickle_rebuilder.h"

#include <algorithm>
#include <utility>

#include "composer/core/error.h"
#include "composer/formats/json_reader.h"
#include "composer/formats/pickle_globals.h"
#include "composer/formats/safetensors_header.h"

namespace composer::formats {
namespace {

constexpr std::size_t kLongestName = 256;  // of a class, a function or a storage

}  // namespace

std::size_t pickled_element_bytes(std::string_view dtype) { return dtype == "C128" ? 16 : element_bytes(dtype); }

PickleValue PickleRebuilder::global(std::string_view module, std::string_view name) {
  if (module.size() + name.size() > kLongestName) source_.fail("a class or function with a long name");
  const std::string full = std::string(module) + " " + std::string(name);
  if (is_allowed_global(full)) return values_.make_string(full, Kind::GLOBAL);
  if (is_passed_over_global(full)) return {.kind = Kind::UNKNOWN};
  const std::string said = shown(module) + "." + shown(name);
  if (values_.pickle().skipped.empty()) values_.pickle().skipped = said;
  return pass_over(said + ": a class or function that weights do not need");
}

PickleValue PickleRebuilder::pass_over(const std::string& what) const {
  if (!options_.allow_unknown) source_.refuse(what + " (allow_unknown skips it),");
  return {.kind = Kind::UNKNOWN};
}

PickleValue PickleRebuilder::reduce(const PickleValue& function, const PickleValue& arguments) {
  if (function.kind == Kind::UNKNOWN) return function;
  if (function.kind != Kind::GLOBAL) source_.fail("REDUCE of something other than a class or function");
  const std::string& name = values_.text(function);
  if (is_script_class(name)) return values_.make(Kind::OBJECT, {});
  if (name == "collections OrderedDict") return ordered_dict(values_.tuple(arguments, 0, 1));
  if (name == "torch._utils _rebuild_tensor_v2") return rebuild_tensor(values_.tuple(arguments, 6, 7), false);
  if (name == "torch._utils _rebuild_tensor_v3") return rebuild_tensor(values_.tuple(arguments, 7, 8), true);
  if (name == "torch._tensor _rebuild_from_type_v2") return rebuild_from_type(values_.tuple(arguments, 4, 4));
  if (name == "torch._utils _rebuild_parameter" || name == "torch._utils _rebuild_parameter_with_state") {
    const PickleValue& data = values_.tuple(arguments, 3, 4).front();
    if (data.kind != Kind::TENSOR && data.kind != Kind::UNKNOWN)
      source_.fail("a parameter of something other than a tensor");
    return data;
  }
  if (name == "torch Size" || name == "torch device" || name == "_codecs encode") {  // their first argument says it all
    const PickleValue& first = values_.tuple(arguments, 1, 2).front();
    if (first.kind != (name == "torch Size" ? Kind::TUPLE : Kind::STRING)) source_.fail(name + " of something else");
    return first;
  }
  if (name.starts_with("torch.jit._pickle "))
    return values_.tuple(arguments, 1, 2).front();  // a list, and what it is of
  if (name == "builtins set" || name == "__builtin__ set") {
    const Items& given = values_.tuple(arguments, 0, 1);
    if (given.empty()) return values_.make(Kind::LIST, {});
    if (given.front().kind != Kind::LIST) source_.fail("a set of something other than a list");
    return given.front();
  }
  source_.fail("REDUCE of " + name);
}

// The attributes of TorchScript's objects are their content. Those of others, such as the _metadata of a state_dict,
// are nothing that anybody asks for.
void PickleRebuilder::build(const PickleValue& object, const PickleValue& state) {
  if (object.kind == Kind::OBJECT && state.kind == Kind::DICT) {
    values_.spend(values_.items(state).size());
    values_.items_of(object, Kind::OBJECT) = Items(values_.items(state));
    return;
  }
  const auto kinds = {Kind::DICT, Kind::OBJECT, Kind::TENSOR, Kind::UNKNOWN};
  if (std::find(kinds.begin(), kinds.end(), object.kind) == kinds.end())
    source_.fail("BUILD of something other than a dict");
}

// Of nothing, or of a list of pairs.
PickleValue PickleRebuilder::ordered_dict(const Items& arguments) {
  Items dict;
  if (!arguments.empty()) {
    const PickleValue& list = arguments.front();
    if (list.kind != Kind::LIST) source_.fail("an OrderedDict of something other than a list");
    values_.spend(values_.items(list).size());
    for (const PickleValue& entry : values_.items(list)) {
      const bool is_pair = (entry.kind == Kind::TUPLE || entry.kind == Kind::LIST) && values_.items(entry).size() == 2;
      if (!is_pair) source_.fail("an OrderedDict of something other than pairs");
      const Items& pair = values_.items(entry);
      dict.insert(dict.end(), pair.begin(), pair.end());
    }
  }
  return values_.make(Kind::DICT, std::move(dict));
}

// A tensor with attributes: (how to make it, its class, with what, its attributes).
PickleValue PickleRebuilder::rebuild_from_type(const Items& arguments) {
  const auto is = [&](const PickleValue& value, std::initializer_list<std::string_view> names) {
    return value.kind == Kind::GLOBAL && std::find(names.begin(), names.end(), values_.text(value)) != names.end();
  };
  if (!is(arguments[0],
          {"torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor_v3", "torch._utils _rebuild_parameter"}) ||
      !is(arguments[1], {"torch Tensor", "torch.nn.parameter Parameter"}))
    return pass_over("a tensor of a class of its own");
  const PickleValue function = arguments[0], with = arguments[2];  // `arguments` moves when values are made
  return reduce(function, with);
}

// ("storage", its class, its key, the device, the number of elements)
PickleValue PickleRebuilder::storage(const PickleValue& id) {
  const Items& parts = values_.tuple(id, 5, 5);
  if (values_.string(parts[0]) != "storage") source_.fail("a reference to something other than a storage");
  if (values_.string(parts[2]).size() > kLongestName) source_.fail("a storage with a long name");
  if (parts[1].kind == Kind::UNKNOWN) return parts[1];  // of a dtype that is unknown
  if (parts[1].kind != Kind::GLOBAL) source_.fail("a storage without a class");
  const std::string_view dtype = dtype_of_storage(values_.text(parts[1]));
  if (dtype.empty()) source_.fail("an unknown class of storage");
  PickleStorage storage{.key = values_.string(parts[2]),
                        .dtype = std::string(dtype),
                        .elements = static_cast<std::uint64_t>(values_.natural(parts[4]))};
  std::uint64_t bytes = 0;
  if (!tensor_bytes({values_.natural(parts[4])}, pickled_element_bytes(dtype), bytes))
    source_.fail("a storage that is too large");
  // Each tensor repeats the description of its storage; one of each is kept, whatever the pickle's length.
  const auto [known, added] =
      storages_.emplace(storage.key, static_cast<std::uint32_t>(values_.pickle().storages.size()));
  if (added) {
    values_.pickle().storages.push_back(std::move(storage));
  } else {
    const PickleStorage& other = values_.pickle().storages[known->second];
    if (other.dtype != storage.dtype || other.elements != storage.elements)
      source_.fail("two different descriptions of the storage " + shown(storage.key) + ",");
  }
  return value_of(Kind::STORAGE, known->second);
}

// (storage, offset, shape, strides, requires_grad, hooks, dtype, metadata): with or without the last two
PickleValue PickleRebuilder::rebuild_tensor(const Items& arguments, bool with_dtype) {
  if (arguments[0].kind == Kind::UNKNOWN) return arguments[0];
  if (arguments[0].kind != Kind::STORAGE) source_.fail("a tensor without a storage");
  PickleTensor tensor{.storage = arguments[0].index,
                      .dtype = values_.pickle().storages[arguments[0].index].dtype,
                      .offset = static_cast<std::uint64_t>(values_.natural(arguments[1])),
                      .shape = values_.naturals(arguments[2]),
                      .strides = values_.naturals(arguments[3])};
  if (with_dtype) {
    const PickleValue& dtype = arguments[6];
    tensor.dtype = dtype.kind == Kind::GLOBAL ? dtype_of_name(values_.text(dtype)) : "";
    if (tensor.dtype.empty()) return pass_over("a tensor of an unknown dtype");
  }
  check_bounds(tensor);
  if (const std::size_t at = with_dtype ? 7 : 6; at < arguments.size()) read_metadata(arguments[at], tensor);
  values_.pickle().tensors.push_back(std::move(tensor));
  return value_of(Kind::TENSOR, values_.pickle().tensors.size() - 1);
}

// A dict of flags: torch.save writes conjugate and negative views with the storage that they are views of.
void PickleRebuilder::read_metadata(const PickleValue& metadata, PickleTensor& tensor) {
  if (metadata.kind == Kind::NONE) return;
  if (metadata.kind != Kind::DICT) source_.fail("metadata of a tensor that are no dict");
  const Items& items = values_.items(metadata);
  values_.spend(items.size());
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    const std::string& key = values_.string(items[i]);
    bool* flag = key == "conj" ? &tensor.conjugate : key == "neg" ? &tensor.negative : nullptr;
    if (!flag || items[i + 1].kind != Kind::BOOL)
      source_.refuse("metadata " + shown(key) + " of a tensor, which are unknown,");
    *flag = items[i + 1].integer != 0;
  }
  const bool complex = tensor.dtype.starts_with('C');
  if (tensor.conjugate && !complex) source_.fail("a conjugate tensor of " + tensor.dtype);
  const bool has_sign = complex || (tensor.dtype.find("F8") == std::string::npos &&
                                    tensor.dtype.find_first_of("FI") != std::string::npos);
  if (tensor.negative && !has_sign) source_.fail("a negative tensor of " + tensor.dtype);
}

// Every element lies within the storage. All numbers are below 2^63, so that no sum of two overflows.
void PickleRebuilder::check_bounds(const PickleTensor& tensor) const {
  const PickleStorage& storage = values_.pickle().storages[tensor.storage];
  if (tensor.shape.size() != tensor.strides.size())
    source_.fail("a tensor whose numbers of dimensions and strides differ");
  const std::size_t element = pickled_element_bytes(tensor.dtype);
  std::uint64_t bytes = 0;
  if (!tensor_bytes(tensor.shape, element, bytes)) source_.fail("a tensor that is too large");
  const std::uint64_t room = storage.elements * pickled_element_bytes(storage.dtype) / element;
  const bool empty = std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
  std::uint64_t last = tensor.offset;
  bool within = empty ? last <= room : last < room;
  for (std::size_t i = 0; i < tensor.shape.size() && within && !empty; ++i) {
    const auto steps = static_cast<std::uint64_t>(tensor.shape[i] - 1),
               stride = static_cast<std::uint64_t>(tensor.strides[i]);
    within = steps == 0 || stride <= (room - 1 - last) / steps;
    if (within) last += steps * stride;
  }
  if (!within) source_.fail("a tensor that exceeds its storage");
}

}  // namespace composer::formats
