#include <charconv>
#include <random>
#include <regex>

#include "composer/kernels/products.h"
#include "tests/support/doctest.h"

namespace composer::product_table_test {

using kernels::Layout, kernels::ProductShape, kernels::ProductTable;

namespace {

ProductShape random_shape(std::mt19937& random) {
  const auto size = [&] { return static_cast<std::int64_t>(1 + random() % (random() % 2 ? 4 : 3000)); };
  const auto layout = [&] { return static_cast<Layout>(random() % 3); };
  return {
      size(), size(), size(), size(), layout(), layout(), random() % 2 == 0, random() % 2 ? at::kFloat : at::kBFloat16};
}

const std::regex& item() {
  static const std::regex pattern("((\\d+)x)?(\\d+)x(\\d+)x(\\d+) [RCN][RCN][+]?( bf16)?=[01],");
  return pattern;
}

bool is_number(const std::string& text) {
  std::int64_t value = 0;
  return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc() && value >= 1;
}

// Whether from_text() accepts it, by another way of reading it.
bool is_table(const std::string& text) {
  auto at = text.cbegin();
  for (std::smatch found; std::regex_search(at, text.cend(), found, item(), std::regex_constants::match_continuous);
       at = found[0].second)
    for (const int group : {2, 3, 4, 5})
      if (found[group].matched && !is_number(found[group].str())) return false;
  return std::regex_match(at, text.cend(), std::regex("others=[01]"));
}

}  // namespace

TEST_CASE("A table of products is read from its text as it was") {
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    ProductTable table;
    std::map<ProductShape, bool> shapes;
    for (auto count = random() % 9; count > 0; --count) {
      const ProductShape shape = random_shape(random);
      shapes[shape] = random() % 2 == 0;
      table.set(shape, shapes[shape]);
    }
    table.set_others(random() % 4 == 0);
    CAPTURE(table.text());
    REQUIRE(ProductTable::from_text(table.text()));
    const ProductTable read = *ProductTable::from_text(table.text());
    CHECK(read.text() == table.text());
    CHECK(read.others() == table.others());
    CHECK(read.empty() == table.empty());
    for (const auto& [shape, own] : shapes) {
      CHECK(read.find(shape) == std::optional(own));
      CHECK(read.own(shape) == own);
    }
    CHECK(!read.find({1, 5000, 1, 1, Layout::ROWS, Layout::ROWS, false}));
  }
}

TEST_CASE("A table of products is empty as long as it has no product for our kernels") {
  const ProductShape shape{1, 2, 3, 4, Layout::ROWS, Layout::COLUMNS, true};
  ProductTable table;
  CHECK(table.empty());
  table.set(shape, false);
  CHECK(table.empty());
  table.set(shape, true);
  table.set(shape, true);
  CHECK(!table.empty());
  table.set(shape, false);
  CHECK(table.empty());
  CHECK(table.text() == "2x3x4 RC+=0,others=0");
  table.set_others(true);
  CHECK(!table.empty());
}

TEST_CASE("A text without a type means fp32, and a product in bf16 is another shape") {
  const ProductShape fp32{1, 2, 3, 4, Layout::ROWS, Layout::COLUMNS, true};
  ProductShape bf16 = fp32;
  bf16.type = at::kBFloat16;
  const auto before = ProductTable::from_text("2x3x4 RC+=1,others=0");
  REQUIRE(before);
  CHECK(before->own(fp32));
  CHECK_FALSE(before->own(bf16));
  ProductTable table;
  table.set(bf16, true);
  CHECK(table.text() == "2x3x4 RC+ bf16=1,others=0");
  CHECK_FALSE(table.own(fp32));
}

TEST_CASE("A damaged text gives an empty table of products") {
  std::mt19937 random(2);
  const std::string alphabet = "0123456789xRCN +=,others-.\n\xff" + std::string(1, '\0');
  int accepted = 0, rejected = 0;
  for (int i = 0; i < 20000; ++i) {
    ProductTable table;
    table.set(random_shape(random), true);
    table.set(random_shape(random), false);
    table.set_others(true);
    std::string text = table.text();
    for (auto changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % (text.size() + 1);
      const char letter = alphabet[random() % alphabet.size()];
      switch (random() % 4) {
        case 0:
          text.insert(at, 1, letter);
          break;
        case 1:
          text.erase(at, 1);
          break;
        case 2:
          text.resize(at);
          break;
        default:
          if (at < text.size()) text[at] = letter;
      }
    }
    CAPTURE(text);
    const std::optional<ProductTable> read = ProductTable::from_text(text);
    (is_table(text) ? accepted : rejected)++;
    CHECK(read.has_value() == is_table(text));
    if (read) CHECK(ProductTable::from_text(read->text())->text() == read->text());
  }
  CHECK(accepted > 1000);
  CHECK(rejected > 1000);
  for (const std::string text :
       {"", "others=1 ", "99999999999999999999x1x1 RR=1,others=1", "0x1x1 RR=1,others=1", "-1x1x1 RR=1,others=1",
        "1x1 RR=1,others=1", "1x1x1x1x1 RR=1,others=1", "1x1x1 RR bf16", "1x1x1x1 LL bf16=1,others=1", "others"})
    CHECK_FALSE(ProductTable::from_text(text));
}

}  // namespace composer::product_table_test
