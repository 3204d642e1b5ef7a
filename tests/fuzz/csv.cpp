// A file of separated values: what is read does not depend on where its pieces are cut, columns are as long
// as each other, and texts are UTF-8. The first byte of the input chooses how the file is read.
#include <algorithm>
#include <cstring>
#include <optional>

#include "composer/data/byte_stream.h"
#include "composer/data/table/csv_columns.h"
#include "composer/util/utf8.h"
#include "tests/fuzz/fuzz.h"

using namespace composer;
using data::detail::CsvColumn;
using data::detail::CsvContents;
using data::detail::CsvKind;
using data::detail::CsvRules;

namespace {

class CsvBytes final : public data::detail::ByteStream {
 public:
  explicit CsvBytes(std::string_view bytes) : bytes_(bytes) {}
  std::size_t read(void* to, std::size_t count) override {
    const std::size_t size = std::min(count, bytes_.size());
    if (size > 0) std::memcpy(to, bytes_.data(), size);
    bytes_.remove_prefix(size);
    return size;
  }
  std::uint64_t at_most() const override { return bytes_.size(); }

 private:
  std::string_view bytes_;
};

std::optional<CsvContents> contents_of(std::string_view bytes, const CsvRules& rules) {
  try {
    return read_csv_contents([&] { return std::make_unique<CsvBytes>(bytes); }, rules,
                             [](const std::function<void()>& work) { work(); });
  } catch (const DataError&) {
  } catch (const ConfigError&) {
  }
  return std::nullopt;
}

template <class T>
bool same_values(const data::detail::Growing<T>& a, const data::detail::Growing<T>& b) {
  return a.size() == b.size() && (a.size() == 0 || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const unsigned how = data[0], cut = data[1];
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  CsvRules rules;
  rules.file = "input";
  rules.missing = {"", "NA"};
  rules.header = (how & 1) == 0;
  if (how & 2) rules.dialect.comment = '#';
  if (how & 4) rules.dialect.quote = std::nullopt;
  rules.decimal_comma = (how & 8) != 0;
  if (rules.decimal_comma) rules.dialect.separator = ';';
  if (how & 16) rules.most_rows = 3;
  if (how & 32) rules.skip_lines = 1;
  rules.bytes_at_once = size;
  const std::optional<CsvContents> whole = contents_of(bytes, rules);
  rules.bytes_at_once = 1 + cut;
  const std::optional<CsvContents> pieces = contents_of(bytes, rules);
  // With a limit, what follows it is read only as far as the piece goes.
  if (how & 16) return 0;
  fuzz::require(whole.has_value() == pieces.has_value());
  if (!whole) return 0;
  fuzz::require(whole->names == pieces->names && !whole->columns.empty());
  for (std::size_t c = 0; c < whole->columns.size(); ++c) {
    const CsvColumn &a = whole->columns[c], &b = pieces->columns[c];
    fuzz::require(a.kind == b.kind && a.rows == b.rows && a.rows == whole->columns[0].rows);
    fuzz::require(a.has_missing == b.has_missing);
    fuzz::require(same_values(a.bools, b.bools) && same_values(a.ints, b.ints) && same_values(a.doubles, b.doubles));
    fuzz::require(same_values(a.bytes, b.bytes) && same_values(a.ends, b.ends) && same_values(a.absent, b.absent));
    if (a.kind == CsvKind::TEXT)
      fuzz::require(a.ends.size() == a.rows && util::is_utf8({a.bytes.data(), a.bytes.size()}));
  }
  return 0;
}
