#include "composer/core/interval.h"
#include "composer/core/time.h"

composer::Time length = "10ep";
composer::Timestamp now{.epoch = 1};
composer::Interval quarters = "0.25ep", longer = "1.5 ep";
bool is_early() { return !now.reached("3ep"); }
