#pragma once
#include <limits>

namespace composer {

// Follows the moving average of losses, corrected for the bias of its start.
class Divergence {
 public:
  Divergence(double smoothing, double stop_at) : smoothing_(smoothing), stop_at_(stop_at) {}
  bool found(double loss);  // adds a loss. True: it is not finite, or lifts the average too far above its lowest value

 private:
  double smoothing_, stop_at_;
  double average_ = 0, unseen_ = 1;
  double lowest_ = std::numeric_limits<double>::infinity();
};

}  // namespace composer
