#include "composer/data/table/npy_header.h"

#include <algorithm>
#include <charconv>

#include "composer/core/error.h"
#include "composer/formats/json_reader.h"
#include "composer/util/letters.h"

namespace composer::data::detail {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kLongestHeader = 1 << 16;
constexpr std::size_t kNpyAlignment = 64;
constexpr std::size_t kMostNpyDimensions = 64;

// Reads the text of a Python dict with the three keys of the format, such as
// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class HeaderText {
 public:
  HeaderText(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  NpyHeader read() {
    NpyHeader header;
    bool element = false, order = false, shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !element) {
        read_element(header);
        element = true;
      } else if (key == "fortran_order" && !order) {
        header.fortran_order = read_bool();
        order = true;
      } else if (key == "shape" && !shape) {
        read_shape(header);
        shape = true;
      } else {
        fail(join("a key that the format does not have, or has twice: ", formats::shown(key)));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_spaces();
    if (at_ != text_.size()) fail("more text after the header");
    if (!element || !order || !shape) fail("descr, fortran_order or shape is missing");
    return header;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw DataError(name_, ": its header is damaged: ", what, " at byte ", at_, " of \"", formats::shown(text_), '"');
  }
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool accept(char c) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(join("expected ", c));
  }
  std::string_view quoted() {
    skip_spaces();
    const char quote = at_ < text_.size() ? text_[at_] : ' ';
    if (quote != '\'' && quote != '"') fail("expected a text");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("a text without end");
    const std::string_view text = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return text;
  }
  bool read_bool() {
    skip_spaces();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>("True", true), {"False", false}})
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    fail("expected True or False");
  }
  void read_shape(NpyHeader& header) {
    expect('(');
    while (!accept(')')) {
      skip_spaces();
      std::int64_t length = 0;
      const auto result = std::from_chars(text_.data() + at_, text_.data() + text_.size(), length);
      if (result.ec != std::errc() || length < 0) fail("expected a length");
      at_ = static_cast<std::size_t>(result.ptr - text_.data());
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // as Python 2 has written it
      header.shape.push_back(length);
      if (header.shape.size() > kMostNpyDimensions) fail("more than 64 dimensions");
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
  }
  void read_element(NpyHeader& header) {
    skip_spaces();
    const auto refuse = [&](std::string_view what, std::string_view cure) {
      throw DataError(name_, ": its elements are ", what, ", which a tensor cannot have; ", cure);
    };
    if (at_ < text_.size() && text_[at_] == '[')
      refuse("records (a structured dtype)", "save each field as an array of its own, as with numpy.savez");
    const std::string_view element = quoted();
    std::string_view rest = element;
    char order = '|';
    if (!rest.empty() && (rest[0] == '<' || rest[0] == '>' || rest[0] == '|' || rest[0] == '=')) {
      order = rest[0];
      rest.remove_prefix(1);
    }
    if (rest.empty()) fail(join("no element type: ", formats::shown(element)));
    header.kind = rest[0];
    rest.remove_prefix(1);
    if (header.kind == 'O')
      refuse("Python objects, which are pickled", "convert the array to numbers, as with .astype(float)");
    if (header.kind == 'U' || header.kind == 'S' || header.kind == 'a') refuse("texts", "save numbers, or a CSV file");
    if (header.kind == 'M' || header.kind == 'm') refuse("dates", "convert them to numbers, as with .astype('int64')");
    if (header.kind == 'V') refuse("bytes without a type", "convert the array, as with .astype('float32')");
    const auto result = std::from_chars(rest.data(), rest.data() + rest.size(), header.item_size);
    if (result.ec != std::errc() || result.ptr != rest.data() + rest.size())
      fail(join("an unknown element type: ", formats::shown(element)));
    const std::size_t size = header.item_size;
    const bool integer = size == 1 || size == 2 || size == 4 || size == 8;
    const bool known = (header.kind == 'b' && size == 1) || ((header.kind == 'i' || header.kind == 'u') && integer) ||
                       (header.kind == 'f' && (size == 2 || size == 4 || size == 8)) ||
                       (header.kind == 'c' && (size == 8 || size == 16));
    if (!known) refuse(join("of type ", formats::shown(element)), "convert the array, as with .astype('float64')");
    header.big_endian = order == '>' && size > 1;
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
};

}  // namespace

std::size_t npy_header_size(std::string_view prefix, const std::string& name) {
  constexpr std::size_t kVersion1 = 10, kVersion2 = 12;
  if (!prefix.starts_with(kMagic.substr(0, prefix.size())) || prefix.size() < kMagic.size()) {
    const bool zip = prefix.starts_with("PK");
    throw DataError(name, ": is no file of numpy.save: it does not begin with \\x93NUMPY",
                    zip ? "; it is a zip file, which read_npz reads if numpy.savez has written it" : "");
  }
  if (prefix.size() < kVersion1) throw DataError(name, ": is cut off within its header");
  const auto byte = [&](std::size_t i) { return std::size_t{static_cast<unsigned char>(prefix[i])}; };
  const std::size_t version = byte(6);
  if (version < 1 || version > 3 || byte(7) != 0)
    throw DataError(name, ": has version ", version, '.', byte(7), " of the format; 1.0, 2.0 and 3.0 are known");
  if (version > 1 && prefix.size() < kVersion2) throw DataError(name, ": is cut off within its header");
  const std::size_t length =
      version == 1 ? byte(8) + (byte(9) << 8) : byte(8) + (byte(9) << 8) + (byte(10) << 16) + (byte(11) << 24);
  if (length > kLongestHeader)
    throw DataError(name, ": its header has ", length, " bytes, expected at most ", kLongestHeader);
  return (version == 1 ? kVersion1 : kVersion2) + length;
}

NpyHeader read_npy_header(std::string_view bytes, const std::string& name) {
  const std::size_t prefix = bytes[6] == 1 ? 10 : 12;
  NpyHeader header = HeaderText(bytes.substr(prefix), name).read();
  header.size = bytes.size();
  std::uint64_t size = header.item_size, elements = header.item_size;
  bool empty = false;
  for (const std::int64_t length : header.shape) {
    empty |= length == 0;
    // Lengths of 0 count as 1, so that the strides of an empty tensor do not overflow either.
    if (__builtin_mul_overflow(elements, static_cast<std::uint64_t>(std::max<std::int64_t>(length, 1)), &elements) ||
        elements > INT64_MAX)
      throw DataError(name, ": its header describes an array that is too large for any memory: ",
                      formats::shown(bytes.substr(prefix)));
    size = elements;
  }
  header.bytes = empty ? 0 : size;
  return header;
}

std::string make_npy_header(std::string_view element, const std::vector<std::int64_t>& shape) {
  std::string text = join("{'descr': '", element, "', 'fortran_order': False, 'shape': (");
  for (const std::int64_t length : shape) text += join(length, ", ");
  if (shape.size() > 1) text.resize(text.size() - 2);  // (3, 4), but (3,)
  if (shape.size() == 1) text.resize(text.size() - 1);
  text += "), }";
  constexpr std::size_t kBefore = 10;
  text.append((kNpyAlignment - (kBefore + text.size() + 1) % kNpyAlignment) % kNpyAlignment, ' ');
  text += '\n';
  std::string header(kMagic);
  header += {1, 0, static_cast<char>(text.size() & 0xFF), static_cast<char>(text.size() >> 8)};
  return header + text;
}

}  // namespace composer::data::detail
