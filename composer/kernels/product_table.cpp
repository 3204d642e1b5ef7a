#include <array>
#include <charconv>
#include <system_error>

#include "composer/core/error.h"
#include "composer/kernels/products.h"
#include "composer/util/random.h"

namespace composer::kernels {

std::size_t ProductTable::Hash::operator()(const ProductShape& s) const {
  const auto number = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  const std::uint64_t is_bf16 = s.type == at::kBFloat16;
  const std::uint64_t kind =
      is_bf16 << 7 | static_cast<std::uint64_t>(s.a) << 4 | static_cast<std::uint64_t>(s.b) << 1 | s.adds;
  return hash64(number(s.m) << 32 ^ number(s.n), number(s.k) << 32 ^ number(s.batch) << 8 ^ kind);
}

void ProductTable::set(const ProductShape& shape, bool own) {
  const auto [it, added] = shapes_.try_emplace(shape, false);
  own_ += static_cast<std::size_t>(own) - static_cast<std::size_t>(it->second);
  it->second = own;
}

std::optional<bool> ProductTable::find(const ProductShape& shape) const {
  const auto it = shapes_.find(shape);
  return it == shapes_.end() ? std::nullopt : std::optional(it->second);
}

bool ProductTable::own(const ProductShape& shape) const { return find(shape).value_or(others_); }

static constexpr std::string_view kBf16 = " bf16";

std::string to_string(const ProductShape& s) {
  constexpr std::string_view kLayouts = "RCNLA";
  return join(s.batch == 1 ? "" : join(s.batch, 'x'), s.m, 'x', s.n, 'x', s.k, ' ', kLayouts[static_cast<int>(s.a)],
              kLayouts[static_cast<int>(s.b)], s.adds ? "+" : "", s.type == at::kBFloat16 ? kBf16 : "");
}

std::string ProductTable::text() const {
  std::string text;
  for (const auto& [shape, own] : std::map<ProductShape, bool>(shapes_.begin(), shapes_.end()))
    text += join(to_string(shape), '=', own ? 1 : 0, ',');
  return join(text, "others=", others_ ? 1 : 0);
}

namespace {

// Parses what to_string() writes, and removes it from the front of `text`.
std::optional<ProductShape> read_shape(std::string_view& text) {
  std::array<std::int64_t, 4> sizes{};
  std::size_t count = 0;
  for (;; text.remove_prefix(1)) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), sizes[count]);
    if (error != std::errc() || sizes[count] < 1) return {};
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (++count == sizes.size() || !text.starts_with('x')) break;
  }
  const auto layout = [&text](std::size_t at) { return std::string_view("RCNLA").find(text[at]); };
  if (count < 3 || text.size() < 3 || text[0] != ' ' || layout(1) > 4 || layout(2) > 4) return {};
  const bool is_lstm = text[1] == 'L', is_attention = text[1] == 'A';
  if (is_lstm != (text[2] == 'L') || is_attention != (text[2] == 'A')) return {};
  if (is_lstm && text.substr(3).starts_with('+')) return {};
  const std::size_t batch = count - 3;
  ProductShape shape{.batch = batch ? sizes[0] : 1,
                     .m = sizes[batch],
                     .n = sizes[batch + 1],
                     .k = sizes[batch + 2],
                     .a = static_cast<Layout>(layout(1)),
                     .b = static_cast<Layout>(layout(2)),
                     .adds = text.substr(3).starts_with('+')};
  text.remove_prefix(shape.adds ? 4 : 3);
  if (!text.starts_with(kBf16)) return shape;
  if (is_lstm || is_attention) return {};
  shape.type = at::kBFloat16;
  text.remove_prefix(kBf16.size());
  return shape;
}

// Parses "=0" or "=1", and removes it from the front of `text`.
std::optional<bool> read_choice(std::string_view& text) {
  if (!text.starts_with("=0") && !text.starts_with("=1")) return {};
  const bool own = text[1] == '1';
  text.remove_prefix(2);
  return own;
}

}  // namespace

std::optional<ProductTable> ProductTable::from_text(std::string_view text) {
  constexpr std::string_view kOthers = "others";
  ProductTable table;
  while (!text.starts_with(kOthers)) {
    const auto shape = read_shape(text);
    const auto own = shape ? read_choice(text) : std::nullopt;
    if (!own || !text.starts_with(',')) return {};
    text.remove_prefix(1);
    table.set(*shape, *own);
  }
  text.remove_prefix(kOthers.size());
  const auto others = read_choice(text);
  if (!others || !text.empty()) return {};
  table.set_others(*others);
  return table;
}

}  // namespace composer::kernels
