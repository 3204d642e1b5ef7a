// error: not a plug-in of this list
#include "composer/core/plugins.h"

class Records final : public composer::LoggerDestination {};
const composer::Callbacks callbacks = {Records()};
