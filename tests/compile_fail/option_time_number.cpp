// error: deleted function|cannot convert initializer list argument to 'Options'
#include "composer/core/time.h"

struct Options {
  int batches = 0;
  composer::OptionalTime max_duration = {};
};
struct Run {
  explicit Run(Options options);
  Run(Run&&) noexcept;
};
Run run({.batches = 1, .max_duration = 5});
