#include "composer/core/time.h"

composer::Time length = "10ep";
composer::Timestamp now{.epoch = 1};
bool is_early() { return !now.reached("3ep"); }
