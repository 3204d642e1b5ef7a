#pragma once
#include <string_view>

namespace composer::formats {

// Whether a pickle of weights may name this class or function, "module name".
bool is_allowed_global(std::string_view name);
// Whether the class is unrelated to weights, but occurs in checkpoints: torch.load(weights_only=True) allows it, or
// MosaicML Composer's checkpoints contain it.
bool is_passed_over_global(std::string_view name);
// Whether the class is one of TorchScript (torch::save, torch.jit.save), whose objects have their attributes in a dict.
bool is_script_class(std::string_view name);

// The dtype, as named in safetensors, of "torch FloatStorage" or "torch float32"; empty for any other name.
std::string_view dtype_of_storage(std::string_view name);
std::string_view dtype_of_name(std::string_view name);

// The names of a dtype for a writer: the class of its storage (empty if it has no class), and the dtype's own name.
std::string_view storage_of_dtype(std::string_view dtype);
std::string_view name_of_dtype(std::string_view dtype);

}  // namespace composer::formats
