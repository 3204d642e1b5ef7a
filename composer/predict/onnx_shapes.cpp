// Shapes, parts of tensors, and tensors that are joined. Beside each function stand the arguments of libtorch's schema.
#include <algorithm>
#include <limits>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include "composer/predict/onnx_operators.h"

namespace composer::onnx {
namespace {

std::string unchanged(Call& call) { return call.tensor("self"); }

// Self with these sizes instead of those before the dimension `rest`. Sizes from there on are read in the program,
// because they may be other ones than in the example.
std::string reshaped_before(Call& call, std::int64_t rest, const Sizes& sizes) {
  const std::string self = call.tensor("self");
  const std::int64_t rank = call.rank("self");
  if (rest == rank) return reshaped(call, self, sizes);
  const std::string kept =
      call.add("Slice", {call.add("Shape", {self}), call.constant(Sizes{rest}), call.constant(Sizes{rank})});
  return call.add("Reshape", {self, call.add("Concat", {call.constant(sizes), kept}, {{"axis", std::int64_t{0}}})});
}

// (self, start_dim, end_dim)
std::string flatten(Call& call) {
  const Sizes sizes = call.sizes("self");
  if (sizes.empty()) return reshaped(call, call.tensor("self"), {1});
  const auto start = static_cast<std::size_t>(call.dimension("start_dim", "self"));
  const auto end = static_cast<std::size_t>(call.dimension("end_dim", "self"));
  if (start == end) return call.tensor("self");
  Sizes result(start, 0);
  result.push_back(-1);
  return reshaped_before(call, static_cast<std::int64_t>(end) + 1, result);
}

// (self, dim, sizes)
std::string unflatten(Call& call) {
  const Sizes inner = call.wholes("sizes");
  const auto dim = call.dimension("dim", "self");
  Sizes result(static_cast<std::size_t>(dim), 0);
  result.insert(result.end(), inner.begin(), inner.end());
  return reshaped_before(call, dim + 1, result);
}

// (self, size), or (self, shape)
std::string view(Call& call) {
  if (call.has("dtype")) call.fail("it gives the bytes another type");
  return reshaped(call, call.tensor("self"), call.wholes(call.has("size") ? "size" : "shape"));
}
// (self, other)
std::string view_as(Call& call) {
  return call.add("Reshape", {call.tensor("self"), call.add("Shape", {call.tensor("other")})});
}
// (self, size, implicit)
std::string expand(Call& call) {
  Sizes sizes = call.wholes("size");
  std::ranges::replace(sizes, -1, 1);
  return call.add("Expand", {call.tensor("self"), call.constant(sizes)});
}
std::string expand_as(Call& call) {
  return call.add("Expand", {call.tensor("self"), call.add("Shape", {call.tensor("other")})});
}
// (self, repeats)
std::string repeat(Call& call) {
  const Sizes repeats = call.wholes("repeats");
  std::string self = call.tensor("self");
  Sizes sizes = call.sizes("self");
  if (repeats.size() > sizes.size()) {
    Sizes axes(repeats.size() - sizes.size());
    for (std::size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<std::int64_t>(i);
    self = call.add("Unsqueeze", {self, call.constant(axes)});
  }
  return call.add("Tile", {self, call.constant(repeats)});
}
// (self, dim0, dim1)
std::string transpose(Call& call) {
  if (call.rank("self") == 0) return call.tensor("self");
  return transposed(call, call.tensor("self"), call.rank("self"), call.dimension("dim0", "self"),
                    call.dimension("dim1", "self"));
}
std::string matrix_transpose(Call& call) {
  return call.rank("self") < 2 ? call.tensor("self") : transposed(call, call.tensor("self"), 2, 0, 1);
}
// (self, dims)
std::string permute(Call& call) {
  Sizes order = call.wholes("dims");
  for (std::int64_t& dim : order) dim += dim < 0 ? call.rank("self") : 0;
  return call.add("Transpose", {call.tensor("self")}, {{"perm", order}});
}
// (self, dim)
std::string unsqueeze(Call& call) {
  return call.add("Unsqueeze", {call.tensor("self"), call.constant(Sizes{call.dimension("dim", "self", 1)})});
}
// (self), or (self, dim)
std::string squeeze(Call& call) {
  const Sizes sizes = call.sizes("self");
  Sizes axes;
  if (call.has("dim")) {
    for (const std::int64_t dim : call.wholes("dim")) axes.push_back(dim < 0 ? dim + call.rank("self") : dim);
  } else {
    for (std::size_t i = 0; i < sizes.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  }
  std::erase_if(axes, [&](std::int64_t axis) { return sizes[static_cast<std::size_t>(axis)] != 1; });
  return axes.empty() ? call.tensor("self") : call.add("Squeeze", {call.tensor("self"), call.constant(axes)});
}
// (self, dim, index)
std::string select(Call& call) {
  const std::string index = call.constant(at::tensor(call.whole("index"), at::kLong).squeeze());
  return call.add("Gather", {call.tensor("self"), index}, {{"axis", call.dimension("dim", "self")}});
}
// (self, dim, index)
std::string index_select(Call& call) {
  return call.add("Gather", {call.tensor("self"), call.tensor("index")}, {{"axis", call.dimension("dim", "self")}});
}
std::string sliced(Call& call, std::int64_t start, std::int64_t end, std::int64_t step) {
  return call.add("Slice", {call.tensor("self"), call.constant(Sizes{start}), call.constant(Sizes{end}),
                            call.constant(Sizes{call.dimension("dim", "self")}), call.constant(Sizes{step})});
}
// (self, dim, start, end, step)
std::string slice(Call& call) {
  constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();
  return sliced(call, call.has("start") ? call.whole("start") : 0, call.has("end") ? call.whole("end") : kEnd,
                call.whole("step"));
}
// (self, dim, start, length)
std::string narrow(Call& call) {
  const std::int64_t start = call.whole("start");
  if (start < 0) call.fail("it begins at a place that is counted from the end");
  return sliced(call, start, start + call.whole("length"), 1);
}
// (tensors, dim)
std::string cat(Call& call) { return call.add("Concat", call.tensors("tensors"), {{"axis", call.whole("dim")}}); }
std::string stack(Call& call) {
  const std::int64_t given = call.whole("dim");
  const std::int64_t dim = given < 0 ? given + static_cast<std::int64_t>(call.result_sizes().size()) : given;
  std::vector<std::string> parts;
  for (const std::string& tensor : call.tensors("tensors"))
    parts.push_back(call.add("Unsqueeze", {tensor, call.constant(Sizes{dim})}));
  return call.add("Concat", parts, {{"axis", dim}});
}
// (self, pad, value), pairs from the last dimension on
std::string constant_pad(Call& call) {
  const Sizes pairs = call.wholes("pad");
  const auto rank = static_cast<std::size_t>(call.rank("self"));
  Sizes pads(2 * rank, 0);
  for (std::size_t i = 0; i < pairs.size() / 2; ++i) {
    pads[rank - 1 - i] = pairs[2 * i];
    pads[2 * rank - 1 - i] = pairs[2 * i + 1];
  }
  return call.add("Pad", {call.tensor("self"), call.constant(pads), call.tensor_as("value", call.type("self"))});
}
// (self, ...): of the shape of self
std::string filled_like(Call& call, double value) {
  const at::Tensor number = at::full({1}, value, at::TensorOptions().dtype(call.result_type()));
  return call.add("ConstantOfShape", {call.add("Shape", {call.tensor("self")})}, {{"value", number}});
}
std::string ones_like(Call& call) { return filled_like(call, 1); }
std::string zeros_like(Call& call) { return filled_like(call, 0); }
// (self, fill_value)
std::string full_like(Call& call) { return filled_like(call, call.number("fill_value")); }

std::vector<std::string> split_into(Call& call, const Sizes& sizes) {
  return call.add_list("Split", {call.tensor("self"), call.constant(sizes)}, sizes.size(),
                       {{"axis", call.dimension("dim", "self")}});
}
std::vector<std::string> split_by(Call& call, std::int64_t size) {
  std::int64_t left = call.sizes("self").at(static_cast<std::size_t>(call.dimension("dim", "self")));
  Sizes sizes;
  for (; left > 0; left -= size) sizes.push_back(std::min(left, size));
  return split_into(call, sizes);
}
// (self, chunks, dim)
std::vector<std::string> chunk(Call& call) {
  const std::int64_t all = call.sizes("self").at(static_cast<std::size_t>(call.dimension("dim", "self")));
  const std::int64_t chunks = call.whole("chunks");
  return split_by(call, (all + chunks - 1) / chunks);
}
// (self, split_size, dim), in some versions with sizes
std::vector<std::string> split(Call& call) {
  const Sizes sizes = call.wholes(call.has("split_size") ? "split_size" : "split_sizes");
  return sizes.size() == 1 ? split_by(call, sizes.front()) : split_into(call, sizes);
}
// (self, dim)
std::vector<std::string> unbind(Call& call) {
  const std::int64_t dim = call.dimension("dim", "self");
  std::vector<std::string> parts;
  for (std::int64_t i = 0; i < call.sizes("self").at(static_cast<std::size_t>(dim)); ++i)
    parts.push_back(
        call.add("Gather", {call.tensor("self"), call.constant(at::tensor(i, at::kLong).squeeze())}, {{"axis", dim}}));
  return parts;
}

}  // namespace

const Translations& shape_operators() {
  static const Translations all = {
      {"alias", unchanged},
      {"cat", cat},
      {"clone", unchanged},
      {"constant_pad_nd", constant_pad},
      {"contiguous", unchanged},
      {"detach", unchanged},
      {"expand", expand},
      {"expand_as", expand_as},
      {"flatten", flatten},
      {"full_like", full_like},
      {"index_select", index_select},
      {"narrow", narrow},
      {"ones_like", ones_like},
      {"permute", permute},
      {"repeat", repeat},
      {"reshape", view},
      {"reshape_as", view_as},
      {"select", select},
      {"slice", slice},
      {"squeeze", squeeze},
      {"stack", stack},
      {"t", matrix_transpose},
      {"transpose", transpose},
      {"unflatten", unflatten},
      {"unsqueeze", unsqueeze},
      {"view", view},
      {"view_as", view_as},
      {"zeros_like", zeros_like},
  };
  return all;
}

const ListTranslations& list_operators() {
  static const ListTranslations all = {
      {"chunk", chunk}, {"split", split}, {"split_with_sizes", split}, {"unbind", unbind}};
  return all;
}

}  // namespace composer::onnx
