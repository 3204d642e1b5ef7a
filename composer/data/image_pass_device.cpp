// Applies the image transforms to data that is not on the host, by libtorch's operators. The results equal those on the
// host.
#include <utility>

#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include "composer/data/image_pass.h"

namespace composer::data::detail {
namespace {

// Columns of ImagePass::table().
enum Column : std::int64_t { FLIP, DOWN, RIGHT, TOP, BOTTOM, LEFT, END, COLUMNS };

at::Tensor column(const at::Tensor& draws, Column which) { return draws.select(1, which).unsqueeze(1); }

// Returns bool [N, size]: whether each position is in [from, to).
at::Tensor within(const at::Tensor& numbers, const at::Tensor& from, const at::Tensor& to) {
  return numbers.ge(from).logical_and_(numbers.lt(to));
}

// Combines masks of rows [N, H] and columns [N, W] into [N, 1, H, W].
at::Tensor both(const at::Tensor& rows, const at::Tensor& columns) {
  return rows.unsqueeze(2).logical_and(columns.unsqueeze(1)).unsqueeze(1);
}

}  // namespace

at::Tensor ImagePass::table(std::uint64_t seed, std::int64_t epoch, const std::vector<std::int64_t>& samples) const {
  at::Tensor table = at::empty({static_cast<std::int64_t>(samples.size()), COLUMNS}, at::kLong);
  auto* row = table.mutable_data_ptr<std::int64_t>();
  for (const std::int64_t sample : samples) {
    const Draw d = draw(seed, epoch, sample);
    for (const std::int64_t value : {std::int64_t{d.flip}, d.down, d.right, d.top, d.bottom, d.left, d.end})
      *row++ = value;
  }
  return table;
}

at::Tensor ImagePass::apply(at::Tensor images, const at::Tensor& draws) const {
  const at::MemoryFormat format = images.suggest_memory_format();
  if (flip_ || padding_ > 0) images = move(images, draws);
  if (!scales_.empty()) images = normalize(images);
  if (cutout_ > 0) images = cut(images, draws);
  return images.contiguous(format);
}

at::Tensor ImagePass::move(const at::Tensor& images, const at::Tensor& draws) const {
  const auto numbers = [&](std::int64_t count) { return at::arange(count, draws.options()).unsqueeze(0); };
  const std::int64_t height = images.size(2), width = images.size(3);
  const at::Tensor rows = numbers(height) + column(draws, DOWN);
  const at::Tensor columns =
      at::where(column(draws, FLIP).ne(0), width - 1 - numbers(width), numbers(width)) + column(draws, RIGHT);
  const at::Tensor inside =
      both(rows.ge(0).logical_and_(rows.lt(height)), columns.ge(0).logical_and_(columns.lt(width)));
  const at::Tensor samples = at::arange(images.size(0), draws.options()).view({-1, 1, 1});
  const at::Tensor moved =
      images.permute({0, 2, 3, 1})
          .index({samples, rows.clamp(0, height - 1).unsqueeze(2), columns.clamp(0, width - 1).unsqueeze(1)})
          .permute({0, 3, 1, 2});
  return moved.masked_fill(inside.logical_not(), 0);
}

at::Tensor ImagePass::normalize(const at::Tensor& images) const {
  const at::Tensor floats = images.to(at::kFloat);
  if (scales_.size() == 1) return floats.mul(scales_[0]).add_(shifts_[0]);
  const auto by_channel = [&](const std::vector<float>& values) {
    return at::tensor(values).view({1, -1, 1, 1}).to(images.device());
  };
  return floats.mul(by_channel(scales_)).add_(by_channel(shifts_));
}

at::Tensor ImagePass::cut(const at::Tensor& images, const at::Tensor& draws) const {
  const auto numbers = [&](std::int64_t count) { return at::arange(count, draws.options()).unsqueeze(0); };
  return images.masked_fill(both(within(numbers(images.size(2)), column(draws, TOP), column(draws, BOTTOM)),
                                 within(numbers(images.size(3)), column(draws, LEFT), column(draws, END))),
                            0);
}

}  // namespace composer::data::detail
