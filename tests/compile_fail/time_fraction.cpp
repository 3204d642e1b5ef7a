// error: this_needs_a_whole_number
#include "composer/core/time.h"

composer::Time length = "1.5ep";
