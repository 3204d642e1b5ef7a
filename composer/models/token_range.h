#pragma once
#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

namespace composer::models::detail {

// What numbers [N, T] stand for, for errors.
struct NumbersOf {
  const char* model;  // "gpt"
  const char* one;    // "token"
  const char* all;    // "the vocabulary has", which their number follows
};

// Throws DataError for the first number that is not below `count`, if the numbers are on the host.
void check_range(const at::Tensor& numbers, std::int64_t count, const NumbersOf& of);

// Returns what `look_up` finds in a table of `count` rows. The numbers are checked only if it fails, which tells why.
template <class LookUp>
at::Tensor looked_up(const at::Tensor& numbers, std::int64_t count, const NumbersOf& of, LookUp&& look_up) {
  try {
    return std::forward<LookUp>(look_up)();
  } catch (const c10::Error&) {
    check_range(numbers, count, of);
    throw;
  }
}

}  // namespace composer::models::detail
