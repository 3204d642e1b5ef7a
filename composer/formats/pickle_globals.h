#pragma once
#include <string_view>

namespace composer::formats {

// The classes and functions that a pickle of weights may name, as "module name".
bool is_allowed_global(std::string_view name);
// Classes without relation to weights that are known to be in checkpoints of MosaicML Composer.
bool is_passed_over_global(std::string_view name);

// The dtype, by its name in safetensors, of "torch FloatStorage" or "torch float32"; empty for another name.
std::string_view dtype_of_storage(std::string_view name);
std::string_view dtype_of_name(std::string_view name);

// The names of a dtype for a writer: the class of its storage, empty if it has none of its own, and its own name.
std::string_view storage_of_dtype(std::string_view dtype);
std::string_view name_of_dtype(std::string_view dtype);

}  // namespace composer::formats
