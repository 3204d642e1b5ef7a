// What tests/interop/interop.py has done by this library:
//   composer_interop convert IN OUT           reads all tensors, writes them again (.safetensors, .pt)
//   composer_interop make OUT                 writes tensors of every kind
//   composer_interop equal A B                fails unless both have the same tensors, to the bit
//   composer_interop weights MODEL IN OUT    loads IN into mlp or resnet18 and saves it as OUT, under Python's names
//   composer_interop flops                    prints the FLOPs of some models, forward and backward, one line each
//   composer_interop run IN OUT               the same of an mlp in a ComposerClassifier that Composer's trainer saved
#include <exception>
#include <functional>
#include <iostream>
#include <map>

#include <ATen/ATen.h>

#include "composer/formats/pt_file.h"
#include "composer/formats/safetensors.h"
#include "composer/formats/weights.h"
#include "composer/models/mlp.h"
#include "composer/models/resnet.h"
#include "composer/util/flop_counter.h"
#include "tests/formats/tensors.h"

namespace {

using namespace composer;

formats::NamedTensors read(const std::filesystem::path& path) {
  if (path.extension() == ".safetensors") return formats::SafetensorsFile(path).read_all();
  return formats::PtFile(path).read_all();
}

void write(const std::filesystem::path& path, const formats::NamedTensors& tensors) {
  path.extension() == ".safetensors" ? formats::save_safetensors(path, tensors) : formats::save_pt(path, tensors);
}

bool equal(const formats::NamedTensors& a, const formats::NamedTensors& b) {
  const std::map<std::string, at::Tensor> other(b.begin(), b.end());
  bool right = a.size() == b.size();
  for (const auto& [name, tensor] : a) {
    const auto found = other.find(name);
    if (found != other.end() && test::same(tensor, found->second)) continue;
    std::cerr << "differs: " << name << '\n';
    right = false;
  }
  return right;
}

// Python's torch has these since 2.1 and 2.3.
bool is_new(at::ScalarType type) { return at::isFloat8Type(type) || at::isBarebonesUnsignedType(type); }

std::int64_t flops_of(const std::function<at::Tensor()>& forward) {
  FlopCounter counter;
  counter.start();
  forward().sum().backward();
  return counter.stop();
}

// As flops() in interop.py, line by line.
void print_flops() {
  const at::Tensor w = at::randn({5, 3}).requires_grad_(), data = at::randn({4, 3});
  std::cout << "linear " << flops_of([&] { return at::linear(data, w); }) << '\n';
  const at::Tensor a = at::randn({2, 4, 3}).requires_grad_(), b = at::randn({2, 3, 6}).requires_grad_();
  std::cout << "bmm " << flops_of([&] { return at::matmul(a, b); }) << '\n';
  const at::Tensor image = at::randn({2, 4, 9, 7}).requires_grad_(), kernel = at::randn({6, 4, 3, 3}).requires_grad_();
  std::cout << "conv2d " << flops_of([&] { return at::conv2d(image, kernel, {}, 2, 1); }) << '\n';
  const at::Tensor up = at::randn({4, 6, 3, 3}).requires_grad_();
  std::cout << "conv_transpose2d " << flops_of([&] { return at::conv_transpose2d(image, up); }) << '\n';
  const auto resnet = models::resnet({.depth = 18});
  const Batch images = {{"input", at::randn({2, 3, 64, 64})}};
  std::cout << "resnet18 " << flops_of([&] { return resnet->forward(images).only(); }) << '\n';
}

int run(const std::vector<std::string>& arguments) {
  const std::string what = arguments.empty() ? "" : arguments[0];
  if (what == "convert" && arguments.size() == 3) {
    write(arguments[2], read(arguments[1]));
  } else if ((what == "make" || what == "make-old") && arguments.size() == 2) {
    formats::NamedTensors tensors = test::some_tensors();
    if (what == "make-old")
      std::erase_if(tensors, [](const auto& named) { return is_new(named.second.scalar_type()); });
    write(arguments[1], tensors);
  } else if (what == "equal" && arguments.size() == 3) {
    return equal(read(arguments[1]), read(arguments[2])) ? 0 : 1;
  } else if (what == "weights" && arguments.size() == 4) {
    const auto model = arguments[1] == "mlp" ? models::mlp({.features = {8, 6, 4}}) : models::resnet({.depth = 18});
    load_weights(*model, arguments[2], {.rename = {{"", "module."}}});
    save_weights(*model, arguments[3], {.rename = {{"module.", ""}}});
  } else if (what == "run" && arguments.size() == 3) {
    const auto model = models::mlp({.features = {8, 6, 4}});
    load_weights(*model, arguments[1]);
    save_weights(*model, arguments[2]);
  } else if (what == "flops") {
    print_flops();
  } else {
    std::cerr << "usage: composer_interop convert IN OUT | make OUT | make-old OUT | equal A B | weights MODEL IN OUT "
                 "| run IN OUT | flops\n";
    return 2;
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run({arguments + 1, arguments + count});
  } catch (const std::exception& error) {
    std::cerr << composer::describe(error) << '\n';
    return 1;
  }
}
