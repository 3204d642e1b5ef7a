// error: use of deleted function
#include "composer/core/time.h"

composer::Time length(0.5, composer::TimeUnit::DURATION);
