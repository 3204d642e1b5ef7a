#pragma once
// What the environment says about the terminal and the user.
#include <string>

namespace composer {

std::string environment(const char* name);  // the value of a variable; empty: unset

// Whether LC_ALL, LC_CTYPE or LANG, the first of them that is set, asks for UTF-8.
bool environment_is_utf8();

}  // namespace composer
