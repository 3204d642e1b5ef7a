// NaNMonitor names the module and the operator that made a NaN: each module of a ResNet-20 and of a GPT in turn.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "composer/callbacks/nan_monitor.h"
#include "composer/models/gpt.h"
#include "composer/models/resnet_cifar.h"
#include "composer/surgery/layer.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/text.h"
#include "tests/support/tiny.h"

namespace composer::nan_places_test {

using namespace test;
using callbacks::NaNMonitor;
using callbacks::NaNMonitorOptions;

namespace {

using Function = std::function<at::Tensor(const at::Tensor&)>;

struct Net {
  std::string name;
  std::function<std::shared_ptr<Model>()> make;
  Batch batch;
};

std::vector<Net> nets() {
  at::manual_seed(1);
  const at::Tensor tokens = at::arange(16, at::kLong).remainder(11).view({2, 8});
  return {{"resnet20",
           [] { return models::resnet_cifar({.depth = 20}); },
           {{"input", at::randn({2, 3, 8, 8})}, {"target", at::arange(2, at::kLong)}}},
          {"gpt",
           [] {
             return models::gpt(
                 {.vocabulary = 11, .sequence_length = 8, .width = 8, .depth = 2, .heads = 2, .tied = false});
           },
           {{"input_ids", tokens}, {"target", tokens}}}};
}

std::string error_of_fit(const Net& net, std::shared_ptr<Model> model, NaNMonitorOptions monitor = {.folder = ""}) {
  TrainerOptions options = tiny_options();
  options.model = std::move(model);
  options.train_dataloader = data::in_memory(net.batch, {.batch_size = 2, .shuffle = false});
  options.callbacks = {NaNMonitor(std::move(monitor))};
  Trainer trainer(std::move(options));
  return error_of([&] { trainer.fit(); });
}

bool is_line(const std::string& text, const std::string& line) { return contains(text + '\n', '\n' + line + '\n'); }

// Calls what was in a layer, and changes its result. Without `is_child` it is a module without weights.
struct Changed : torch::nn::Module {
  Changed(const std::shared_ptr<LayerImpl>& layer, bool is_child, Function given)
      : inner(Layer(layer).lift()), change(std::move(given)) {
    if (is_child) register_module("inner", inner.ptr());
  }
  at::Tensor forward(const at::Tensor& x) { return change(inner(x)); }
  Layer inner;
  Function change;
};

// Calls f(layer, its name) once for each layer of a new model, which gets `change` there.
void change_each_layer(const Net& net, bool is_child, const Function& change,
                       const std::function<void(std::shared_ptr<Model>, const std::string&)>& f) {
  CAPTURE(net.name);
  int count = 0;
  for (const auto& item : net.make()->named_modules("", false)) {
    if (!std::dynamic_pointer_cast<LayerImpl>(item.value())) continue;
    CAPTURE(item.key());
    const std::shared_ptr<Model> model = net.make();
    const auto layer = std::dynamic_pointer_cast<LayerImpl>(model->named_modules("", false)[item.key()]);
    layer->hold(std::make_shared<Changed>(layer, is_child, change));
    f(model, item.key());
    ++count;
  }
  CHECK(count >= 14);
}

// The operator that uses this parameter first; "" if `module` is of another type.
std::string operator_of(const torch::nn::Module& module, const std::string& parameter, bool has_tokens) {
  const torch::nn::Module& of = bare(module);
  if (dynamic_cast<const torch::nn::Conv2dImpl*>(&of)) return "aten::conv2d";
  if (dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&of)) return "aten::batch_norm";
  if (dynamic_cast<const torch::nn::LayerNormImpl*>(&of)) return "aten::layer_norm";
  if (!dynamic_cast<const torch::nn::LinearImpl*>(&of)) return "";
  if (!has_tokens) return "aten::addmm";
  return parameter == "bias" ? "aten::add_" : "aten::matmul";
}

// Its gradient is NaN; libtorch does not record that its forward pass runs.
struct Poison : torch::autograd::Function<Poison> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor& gradient = gradients.front();
    return {(-1 - gradient * gradient).log()};
  }
};

}  // namespace

