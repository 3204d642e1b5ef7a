// Registers a dispatch key below autograd that is enabled only within a scope. All operators fall through it at no
// cost, except products, which are either computed here or passed on to the operator below.
#include "composer/kernels/products.h"

#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include <ATen/EmptyTensor.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/mm_ops.h>
#include <torch/library.h>

#include "composer/core/error.h"
#include "composer/kernels/dispatch.h"
#include "composer/kernels/gemm.h"
#include "composer/kernels/gemm_bf16.h"

namespace composer::kernels {
namespace {

thread_local const ProductTable* current = nullptr;  // table of the innermost scope
thread_local ProductScope* innermost = nullptr;
thread_local ProductRecorder* recorder = nullptr;

// A matrix, or a batch of matrices.
struct Matrices {
  std::int64_t batch, rows, columns;
  std::int64_t stride, row, column;  // strides; for dimensions of size 1, the one that suits the kernels
  Layout layout;
  const void* data;
  Operand operand() const { return {static_cast<const float*>(data), row, column}; }
  Bf16Operand bf16_operand() const { return {static_cast<const at::BFloat16*>(data), row, column}; }
};

// nullopt: this library's kernels do not support the tensor
std::optional<Matrices> matrices(const at::Tensor& tensor, std::int64_t dim, at::ScalarType type) {
  if (!is_plain(tensor, dim, type) || tensor.numel() == 0) return {};
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  const auto at = static_cast<std::size_t>(dim - 2);
  Matrices m{.batch = dim == 3 ? sizes[0] : 1,
             .rows = sizes[at],
             .columns = sizes[at + 1],
             .stride = dim == 3 ? strides[0] : 0,
             .row = strides[at],
             .column = strides[at + 1],
             .layout = Layout::NEITHER,
             .data = nullptr};
  if (m.columns == 1) m.column = 1;
  if (m.rows == 1) m.row = m.column == 1 ? m.columns : 1;
  if (m.column == 1 && m.row >= m.columns)
    m.layout = Layout::ROWS;
  else if (m.row == 1 && m.column >= m.rows)
    m.layout = Layout::COLUMNS;
  else if (m.row < 1 || m.column < 1 || (m.row < m.column * m.columns && m.column < m.row * m.rows))
    return {};  // elements overlap
  m.data = tensor.const_data_ptr();
  return m;
}

// The added tensor: of the result's shape, or expanded to it, with adjacent columns.
struct Added {
  const void* data = nullptr;
  std::int64_t stride = 0, row = 0;
};

std::optional<Added> added(const at::Tensor& self, c10::IntArrayRef sizes, at::ScalarType type) {
  const auto dim = static_cast<std::int64_t>(sizes.size());
  if (!is_plain(self, self.defined() ? self.dim() : 0, type) || self.dim() > dim || self.dim() < 1) return {};
  Added result;
  const auto own = self.sizes(), strides = self.strides();
  for (std::int64_t i = 0; i < dim; ++i) {
    const std::int64_t at = i - (dim - self.dim());
    const std::int64_t wanted = sizes[static_cast<std::size_t>(i)];
    const bool is_there = at >= 0 && own[static_cast<std::size_t>(at)] != 1;
    if (is_there && own[static_cast<std::size_t>(at)] != wanted) return {};
    const std::int64_t stride = is_there ? strides[static_cast<std::size_t>(at)] : 0;
    if (i == dim - 1 && stride != 1 && wanted != 1) return {};
    if (i == dim - 2) result.row = stride;
    if (i == dim - 3) result.stride = stride;
  }
  result.data = self.const_data_ptr();
  return result;
}

struct Scales {
  float beta = 0, alpha = 1;  // beta 0: nothing is added
};

// nullopt: the scalar is not a float
std::optional<float> factor(const at::Scalar& value) {
  if (value.isComplex() || value.isSymbolic()) return {};
  const double number = value.toDouble();
  if (std::isfinite(number) && std::abs(number) > std::numeric_limits<float>::max()) return {};
  return static_cast<float>(number);
}

std::optional<Scales> scales(const at::Scalar& beta, const at::Scalar& alpha) {
  const auto of_self = factor(beta), of_product = factor(alpha);
  if (!of_self || !of_product || *of_product == 0) return {};  // with 0, libtorch does not read the operands
  if (!std::isfinite(*of_product)) return {};                  // infinite sums over parts of k may cancel to NaN
  return Scales{.beta = *of_self, .alpha = *of_product};
}

// Whether the tensors, which must not be empty, occupy disjoint ranges of memory.
bool are_apart(const at::Tensor& a, const at::Tensor& b) {
  const auto begin = [](const at::Tensor& tensor) { return static_cast<const char*>(tensor.const_data_ptr()); };
  const auto end = [&](const at::Tensor& tensor) {
    std::int64_t last = 0;
    for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
    return begin(tensor) + (last + 1) * tensor.element_size();
  };
  const std::less_equal<> before;
  return before(end(a), begin(b)) || before(end(b), begin(a));
}

// A product that this library's kernels can compute, without its destination.
struct Product {
  Matrices a, b;
  Added plus;
  Scales scales;
  at::ScalarType type;

