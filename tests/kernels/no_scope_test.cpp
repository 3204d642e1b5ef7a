#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "composer/kernels/gemm.h"
#include "composer/kernels/products.h"
#include "tests/support/doctest.h"

namespace composer::no_scope_test {

using kernels::ProductScope, kernels::ProductTable;

namespace {

// All kernels of the products that libtorch calls, by where they were registered.
std::string registrations() {
  std::string all;
  for (const char* name : {"aten::mm", "aten::bmm", "aten::addmm", "aten::addmm_", "aten::baddbmm", "aten::relu"})
    all += c10::Dispatcher::singleton().findSchemaOrThrow(name, "").dumpState();
  return all;
}

}  // namespace

TEST_CASE("A program has nothing registered before its first scope with a product for our kernels") {
  const std::string before = registrations();
  const at::Tensor a = at::randn({64, 1000}), b = at::randn({1000, 64}), product = at::mm(a, b);
  ProductTable table;
  {
    const ProductScope scope(table);
    CHECK(registrations() == before);
    CHECK(at::equal(at::mm(a, b), product));
  }
  table.set_others(true);
  {
    const ProductScope scope(table);
    CHECK(registrations() != before);
    CHECK(at::equal(at::mm(a, b), product) != kernels::has_gemm());
  }
  CHECK(at::equal(at::mm(a, b), product));
}

}  // namespace composer::no_scope_test
