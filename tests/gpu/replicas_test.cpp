// What tells ranks whether their weights are the same, where the weights are on a GPU.
#include "composer/trainer/replicas.h"

#include "tests/gpu/gpu.h"

namespace composer::test::gpu_replicas_test {
namespace {

TEST_CASE("Checksums on a GPU are those of the elements: equal for copies of any layout, another for one changed bit" *
          on_gpu()) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kByte}) {
    CAPTURE(dtype);
    const at::Tensor one = noise(6 * 35).mul_(100).to(kGpu, dtype).view({6, 35});
    const at::Tensor turned = one.t().contiguous().t();
    const auto sum_of = [](const at::Tensor& tensor) { return checksums_of({tensor}).front(); };
    CHECK(sum_of(one) == sum_of(one.clone()));
    CHECK(sum_of(one) == sum_of(turned));
    CHECK(sum_of(one) != sum_of(one.flip(0)));
    for (const std::int64_t place : {0, 17, 209}) {
      const at::Tensor other = one.clone();
      at::Tensor bytes = other.flatten().view(at::kByte);
      bytes[place * one.element_size()].bitwise_xor_(1);
      CHECK(sum_of(one) != sum_of(other));
    }
  }
}

TEST_CASE("The relative difference of weights on a GPU is that of the same weights on the CPU" * on_gpu()) {
  const at::Tensor a = noise(1000).to(at::kFloat), b = a + 1e-4 * noise(1000).flip(0).to(at::kFloat);
  CHECK(relative_difference(a.to(kGpu), a.to(kGpu)) == 0);
  CHECK(relative_difference(a.to(kGpu), b.to(kGpu)) == doctest::Approx(relative_difference(a, b)).epsilon(1e-9));
}

}  // namespace
}  // namespace composer::test::gpu_replicas_test
