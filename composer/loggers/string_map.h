#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace composer::loggers {

// Values by key. Looking up a known key allocates nothing. References stay valid when others are added.
template <class T>
class StringMap {
 public:
  T& operator[](std::string_view key) {
    if (T* known = find(key)) return *known;
    return map_.try_emplace(std::string(key)).first->second;
  }
  T* find(std::string_view key) {
    const auto found = map_.find(key);
    return found == map_.end() ? nullptr : &found->second;
  }
  auto begin() { return map_.begin(); }
  auto end() { return map_.end(); }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::unordered_map<std::string, T, Hash, std::equal_to<>> map_;
};

}  // namespace composer::loggers
