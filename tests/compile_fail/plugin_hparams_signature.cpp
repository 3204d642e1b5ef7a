// error: this method hides one of Callback, Algorithm or LoggerDestination without overriding it
#include "composer/core/plugins.h"
#include "composer/core/state_dict.h"

struct Halving : composer::Callback {
  composer::StateDict local_hparams();  // not const
};
composer::Callbacks callbacks{Halving()};
