// error: (cannot convert|no viable conversion from) .*composer::Time.* to .*int
#include "composer/core/time.h"

composer::Timestamp now{.epoch = composer::Time("1ba")};
