#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace composer::loggers {

// Values by key. Looking up a known key allocates nothing. References stay valid when other keys are added.
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
  void clear() { map_.clear(); }
  auto begin() { return map_.begin(); }
  auto end() { return map_.end(); }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::unordered_map<std::string, T, Hash, std::equal_to<>> map_;
};

// A StringMap for keys that are looked up in the same order again and again, such as those of a run's batches: the key
// that followed the current one last time is found by one comparison.
template <class T>
class SequenceMap {
 public:
  SequenceMap() = default;
  SequenceMap(const SequenceMap&) = delete;
  SequenceMap& operator=(const SequenceMap&) = delete;

  T& operator[](std::string_view key) {
    Node*& next = last_->next;
    if (next == nullptr || next->key != key) {
      next = &nodes_[key];
      if (next->key.empty()) next->key = key;
    }
    last_ = next;
    return next->value;
  }
  T* find(std::string_view key) {
    Node* const known = nodes_.find(key);
    return known == nullptr ? nullptr : &known->value;
  }
  template <class Call>
  void for_each(const Call& call) {
    for (auto& [key, node] : nodes_) call(key, node.value);
  }
  void clear() {
    nodes_.clear();
    start_.next = nullptr;
    last_ = &start_;
  }

 private:
  struct Node {
    std::string key;
    Node* next = nullptr;  // the node that was looked up after this one last time
    T value{};
  };
  StringMap<Node> nodes_;
  Node start_;
  Node* last_ = &start_;
};

}  // namespace composer::loggers
