#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "composer/formats/pickle_bytes.h"
#include "composer/formats/pickle_reader.h"
#include "composer/formats/pickle_values.h"

namespace composer::formats {

// What the names on the list of a pickle mean. Nothing is called: each is a few values put together and checked.
class PickleRebuilder {
 public:
  using Kind = PickleValue::Kind;
  using Items = PickleValues::Items;

  PickleRebuilder(const PickleBytes& source, PickleValues& values, PickleOptions options)
      : source_(source), values_(values), options_(options) {}

  PickleValue global(std::string_view module, std::string_view name);
  PickleValue reduce(const PickleValue& function, const PickleValue& arguments);
  void build(const PickleValue& object, const PickleValue& state);
  PickleValue storage(const PickleValue& id);

 private:
  PickleValue pass_over(const std::string& what) const;  // an UNKNOWN; without allow_unknown, an error
  PickleValue ordered_dict(const Items& arguments);
  PickleValue rebuild_from_type(const Items& arguments);
  PickleValue rebuild_tensor(const Items& arguments, bool with_dtype);
  void read_metadata(const PickleValue& metadata, PickleTensor& tensor);
  void check_bounds(const PickleTensor& tensor) const;

  const PickleBytes& source_;
  PickleValues& values_;
  PickleOptions options_;
  std::unordered_map<std::string, std::uint32_t> storages_;  // of the pickle, by key
};

}  // namespace composer::formats
