#include "composer/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>

#include "composer/kernels/gemm.h"
#include "composer/kernels/micro_kernel.h"
#include "composer/util/parallel.h"

namespace composer::kernels {
namespace {

// Number of queries processed at a time: their scores stay in the caches, and with a causal mask fewer products are
// wasted.
constexpr std::int64_t kManyRows = 56, kFewRows = 14;
constexpr std::int64_t kManyKeys = 2048;

std::int64_t padded(std::int64_t keys) { return (keys + kParts - 1) / kParts * kParts; }

// The buffers of one thread, and its work on one head.
class Head {
 public:
  Head(const Attention& a, bool with_gradients)
      : a_(a),
        rows_(a.keys > kManyKeys ? kFewRows : kManyRows),
        stride_(padded(a.keys)),
        packed_(packed_floats(a.keys, a.depth)),
        memory_(std::make_unique_for_overwrite<float[]>(
            static_cast<std::size_t>((with_gradients ? 2 : 1) * (packed_ + rows_ * stride_) + 2 * rows_ + kParts))) {
    constexpr std::size_t kLine = kParts * sizeof(float);
    const std::size_t off = reinterpret_cast<std::uintptr_t>(memory_.get()) % kLine;
    float* from = memory_.get() + (kLine - off) / sizeof(float);
    const auto take = [&from](std::int64_t floats) { return std::exchange(from, from + floats); };
    scores_ = take(rows_ * stride_);
    keys_ = take(packed_);
    if (with_gradients) {
      gradients_ = take(rows_ * stride_);
      values_ = take(packed_);
    }
    max_ = take(rows_);
    sum_ = take(rows_);
  }

  void forward(const float* q, const float* k, const float* v, float* output, std::int64_t output_row, float* logsumexp,
               std::int64_t logsumexp_row) {
    pack_transposed(k, a_.k.row, keys_);
    for (std::int64_t i = 0; i < a_.queries; i += rows_) {
      const Scores block = scores_of(q, i);
      micro_kernels().softmax({.at = block, .max = max_, .sum = sum_});
      gemm({.m = block.rows,
            .n = a_.depth,
            .k = block.keys,
            .a = {scores_, stride_, 1},
            .b = {v, a_.v.row, 1},
            .c = output + i * output_row,
            .c_row = output_row});
      for (std::int64_t row = 0; row < block.rows; ++row)
        logsumexp[(i + row) * logsumexp_row] = max_[row] + std::log(sum_[row]);
    }
  }

  struct Gradients {
    float *q, *k, *v;
    std::int64_t q_row, k_row, v_row;
  };
  void backward(const float* q, const float* k, const float* v, const float* output, std::int64_t output_row,
                const float* logsumexp, std::int64_t logsumexp_row, const float* d_output, std::int64_t d_output_row,
                const Gradients& to) {
    pack_transposed(k, a_.k.row, keys_);
    pack_transposed(v, a_.v.row, values_);
    for (std::int64_t j = 0; j < a_.keys; ++j) {
      std::fill_n(to.k + j * to.k_row, a_.depth, 0.0F);
      std::fill_n(to.v + j * to.v_row, a_.depth, 0.0F);
    }
    for (std::int64_t i = 0; i < a_.queries; i += rows_) {
      const Scores block = scores_of(q, i);
      const float* d_rows = d_output + i * d_output_row;
      gemm({.m = block.rows,
            .n = block.keys,
            .k = a_.depth,
            .a = {d_rows, d_output_row, 1},
            .b = {nullptr, 1, 1},
            .c = gradients_,
            .c_row = stride_,
            .packed = values_});
      for (std::int64_t row = 0; row < block.rows; ++row) sum_[row] = logsumexp[(i + row) * logsumexp_row];
      micro_kernels().softmax_backward({.at = block,
                                        .gradients = gradients_,
                                        .logsumexp = sum_,
                                        .output = output + i * output_row,
                                        .d_output = d_rows,
                                        .output_row = output_row,
                                        .d_output_row = d_output_row,
                                        .depth = a_.depth});
      add_transposed(block, scores_, d_rows, d_output_row, 1, to.v, to.v_row);
      add_transposed(block, gradients_, q + i * a_.q.row, a_.q.row, a_.scale, to.k, to.k_row);
      gemm({.m = block.rows,
            .n = a_.depth,
            .k = block.keys,
            .a = {gradients_, stride_, 1},
            .b = {k, a_.k.row, 1},
            .c = to.q + i * to.q_row,
            .c_row = to.q_row,
            .alpha = a_.scale});
    }
  }

