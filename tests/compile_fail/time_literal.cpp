// error: this_is_not_a_time
#include "composer/core/time.h"

composer::Time length = "10epp";
