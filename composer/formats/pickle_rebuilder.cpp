// Builds the values of the allowed names in a pickle. Nothing is called: each value is put together from others and
// checked.
#include <algorithm>
#include <utility>

#include "composer/core/error.h"
#include "composer/formats/json_reader.h"
#include "composer/formats/pickle_globals.h"
#include "composer/formats/pickle_machine.h"
#include "composer/formats/safetensors_header.h"

namespace composer::formats {
namespace {

constexpr std::size_t kLongestName = 256;  // of the name of a class, a function or a storage

}  // namespace

std::size_t pickled_element_bytes(std::string_view dtype) { return dtype == "C128" ? 16 : element_bytes(dtype); }

PickleValue PickleMachine::global(std::string_view module, std::string_view name) {
  if (module.size() + name.size() > kLongestName) fail("a class or function with a long name");
  const std::string full = std::string(module) + " " + std::string(name);
  if (is_allowed_global(full)) return make_string(full, Kind::GLOBAL);
  if (is_passed_over_global(full)) return {.kind = Kind::UNKNOWN};
  const std::string said = shown(module) + "." + shown(name);
  if (result_.skipped.empty()) result_.skipped = said;
  return pass_over(said + ": a class or function that weights do not need");
}

const PickleMachine::Items& PickleMachine::tuple(const PickleValue& value, std::size_t least, std::size_t most) const {
  if (value.kind != Kind::TUPLE) fail("a tuple is needed");
  const Items& items = result_.items[value.index];
  if (items.size() < least || items.size() > most) fail(join("a tuple of ", items.size(), " values"));
  return items;
}

const std::string& PickleMachine::string(const PickleValue& value) const {
  if (value.kind != Kind::STRING) fail("a text is needed");
  return result_.strings[value.index];
}

std::int64_t PickleMachine::natural(const PickleValue& value) const {
  if (value.kind != Kind::INTEGER || value.integer < 0) fail("an integer that is not negative is needed");
  return value.integer;
}

std::vector<std::int64_t> PickleMachine::naturals(const PickleValue& value) {
  std::vector<std::int64_t> numbers;
  const Items& items = tuple(value, 0, kMostDimensions);
  spend(items.size());
  for (const PickleValue& item : items) numbers.push_back(natural(item));
  return numbers;
}

PickleValue PickleMachine::reduce(const PickleValue& function, const PickleValue& arguments) {
  if (function.kind == Kind::UNKNOWN) return function;
  if (function.kind != Kind::GLOBAL) fail("REDUCE of something other than a class or function");
  const std::string& name = result_.strings[function.index];
  if (is_script_class(name)) return make(Kind::OBJECT, {});
  if (name == "collections OrderedDict") return ordered_dict(tuple(arguments, 0, 1));
  if (name == "torch._utils _rebuild_tensor_v2") return rebuild_tensor(tuple(arguments, 6, 7), false);
  if (name == "torch._utils _rebuild_tensor_v3") return rebuild_tensor(tuple(arguments, 7, 8), true);
  if (name == "torch._tensor _rebuild_from_type_v2") return rebuild_from_type(tuple(arguments, 4, 4));
  if (name == "torch._utils _rebuild_parameter" || name == "torch._utils _rebuild_parameter_with_state") {
    const PickleValue& data = tuple(arguments, 3, 4).front();
    if (data.kind != Kind::TENSOR && data.kind != Kind::UNKNOWN) fail("a parameter of something other than a tensor");
    return data;
  }
  // The first argument is the whole value.
  if (name == "torch Size" || name == "torch device" || name == "_codecs encode") {
    const PickleValue& first = tuple(arguments, 1, 2).front();
    if (first.kind != (name == "torch Size" ? Kind::TUPLE : Kind::STRING)) fail(name + " of something else");
    return first;
  }
  // The arguments are a list and its type.
  if (name.starts_with("torch.jit._pickle ")) return tuple(arguments, 1, 2).front();
  if (name == "builtins set" || name == "__builtin__ set") {
    const Items& given = tuple(arguments, 0, 1);
    if (given.empty()) return make(Kind::LIST, {});
    if (given.front().kind != Kind::LIST) fail("a set of something other than a list");
    return given.front();
  }
  fail("REDUCE of " + name);
}

// The attributes of TorchScript's objects are their contents. Attributes of other objects, such as the _metadata of a
// state_dict, are not needed.
void PickleMachine::build(const PickleValue& object, const PickleValue& state) {
  if (object.kind == Kind::OBJECT && state.kind == Kind::DICT) {
    spend(result_.items[state.index].size());
    result_.items[object.index] = Items(result_.items[state.index]);
    return;
  }
  const auto kinds = {Kind::DICT, Kind::OBJECT, Kind::TENSOR, Kind::UNKNOWN};
  if (std::find(kinds.begin(), kinds.end(), object.kind) == kinds.end()) fail("BUILD of something other than a dict");
}

// An ordered dict is made from nothing, or from a list of pairs.
PickleValue PickleMachine::ordered_dict(const Items& arguments) {
  Items dict;
  if (!arguments.empty()) {
    const PickleValue& list = arguments.front();
    if (list.kind != Kind::LIST) fail("an OrderedDict of something other than a list");
    spend(result_.items[list.index].size());
    for (const PickleValue& entry : result_.items[list.index]) {
      const bool is_pair =
          (entry.kind == Kind::TUPLE || entry.kind == Kind::LIST) && result_.items[entry.index].size() == 2;
      if (!is_pair) fail("an OrderedDict of something other than pairs");
      const Items& pair = result_.items[entry.index];
      dict.insert(dict.end(), pair.begin(), pair.end());
    }
  }
  return make(Kind::DICT, std::move(dict));
}

// A tensor with attributes: (function, class, the function's arguments, attributes).
PickleValue PickleMachine::rebuild_from_type(const Items& arguments) {
  const auto is = [&](const PickleValue& value, std::initializer_list<std::string_view> names) {
    return value.kind == Kind::GLOBAL &&
           std::find(names.begin(), names.end(), result_.strings[value.index]) != names.end();
  };
  if (!is(arguments[0],
          {"torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor_v3", "torch._utils _rebuild_parameter"}) ||
      !is(arguments[1], {"torch Tensor", "torch.nn.parameter Parameter"}))
    return pass_over("a tensor of a class of its own");
  // Copies, because `arguments` moves when values are made.
  const PickleValue function = arguments[0], with = arguments[2];
  return reduce(function, with);
}

// A storage is ("storage", its class, its key, the device, the number of elements).
PickleValue PickleMachine::storage(const PickleValue& id) {
  const Items& parts = tuple(id, 5, 5);
  if (string(parts[0]) != "storage") fail("a reference to something other than a storage");
  if (string(parts[2]).size() > kLongestName) fail("a storage with a long name");
  if (parts[1].kind == Kind::UNKNOWN) return parts[1];  // the dtype is unknown
  if (parts[1].kind != Kind::GLOBAL) fail("a storage without a class");
  const std::string_view dtype = dtype_of_storage(result_.strings[parts[1].index]);
  if (dtype.empty()) fail("an unknown class of storage");
  PickleStorage storage{
      .key = string(parts[2]), .dtype = std::string(dtype), .elements = static_cast<std::uint64_t>(natural(parts[4]))};
  std::uint64_t bytes = 0;
  if (!tensor_bytes({natural(parts[4])}, pickled_element_bytes(dtype), bytes)) fail("a storage that is too large");
  // Each tensor repeats the description of its storage. Only one copy is kept, so that memory stays in proportion.
  const auto [known, added] = storages_.emplace(storage.key, static_cast<std::uint32_t>(result_.storages.size()));
  if (added) {
    result_.storages.push_back(std::move(storage));
  } else {
    const PickleStorage& other = result_.storages[known->second];
    if (other.dtype != storage.dtype || other.elements != storage.elements)
      fail("two different descriptions of the storage " + shown(storage.key) + ",");
  }
  PickleValue value{.kind = Kind::STORAGE};
  value.index = known->second;
  return value;
}

// A tensor is (storage, offset, shape, strides, requires_grad, hooks, dtype, metadata), with or without the last two.
PickleValue PickleMachine::rebuild_tensor(const Items& arguments, bool with_dtype) {
  if (arguments[0].kind == Kind::UNKNOWN) return arguments[0];
  if (arguments[0].kind != Kind::STORAGE) fail("a tensor without a storage");
  PickleTensor tensor{.storage = arguments[0].index,
                      .dtype = result_.storages[arguments[0].index].dtype,
                      .offset = static_cast<std::uint64_t>(natural(arguments[1])),
                      .shape = naturals(arguments[2]),
                      .strides = naturals(arguments[3])};
  if (with_dtype) {
    const PickleValue& dtype = arguments[6];
    tensor.dtype = dtype.kind == Kind::GLOBAL ? dtype_of_name(result_.strings[dtype.index]) : "";
    if (tensor.dtype.empty()) return pass_over("a tensor of an unknown dtype");
  }
  check_bounds(tensor);
  if (const std::size_t at = with_dtype ? 7 : 6; at < arguments.size()) read_metadata(arguments[at], tensor);
  result_.tensors.push_back(std::move(tensor));
  PickleValue value{.kind = Kind::TENSOR};
  value.index = static_cast<std::uint32_t>(result_.tensors.size() - 1);
  return value;
}

// Reads the dict of flags: torch.save writes conjugate and negative views with the storage of the tensor that they
// view.
void PickleMachine::read_metadata(const PickleValue& metadata, PickleTensor& tensor) {
  if (metadata.kind == Kind::NONE) return;
  if (metadata.kind != Kind::DICT) fail("metadata of a tensor that are no dict");
  const Items& items = result_.items[metadata.index];
  spend(items.size());
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    const std::string& key = string(items[i]);
    bool* flag = key == "conj" ? &tensor.conjugate : key == "neg" ? &tensor.negative : nullptr;
    if (!flag || items[i + 1].kind != Kind::BOOL) refuse("metadata " + shown(key) + " of a tensor, which are unknown,");
    *flag = items[i + 1].integer != 0;
  }
  const bool complex = tensor.dtype.starts_with('C');
  if (tensor.conjugate && !complex) fail("a conjugate tensor of " + tensor.dtype);
  const bool has_sign = complex || (tensor.dtype.find("F8") == std::string::npos &&
                                    tensor.dtype.find_first_of("FI") != std::string::npos);
  if (tensor.negative && !has_sign) fail("a negative tensor of " + tensor.dtype);
}

// Checks that every element lies within the storage. All numbers are below 2^63, so sums of two do not overflow.
void PickleMachine::check_bounds(const PickleTensor& tensor) const {
  const PickleStorage& storage = result_.storages[tensor.storage];
  if (tensor.shape.size() != tensor.strides.size()) fail("a tensor whose numbers of dimensions and strides differ");
  const std::size_t element = pickled_element_bytes(tensor.dtype);
  std::uint64_t bytes = 0;
  if (!tensor_bytes(tensor.shape, element, bytes)) fail("a tensor that is too large");
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
  if (!within) fail("a tensor that exceeds its storage");
}

}  // namespace composer::formats
