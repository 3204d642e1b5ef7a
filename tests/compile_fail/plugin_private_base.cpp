// error: not a plug-in of this list
#include "composer/core/plugins.h"

struct Options {
  composer::Callbacks callbacks = {};
};
struct Run {
  explicit Run(Options options);
  Run(Run&&) noexcept;
};
class Hidden : composer::Callback {};  // privately
Run run({.callbacks = {Hidden()}});
