// The errors' destructors, which the library keeps beside what needs libtorch.
#include "composer/core/error.h"

namespace composer {

Error::~Error() = default;
ConfigError::~ConfigError() = default;
DataError::~DataError() = default;
CheckpointError::~CheckpointError() = default;

}  // namespace composer
