#pragma once
// Products of matrices, layers of an LSTM and attention on the CPU by kernels of our own (gemm.h, gemm_bf16.h, lstm.h,
// attention.h) in the place of libtorch's libraries.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer::kernels {

// Where the elements of an operand are that follow each other in memory. LSTM: see lstm_shape(); ATTENTION: see
// attention_shape().
enum class Layout : std::uint8_t { ROWS, COLUMNS, NEITHER, LSTM, ATTENTION };

// What the time of a product depends on: `batch` products of an m x k and a k x n matrix.
struct ProductShape {
  std::int64_t batch, m, n, k;
  Layout a, b;
  bool adds;                         // another matrix or a bias
  at::ScalarType type = at::kFloat;  // or at::kBFloat16
  auto operator<=>(const ProductShape&) const = default;
};

// One direction of a layer of an LSTM: of `steps` steps for each of which `samples` x `hidden` states are computed. Its
// layouts are LSTM, its k is `inputs`. Forward and backward passes have the same shape.
inline ProductShape lstm_shape(std::int64_t steps, std::int64_t samples, std::int64_t hidden, std::int64_t inputs) {
  return {.batch = steps, .m = samples, .n = hidden, .k = inputs, .a = Layout::LSTM, .b = Layout::LSTM, .adds = false};
}

// Attention with `heads` (of all samples) x `queries` x `keys` scores from rows of `depth` numbers. Its layouts are
// ATTENTION. Forward and backward passes have the same shape.
inline ProductShape attention_shape(std::int64_t heads, std::int64_t queries, std::int64_t keys, std::int64_t depth,
                                    bool causal) {
  return {.batch = heads,
          .m = queries,
          .n = keys,
          .k = depth,
          .a = Layout::ATTENTION,
          .b = Layout::ATTENTION,
          .adds = causal};
}

// "32x128x784 RC+": m, n and k, the layouts of a and b (rows, columns or neither), and + if it adds; "8x" before a
// batch, " bf16" after it if it is one of bfloat16. "32x16x128x64 LL": steps, samples, hidden and inputs of an LSTM.
// "64x128x128x32 AA+": heads, queries, keys and depth of attention, and + if it is causal.
COMPOSER_EXPORT std::string to_string(const ProductShape& shape);

// Which products are computed by our kernels.
class COMPOSER_EXPORT ProductTable {
 public:
  void set(const ProductShape& shape, bool own);
  bool own(const ProductShape& shape) const;
  std::optional<bool> find(const ProductShape& shape) const;

  // In one line, for files: "32x128x784 RC+=1,others=0". nullopt for a text that is not one.
  std::string text() const;
  static std::optional<ProductTable> from_text(std::string_view text);

  std::size_t own_shapes() const { return own_; }  // how many

  void set_others(bool own) { others_ = own; }  // shapes that are not in the table
  bool others() const { return others_; }
  // Whether there is any product for our kernels.
  bool empty() const { return !others_ && own_ == 0; }

 private:
  struct Hash {
    std::size_t operator()(const ProductShape& shape) const;
  };
  std::unordered_map<ProductShape, bool, Hash> shapes_;
  std::size_t own_ = 0;  // shapes for our kernels
  bool others_ = false;
};

// While it lives, aten::mm, addmm, bmm and baddbmm on this thread, and in the backward passes that it starts, compute
// what the table says with our kernels: float or small ones of bfloat16, on the CPU, strided, not empty, operands that
// do not overlap themselves. So do attention without a mask or with a causal one
// (aten::_scaled_dot_product_flash_attention_for_cpu), and the layers of torch::nn::LSTM (aten::mkldnn_rnn_layer),
// whose backward passes are computed as the forward pass was, in any scope or in none. Everything else goes where it
// went before. Scopes nest: the innermost decides; they end in the reverse order, on the thread that began them.
// `table` outlives the scope. Backward passes within backward passes, some 60 deep, run on threads of libtorch's, where
// no scope is.
class COMPOSER_EXPORT ProductScope {
 public:
  [[nodiscard]] explicit ProductScope(const ProductTable& table);
  ProductScope(const ProductTable&& table) = delete;  // it would be gone already
  ~ProductScope();                                    // warns if a later one has not ended, which stays as it is
  ProductScope(const ProductScope&) = delete;
  ProductScope& operator=(const ProductScope&) = delete;

  // To be called on the thread of the innermost scope after its table has become empty, or was.
  static void table_has_changed();

 private:
  const ProductTable* table_;
  ProductScope* before_;  // the scope around it
  bool included_before_;
};

// While it lives, notes the shapes of the products that our kernels could compute on this thread, and how often. They
// are computed as without it.
class COMPOSER_EXPORT ProductRecorder {
 public:
  ProductRecorder();
  ~ProductRecorder();
  ProductRecorder(const ProductRecorder&) = delete;
  ProductRecorder& operator=(const ProductRecorder&) = delete;
  const std::map<ProductShape, std::int64_t>& shapes() const { return shapes_; }

 private:
  friend struct ProductKernels;
  std::map<ProductShape, std::int64_t> shapes_;
  ProductRecorder* before_;
  bool included_before_;
};

}  // namespace composer::kernels
