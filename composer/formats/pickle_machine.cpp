#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "composer/core/error.h"
#include "composer/formats/pickle_bytes.h"
#include "composer/formats/pickle_reader.h"
#include "composer/formats/pickle_rebuilder.h"
#include "composer/formats/pickle_values.h"
#include "composer/util/text.h"

namespace composer::formats {
namespace {

constexpr std::size_t kMostValues = 1 << 20;  // on the stack at once
constexpr std::size_t kFewMemos = 100;        // so many remembered values, and one for every four bytes

PickleValue boolean(bool truth) {
  PickleValue value{.kind = PickleValue::Kind::BOOL};
  value.integer = truth ? 1 : 0;
  return value;
}

// Executes a pickle's opcodes: a stack of values with marks, and the memo of values that are used again.
class PickleMachine {
 public:
  PickleMachine(std::string_view bytes, const std::string& name, PickleOptions options)
      : bytes_(bytes, name), values_(bytes_), rebuilder_(bytes_, values_, options) {}
  PickleMachine(const PickleMachine&) = delete;  // its parts refer to each other
  PickleMachine& operator=(const PickleMachine&) = delete;
  Pickle run();

 private:
  using Kind = PickleValue::Kind;
  using Items = PickleValues::Items;

  // Each executes the opcode if it is one of its kind.
  bool scalar(unsigned op);
  bool text(unsigned op);
  bool container(unsigned op);
  bool memo(unsigned op);
  bool object(unsigned op);

  void push(PickleValue value);
  PickleValue pop();
  const PickleValue& top();
  Items pop_mark();
  PickleValue tuple_of(std::size_t size);
  void remember(std::uint32_t at);
  void recall(std::uint32_t at);

