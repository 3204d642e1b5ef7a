// error: cannot convert .*composer::Time.* to .*int
#include "composer/core/time.h"

composer::Timestamp now{.epoch = composer::Time("1ba")};
