#include "composer/device/cuda/peak_flops.h"

#include "tests/support/doctest.h"

namespace composer::test::peak_flops_test {

using cuda::peak_flops;

TEST_CASE("The peak rate of a GPU depends on its name and the precision") {
  struct Row {
    const char* name;
    double fp32, tf32, fp16, bf16;
  };
  for (const Row& row :
       {Row{"NVIDIA H200", 67e12, 494.5e12, 989.5e12, 989.5e12},
        Row{"NVIDIA H100 80GB HBM3", 67e12, 494.5e12, 989.5e12, 989.5e12},
        Row{"NVIDIA H100 PCIe", 51e12, 378e12, 756.5e12, 756.5e12},
        Row{"NVIDIA A100-SXM4-80GB", 19.5e12, 156e12, 312e12, 312e12},
        Row{"NVIDIA A10", 31.2e12, 62.5e12, 125e12, 125e12}, Row{"Tesla V100-SXM2-16GB", 15.7e12, 15.7e12, 125e12, 0},
        Row{"Tesla V100S-PCIE-32GB", 16.4e12, 16.4e12, 130e12, 0}, Row{"Tesla T4", 8.1e12, 8.1e12, 65e12, 0},
        Row{"NVIDIA L4", 30.3e12, 60e12, 121e12, 121e12}, Row{"NVIDIA L40", 0, 0, 0, 0},
        Row{"NVIDIA A1000", 0, 0, 0, 0}, Row{"", 0, 0, 0, 0}}) {
    CAPTURE(row.name);
    CHECK(peak_flops(row.name, Precision::FP32, false).value_or(0) == row.fp32);
    CHECK(peak_flops(row.name, Precision::FP32, true).value_or(0) == row.tf32);
    CHECK(peak_flops(row.name, Precision::AMP_FP16, true).value_or(0) == row.fp16);
    CHECK(peak_flops(row.name, Precision::AMP_BF16, true).value_or(0) == row.bf16);
  }
}

}  // namespace composer::test::peak_flops_test
