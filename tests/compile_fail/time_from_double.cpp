// error: use of deleted function|call to deleted constructor
#include "composer/core/time.h"

composer::Time length(0.5, composer::TimeUnit::DURATION);
