#pragma once
#include <string_view>

namespace composer::net {

// Whether no part of the path is empty, "." or "..".
bool is_plain_path(std::string_view path);

}  // namespace composer::net
