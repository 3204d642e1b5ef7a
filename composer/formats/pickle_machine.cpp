#include "composer/formats/pickle_machine.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "composer/core/error.h"
#include "composer/formats/json_reader.h"
#include "composer/formats/unsupported.h"
#include "composer/util/text.h"

namespace composer::formats {
namespace {

constexpr std::size_t kLongest = 64 << 20;    // bytes of a pickle; one of 100,000 tensors has some 20 MB
constexpr std::size_t kMostValues = 1 << 20;  // on the stack at once
constexpr std::size_t kFew = 100;             // lists, remembered values: so many, and one for every four bytes

PickleValue value_of(PickleValue::Kind kind, std::uint32_t index) {
  PickleValue value{.kind = kind};
  value.index = index;
  return value;
}

PickleValue integer(std::int64_t number) {
  PickleValue value{.kind = PickleValue::Kind::INTEGER};
  value.integer = number;
  return value;
}

PickleValue boolean(bool truth) {
  PickleValue value{.kind = PickleValue::Kind::BOOL};
  value.integer = truth ? 1 : 0;
  return value;
}

}  // namespace

PickleMachine::PickleMachine(std::string_view bytes, const std::string& name, PickleOptions options)
    : bytes_(bytes), name_(name), options_(options) {}

void PickleMachine::fail(const std::string& what) const {
  throw CheckpointError(name_, ": ", what, " at byte ", opcode_at_, " of its pickle");
}

void PickleMachine::refuse(const std::string& what) const {
  throw UnsupportedError(name_, ": ", what, " at byte ", opcode_at_, " of its pickle");
}

PickleValue PickleMachine::pass_over(const std::string& what) const {
  if (!options_.allow_unknown) refuse(what + " (allow_unknown skips it),");
  return {.kind = Kind::UNKNOWN};
}

void PickleMachine::spend(std::size_t values) {
  if (values > bytes_.size() - spent_) fail("more values than the pickle has bytes");
  spent_ += values;
}

Pickle PickleMachine::run() {
  if (bytes_.size() > kLongest) fail(join("a pickle of ", bytes_.size(), " bytes is more than ", kLongest));
  if (bytes_.size() < 2 || bytes_[0] != '\x80' || bytes_[1] < 2 || bytes_[1] > 5)
    fail("not a pickle of protocol 2 to 5");
  at_ = 2;
  for (;;) {
    opcode_at_ = at_;
    const auto op = static_cast<unsigned>(number(1));
    if (op == '.') break;
    if (scalar(op) || text(op) || container(op) || memo(op) || object(op)) continue;
    refuse(join("opcode ", util::printed("0x%02x", op), " is not allowed in a file of weights,"));
  }
  if (stack_.size() != 1 || !marks_.empty()) fail("STOP, but not with one value,");
  if (at_ != bytes_.size()) fail("extra bytes after STOP");
  result_.root = stack_.front();
  return std::move(result_);
}

std::string_view PickleMachine::take(std::uint64_t size) {
  if (size > bytes_.size() - at_) fail("the pickle is cut off");
  const std::string_view taken = bytes_.substr(at_, static_cast<std::size_t>(size));
  at_ += taken.size();
  return taken;
}

std::uint64_t PickleMachine::number(std::size_t bytes) {
  std::uint64_t value = 0;
  const std::string_view taken = take(bytes);
  for (std::size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(taken[i]);
  return value;
}

double PickleMachine::real() {
  std::uint64_t bits = 0;
  for (const char c : take(8)) bits = bits << 8 | static_cast<unsigned char>(c);
  return std::bit_cast<double>(bits);
}

std::string_view PickleMachine::line() {
  const std::size_t end = bytes_.find('\n', at_);
  if (end == std::string_view::npos) fail("the pickle is cut off");
  const std::string_view line = take(end - at_);
  ++at_;
  return line;
}

// Two's complement, of any length.
PickleValue PickleMachine::long_integer() {
  const auto size = static_cast<std::size_t>(number(1));
  if (size > 8) {
    take(size);  // such as a seed of numpy: nobody asks for it
    return {.kind = Kind::UNKNOWN};
  }
  std::uint64_t value = number(size);
  if (size > 0 && size < 8 && value >> (8 * size - 1)) value |= ~std::uint64_t{0} << 8 * size;
  return integer(static_cast<std::int64_t>(value));
}

void PickleMachine::push(PickleValue value) {
  if (stack_.size() >= kMostValues) fail("too many values");
  stack_.push_back(value);
}

const PickleValue& PickleMachine::top() {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail("a value is missing");
  return stack_.back();
}

PickleValue PickleMachine::pop() {
  const PickleValue value = top();
  stack_.pop_back();
  return value;
}

PickleMachine::Items PickleMachine::pop_mark() {
  if (marks_.empty()) fail("a mark is missing");
  const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  Items items(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return items;
}

PickleValue PickleMachine::make(Kind kind, Items items) {
  if (result_.items.size() > kFew + bytes_.size() / 4) fail("more lists than a file of weights needs,");
  result_.items.push_back(std::move(items));
  return value_of(kind, static_cast<std::uint32_t>(result_.items.size() - 1));
}

PickleValue PickleMachine::make_string(std::string_view text, Kind kind) {
  result_.strings.emplace_back(text);
  return value_of(kind, static_cast<std::uint32_t>(result_.strings.size() - 1));
}

PickleMachine::Items& PickleMachine::items_of(const PickleValue& value, Kind kind) {
  if (value.kind == Kind::UNKNOWN) {
    nowhere_.clear();
    return nowhere_;
  }
  if (value.kind != kind) fail("a list or dict is needed");
  return result_.items[value.index];
}

PickleValue PickleMachine::tuple_of(std::size_t size) {
  Items items(size);
  for (std::size_t i = size; i-- > 0;) items[i] = pop();
  return make(Kind::TUPLE, std::move(items));
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
      push(integer(static_cast<std::int64_t>(number(1))));
      return true;
    case 'M':
      push(integer(static_cast<std::int64_t>(number(2))));
      return true;
    case 'J':
      push(integer(static_cast<std::int32_t>(number(4))));
      return true;
    case 0x8a:
      push(long_integer());
      return true;
    case 'G': {
      PickleValue value{.kind = Kind::REAL};
      value.real = real();
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
      push(make_string(take(number(1))));
      return true;
    case 'X':
    case 'T':
    case 'B':
      push(make_string(take(number(4))));
      return true;
    case 0x8d:
    case 0x8e:
      push(make_string(take(number(8))));
      return true;
    default:
      return false;
  }
}

bool PickleMachine::container(unsigned op) {
  switch (op) {
    case '(':
      if (marks_.size() >= kMostValues) fail("too many marks");
      marks_.push_back(stack_.size());
      return true;
    case ')':
      push(make(Kind::TUPLE, {}));
      return true;
    case 't':
      push(make(Kind::TUPLE, pop_mark()));
      return true;
    case 0x85:
    case 0x86:
    case 0x87:
      push(tuple_of(op - 0x84));
      return true;
    case ']':
    case 0x8f:  // a set
      push(make(Kind::LIST, {}));
      return true;
    case '}':
      push(make(Kind::DICT, {}));
      return true;
    case 'a': {
      const PickleValue item = pop();
      items_of(top(), Kind::LIST).push_back(item);
      return true;
    }
    case 's': {
      const PickleValue value = pop(), key = pop();
      Items& dict = items_of(top(), Kind::DICT);
      dict.push_back(key);
      dict.push_back(value);
      return true;
    }
    case 'e':
    case 0x90:  // to a set
    case 'u': {
      const Items added = pop_mark();
      if (op == 'u' && added.size() % 2 != 0) fail("a key without a value");
      Items& items = items_of(top(), op == 'u' ? Kind::DICT : Kind::LIST);
      items.insert(items.end(), added.begin(), added.end());
      return true;
    }
    default:
      return false;
  }
}

void PickleMachine::remember(std::uint32_t at) {
  memo_.insert_or_assign(at, top());
  if (memo_.size() > kFew + bytes_.size() / 4) fail("more values to remember than a file of weights needs,");
}

void PickleMachine::recall(std::uint32_t at) {
  const auto found = memo_.find(at);
  if (found == memo_.end()) fail(join("nothing was remembered as ", at, ","));
  push(found->second);
}

bool PickleMachine::memo(unsigned op) {
  switch (op) {
    case 'q':
      remember(static_cast<std::uint32_t>(number(1)));
      return true;
    case 'r':
      remember(static_cast<std::uint32_t>(number(4)));
      return true;
    case 0x94:
      remember(static_cast<std::uint32_t>(memo_.size()));
      return true;
    case 'h':
      recall(static_cast<std::uint32_t>(number(1)));
      return true;
    case 'j':
      recall(static_cast<std::uint32_t>(number(4)));
      return true;
    case 0x95:  // says how many bytes belong together
      if (number(8) > bytes_.size() - at_) fail("the pickle is cut off");
      return true;
    default:
      return false;
  }
}

bool PickleMachine::object(unsigned op) {
  switch (op) {
    case 'c': {
      const std::string_view module = line(), name = line();
      push(global(module, name));
      return true;
    }
    case 0x93: {
      const PickleValue name = pop(), module = pop();
      push(global(string(module), string(name)));
      return true;
    }
    case 'R':
    case 0x81: {
      const PickleValue arguments = pop(), function = pop();
      push(reduce(function, arguments));
      return true;
    }
    case 'b': {
      const PickleValue state = pop();
      build(top(), state);
      return true;
    }
    case 'Q': {
      const PickleValue id = pop();
      push(storage(id));
      return true;
    }
    default:
      return false;
  }
}

Pickle read_pickle(std::string_view bytes, const std::string& name, PickleOptions options) {
  return PickleMachine(bytes, name, options).run();
}

}  // namespace composer::formats
