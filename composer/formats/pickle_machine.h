#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "composer/formats/pickle_reader.h"

namespace composer::formats {

// Executes a pickle's opcodes: a stack of values with marks, and the memo of values that are used again.
class PickleMachine {
 public:
  PickleMachine(std::string_view bytes, const std::string& name, PickleOptions options);
  Pickle run();

 private:
  using Kind = PickleValue::Kind;
  using Items = std::vector<PickleValue>;

  // Each executes the opcode if it is one of its kind. pickle_machine.cpp
  bool scalar(unsigned op);
  bool text(unsigned op);
  bool container(unsigned op);
  bool memo(unsigned op);
  bool object(unsigned op);

  std::uint64_t number(std::size_t bytes);  // little endian
  std::string_view take(std::uint64_t size);
  std::string_view line();
  double real();
  PickleValue long_integer();

  void push(PickleValue value);
  PickleValue pop();
  const PickleValue& top();
  Items pop_mark();
  Items& items_of(const PickleValue& value, Kind kind);
  PickleValue make(Kind kind, Items items);
  PickleValue make_string(std::string_view text, Kind kind = Kind::STRING);
  PickleValue tuple_of(std::size_t size);
  void remember(std::uint32_t at);
  void recall(std::uint32_t at);
  // Limits objects that a short pickle could multiply by reusing a value: no more than it has bytes.
  void spend(std::size_t values);
  [[noreturn]] void fail(const std::string& what) const;    // damaged or forged
  [[noreturn]] void refuse(const std::string& what) const;  // in order, but not supported
  PickleValue pass_over(const std::string& what) const;     // an UNKNOWN; without allow_unknown, an error

  // The functions and classes of the list. pickle_rebuild.cpp
  PickleValue global(std::string_view module, std::string_view name);
  PickleValue reduce(const PickleValue& function, const PickleValue& arguments);
  void build(const PickleValue& object, const PickleValue& state);
  PickleValue ordered_dict(const Items& arguments);
  PickleValue rebuild_from_type(const Items& arguments);
  PickleValue rebuild_tensor(const Items& arguments, bool with_dtype);
  void read_metadata(const PickleValue& metadata, PickleTensor& tensor);
  PickleValue storage(const PickleValue& id);
  void check_bounds(const PickleTensor& tensor) const;
  const Items& tuple(const PickleValue& value, std::size_t least, std::size_t most) const;
  const std::string& string(const PickleValue& value) const;
  std::int64_t natural(const PickleValue& value) const;
  std::vector<std::int64_t> naturals(const PickleValue& value);

  std::string_view bytes_;
  const std::string& name_;
  PickleOptions options_;
  std::size_t at_ = 0, opcode_at_ = 0, spent_ = 0;
  std::vector<PickleValue> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint32_t, PickleValue> memo_;
  std::unordered_map<std::string, std::uint32_t> storages_;  // of result_, by key
  Pickle result_;
  Items nowhere_;  // items of an UNKNOWN
};

}  // namespace composer::formats
