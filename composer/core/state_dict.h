#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/core/time.h"

namespace composer {

struct StateValue;

// The saved state of an object: named values and nested dicts, in the order in which they were set. Access by name
// takes constant time.
class COMPOSER_EXPORT StateDict {
 public:
  using Entry = std::pair<std::string, StateValue>;
  StateDict();
  ~StateDict();
  StateDict(const StateDict&);
  StateDict(StateDict&&) noexcept;
  StateDict& operator=(const StateDict&);
  StateDict& operator=(StateDict&&) noexcept;

  StateValue& operator[](std::string_view name);  // added if it is missing
  const StateValue* find(std::string_view name) const;
  bool erase(std::string_view name);  // false if it is missing; takes time linear in size()
  bool empty() const;
  std::size_t size() const;
  const std::vector<Entry>& entries() const { return entries_; }
  std::span<Entry> entries();  // for changing values; names must not be changed

 private:
  friend class StateVisitor;
  // Reserves the name of a field, with or without a value; false: another field has it.
  bool claim(std::string_view name);
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t, Hash, std::equal_to<>> positions_;  // in entries_, by name; or kNoEntry
};

struct StateValue : std::variant<std::int64_t, double, bool, std::string, at::Tensor, StateDict> {
  using variant::variant;
};

// Saves or loads an object by one function that names its fields:
//
//   void EarlyStopper::visit_state(StateVisitor& visit) {
//     visit("best", best_);
//     visit("best_at", best_at_);
//   }
//
// Fields may be numbers, texts, tensors, times, timestamps, objects with a visit_state() of their own, and optionals,
// vectors and maps (by text) of these. When loading, a field that is missing in the checkpoint, or has another type
// there, is a CheckpointError that names the field; a missing optional becomes empty. When saving, two fields with the
// same name are a CheckpointError, even if they are empty.
class COMPOSER_EXPORT StateVisitor {
 public:
  // Whose state is loaded: that of the run being resumed, or that of another run, loaded by the program. Files and
  // counts of another run do not apply to this one.
  enum class Of : std::uint8_t { THIS_RUN, ANOTHER };

  static StateVisitor saving(StateDict& into) { return StateVisitor(&into, nullptr, {}, Of::THIS_RUN); }
  // `path` says in errors which object is loaded.
  static StateVisitor loading(const StateDict& from, std::string path, Of of = Of::THIS_RUN) {
    return StateVisitor(nullptr, &from, std::move(path), of);
  }
  bool is_loading() const { return from_ != nullptr; }
  bool is_of_this_run() const { return of_ == Of::THIS_RUN; }

  // Tensors are saved without copying them. Loaded tensors are new, on the device of the old ones.
  void operator()(std::string_view name, at::Tensor& value);
  void operator()(std::string_view name, std::string& value);
  void operator()(std::string_view name, bool& value);
  void operator()(std::string_view name, double& value);
  void operator()(std::string_view name, std::int64_t& value);
  void operator()(std::string_view name, StateDict& value);
  void operator()(std::string_view name, Time& value);
  void operator()(std::string_view name, Timestamp& value);
  void operator()(std::string_view name, Seconds& value);

  template <std::integral T>
  void operator()(std::string_view name, T& value) {
    auto wide = static_cast<std::int64_t>(value);  // the bits of a uint64 are preserved
    (*this)(name, wide);
    value = static_cast<T>(wide);
  }
  template <class T>
  requires std::is_enum_v<T>
  void operator()(std::string_view name, T& value) {
    auto number = static_cast<std::int64_t>(value);
    (*this)(name, number);
    value = static_cast<T>(number);
  }
  template <class T>
  requires requires(T& value, StateVisitor& visitor) { value.visit_state(visitor); }
  void operator()(std::string_view name, T& value) {
    StateVisitor inner = scope(name);
    value.visit_state(inner);
  }
  template <class T>
  void operator()(std::string_view name, std::optional<T>& value) {
    if (!is_loading()) {
      value ? (*this)(name, *value) : claim(name);
    } else if (!has(name)) {
      value.reset();
    } else {
      if (!value) value.emplace();
      (*this)(name, *value);
    }
  }
  template <class T>
  void operator()(std::string_view name, std::vector<T>& value) {
    StateVisitor inner = scope(name);
    auto size = value.size();
    inner("size", size);
    inner.check_size(size);
    value.resize(size);
    for (std::size_t i = 0; i < size; ++i) inner(std::to_string(i), value[i]);
  }
  template <class T, class Compare>
  void operator()(std::string_view name, std::map<std::string, T, Compare>& value) {
    StateVisitor inner = scope(name);
    if (is_loading()) {
      value.clear();
      for (const std::string& key : inner.names()) inner(key, value[key]);
    } else {
      for (auto& [key, item] : value) inner(key, item);
    }
  }
  // Many numbers are stored as one tensor.
  void operator()(std::string_view name, std::vector<double>& value);
  void operator()(std::string_view name, std::vector<std::int64_t>& value);

  // Returns a visitor for fields below `name`. Use it before the next field of this visitor.
  StateVisitor scope(std::string_view name);
  bool has(std::string_view name) const;   // when loading
  std::vector<std::string> names() const;  // when loading: the names in the checkpoint
  const std::string& path() const { return path_; }

 private:
  StateVisitor(StateDict* into, const StateDict* from, std::string path, Of of)
      : into_(into), from_(from), path_(std::move(path)), of_(of) {}
  template <class T>
  void field(std::string_view name, T& value);
  void claim(std::string_view name) const;  // when saving
  const StateValue& at(std::string_view name) const;
  void check_size(std::size_t size) const;  // compares with the number of fields
  [[noreturn]] void fail(std::string_view name, const char* what) const;

  StateDict* into_;
  const StateDict* from_;
  std::string path_;
  Of of_;
};

}  // namespace composer
