// error: this_needs_a_whole_number
#include "composer/core/interval.h"

composer::Interval every = "0.5ba";
