#pragma once
#include <exception>

namespace composer {

// Whether the error, or one nested in it, is an out-of-memory error.
bool is_out_of_memory(const std::exception_ptr& error);

}  // namespace composer
