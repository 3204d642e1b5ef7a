#pragma once
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>

namespace composer::detail {

// Whether an enumerator has this value. The name that a compiler gives a value says so: "E::A", and "(E)3" of a value
// without a name.
template <auto Value>
constexpr bool is_enumerator() {
  std::string_view name = __PRETTY_FUNCTION__;
  name.remove_suffix(1);  // ]
  while (name.back() >= '0' && name.back() <= '9') name.remove_suffix(1);
  return name.back() != ')';
}

// How many enumerators an enum has whose values begin with 0 and leave out none.
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

// Whether so many names are one for each enumerator, and perhaps one for none of them.
template <class T>
constexpr bool names_all(std::size_t names) {
  using Enum = EnumOf<T>::type;
  const std::size_t all = count_enumerators<Enum>();
  return names == all || (!std::is_same_v<Enum, T> && names == all + 1);
}

}  // namespace composer::detail
