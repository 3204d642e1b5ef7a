#include "composer/formats/unsupported.h"

namespace composer::formats {

UnsupportedError::~UnsupportedError() = default;

}  // namespace composer::formats
