#include "composer/data/sum_tree.h"

namespace composer::data::detail {

SumTree::SumTree(std::size_t size) {
  while (leaves_ < size) leaves_ *= 2;
  sums_.resize(2 * leaves_);
}

void SumTree::set(std::size_t i, double value) {
  std::size_t node = leaves_ + i;
  sums_[node] = value;
  while (node > 1) {
    node /= 2;
    sums_[node] = sums_[2 * node] + sums_[2 * node + 1];
  }
}

std::size_t SumTree::find(double sum) const {
  std::size_t node = 1;
  while (node < leaves_) {
    node *= 2;
    if (sum < sums_[node] || sums_[node + 1] == 0) continue;  // beyond the last by rounding alone
    sum -= sums_[node];
    ++node;
  }
  return node - leaves_;
}

}  // namespace composer::data::detail