  ProductShape shape() const {
    return {a.batch, a.rows, b.columns, a.columns, a.layout, b.layout, plus.data != nullptr, type};
  }
  c10::SmallVector<std::int64_t, 3> sizes(std::int64_t dim) const {
    if (dim == 3) return {a.batch, a.rows, b.columns};
    return {a.rows, b.columns};
  }
  void write(const at::Tensor& to, std::int64_t stride, std::int64_t row) const {
    const GemmBatch batch{.size = a.batch, .a = a.stride, .b = b.stride, .c = stride, .plus = plus.stride};
    if (type == at::kBFloat16) {
      gemm_bf16({.m = a.rows,
                 .n = b.columns,
                 .k = a.columns,
                 .a = a.bf16_operand(),
                 .b = b.bf16_operand(),
                 .c = to.mutable_data_ptr<at::BFloat16>(),
                 .c_row = row,
                 .plus = static_cast<const at::BFloat16*>(plus.data),
                 .plus_row = plus.row,
                 .alpha = scales.alpha,
                 .beta = scales.beta},
                batch);
      return;
    }
    gemm({.m = a.rows,
          .n = b.columns,
          .k = a.columns,
          .a = a.operand(),
          .b = b.operand(),
          .c = to.mutable_data_ptr<float>(),
          .c_row = row,
          .plus = static_cast<const float*>(plus.data),
          .plus_row = plus.row,
          .alpha = scales.alpha,
          .beta = scales.beta},
         batch);
  }
};

}  // namespace

bool is_plain(const at::Tensor& tensor, std::int64_t dim, at::ScalarType type) {
  const auto dense = c10::DispatchKeySet(c10::DispatchKey::CPU) |
                     c10::DispatchKeySet({c10::DispatchKey::ADInplaceOrView, c10::DispatchKey::AutogradCPU,
                                          c10::DispatchKey::AutocastCPU});
  return tensor.defined() && (tensor.key_set() | dense) == dense && tensor.dim() == dim &&
         tensor.scalar_type() == type && tensor.has_storage();
}

bool is_in_scope() { return current || recorder; }

struct ProductKernels {
  // self: the added tensor, or nullptr if there is none.
  static std::optional<Product> find(const at::Tensor* self, const at::Tensor& a, const at::Tensor& b, std::int64_t dim,
                                     std::optional<Scales> scales) {
    if (!is_in_scope() || !scales || !has_gemm()) return {};
    const at::ScalarType type = a.defined() && a.scalar_type() == at::kBFloat16 ? at::kBFloat16 : at::kFloat;
    const auto of_a = matrices(a, dim, type), of_b = matrices(b, dim, type);
    if (!of_a || !of_b || of_a->batch != of_b->batch || of_a->columns != of_b->rows) return {};
    if (type == at::kBFloat16 && !is_small_for_bf16(of_a->rows, of_b->columns, of_a->columns)) return {};
    Product product{.a = *of_a, .b = *of_b, .plus = {}, .scales = *scales, .type = type};
    if (self) {
      const auto plus = added(*self, product.sizes(dim), type);
      if (!plus) return {};
      if (scales->beta != 0) product.plus = *plus;
    }
    return product;
  }

