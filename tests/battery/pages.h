#pragma once
#include <filesystem>
#include <stdexcept>
#include <string>

#include "tests/support/places.h"
#include "tests/support/text.h"

namespace composer::test {

// The page of a plug-in, which says what it is by name. `room`: "callbacks", "algorithms" or "loggers".
inline std::string page_of(const std::string& room, const std::string& name) {
  for (const auto& entry : std::filesystem::directory_iterator(repository() / "docs/reference" / room)) {
    const std::string text = text_of(entry.path());
    if (contains(text, "By name: `" + name + "`") || entry.path().stem() == name) return text;
  }
  throw std::runtime_error("docs/reference/" + room + " has no page of " + name);
}

// Whether the page says what is not the same on all ranks, or not as in one process.
inline bool speaks_of_ranks(const std::string& page) { return contains(page, "With several ranks"); }

}  // namespace composer::test