TEST_CASE("NaNMonitor names each weight that is NaN from the start, and the operator that used it first") {
  for (const Net& net : nets()) {
    CAPTURE(net.name);
    const auto names = net.make()->named_parameters().keys();
    for (const std::string& name : names) {
      CAPTURE(name);
      const std::shared_ptr<Model> model = net.make();
      {
        const at::NoGradGuard no_grad;
        model->named_parameters()[name].flatten()[-1] = NAN;
      }
      const std::string module = name.substr(0, name.rfind('.'));
      std::string used = operator_of(*model->named_modules("", false)[module], name.substr(module.size() + 1),
                                     /*has_tokens=*/net.name == "gpt");
      if (used.empty()) used = module == "module.wpe" ? "aten::add" : "aten::embedding";
      const std::string error = error_of_fit(net, model);
      CAPTURE(error);
      CHECK(contains(error, "the weights had it before the first batch: " + name + " is Float"));
      CHECK(is_line(error, "first used by " + used + " in " + module));
    }
  }
}

TEST_CASE("NaNMonitor names each module whose own operator makes an infinity of finite weights") {
  for (const Net& net : nets()) {
    CAPTURE(net.name);
    const auto names = net.make()->named_modules("", false).keys();
    for (const std::string& name : names) {
      CAPTURE(name);
      const std::shared_ptr<Model> model = net.make();
      const auto module = model->named_modules("", false)[name];
      if (operator_of(*module, "weight", false).empty()) continue;
      {
        const at::NoGradGuard no_grad;
        for (const auto& item : model->named_parameters())  // so that the numbers within a GPT's block are not small
          if (item.key().ends_with("c_attn.bias") || item.key().ends_with("c_fc.bias")) item.value().fill_(10);
        at::Tensor weight = module->named_parameters()["weight"];
        weight.copy_(at::randn_like(weight).sign() * 3e38);
      }
      const std::string error = error_of_fit(net, model);
      CAPTURE(error);
      CHECK(contains(error, " in " + name + " made it of finite numbers"));
    }
  }
}

TEST_CASE("NaNMonitor names each module without weights that makes a NaN") {
  const Function logarithm = [](const at::Tensor& x) { return (-1 - x * x).log(); };
  for (const Net& net : nets())
    change_each_layer(net, /*is_child=*/false, logarithm, [&](auto model, const std::string& name) {
      const std::string error = error_of_fit(net, model);
      CAPTURE(error);
      CHECK(contains(error, "\naten::log in " + name + " made it of finite numbers"));
    });
}

TEST_CASE("NaNMonitor names each module whose gradient is the first that is NaN, and the operator's node") {
  const auto check = [](const Net& net, const std::string& node, const Function& change) {
    change_each_layer(net, /*is_child=*/true, change, [&](auto model, const std::string& name) {
      const std::string error = error_of_fit(net, model, {.check_gradients = true, .folder = ""});
      CAPTURE(error);
      CHECK(contains(error, "the norm of the gradients is not finite"));
      const std::size_t at = error.find(node);
      CHECK(at != std::string::npos);
      if (at != std::string::npos)
        CHECK(error.substr(at).find(") in " + name + ", after " + name + ".inner made it of finite numbers") < 120);
    });
  };
  for (const Net& net : nets()) check(net, "Poison", [](const at::Tensor& x) { return Poison::apply(x); });
  check(nets().back(), "SqrtBackward0", [](const at::Tensor& x) { return x + (x * 0).sqrt(); });
}

TEST_CASE("NaNMonitor does not blame memory that is not written yet") {
  const Net net = nets().front();
  const auto model = net.make();
  const auto layer = std::dynamic_pointer_cast<LayerImpl>(model->named_modules("", false)["module.bn1"]);
  layer->hold(std::make_shared<Changed>(layer, /*is_child=*/true, [](const at::Tensor& x) {
    at::Tensor result = at::empty_like(x);
    std::fill_n(result.data_ptr<float>(), result.numel(), NAN);  // as a deterministic run does
    for (std::int64_t i = 0; i < x.size(0); ++i) result[i].copy_(x[i]);
    return (-1 - result * result).log();
  }));
  const std::string error = error_of_fit(net, model);
  CAPTURE(error);
  CHECK(contains(error, "aten::log in module.bn1, after module.bn1.inner made it"));
}

}  // namespace composer::nan_places_test