  static bool is_chosen(const ProductShape& shape) {
    if (recorder) ++recorder->shapes_[shape];
    return current && current->own(shape);
  }

  static std::optional<at::Tensor> compute(const at::Tensor* self, const at::Tensor& a, const at::Tensor& b,
                                           std::int64_t dim, std::optional<Scales> scales = Scales()) {
    const auto product = find(self, a, b, dim, scales);
    if (!product || !is_chosen(product->shape())) return {};
    at::Tensor c = at::detail::empty_cpu(product->sizes(dim), a.options());
    const std::int64_t columns = product->b.columns;
    product->write(c, product->a.rows * columns, columns);
    return c;
  }

  // Writes the product into `out`, if it has the right shape and adjacent columns, and shares no memory with an
  // operand. `self` may be `out`.
  static bool write(const at::Tensor* self, const at::Tensor& a, const at::Tensor& b, const at::Tensor& out,
                    std::int64_t dim, std::optional<Scales> scales = Scales()) {
    const auto product = find(self, a, b, dim, scales);
    if (!product || !is_plain(out, dim, product->type) || out.sizes() != c10::IntArrayRef(product->sizes(dim)))
      return false;
    const auto at = static_cast<std::size_t>(dim - 2);
    const std::int64_t rows = product->a.rows, columns = product->b.columns, batch = product->a.batch;
    const std::int64_t row = rows == 1 ? columns : out.strides()[at];
    const std::int64_t stride = batch == 1 ? rows * row : out.strides()[0];
    if ((columns != 1 && out.strides()[at + 1] != 1) || row < columns || stride < rows * row) return false;
    if (!are_apart(out, a) || !are_apart(out, b) || (self && !self->is_same(out) && !are_apart(out, *self)))
      return false;
    if (!is_chosen(product->shape())) return false;
    product->write(out, stride, row);
    return true;
  }

  static at::Tensor mm(c10::DispatchKeySet keys, const at::Tensor& a, const at::Tensor& b) {
    if (auto c = compute(nullptr, a, b, 2)) return *std::move(c);
    return leave<at::_ops::mm>(keys, a, b);
  }
  static at::Tensor& mm_out(c10::DispatchKeySet keys, const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
    if (write(nullptr, a, b, out, 2)) return out;
    return leave<at::_ops::mm_out>(keys, a, b, out);
  }
  static at::Tensor bmm(c10::DispatchKeySet keys, const at::Tensor& a, const at::Tensor& b) {
    if (auto c = compute(nullptr, a, b, 3)) return *std::move(c);
    return leave<at::_ops::bmm>(keys, a, b);
  }
  static at::Tensor& bmm_out(c10::DispatchKeySet keys, const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
    if (write(nullptr, a, b, out, 3)) return out;
    return leave<at::_ops::bmm_out>(keys, a, b, out);
  }

