#pragma once
#include <string_view>

#include "composer/core/event.h"

namespace composer {

// Names the code that runs after this event and before the next one, for errors: "Model::forward".
std::string_view code_after(Event event);

}  // namespace composer
