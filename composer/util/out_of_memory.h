#pragma once
#include <exception>

namespace composer {

// Whether an error, or one nested in it, says that memory was short.
bool is_out_of_memory(const std::exception_ptr& error);

}  // namespace composer
