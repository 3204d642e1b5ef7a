#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "composer/formats/pickle_bytes.h"
#include "composer/formats/pickle_reader.h"

namespace composer::formats {

// The values that a pickle makes. tuple(), string(), naturals() and items_of() refuse a value of another kind, and
// spend() more values than so long a pickle of weights needs.
class PickleValues {
 public:
  using Kind = PickleValue::Kind;
  using Items = std::vector<PickleValue>;

  explicit PickleValues(const PickleBytes& source) : source_(source) {}

  Pickle& pickle() { return pickle_; }
  const Pickle& pickle() const { return pickle_; }

  PickleValue make(Kind kind, Items items);
  PickleValue make_string(std::string_view text, Kind kind = Kind::STRING);
  // Limits values that a short pickle could multiply by reusing one: no more than it has bytes.
  void spend(std::size_t values);

  const Items& items(const PickleValue& value) const { return pickle_.items[value.index]; }  // the kind was checked
  const std::string& text(const PickleValue& value) const {
    return pickle_.strings[value.index];
  }                                                      // the kind was checked
  Items& items_of(const PickleValue& value, Kind kind);  // to be added to; of an UNKNOWN: they are forgotten
  const Items& tuple(const PickleValue& value, std::size_t least, std::size_t most) const;
  const std::string& string(const PickleValue& value) const;
  std::int64_t natural(const PickleValue& value) const;
  std::vector<std::int64_t> naturals(const PickleValue& value);

 private:
  const PickleBytes& source_;
  Pickle pickle_;
  std::size_t spent_ = 0;
  Items nowhere_;  // items of an UNKNOWN
};

PickleValue value_of(PickleValue::Kind kind, std::size_t index);
PickleValue integer_value(std::int64_t number);

}  // namespace composer::formats
