#pragma once
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include "tests/support/places.h"

namespace composer::test {

// The page of a plug-in, which says what it is by name. `room`: "callbacks", "algorithms" or "loggers".
inline std::string page_of(const std::string& room, const std::string& name) {
  for (const auto& entry : std::filesystem::directory_iterator(repository() / "docs" / room)) {
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const bool says_so = text.str().find("By name: `" + name + "`") != std::string::npos;
    if (says_so || entry.path().stem() == name) return text.str();
  }
  throw std::runtime_error("docs/" + room + " has no page of " + name);
}

// Whether the page says what is not the same on all ranks, or not as in one process.
inline bool speaks_of_ranks(const std::string& page) { return page.find("With several ranks") != std::string::npos; }

}  // namespace composer::test
