#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include <c10/util/Exception.h>

namespace composer::test {

// While it lives, warnings are kept instead of printed.
struct Warnings : c10::WarningHandler {
  Warnings() : before(c10::WarningUtils::get_warning_handler()) { c10::WarningUtils::set_warning_handler(this); }
  ~Warnings() override { c10::WarningUtils::set_warning_handler(before); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;
  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }
  bool say(const std::string& what) const {
    return std::ranges::any_of(texts, [&](const std::string& text) { return text.find(what) != std::string::npos; });
  }

  c10::WarningHandler* before;
  std::vector<std::string> texts;
};

}  // namespace composer::test
