#pragma once
#include <cstddef>
#include <vector>

namespace composer::data::detail {

inline constexpr double kRounding = 1e-9;  // more rows than the errors of a sum of fractions amount to

// Throws ConfigError, beginning with `who`, unless all are > 0 and add up to 1.
void check_fractions(const char* who, const std::vector<double>& fractions);

// Where each part ends if `count` rows are divided in their order: each part has its share to within one row.
std::vector<std::size_t> ends_of_parts(const std::vector<double>& fractions, std::size_t count);

}  // namespace composer::data::detail
