// How fast are our products of fp32 and small bf16 matrices, compared with those of libtorch and with its brgemm?
#include <cstring>
#include <stdexcept>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>
#include <c10/core/InferenceMode.h>

#include "benchmarks/bench.h"
#include "composer/kernels/gemm.h"
#include "composer/kernels/gemm_bf16.h"

namespace composer::bench {
namespace {

// N: the operand as it is; T: the transpose of the tensor in memory.
struct Shape {
  std::int64_t batch, m, n, k;
  std::vector<std::string> forms = {"NN", "NT", "TN"};
};

std::vector<Shape> shapes(bool quick) {
  if (quick) return {{1, 32, 32, 784}, {1, 64, 64, 64}, {1, 256, 256, 256}, {1, 2048, 384, 128}};
  return {{1, 32, 10, 32},
          {1, 32, 32, 32},
          {1, 64, 64, 8},
          {1, 64, 64, 64},
          {1, 64, 128, 784},
          {1, 32, 32, 784},
          {1, 32, 784, 32},
          {1, 32, 128, 128},
          {1, 256, 96, 32},
          {1, 128, 128, 128},
          {1, 256, 256, 256},
          {1, 2048, 384, 128},
          {1, 2048, 512, 128},
          {1, 2048, 128, 512},
          {1, 512, 512, 512},
          {1, 1024, 1024, 1024},
          {1, 1, 512, 512, {"NN", "NT"}},
          {1, 8, 256, 256, {"NN", "NT"}},
          {1, 512, 10, 128},
          {1, 128, 33, 128},
          {64, 128, 128, 32, {"NT"}},
          {64, 128, 32, 128, {"NN"}}};
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

template <class Gemm, class T>
void product(const Shape& s, const at::Tensor& a, const at::Tensor& b, at::Tensor& c) {
  const kernels::GemmBatch batch{.size = s.batch, .a = s.m * s.k, .b = s.k * s.n, .c = s.m * s.n};
  const Gemm gemm{.m = s.m,
                  .n = s.n,
                  .k = s.k,
                  .a = {a.const_data_ptr<T>(), a.stride(-2), a.stride(-1)},
                  .b = {b.const_data_ptr<T>(), b.stride(-2), b.stride(-1)},
                  .c = c.mutable_data_ptr<T>(),
                  .c_row = s.n};
  if constexpr (std::is_same_v<T, float>)
    kernels::gemm(gemm, batch);
  else
    kernels::gemm_bf16(gemm, batch);
}

// Uses blocks of 32 rows, 64 columns and parts of 256, without a copy of either operand.
[[maybe_unused]] void brgemm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
#ifdef CPUBLAS_BRGEMM_F32F32F32
  const std::int64_t m = c.size(0), n = c.size(1), depth = a.size(1);
  const float *of_a = a.const_data_ptr<float>(), *of_b = b.const_data_ptr<float>();
  auto* of_c = c.mutable_data_ptr<float>();
  for (std::int64_t j = 0; j < n; j += 64)
    for (std::int64_t k = 0; k < depth; k += 256)
      for (std::int64_t i = 0; i < m; i += 32)
        at::native::cpublas::brgemm(std::min<std::int64_t>(32, m - i), std::min<std::int64_t>(64, n - j),
                                    std::min<std::int64_t>(256, depth - k), depth, n, n, k > 0, of_a + i * depth + k,
                                    of_b + k * n + j, of_c + i * n + j, false);
#endif
}

class Products {
 public:
  Products(bool quick, const Options& options) : quick_(quick), options_(options) {}

  void run(int threads) {
    at::set_num_threads(threads);
    std::printf("%s, %s, %d thread%s; median of the rounds, in GFLOP/s\n", processor().c_str(),
                kernels::gemm_instructions(), threads, threads > 1 ? "s" : "");
    std::printf("%-24s %8s %8s %8s  %s\n", "", "library", "ours", "brgemm", "ours/library (half of the rounds)");
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
      for (const Shape& shape : shapes(quick_))
        for (const std::string& form : shape.forms)
          if (type == at::kFloat || kernels::is_small_for_bf16(shape.m, shape.n, shape.k))
            measure(shape, form, type, threads);
    std::printf("\n");
  }
  void write() const { write_json(options_.json, results_); }

