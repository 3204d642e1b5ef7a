#include "composer/formats/pickle_values.h"

#include <utility>

#include "composer/core/error.h"
#include "composer/formats/safetensors_header.h"

namespace composer::formats {
namespace {

constexpr std::size_t kFewLists = 100;  // so many, and one for every four bytes

}  // namespace

PickleValue value_of(PickleValue::Kind kind, std::size_t index) {
  PickleValue value{.kind = kind};
  value.index = static_cast<std::uint32_t>(index);
  return value;
}

PickleValue integer_value(std::int64_t number) {
  PickleValue value{.kind = PickleValue::Kind::INTEGER};
  value.integer = number;
  return value;
}

void PickleValues::spend(std::size_t values) {
  if (values > source_.size() - spent_) source_.fail("more values than the pickle has bytes");
  spent_ += values;
}

PickleValue PickleValues::make(Kind kind, Items items) {
  if (pickle_.items.size() > kFewLists + source_.size() / 4) source_.fail("more lists than a file of weights needs,");
  pickle_.items.push_back(std::move(items));
  return value_of(kind, pickle_.items.size() - 1);
}

PickleValue PickleValues::make_string(std::string_view text, Kind kind) {
  pickle_.strings.emplace_back(text);
  return value_of(kind, pickle_.strings.size() - 1);
}

PickleValues::Items& PickleValues::items_of(const PickleValue& value, Kind kind) {
  if (value.kind == Kind::UNKNOWN) {
    nowhere_.clear();
    return nowhere_;
  }
  if (value.kind != kind) source_.fail("a list or dict is needed");
  return pickle_.items[value.index];
}

const PickleValues::Items& PickleValues::tuple(const PickleValue& value, std::size_t least, std::size_t most) const {
  if (value.kind != Kind::TUPLE) source_.fail("a tuple is needed");
  const Items& all = items(value);
  if (all.size() < least || all.size() > most) source_.fail(join("a tuple of ", all.size(), " values"));
  return all;
}

const std::string& PickleValues::string(const PickleValue& value) const {
  if (value.kind != Kind::STRING) source_.fail("a text is needed");
  return text(value);
}

std::int64_t PickleValues::natural(const PickleValue& value) const {
  if (value.kind != Kind::INTEGER || value.integer < 0) source_.fail("an integer that is not negative is needed");
  return value.integer;
}

std::vector<std::int64_t> PickleValues::naturals(const PickleValue& value) {
  std::vector<std::int64_t> numbers;
  const Items& all = tuple(value, 0, kMostDimensions);
  spend(all.size());
  for (const PickleValue& item : all) numbers.push_back(natural(item));
  return numbers;
}

}  // namespace composer::formats
