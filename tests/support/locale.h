#pragma once
// A locale that groups digits by points and has a decimal comma, as those of Germany, Brazil and Indonesia do.
#include <locale>
#include <string>

namespace composer::test {

struct PointsAndComma final : std::numpunct<char> {
  char do_thousands_sep() const override { return '.'; }
  char do_decimal_point() const override { return ','; }
  std::string do_grouping() const override { return "\3"; }
};

// The program's, as long as this lives: the one above, which leaves printf() and strtod() as they are, or one that is
// installed, which also changes these. Throws std::runtime_error if none has this name.
class OtherLocale {
 public:
  OtherLocale() : before_(std::locale::global(std::locale(std::locale(), new PointsAndComma))) {}
  explicit OtherLocale(const std::string& name) : before_(std::locale::global(std::locale(name))) {}
  OtherLocale(const OtherLocale&) = delete;
  OtherLocale& operator=(const OtherLocale&) = delete;
  ~OtherLocale() { std::locale::global(before_); }

 private:
  std::locale before_;
};

}  // namespace composer::test
