#pragma once
// Computes products of matrices, layers of an LSTM and attention on the CPU with this library's kernels (gemm.h,
// gemm_bf16.h, lstm.h, attention.h) instead of libtorch's.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer::kernels {

// In which direction neighbouring elements of an operand are adjacent in memory. LSTM: see lstm_shape(). ATTENTION: see
// attention_shape().
enum class Layout : std::uint8_t { ROWS, COLUMNS, NEITHER, LSTM, ATTENTION };

// Everything that the time of a product depends on: `batch` products of an m x k and a k x n matrix.
struct ProductShape {
  std::int64_t batch, m, n, k;
  Layout a, b;
  bool adds;                         // adds another matrix or a bias
  at::ScalarType type = at::kFloat;  // kFloat or kBFloat16
  auto operator<=>(const ProductShape&) const = default;
};

// One direction of a layer of an LSTM with `steps` steps, each of which computes `samples` x `hidden` states. Its
// layouts are LSTM, and its k is `inputs`. Forward and backward passes have the same shape.
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

// "32x128x784 RC+": m, n and k, the layouts of a and b (rows, columns or neither), and + if it adds. A batch begins
// with its size, "8x", and a shape of bfloat16 ends with " bf16". "32x16x128x64 LL": steps, samples, hidden and inputs
// of an LSTM. "64x128x128x32 AA+": heads, queries, keys and depth of attention, and + if it is causal.
COMPOSER_EXPORT std::string to_string(const ProductShape& shape);

// Which shapes are computed by this library's kernels.
class COMPOSER_EXPORT ProductTable {
 public:
  void set(const ProductShape& shape, bool own);
  bool own(const ProductShape& shape) const;
  std::optional<bool> find(const ProductShape& shape) const;

  // text() is one line, for files: "32x128x784 RC+=1,others=0". from_text() returns nullopt for any other text.
  std::string text() const;
  static std::optional<ProductTable> from_text(std::string_view text);

  std::size_t own_shapes() const { return own_; }  // number of shapes that use this library's kernels

  void set_others(bool own) { others_ = own; }  // for shapes that are not in the table
  bool others() const { return others_; }
  // Whether no shape uses this library's kernels.
  bool empty() const { return !others_ && own_ == 0; }

 private:
  struct Hash {
    std::size_t operator()(const ProductShape& shape) const;
  };
  std::unordered_map<ProductShape, bool, Hash> shapes_;
  std::size_t own_ = 0;  // shapes that use this library's kernels
  bool others_ = false;
};

// While it lives, this thread, and the backward passes that it starts, compute the shapes that the table selects with
// this library's kernels. This concerns aten::mm, addmm, bmm and baddbmm of float, and small ones of bfloat16, on the
// CPU, if the operands are strided, not empty and do not overlap themselves. It also concerns attention without a mask
// or with a causal one (aten::_scaled_dot_product_flash_attention_for_cpu), and the layers of torch::nn::LSTM
// (aten::mkldnn_rnn_layer); their backward passes use the same kernels as the forward pass, within any scope or none.
// All other operators are unchanged. Scopes may be nested: the innermost decides. They must end in the reverse order,
// on the thread that began them, and `table` must outlive the scope. Backward passes that are nested some 60 deep run
// on other threads of libtorch, where no scope applies.
class COMPOSER_EXPORT ProductScope {
 public:
  [[nodiscard]] explicit ProductScope(const ProductTable& table);
  ProductScope(const ProductTable&& table) = delete;  // a temporary would be destroyed at once
  ~ProductScope();  // warns if a later scope has not ended; that scope stays in effect
  ProductScope(const ProductScope&) = delete;
  ProductScope& operator=(const ProductScope&) = delete;

  // Call this on the thread of the innermost scope when its table becomes empty or stops being empty.
  static void table_has_changed();

 private:
  const ProductTable* table_;
  ProductScope* before_;  // the enclosing scope
  bool included_before_;
};

// While it lives, counts the shapes on this thread that this library's kernels could compute. It does not change how
// they are computed.
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
