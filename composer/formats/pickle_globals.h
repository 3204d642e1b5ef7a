#pragma once
#include <string_view>

namespace composer::formats {

// The classes and functions that a pickle of weights may name, as "module name".
bool is_allowed_global(std::string_view name);
// Classes without relation to weights that checkpoints often have, and that torch.load(weights_only=True) allows or
// MosaicML Composer's checkpoints need.
bool is_passed_over_global(std::string_view name);
// Classes of TorchScript, whose objects have their attributes in a dict: modules of torch::save and of torch.jit.save.
bool is_script_class(std::string_view name);

// The dtype, by its name in safetensors, of "torch FloatStorage" or "torch float32"; empty for another name.
std::string_view dtype_of_storage(std::string_view name);
std::string_view dtype_of_name(std::string_view name);

// The names of a dtype for a writer: the class of its storage, empty if it has none of its own, and its own name.
std::string_view storage_of_dtype(std::string_view dtype);
std::string_view name_of_dtype(std::string_view dtype);

}  // namespace composer::formats
