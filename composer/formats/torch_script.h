#pragma once
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::nn {
class Module;
}

namespace composer::formats {

// What is written as a TorchScript program: a function of tensors, by running it once with examples.
struct TracedFunction {
  using Tensors = std::vector<at::Tensor>;
  std::function<Tensors(const Tensors& inputs)> call;
  Tensors examples;                // one per input
  std::vector<std::string> names;  // likewise, of the parameters of forward(); what Python does not allow becomes _
};

// Runs the function and records its operators. Parameters and buffers of the module become those of the program, under
// the same names, on the CPU; other tensors that it uses become constants. Python's torch.jit.load() and
// torch::jit::load() read the result; forward() returns a tensor, or a tuple of several. What the C++ code decides,
// such as branches and numbers read from sizes of the examples, is fixed in the program. Throws Error with libtorch's
// reason if that fails, or if the program has operators that are not libtorch's own, and what the check below throws.
void write_torch_script(std::ostream& out, const torch::nn::Module& module, const TracedFunction& function);

// libtorch writes the numbers of a program as the locale of the process has them, and cannot read "1,234.5". Throws
// ConfigError if std::locale::global() groups digits or has no decimal point.
void check_locale_for_torch_script();

}  // namespace composer::formats
