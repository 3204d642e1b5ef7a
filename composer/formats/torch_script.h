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

// A function of tensors that is written as a TorchScript program, by running it once with examples.
struct TracedFunction {
  using Tensors = std::vector<at::Tensor>;
  std::function<Tensors(const Tensors& inputs)> call;
  Tensors examples;  // one for each input
  // Names of the parameters of forward(), one for each input; characters that Python does not allow become _.
  std::vector<std::string> names;
};

// Runs the function and records its operators. Parameters and buffers of the module become those of the program, with
// the same names (words of Python, such as "in", with a _ at the end), on the CPU; other tensors that it uses become
// constants. Python's torch.jit.load() and torch::jit::load() read the result; forward() returns a tensor, or a tuple
// of several. Decisions of the C++ code, such as branches and numbers read from sizes of the examples, are fixed in the
// program, and numbers of tensors that it makes are lost. Throws Error with libtorch's reason if that fails, Error if
// the program has operators that are not libtorch's own, and what check_locale_for_torch_script() throws.
void write_torch_script(std::ostream& out, const torch::nn::Module& module, const TracedFunction& function);

// libtorch writes the numbers of a program in the form of the process's locale, and cannot read "1,234.5". Throws
// ConfigError if std::locale::global() groups digits or does not use a decimal point.
void check_locale_for_torch_script();

}  // namespace composer::formats
