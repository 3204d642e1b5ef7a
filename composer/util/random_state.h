#pragma once
// The random numbers to come, so that they can come again.
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace composer {

// The states of this thread's generators (current_generator()) when this was made: that of the CPU, and those of other
// devices.
class RandomState {
 public:
  RandomState();
  void add(at::Device device);  // twice, or the CPU: does nothing
  void restore() const;

 private:
  void keep(at::Generator generator);
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

// The same for one device, to be set again and again: of the CPU's generator without an allocation.
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
