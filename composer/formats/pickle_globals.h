#pragma once
#include <string_view>

namespace composer::formats {

// The classes and functions that a pickle of weights may name, as "module name".
bool is_allowed_global(std::string_view name);
// Those that tell nothing of weights, and are known to be in the checkpoints of MosaicML Composer.
bool is_passed_over_global(std::string_view name);

// The dtype, as safetensors has it, of "torch FloatStorage" or "torch float32"; empty for another name.
std::string_view dtype_of_storage(std::string_view name);
std::string_view dtype_of_name(std::string_view name);

// What a writer calls the dtype: the class of its storage, or empty if it has none of its own; and its name.
std::string_view storage_of_dtype(std::string_view dtype);
std::string_view name_of_dtype(std::string_view dtype);

}  // namespace composer::formats
