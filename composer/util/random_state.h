#pragma once
// Remembers the state of generators, so that the same random numbers can be drawn again.
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace composer {

// The state of this thread's CPU generator (current_generator()) at the time of construction, and the states of the
// generators of other devices at the time of add().
class RandomState {
 public:
  RandomState();
  void add(at::Device device);  // does nothing for the CPU, or for a device that was added already
  void restore() const;

 private:
  void keep(at::Generator generator);
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

// The state of the generators of one device, meant to be set repeatedly. The state of the CPU's generator is stored
// without an allocation.
class RandomMark {
 public:
  RandomMark();
  ~RandomMark();
  RandomMark(const RandomMark&) = delete;
  RandomMark& operator=(const RandomMark&) = delete;
  void set(at::Device device);
  bool is_set() const;
  void restore() const;

 private:
  struct Kept;
  std::unique_ptr<Kept> kept_;
};

}  // namespace composer