  // addmm for matrices, baddbmm for batches of them.
  template <class Operator, std::int64_t DIM>
  static at::Tensor add(c10::DispatchKeySet keys, const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                        const at::Scalar& beta, const at::Scalar& alpha) {
    if (auto c = compute(&self, a, b, DIM, scales(beta, alpha))) return *std::move(c);
    return leave<Operator>(keys, self, a, b, beta, alpha);
  }
  template <class Operator, std::int64_t DIM>
  static at::Tensor& add_out(c10::DispatchKeySet keys, const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                             const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
    if (write(&self, a, b, out, DIM, scales(beta, alpha))) return out;
    return leave<Operator>(keys, self, a, b, beta, alpha, out);
  }
  template <class Operator, std::int64_t DIM>
  static at::Tensor& add_in_place(c10::DispatchKeySet keys, at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                                  const at::Scalar& beta, const at::Scalar& alpha) {
    if (write(&self, a, b, self, DIM, scales(beta, alpha))) return self;
    return leave<Operator>(keys, self, a, b, beta, alpha);
  }

  // Registers the kernels at the first use, so that a program that never needs them registers nothing. They are never
  // destroyed, because objects of static storage may still train when the program ends. Returns false, after one
  // warning, if another library uses the key.
  static bool install() {
    static const bool installed = [] {
      try {
        [[maybe_unused]] static const ProductKernels& kernels = *new ProductKernels;
        return true;
      } catch (const c10::Error& error) {
        warn(join("products: are libtorch's, because its dispatch key Fake is in use: ",
                  error.what_without_backtrace()));
        return false;
      }
    }();
    return installed;
  }

 private:
  ProductKernels()
      : all_(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__),
        aten_(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__) {
    all_.fallback(torch::CppFunction::makeFallthrough());
    aten_.impl("mm", TORCH_FN(mm));
    aten_.impl("mm.out", TORCH_FN(mm_out));
    aten_.impl("bmm", TORCH_FN(bmm));
    aten_.impl("bmm.out", TORCH_FN(bmm_out));
    aten_.impl("addmm", TORCH_FN((add<at::_ops::addmm, 2>)));
    aten_.impl("addmm.out", TORCH_FN((add_out<at::_ops::addmm_out, 2>)));
    aten_.impl("addmm_", TORCH_FN((add_in_place<at::_ops::addmm_, 2>)));
    aten_.impl("baddbmm", TORCH_FN((add<at::_ops::baddbmm, 3>)));
    aten_.impl("baddbmm.out", TORCH_FN((add_out<at::_ops::baddbmm_out, 3>)));
    aten_.impl("baddbmm_", TORCH_FN((add_in_place<at::_ops::baddbmm_, 3>)));
    replace_lstm(aten_);
    replace_attention(aten_);
  }

  torch::Library all_, aten_;
};

bool is_chosen(const ProductShape& shape) { return ProductKernels::is_chosen(shape); }
bool is_own(const ProductShape& shape) { return current && current->own(shape); }

ProductScope::ProductScope(const ProductTable& table)
    : table_(&table),
      before_(std::exchange(innermost, this)),
      included_before_(c10::impl::tls_is_dispatch_key_included(kKey)) {
  current = table_;
  table_has_changed();
}
ProductScope::~ProductScope() {
  if (innermost == this) {
    innermost = before_;
    current = before_ ? before_->table_ : nullptr;
    c10::impl::tls_set_dispatch_key_included(kKey, included_before_);
    return;
  }
  warn("ProductScope: scopes must end in the reverse order, on the thread that began them");
  ProductScope* later = innermost;
  while (later && later->before_ != this) later = later->before_;
  if (!later) return;  // the scope belongs to another thread
  later->before_ = before_;
  later->included_before_ = included_before_;
}

void ProductScope::table_has_changed() {
  const bool on = (recorder || (current && !current->empty())) && ProductKernels::install();
  c10::impl::tls_set_dispatch_key_included(kKey, on);
}

ProductRecorder::ProductRecorder()
    : before_(std::exchange(recorder, this)), included_before_(c10::impl::tls_is_dispatch_key_included(kKey)) {
  ProductScope::table_has_changed();
}
ProductRecorder::~ProductRecorder() {
  recorder = before_;
  c10::impl::tls_set_dispatch_key_included(kKey, included_before_);
}

}  // namespace composer::kernels
