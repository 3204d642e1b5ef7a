#pragma once
#include <cstdint>

namespace composer {

// The batch in which a plug-in last did something that it does once per batch; -1: none. Call fit_begins() when a fit
// begins: after a reset of time, other batches have the same numbers.
class LastBatch {
 public:
  void fit_begins(std::int64_t batch) {
    if (batch == 0 || batch < number_) number_ = -1;
  }
  void set(std::int64_t batch) { number_ = batch; }
  std::int64_t number() const { return number_; }

  template <class Visitor>
  void visit_state(Visitor& visit) {
    visit("last_batch", number_);
  }

 private:
  std::int64_t number_ = -1;
};

}  // namespace composer
