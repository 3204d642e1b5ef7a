#include "composer/util/text.h"

#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <locale.h>
#include <locale>
#include <utility>

namespace composer::util {
namespace {

// Sets the thread's locale, which printf uses, to the C locale meanwhile.
class LocaleOfC {
 public:
  LocaleOfC() : before_(::uselocale(of_c())) {}
  LocaleOfC(const LocaleOfC&) = delete;
  LocaleOfC& operator=(const LocaleOfC&) = delete;
  ~LocaleOfC() { ::uselocale(before_); }

 private:
  static locale_t of_c() {
    static const locale_t c = ::newlocale(LC_ALL_MASK, "C", nullptr);
    return c;
  }

  locale_t before_;
};

}  // namespace

OutText::OutText() { imbue(std::locale::classic()); }

InText::InText(std::string text) : std::istringstream(std::move(text)) { imbue(std::locale::classic()); }

std::string printed(const char* format, ...) {
  const LocaleOfC locale;
  std::va_list first, second;
  va_start(first, format);
  va_copy(second, first);
  std::string text(static_cast<std::size_t>(std::vsnprintf(nullptr, 0, format, first)), '\0');
  va_end(first);
  std::vsnprintf(text.data(), text.size() + 1, format, second);
  va_end(second);
  return text;
}

}  // namespace composer::util
