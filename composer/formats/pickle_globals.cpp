#include "composer/formats/pickle_globals.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace composer::formats {
namespace {

struct Type {
  std::string_view dtype, storage, name;
};

// Dtypes without a storage class are kept in untyped storages.
constexpr Type kPickledTypes[] = {
    {"F32", "torch FloatStorage", "torch float32"},
    {"F64", "torch DoubleStorage", "torch float64"},
    {"F16", "torch HalfStorage", "torch float16"},
    {"BF16", "torch BFloat16Storage", "torch bfloat16"},
    {"I64", "torch LongStorage", "torch int64"},
    {"I32", "torch IntStorage", "torch int32"},
    {"I16", "torch ShortStorage", "torch int16"},
    {"I8", "torch CharStorage", "torch int8"},
    {"U8", "torch ByteStorage", "torch uint8"},
    {"BOOL", "torch BoolStorage", "torch bool"},
    {"C64", "torch ComplexFloatStorage", "torch complex64"},
    {"C128", "torch ComplexDoubleStorage", "torch complex128"},
    {"U16", "", "torch uint16"},
    {"U32", "", "torch uint32"},
    {"U64", "", "torch uint64"},
    {"F8_E4M3", "", "torch float8_e4m3fn"},
    {"F8_E5M2", "", "torch float8_e5m2"},
    {"F8_E4M3FNUZ", "", "torch float8_e4m3fnuz"},
    {"F8_E5M2FNUZ", "", "torch float8_e5m2fnuz"},
    {"F8_E8M0", "", "torch float8_e8m0fnu"},
};

// The names that libtorch in C++ gives to storages of dtypes without a storage class.
constexpr std::pair<std::string_view, std::string_view> kArchiveStorages[] = {
    {"torch UInt16Storage", "U16"},
    {"torch UInt32Storage", "U32"},
    {"torch UInt64Storage", "U64"},
    {"torch Float8_e4m3fnStorage", "F8_E4M3"},
    {"torch Float8_e5m2Storage", "F8_E5M2"},
    {"torch Float8_e4m3fnuzStorage", "F8_E4M3FNUZ"},
    {"torch Float8_e5m2fnuzStorage", "F8_E5M2FNUZ"},
    {"torch Float8_e8m0fnuStorage", "F8_E8M0"},
};

constexpr std::string_view kOthers[] = {
    "collections OrderedDict",
    "torch Size",
    "torch device",
    "torch Tensor",
    "torch.nn.parameter Parameter",
    "torch.storage UntypedStorage",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_tensor_v3",
    "torch._utils _rebuild_parameter",
    "torch._utils _rebuild_parameter_with_state",
    "torch._tensor _rebuild_from_type_v2",
    "_codecs encode",
    "__builtin__ set",
    "builtins set",
    "torch.jit._pickle build_boollist",
    "torch.jit._pickle build_doublelist",
    "torch.jit._pickle build_intlist",
    "torch.jit._pickle build_tensorlist",
    "torch.jit._pickle restore_type_tag",
};

// What checkpoints contain besides weights: counters, times, versions, and numbers and random state of numpy.
constexpr std::string_view kPassedOver[] = {
    "__builtin__ bytearray",
    "builtins bytearray",
    "collections Counter",
    "datetime timedelta",
    "numpy dtype",
    "numpy ndarray",
    "numpy._core.multiarray _reconstruct",
    "numpy._core.multiarray scalar",
    "numpy.core.multiarray _reconstruct",
    "numpy.core.multiarray scalar",
    "torch.torch_version TorchVersion",
};

std::string_view find_type(std::string_view Type::*key, std::string_view wanted, std::string_view Type::*value) {
  if (wanted.empty()) return {};
  const auto* at = std::find_if(std::begin(kPickledTypes), std::end(kPickledTypes),
                                [&](const Type& type) { return type.*key == wanted; });
  return at == std::end(kPickledTypes) ? std::string_view() : at->*value;
}

}  // namespace

bool is_allowed_global(std::string_view name) {
  return std::find(std::begin(kOthers), std::end(kOthers), name) != std::end(kOthers) || is_script_class(name) ||
         !dtype_of_storage(name).empty() || !dtype_of_name(name).empty();
}

bool is_passed_over_global(std::string_view name) {
  return std::find(std::begin(kPassedOver), std::end(kPassedOver), name) != std::end(kPassedOver);
}

bool is_script_class(std::string_view name) { return name.starts_with("__torch__ ") || name.starts_with("__torch__."); }

std::string_view dtype_of_storage(std::string_view name) {
  if (name == "torch.storage UntypedStorage") return "U8";
  for (const auto& [storage, dtype] : kArchiveStorages)
    if (name == storage) return dtype;
  return find_type(&Type::storage, name, &Type::dtype);
}
std::string_view dtype_of_name(std::string_view name) { return find_type(&Type::name, name, &Type::dtype); }
std::string_view storage_of_dtype(std::string_view dtype) { return find_type(&Type::dtype, dtype, &Type::storage); }
std::string_view name_of_dtype(std::string_view dtype) { return find_type(&Type::dtype, dtype, &Type::name); }

}  // namespace composer::formats