 private:
  void pack_transposed(const float* rows, std::int64_t row, float* to) const {
    pack({.data = rows, .row = 1, .column = row}, a_.keys, a_.depth, to);
  }

  // The scaled scores of the queries from query i on.
  Scores scores_of(const float* q, std::int64_t i) {
    const std::int64_t rows = std::min(rows_, a_.queries - i), keys = a_.causal ? std::min(a_.keys, i + rows) : a_.keys;
    gemm({.m = rows,
          .n = keys,
          .k = a_.depth,
          .a = {q + i * a_.q.row, a_.q.row, 1},
          .b = {nullptr, 1, 1},
          .c = scores_,
          .c_row = stride_,
          .alpha = a_.scale,
          .packed = keys_});
    return {.scores = scores_, .rows = rows, .keys = keys, .stride = stride_, .visible = a_.causal ? i + 1 : keys};
  }

  // to += scale * left^T right, for the queries of a block
  void add_transposed(const Scores& block, const float* left, const float* right, std::int64_t right_row, float scale,
                      float* to, std::int64_t to_row) const {
    gemm({.m = block.keys,
          .n = a_.depth,
          .k = block.rows,
          .a = {left, 1, stride_},
          .b = {right, right_row, 1},
          .c = to,
          .c_row = to_row,
          .plus = to,
          .plus_row = to_row,
          .alpha = scale});
  }

  const Attention& a_;
  const std::int64_t rows_, stride_, packed_;
  const std::unique_ptr<float[]> memory_;
  float *scores_, *keys_, *max_, *sum_, *gradients_ = nullptr, *values_ = nullptr;
};

// Calls visit(head, work) for each head, in parallel.
void for_heads(const Attention& a, bool with_gradients,
               const std::function<void(std::int64_t batch, std::int64_t head, Head& work)>& visit) {
  parallel_for(0, a.batch * a.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    Head work(a, with_gradients);
    for (std::int64_t i = begin; i < end; ++i) visit(i / a.heads, i % a.heads, work);
  });
}

}  // namespace

void attention_forward(const Attention& a, const HeadRows& output, const HeadRows& logsumexp) {
  for_heads(a, false, [&](std::int64_t b, std::int64_t h, Head& work) {
    const auto at = [b, h](const auto& rows) { return rows.data + b * rows.batch + h * rows.head; };
    work.forward(at(a.q), at(a.k), at(a.v), at(output), output.row, at(logsumexp), logsumexp.row);
  });
}

void attention_backward(const Attention& a, const ConstHeadRows& output, const ConstHeadRows& logsumexp,
                        const ConstHeadRows& d_output, const AttentionGradients& gradients) {
  for_heads(a, true, [&](std::int64_t b, std::int64_t h, Head& work) {
    const auto at = [b, h](const auto& rows) { return rows.data + b * rows.batch + h * rows.head; };
    work.backward(at(a.q), at(a.k), at(a.v), at(output), output.row, at(logsumexp), logsumexp.row, at(d_output),
                  d_output.row,
                  {.q = at(gradients.q),
                   .k = at(gradients.k),
                   .v = at(gradients.v),
                   .q_row = gradients.q.row,
                   .k_row = gradients.k.row,
                   .v_row = gradients.v.row});
  });
}

}  // namespace composer::kernels
