#pragma once

namespace composer {

// The first field of options that contain lists or maps. It has no value, and nothing converts to it, so the other
// fields must be set by name. Without it, X({.tags = {"a"}}) is ambiguous for g++, which ignores the name and could
// also move from an X whose first field is "a".
class ByName {
 public:
  ByName() = default;
};

}  // namespace composer
