// The errors' destructors, which the library keeps beside what needs libtorch, and its warnings, which say nothing
// here.
#include "composer/core/error.h"

namespace composer {

Error::~Error() = default;
ConfigError::~ConfigError() = default;
DataError::~DataError() = default;
CheckpointError::~CheckpointError() = default;

void warn(const std::string&) {}

}  // namespace composer
