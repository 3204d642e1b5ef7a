#pragma once
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>

namespace composer::detail {

// Whether the enum has an enumerator with this value. The compiler's name of a value shows this: it is "E::A", or
// "(E)3" for a value without an enumerator.
template <auto Value>
constexpr bool is_enumerator() {
  std::string_view name = __PRETTY_FUNCTION__;
  name.remove_suffix(1);  // ]
  while (name.back() >= '0' && name.back() <= '9') name.remove_suffix(1);
  return name.back() != ')';
}

// The number of enumerators of an enum whose values are consecutive, starting with 0.
template <class Enum, std::size_t Next = 0>
constexpr std::size_t count_enumerators() {
  if constexpr (is_enumerator<static_cast<Enum>(Next)>())
    return count_enumerators<Enum, Next + 1>();
  else
    return Next;
}

template <class T>
struct EnumOf {
  using type = T;
};
template <class T>
struct EnumOf<std::optional<T>> {
  using type = T;
};

// Whether this number of names is one for each enumerator, plus, for an optional enum, perhaps one for the unset value.
template <class T>
constexpr bool names_all(std::size_t names) {
  using Enum = EnumOf<T>::type;
  const std::size_t all = count_enumerators<Enum>();
  return names == all || (!std::is_same_v<Enum, T> && names == all + 1);
}

}  // namespace composer::detail
