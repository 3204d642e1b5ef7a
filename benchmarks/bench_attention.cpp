// How long do forward and backward of scaled_dot_product_attention take with our kernels, compared with libtorch's?
#include <stdexcept>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "benchmarks/bench.h"
#include "composer/kernels/gemm.h"
#include "composer/kernels/products.h"

namespace composer::bench {
namespace {

struct Shape {
  std::int64_t batch, heads, tokens, depth;
  bool causal;
};

// Attention with heads that a Linear has made side by side, as in models::GPT.
class Attention {
 public:
  explicit Attention(const Shape& shape) : shape_(shape) {
    const auto random = [&] {
      return at::randn({shape.batch, shape.tokens, shape.heads, shape.depth}).transpose(1, 2).requires_grad_();
    };
    for (at::Tensor& operand : operands_) operand = random();
    gradient_ = at::randn_like(operands_[0]);
  }

  void step(int times) {
    for (int i = 0; i < times; ++i) {
      for (at::Tensor& operand : operands_) operand.mutable_grad().reset();
      at::scaled_dot_product_attention(operands_[0], operands_[1], operands_[2], {}, 0, shape_.causal)
          .backward(gradient_);
    }
  }
  at::Tensor gradient_of_values() const { return operands_[2].grad().clone(); }

 private:
  Shape shape_;
  at::Tensor operands_[3], gradient_;
};

void measure(Report& report, const Shape& s, int threads) {
  const std::string group = std::to_string(s.batch) + " samples, " + std::to_string(s.heads) + " heads of " +
                            std::to_string(s.depth) + ", " + std::to_string(s.tokens) + " tokens" +
                            (s.causal ? ", causal, " : ", ") + std::to_string(threads) +
                            (threads > 1 ? " threads" : " thread");
  if (!report.wants(group)) return;
  Attention attention(s);
  kernels::ProductTable own;
  own.set_others(true);
  const auto library = [&](int times) { attention.step(times); };
  const auto ours = [&](int times) {
    const kernels::ProductScope scope(own);
    attention.step(times);
  };
  library(1);
  const at::Tensor expected = attention.gradient_of_values();
  ours(1);
  if ((attention.gradient_of_values() - expected).norm().item<double>() > 1e-4 * expected.norm().item<double>())
    throw std::runtime_error(group + " is wrong");
  const double work = 14.0 * static_cast<double>(s.batch * s.heads * s.tokens * s.tokens * s.depth);
  report.compare(group, {{"libtorch", library}, {"ours", ours}}, 15, std::max(1, static_cast<int>(5e8 / (work + 1e6))));
}

}  // namespace
}  // namespace composer::bench

int main(int argc, char** argv) {
  using namespace composer::bench;  // NOLINT(google-build-using-namespace): of this program
  Report report(parse(argc, argv));
  if (!composer::kernels::has_gemm()) {
    std::printf("no kernels for this processor\n");
    return 0;
  }
  at::manual_seed(1);
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    for (const Shape& shape : std::vector<Shape>{{16, 4, 128, 32, true},
                                                 {16, 4, 128, 32, false},
                                                 {32, 4, 64, 16, true},
                                                 {8, 4, 50, 64, false},
                                                 {4, 8, 512, 64, true},
                                                 {1, 12, 1024, 64, true},
                                                 {1, 4, 2500, 64, false},
                                                 {1, 4, 1, 32, false}})
      measure(report, shape, threads);
  }
  report.write();
}
