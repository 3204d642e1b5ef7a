// How long do forward and backward of torch::nn::LSTM take with our kernels, compared with libtorch's?
#include <cstring>
#include <stdexcept>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/modules/rnn.h>

#include "benchmarks/bench.h"
#include "composer/kernels/gemm.h"
#include "composer/kernels/products.h"

namespace composer::bench {
namespace {

struct Shape {
  std::int64_t inputs, hidden, steps, batch, layers = 1;
  bool input_gradient = true;
};

std::vector<Shape> shapes(bool quick) {
  if (quick) return {{16, 32, 8, 4}, {64, 128, 32, 32}};
  return {{16, 32, 8, 4},     {64, 128, 32, 32},   {64, 128, 32, 32, 1, false}, {64, 128, 32, 32, 2}, {64, 128, 32, 1},
          {128, 256, 64, 64}, {512, 512, 16, 128}, {512, 512, 16, 1},           {33, 100, 20, 16}};
}

class Lstm {
 public:
  Lstm(bool quick, const Options& options) : quick_(quick), options_(options) {}

  void run(int threads) {
    at::set_num_threads(threads);
    std::printf("%s, %d thread%s; median of the rounds, in ms for forward and backward\n", kernels::gemm_instructions(),
                threads, threads > 1 ? "s" : "");
    std::printf("%-40s %9s %9s  %s\n", "", "libtorch", "ours", "ours/libtorch (half of the rounds)");
    for (const Shape& shape : shapes(quick_)) measure(shape, threads);
    std::printf("\n");
  }
  void write() const { write_json(options_.json, results_); }

 private:
  void measure(const Shape& s, int threads) {
    const std::string shape = std::to_string(s.inputs) + "-" + std::to_string(s.hidden) + ", T" +
                              std::to_string(s.steps) + ", B" + std::to_string(s.batch) +
                              (s.layers > 1 ? ", " + std::to_string(s.layers) + " layers" : "") +
                              (s.input_gradient ? "" : ", of weights only");
    const std::string group = shape + ", " + std::to_string(threads) + (threads > 1 ? " threads" : " thread");
    if (group.find(options_.only) == std::string::npos) return;
    torch::nn::LSTM lstm(torch::nn::LSTMOptions(s.inputs, s.hidden).num_layers(s.layers));
    const at::Tensor input = at::randn({s.steps, s.batch, s.inputs}).set_requires_grad(s.input_gradient);
    const at::Tensor gradient = at::randn({s.steps, s.batch, s.hidden});
    const auto step = [&] {
      lstm->zero_grad();
      if (s.input_gradient) input.mutable_grad().reset();
      const at::Tensor output = std::get<0>(lstm->forward(input));
      output.backward(gradient);
      return output;
    };
    kernels::ProductTable own;
    own.set_others(true);
    const auto ours = [&](int times) {
      const kernels::ProductScope scope(own);
      for (int i = 0; i < times; ++i) step();
    };
    const auto library = [&](int times) {
      for (int i = 0; i < times; ++i) step();
    };
    library(1);
    const at::Tensor expected = lstm->parameters()[1].grad().clone();
    ours(1);
    const at::Tensor error = lstm->parameters()[1].grad() - expected;
    if (error.norm().item<double>() > 1e-4 * expected.norm().item<double>())
      throw std::runtime_error(group + " is wrong");
    const double work = static_cast<double>(24 * s.steps * s.batch * s.hidden * (s.inputs + s.hidden) * s.layers);
    const int calls = std::max(1, static_cast<int>(3e8 / (work + 1e6)));
    const int rounds = std::max(3, static_cast<int>((quick_ ? 7 : 15) * options_.effort));
    const std::vector<Series> series = take_turns({{"libtorch", library}, {"ours", ours}}, rounds, calls);
    const auto time = [&](std::size_t i) { return threads == 1 ? series[i].cpu : series[i].wall; };
    std::vector<double> ratios;
    for (std::size_t round = 0; round < time(0).size(); ++round) ratios.push_back(time(1)[round] / time(0)[round]);
    std::printf("%-40s %9.3f %9.3f  %5.2f (%.2f to %.2f)\n", shape.c_str(), median(time(0)) * 1e-3,
                median(time(1)) * 1e-3, median(ratios), quantile(ratios, 0.25), quantile(ratios, 0.75));
    std::fflush(stdout);
    results_[group + ", libtorch"] = {{"value", median(time(0))}, {"unit", "us"}};
    results_[group + ", ours"] = {{"value", median(time(1))}, {"unit", "us"}};
  }

  bool quick_;
  Options options_;
  nlohmann::ordered_json results_ = nlohmann::ordered_json::object();
};

}  // namespace
}  // namespace composer::bench

// --threads N: only with this number of threads; --quick: two shapes; and the options of every benchmark
int main(int argc, char** argv) {
  using namespace composer::bench;  // NOLINT(google-build-using-namespace): of this program
  std::vector<int> threads = {1, 2};
  bool quick = false;
  std::vector<char*> others = {argv[0]};
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0)
      quick = true;
    else if (std::strcmp(argv[i], "--threads") == 0 && i + 1 < argc && std::atoi(argv[i + 1]) > 0)
      threads = {std::atoi(argv[++i])};
    else
      others.push_back(argv[i]);
  }
  const Options options = parse(static_cast<int>(others.size()), others.data());
  if (!composer::kernels::has_gemm()) {
    std::printf("no kernels for this processor\n");
    return 0;
  }
  at::manual_seed(1);
  Lstm lstm(quick, options);
  for (const int count : threads) lstm.run(count);
  lstm.write();
}
