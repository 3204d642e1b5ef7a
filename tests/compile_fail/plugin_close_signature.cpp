// error: this method hides one of Callback, Algorithm or LoggerDestination without overriding it
#include "composer/core/plugins.h"

struct Table : composer::Callback {
  void close();
};
composer::Callbacks callbacks{Table()};