  PickleBytes bytes_;
  PickleValues values_;
  PickleRebuilder rebuilder_;
  std::vector<PickleValue> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint32_t, PickleValue> memo_;
};

Pickle PickleMachine::run() {
  bytes_.begin();
  for (;;) {
    const unsigned op = bytes_.opcode();
    if (op == '.') break;
    if (scalar(op) || text(op) || container(op) || memo(op) || object(op)) continue;
    bytes_.refuse(join("opcode ", util::printed("0x%02x", op), " is not allowed in a file of weights,"));
  }
  if (stack_.size() != 1 || !marks_.empty()) bytes_.fail("STOP, but not with one value,");
  if (bytes_.left() != 0) bytes_.fail("extra bytes after STOP");
  values_.pickle().root = stack_.front();
  return std::move(values_.pickle());
}

void PickleMachine::push(PickleValue value) {
  if (stack_.size() >= kMostValues) bytes_.fail("too many values");
  stack_.push_back(value);
}

const PickleValue& PickleMachine::top() {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) bytes_.fail("a value is missing");
  return stack_.back();
}

PickleValue PickleMachine::pop() {
  const PickleValue value = top();
  stack_.pop_back();
  return value;
}

PickleMachine::Items PickleMachine::pop_mark() {
  if (marks_.empty()) bytes_.fail("a mark is missing");
  const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  Items items(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return items;
}

PickleValue PickleMachine::tuple_of(std::size_t size) {
  Items items(size);
  for (std::size_t i = size; i-- > 0;) items[i] = pop();
  return values_.make(Kind::TUPLE, std::move(items));
}

bool PickleMachine::scalar(unsigned op) {
  switch (op) {
    case 'N':
      push({});
      return true;
    case 0x88:
    case 0x89:
      push(boolean(op == 0x88));
      return true;
    case 'K':
      push(integer_value(static_cast<std::int64_t>(bytes_.number(1))));
      return true;
    case 'M':
      push(integer_value(static_cast<std::int64_t>(bytes_.number(2))));
      return true;
    case 'J':
      push(integer_value(static_cast<std::int32_t>(bytes_.number(4))));
      return true;
    case 0x8a: {
      const std::optional<std::int64_t> number = bytes_.long_integer();
      push(number ? integer_value(*number) : PickleValue{.kind = Kind::UNKNOWN});  // such as a seed of numpy
      return true;
    }
    case 'G': {
      PickleValue value{.kind = Kind::REAL};
      value.real = bytes_.real();
      push(value);
      return true;
    }
    default:
      return false;
  }
}

bool PickleMachine::text(unsigned op) {
  switch (op) {
    case 0x8c:  // texts and bytes whose length has one byte, four, eight
    case 'U':
    case 'C':
      push(values_.make_string(bytes_.take(bytes_.number(1))));
      return true;
    case 'X':
    case 'T':
    case 'B':
      push(values_.make_string(bytes_.take(bytes_.number(4))));
      return true;
    case 0x8d:
    case 0x8e:
      push(values_.make_string(bytes_.take(bytes_.number(8))));
      return true;
    default:
      return false;
  }
}

bool PickleMachine::container(unsigned op) {
  switch (op) {
    case '(':
      if (marks_.size() >= kMostValues) bytes_.fail("too many marks");
      marks_.push_back(stack_.size());
      return true;
    case ')':
      push(values_.make(Kind::TUPLE, {}));
      return true;
    case 't':
      push(values_.make(Kind::TUPLE, pop_mark()));
      return true;
    case 0x85:
    case 0x86:
    case 0x87:
      push(tuple_of(op - 0x84));
      return true;
    case ']':
    case 0x8f:  // a set
      push(values_.make(Kind::LIST, {}));
      return true;
    case '}':
      push(values_.make(Kind::DICT, {}));
      return true;
    case 'a': {
      const PickleValue item = pop();
      values_.items_of(top(), Kind::LIST).push_back(item);
      return true;
    }
    case 's': {
      const PickleValue value = pop(), key = pop();
      Items& dict = values_.items_of(top(), Kind::DICT);
      dict.push_back(key);
      dict.push_back(value);
      return true;
    }
    case 'e':
    case 0x90:  // to a set
    case 'u': {
      const Items added = pop_mark();
      if (op == 'u' && added.size() % 2 != 0) bytes_.fail("a key without a value");
      Items& items = values_.items_of(top(), op == 'u' ? Kind::DICT : Kind::LIST);
      items.insert(items.end(), added.begin(), added.end());
      return true;
    }
    default:
      return false;
  }
}

void PickleMachine::remember(std::uint32_t at) {
  memo_.insert_or_assign(at, top());
  if (memo_.size() > kFewMemos + bytes_.size() / 4)
    bytes_.fail("more values to remember than a file of weights needs,");
}

void PickleMachine::recall(std::uint32_t at) {
  const auto found = memo_.find(at);
  if (found == memo_.end()) bytes_.fail(join("nothing was remembered as ", at, ","));
  push(found->second);
}

bool PickleMachine::memo(unsigned op) {
  switch (op) {
    case 'q':
      remember(static_cast<std::uint32_t>(bytes_.number(1)));
      return true;
    case 'r':
      remember(static_cast<std::uint32_t>(bytes_.number(4)));
      return true;
    case 0x94:
      remember(static_cast<std::uint32_t>(memo_.size()));
      return true;
    case 'h':
      recall(static_cast<std::uint32_t>(bytes_.number(1)));
      return true;
    case 'j':
      recall(static_cast<std::uint32_t>(bytes_.number(4)));
      return true;
    case 0x95:  // says how many bytes belong together
      if (bytes_.number(8) > bytes_.left()) bytes_.fail("the pickle is cut off");
      return true;
    default:
      return false;
  }
}

bool PickleMachine::object(unsigned op) {
  switch (op) {
    case 'c': {
      const std::string_view module = bytes_.line(), name = bytes_.line();
      push(rebuilder_.global(module, name));
      return true;
    }
    case 0x93: {
      const PickleValue name = pop(), module = pop();
      push(rebuilder_.global(values_.string(module), values_.string(name)));
      return true;
    }
    case 'R':
    case 0x81: {
      const PickleValue arguments = pop(), function = pop();
      push(rebuilder_.reduce(function, arguments));
      return true;
    }
    case 'b': {
      const PickleValue state = pop();
      rebuilder_.build(top(), state);
      return true;
    }
    case 'Q': {
      const PickleValue id = pop();
      push(rebuilder_.storage(id));
      return true;
    }
    default:
      return false;
  }
}

}  // namespace

Pickle read_pickle(std::string_view bytes, const std::string& name, PickleOptions options) {
  return PickleMachine(bytes, name, options).run();
}

}  // namespace composer::formats
