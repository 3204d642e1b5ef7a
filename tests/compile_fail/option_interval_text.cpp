// error: deleted function|cannot convert initializer list argument to 'Options'
#include <string>

#include "composer/core/interval.h"

struct Options {
  composer::Interval eval_interval = "1ep";
};
struct Run {
  explicit Run(Options options);
  Run(Run&&) noexcept;
};
const std::string text = "2ep";
Run run({.eval_interval = text});
