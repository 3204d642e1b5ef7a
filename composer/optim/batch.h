// How the tensors of a step reach the optimizers. Internal.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/optim/kernels.h"
#include "composer/optim/named_optimizer.h"

namespace composer::optim::detail {

// Parameters of one group, device and dtype, for updates by tensor operations.
struct Batch {
  std::vector<at::Tensor> p, g;
  std::vector<ParameterState*> states;
  bool dense = true;     // no tensor has gaps, and all tensors of a parameter have the same memory layout
  at::Tensor found_inf;  // 0-d float on the device: 1: change nothing, 0: update. Undefined: always update

  void add(const at::Tensor& parameter, const at::Tensor& gradient, ParameterState& state);
  void clear();
  // The i-th tensor of each state. Empty if they are undefined.
  std::vector<at::Tensor> column(std::size_t i) const;
  // Adds 1 (0 if found_inf) to the step counts, the first column, and returns it.
  std::vector<at::Tensor> count_step() const;
};

// Parameters and state as they were before an update.
class Restore {
 public:
  Restore(const Batch& batch, const at::Tensor& found_inf);
  void where_found() const;  // found_inf is 1

 private:
  at::Tensor found_;
  std::vector<at::Tensor> now_, before_;
};

// Buffers that are kept between steps to reuse their memory.
struct Scratch {
  std::vector<Slice> slices;
  std::vector<Batch> batches;
  std::vector<at::Tensor> kept;  // gradients converted to another memory layout

  Batch& batch_for(const at::Tensor& parameter, bool dense);

  struct Clear {  // at the end of the scope
    explicit Clear(Scratch& scratch) : scratch_(scratch) {}
    ~Clear();
    Clear(const Clear&) = delete;
    Clear& operator=(const Clear&) = delete;

   private:
    Scratch& scratch_;
  };
};

// Whether sizes and strides are equal, ignoring the strides of dimensions of one element.
bool same_layout(const at::Tensor& a, const at::Tensor& b);

// One parallel region; each thread gets an equal share of the elements. The number of threads does not change results.
void update_slices(std::span<const Slice> slices);

// 1 - beta^step for each step count, in double: in float, the difference would vanish for large betas.
std::vector<at::Tensor> corrections(const std::vector<at::Tensor>& steps, double beta);

at::Tensor step_count(const at::Tensor& parameter);                                     // 0, on the parameter's device
inline double count(at::Tensor& step) { return *step.mutable_data_ptr<float>() += 1; }  // on the CPU
inline void* memory(at::Tensor& tensor) { return tensor.defined() ? tensor.mutable_data_ptr() : nullptr; }

}  // namespace composer::optim::detail
