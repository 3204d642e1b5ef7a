// error: (no match for|invalid operands to) .*composer::Timestamp.* and .*int
#include "composer/core/time.h"

bool is_early(composer::Timestamp now) { return now < 3; }