 private:
  void measure(const Shape& s, const std::string& form, at::ScalarType type, int threads) {
    const bool bf16 = type == at::kBFloat16;
    const std::string shape = (s.batch > 1 ? std::to_string(s.batch) + "x" : "") + std::to_string(s.m) + "x" +
                              std::to_string(s.n) + "x" + std::to_string(s.k) + " " + form + (bf16 ? " bf16" : "");
    const std::string group = shape + ", " + std::to_string(threads) + (threads > 1 ? " threads" : " thread");
    if (group.find(options_.only) == std::string::npos) return;
    const auto matrix = [&](std::int64_t rows, std::int64_t columns, bool transposed) {
      at::Tensor t = transposed ? at::randn({s.batch, columns, rows}, type).transpose(1, 2)
                                : at::randn({s.batch, rows, columns}, type);
      return s.batch == 1 ? t[0] : t;
    };
    const at::Tensor a = matrix(s.m, s.k, form[0] == 'T'), b = matrix(s.k, s.n, form[1] == 'T');
    at::Tensor library = at::matmul(a, b), own = at::empty_like(library), tiled = at::empty_like(library);
    const bool batched = s.batch > 1;
    std::vector<Contender> contenders = {{"library",
                                          [&](int times) {
                                            for (int i = 0; i < times; ++i)
                                              batched ? at::bmm_out(library, a, b) : at::mm_out(library, a, b);
                                          }},
                                         {"ours", [&](int times) {
                                            for (int i = 0; i < times; ++i)
                                              bf16 ? product<kernels::Bf16Gemm, c10::BFloat16>(s, a, b, own)
                                                   : product<kernels::Gemm, float>(s, a, b, own);
                                          }}};
#ifdef CPUBLAS_BRGEMM_F32F32F32
    if (!bf16 && form == "NN" && !batched && threads == 1)
      contenders.push_back({"brgemm", [&](int times) {
                              for (int i = 0; i < times; ++i) brgemm(a, b, tiled);
                            }});
#endif
    const at::Tensor exact = at::matmul(a.to(at::kDouble), b.to(at::kDouble));
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      contenders[i].run(1);
      const at::Tensor& result = i == 0 ? library : i == 1 ? own : tiled;
      if ((result.to(at::kDouble) - exact).norm().item<double>() > (bf16 ? 5e-3 : 1e-5) * exact.norm().item<double>())
        throw std::runtime_error(group + ": " + contenders[i].name + " is wrong");
    }
    const double flops = 2.0 * static_cast<double>(s.batch * s.m) * static_cast<double>(s.n * s.k);
    const int calls = std::max(1, static_cast<int>(3e7 / (flops + 2e4)));
    const int rounds = std::max(3, static_cast<int>((quick_ ? 7 : 15) * options_.effort));
    const std::vector<Series> series = take_turns(contenders, rounds, calls);
    print(shape, series, flops, threads);
    for (std::size_t i = 0; i < contenders.size(); ++i)
      results_[group + ", " + contenders[i].name] = {{"value", median(time(series[i], threads))}, {"unit", "us"}};
  }

  // For one thread, its CPU time excludes the work of other programs.
  static const std::vector<double>& time(const Series& series, int threads) {
    return threads == 1 ? series.cpu : series.wall;
  }

  static void print(const std::string& shape, const std::vector<Series>& series, double flops, int threads) {
    std::printf("%-24s", shape.c_str());
    for (std::size_t i = 0; i < 3; ++i)
      i < series.size() ? std::printf(" %8.1f", flops / median(time(series[i], threads)) * 1e-3)
                        : std::printf(" %8s", "");
    std::vector<double> ratios;
    for (std::size_t round = 0; round < series[0].cpu.size(); ++round)
      ratios.push_back(time(series[0], threads)[round] / time(series[1], threads)[round]);
    std::printf("  %5.2f (%.2f to %.2f)\n", median(ratios), quantile(ratios, 0.25), quantile(ratios, 0.75));
    std::fflush(stdout);
  }

  bool quick_;
  Options options_;
  nlohmann::ordered_json results_ = nlohmann::ordered_json::object();
};

}  // namespace
}  // namespace composer::bench

// --threads N: only with this number of threads; --quick: four shapes; and the options of every benchmark
int main(int argc, char** argv) {
  using namespace composer::bench;
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
  const c10::InferenceMode inference;
  Products products(quick, options);
  for (const int count : threads) products.run(count);
  products.write();
#ifdef CPUBLAS_BRGEMM_F32F32F32
  at::native::cpublas::brgemm_release(false);
#endif
}
