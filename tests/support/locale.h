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

// The program's, as long as this lives.
class OtherLocale {
 public:
  OtherLocale() : before_(std::locale::global(std::locale(std::locale(), new PointsAndComma))) {}
  OtherLocale(const OtherLocale&) = delete;
  OtherLocale& operator=(const OtherLocale&) = delete;
  ~OtherLocale() { std::locale::global(before_); }

 private:
  std::locale before_;
};

}  // namespace composer::test
