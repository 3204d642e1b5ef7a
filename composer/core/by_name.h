#pragma once

namespace composer {

// The first field of options that contain lists or maps. It has no value and makes the others be set by name. Without
// it, X({.tags = {"a"}}) is ambiguous for g++: ignoring the name, it also makes an X to move from of options whose
// first field is "a". Nothing converts to a ByName.
class ByName {
 public:
  ByName() = default;
};

}  // namespace composer
